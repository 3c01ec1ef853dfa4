"""Tests whose server or tool this machine lacks: taken out before the run and listed after it, as *not run*.

A test says `@pytest.mark.needs("promtool")`. `TOOLPLUG_CI=1` makes a run that lists anything fail: there the tool must
have been installed.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from typing import Any

import pytest

INSTALL: Mapping[str, str] = {
    "bwrap": "apt-get install bubblewrap",
    "chromium": "apt-get install chromium",
    "curl": "apt-get install curl",
    "faketime": "apt-get install faketime",
    "haproxy": "apt-get install haproxy",
    "jq": "apt-get install jq",
    "nginx": "apt-get install nginx",
    "pg_createcluster": "apt-get install postgresql",
    "prometheus": "apt-get install prometheus",
    "promtool": "apt-get install prometheus",
    "redis-server": "apt-get install redis-server",
    "searx-run": "apt-get install searx",
}
"""Executable that a test needs → the line that installs it."""

_NOT_RUN = pytest.StashKey[list[tuple[str, str]]]()
_OF_A_WORKER = "toolplug_not_run"


def missing() -> dict[str, str]:
    """The part of `INSTALL` whose executables are not on the path."""
    return {tool: line for tool, line in INSTALL.items() if shutil.which(tool) is None}


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselects what cannot run; last, so that only tests which would have run are listed."""
    lacking = missing()
    left_out: list[tuple[str, str]] = []
    runnable: list[pytest.Item] = []
    for item in items:
        needed = [tool for marker in item.iter_markers("needs") for tool in marker.args]
        unknown = [tool for tool in needed if tool not in INSTALL]
        if unknown:
            raise pytest.UsageError(f"{item.nodeid} needs {unknown[0]!r}, which tests/not_run.py cannot install")
        absent = next((tool for tool in needed if tool in lacking), None)
        if absent is None:
            runnable.append(item)
        else:
            left_out.append((item.nodeid, absent))
    if left_out:
        kept = set(runnable)
        config.hook.pytest_deselected(items=[item for item in items if item not in kept])
        items[:] = runnable
    config.stash[_NOT_RUN] = left_out


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    left_out = config.stash.get(_NOT_RUN, [])
    if not left_out:
        return
    terminalreporter.section(f"not run: {len(left_out)}")
    for nodeid, tool in left_out:
        terminalreporter.line(f"NOT RUN {nodeid}: {tool} is missing: {INSTALL[tool]}")


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Takes the list over from a worker of pytest-xdist; each of them has collected everything and has the same one."""
    left_out = [(nodeid, tool) for nodeid, tool in getattr(node, "workeroutput", {}).get(_OF_A_WORKER, [])]
    node.config.stash[_NOT_RUN] = left_out or node.config.stash.get(_NOT_RUN, [])


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fails a run in which everything must be there (`TOOLPLUG_CI=1`); a worker hands its list on."""
    if (output := getattr(session.config, "workeroutput", None)) is not None:
        output[_OF_A_WORKER] = session.config.stash.get(_NOT_RUN, [])
        return
    everything_must_run = os.environ.get("TOOLPLUG_CI") == "1"
    green = (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED)
    if everything_must_run and session.config.stash.get(_NOT_RUN, []) and session.exitstatus in green:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
