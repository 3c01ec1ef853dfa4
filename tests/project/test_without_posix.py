"""Everything that only POSIX systems have is hidden: modules are imported, commands work, and tests pass."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from subprocess import PIPE, Popen
from urllib.request import urlopen

import pytest
from tests.requirement_table import ROOT

pytestmark = pytest.mark.requirement("I32-without-posix")

HIDDEN = {**os.environ, "PYTHONPATH": str(ROOT / "tests" / "without_posix")}
TOOLPLUG = [sys.executable, "-m", "toolplug"]
IMPORTING = """
import importlib, os, pkgutil, signal, socket, sys
import toolplug
assert not hasattr(os, "fork") and not hasattr(signal, "SIGHUP") and not hasattr(socket, "AF_UNIX")
for module in pkgutil.walk_packages(toolplug.__path__, "toolplug."):
    if not module.name.startswith("toolplug.integrations."):  # frameworks, which take ten seconds
        importlib.import_module(module.name)
try:
    __import__("fcntl", {"__name__": "toolplug.somewhere"})
except ImportError:
    print("hidden")
"""


def run(command: Sequence[str], folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, cwd=folder, env=HIDDEN, capture_output=True, text=True, check=False)


@pytest.mark.process
def test_every_module_can_be_imported(tmp_path: Path) -> None:
    done = run([sys.executable, "-c", IMPORTING], tmp_path)
    assert (done.returncode, done.stdout) == (0, "hidden\n"), done.stderr


CONFIGURED = "providers: {hello: {enabled: true}}\nstore: sqlite:///./state.db\n"
OPENING = """
import asyncio
from toolplug import Principal, ToolCall, open_host

async def main():
    async with open_host("providers.yaml") as host:
        tools = host.executor_for(Principal(scopes=frozenset(["tools:call"])))
        print((await tools.execute(ToolCall("1", "hello", {"name": "Ada"}))).output)

asyncio.run(main())
"""


@pytest.mark.process
def test_a_host_and_the_commands_work_and_the_log_says_that_nothing_is_locked(tmp_path: Path) -> None:
    (tmp_path / "providers.yaml").write_text(CONFIGURED)
    opened = run([sys.executable, "-c", OPENING], tmp_path)
    assert (opened.returncode, opened.stdout) == (0, "Hello, Ada!\n"), opened.stderr
    assert "this system has no locks of files" in opened.stderr
    for words in (["check"], ["tools"], ["doctor"], ["call", "hello", "name=Ada"]):
        done = run([*TOOLPLUG, *words], tmp_path)
        assert done.returncode == 0, done.stderr
    refused = run([*TOOLPLUG, "serve", "--workers", "2"], tmp_path)
    assert (refused.returncode, "this system runs one process" in refused.stderr) == (2, True)


@pytest.mark.process
def test_serve_answers_and_ends_at_a_signal(tmp_path: Path) -> None:
    (tmp_path / "providers.yaml").write_text(CONFIGURED)
    with Popen([*TOOLPLUG, "serve", "--port", "0"], cwd=tmp_path, env=HIDDEN, stderr=PIPE, text=True) as server:
        assert server.stderr is not None
        lines = iter(server.stderr.readline, "")
        url = next(line.partition("listening on ")[2].strip() for line in lines if "listening on http" in line)
        with urlopen(f"{url}/v1/tools") as answer:
            assert b'"hello"' in answer.read()
        server.terminate()
        server.stderr.read()
    assert server.returncode == 0


@pytest.mark.process
def test_a_shared_file_is_refused_in_words(tmp_path: Path) -> None:
    (tmp_path / "providers.yaml").write_text(CONFIGURED.replace("state.db", "state.db?shared=true"))
    done = run([*TOOLPLUG, "tools"], tmp_path)
    assert done.returncode == 1
    assert "this system cannot share a SQLite file; use toolplug-redis or toolplug-postgres" in done.stderr


SAMPLE = (
    *("tests/runtime", "tests/config", "tests/stores", "tests/signatures"),
    *("tests/host/test_configuration.py", "tests/host/test_host.py", "tests/host/test_settings_schemas.py"),
)
"""Of the unit tests, less than a minute's."""
MOST_NAMED = 40


@pytest.mark.judge
def test_unit_tests_pass_but_those_that_are_named() -> None:
    text = (ROOT / "tests/project/posix_tests.txt").read_text()
    named = [line for line in text.splitlines() if not line.startswith("#")]
    assert len(named) <= MOST_NAMED
    skipped = [f"--deselect={name}" for name in named]
    command = [sys.executable, "-m", "pytest", "-q", "-n0", "-m", "unit", "-p", "no:cacheprovider", *skipped, *SAMPLE]
    done = run(command, ROOT)
    assert done.returncode == 0, done.stdout[-8_000:]
    for name in named:
        file, _, test = name.partition("::")
        assert f"def {test}(" in (ROOT / file).read_text(), f"{name} is named in vain"
