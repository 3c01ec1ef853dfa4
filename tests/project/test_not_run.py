"""A test whose tool is missing is listed as *not run*, and fails the run only where everything must run."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.not_run import INSTALL
from tests.requirement_table import ROOT

pytest_plugins = ["pytester"]
pytestmark = pytest.mark.process

SUITE = """
import pytest

def test_here():
    pass

@pytest.mark.needs("promtool")
def test_there():
    pass
"""


@pytest.fixture
def suite(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """A project of two tests, on a machine with an empty path."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    monkeypatch.setenv("PYTEST_PLUGINS", "xdist.plugin")
    monkeypatch.setenv("PATH", str(pytester.mkdir("bin")))
    monkeypatch.delenv("TOOLPLUG_CI", raising=False)
    pytester.makeini("[pytest]\nmarkers = needs(tool)")
    pytester.makepyfile(SUITE)
    return pytester


def run(suite: pytest.Pytester, *arguments: str) -> pytest.RunResult:
    return suite.runpytest_subprocess("-p", "tests.not_run", *arguments)


@pytest.mark.requirement("I2-1-not-run")
def test_a_missing_tool_takes_its_test_out_and_lists_the_line_that_installs_it(suite: pytest.Pytester) -> None:
    result = run(suite)
    assert result.ret == pytest.ExitCode.OK
    result.assert_outcomes(passed=1, deselected=1)
    result.stdout.fnmatch_lines(["*not run: 1*", f"NOT RUN *test_there: promtool is missing: {INSTALL['promtool']}"])


@pytest.mark.requirement("I2-1-not-run")
def test_an_installed_tool_lets_its_test_run(suite: pytest.Pytester) -> None:
    tool = Path(suite.path, "bin", "promtool")
    tool.write_text("#!/bin/sh\n")
    tool.chmod(0o755)
    result = run(suite)
    result.assert_outcomes(passed=2)
    result.stdout.no_fnmatch_line("*not run*")


@pytest.mark.requirement("I2-1-not-run")
def test_a_test_that_was_not_asked_for_is_not_listed(suite: pytest.Pytester) -> None:
    result = run(suite, "-k", "test_here")
    assert result.ret == pytest.ExitCode.OK
    result.stdout.no_fnmatch_line("*not run*")


@pytest.mark.requirement("I2-1-ci-fails-not-run")
@pytest.mark.parametrize(
    "arguments", [(), ("-k", "test_there"), ("-n", "2")], ids=["with others", "alone", "with workers"]
)
def test_where_everything_must_run_a_listed_test_fails_the_run(
    suite: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...]
) -> None:
    monkeypatch.setenv("TOOLPLUG_CI", "1")
    result = run(suite, *arguments)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(["*not run: 1*"])


def test_a_tool_that_no_line_installs_stops_the_collection(suite: pytest.Pytester) -> None:
    suite.makepyfile(test_strange="import pytest\n@pytest.mark.needs('abacus')\ndef test_it(): pass")
    result = run(suite)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*test_it needs 'abacus', which tests/not_run.py cannot install*"])
