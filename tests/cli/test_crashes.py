"""What the command line shows and keeps of a crash, and what it logs at all."""

from __future__ import annotations

import json
import logging
import os
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.cli.conftest import Run
from tests.host.conftest import Package

from toolplug.cli.crashes import KEPT, CrashFiles
from toolplug.crashes import Crash, mask_nothing

CODE = """
import json
import time
from pydantic import BaseModel, SecretStr
from toolplug import FunctionProvider, tool

class Parser(FunctionProvider):
    class Config(BaseModel):
        api_key: SecretStr

    @tool
    async def parse(self, text: str) -> str:
        return self.load(text + self.config.api_key.get_secret_value())

    def load(self, text):
        raise ValueError(f"not for me: {text}") from self.cause(text)

    def cause(self, text):
        try:
            return json.loads(text)
        except ValueError as error:
            return error

    @tool
    async def block(self) -> str:
        time.sleep(0.6)
        return "done"
"""
CONFIG = "providers:\n  parser: {enabled: true, api_key: s3cret-key}"


@pytest.fixture
def parser(package: Package, write: Callable[..., Path]) -> Path:
    """A provider whose tool crashes with its secret in the text."""
    package("toolplug-parser", {"parser": "parser_mod:Parser"}, parser_mod=CODE)
    return write(CONFIG)


def line_of(text: str, code: str = CODE) -> int:
    """The line of the code that has this text."""
    return next(number for number, line in enumerate(code.splitlines(), 1) if text in line)


@pytest.mark.requirement("C-3-crash-line")
def test_call_prints_the_line_and_the_trace_of_a_crash_without_secrets(run: Run, parser: Path) -> None:
    done = run("call", "parse", "text=hello")

    assert (done.code, done.out) == (1, 'internal error: builtin tool "parse" panicked\n')
    raised, caused = line_of("raise ValueError"), line_of("return json.loads")
    assert "tool 'parse' of provider 'parser' (toolplug-parser 1.0) raised ValueError at " in done.err
    assert f"parser_mod.py:{raised} in Parser.load; caused by JSONDecodeError at " in done.err
    assert f"parser_mod.py:{caused} in Parser.cause (call cli)\n" in done.err
    assert "ValueError: not for me: hello***" in done.err
    assert "s3cret" not in done.err


def test_the_owner_in_a_file_is_named_by_its_path_alone(run: Run, tmp_path: Path) -> None:
    code = "from toolplug import tool\n\n@tool\nasync def fall() -> str:\n    return 1 // 0\n"
    (tmp_path / "shop.py").write_text(code)

    assert "tool 'fall' of provider 'shop' (./shop.py) raised" in run("call", "-c", "shop.py", "fall").err


@pytest.mark.parametrize("definition", ["async def", "def"])
def test_a_trace_begins_at_the_authors_line(
    run: Run, package: Package, write: Callable[..., Path], definition: str
) -> None:
    code = f"from toolplug import tool\n\n@tool\n{definition} fall() -> str:\n    return 1 // 0\n"
    package("toolplug-falling", {"falling": "falling_mod"}, falling_mod=code)
    write("providers:\n  falling: {enabled: true}")

    trace = run("call", "fall").err.partition("Traceback (most recent call last):\n")[2]

    assert trace.splitlines()[0].endswith('falling_mod.py", line 5, in fall')


def test_why_prints_the_crash_of_the_tool_rather_than_that_of_a_later_hook(
    run: Run, package: Package, write: Callable[..., Path]
) -> None:
    code = """
from toolplug import hookimpl, tool

@tool
async def fall() -> str:
    raise ValueError("of the tool")

@hookimpl
def after_call(result):
    raise ValueError("of the hook")
"""
    package("toolplug-falling", {"falling": "falling_mod"}, falling_mod=code)
    write("providers:\n  falling: {enabled: true}")
    run("call", "fall")

    assert run("why", "cli").out.endswith("ValueError: of the tool\n")


@pytest.mark.requirement("C-10-why", "C-3-crash-kept")
def test_why_prints_a_crash_again_by_its_id(run: Run, parser: Path, tmp_path: Path) -> None:
    run("call", "parse", "text=first")
    run("call", "parse", "text=second")

    done = run("why", "cli")

    assert done.code == 0
    assert "raised ValueError at " in done.out.splitlines()[0]
    assert done.out.endswith("ValueError: not for me: second***\n")
    shown = json.loads(run("why", "cli", "--json").out)
    assert set(shown) == {"ts", "call_id", "request_id", "line", "trace"}
    files = list((tmp_path / ".toolplug" / "crashes").iterdir())
    assert [stat.S_IMODE(file.stat().st_mode) for file in files] == [0o600, 0o600]
    assert not any("s3cret" in file.read_text() for file in files)


def test_why_of_an_unknown_id_says_what_is_kept(run: Run, parser: Path) -> None:
    done = run("why", "req_1", "--json")

    (problem,) = json.loads(done.out)["problems"]
    assert (done.code, problem["code"]) == (1, "crash_not_found")
    assert "'req_1'" in problem["message"]
    assert "--debug" in problem["hint"]


@pytest.mark.requirement("C-3-crash-kept")
def test_only_the_last_crashes_are_kept(tmp_path: Path) -> None:
    keeper = CrashFiles(tmp_path)
    for count in range(KEPT + 2):
        record = logging.LogRecord("toolplug.crashes", logging.ERROR, "", 1, "", None, None)
        record.crash = Crash("line", ValueError(), mask_nothing, f"c{count}", "")
        keeper.handle(record)

    kept = [json.loads(file.read_text())["call_id"] for file in sorted(tmp_path.iterdir())]
    assert kept == [f"c{count}" for count in range(2, KEPT + 2)]


@pytest.mark.requirement("C-3-crash-kept")
def test_other_commands_keep_crashes_only_with_debug(run: Run, package: Package, write: Callable[..., Path]) -> None:
    code = """
        from toolplug import FunctionProvider
        class P(FunctionProvider):
            async def start(self, site):
                {}['k']
    """
    package("toolplug-late", {"late": "late_mod:P"}, late_mod=code)
    file = write("providers:\n  late: {enabled: true}")

    quiet = run("tools")
    kept_before = (file.parent / ".toolplug" / "crashes").exists()
    loud = run("tools", "--debug")

    assert (quiet.code, loud.code, kept_before) == (1, 1, False)
    assert "start() of provider 'late' (toolplug-late 1.0) raised KeyError at " in quiet.err
    assert "late_mod.py:5 in P.start" in quiet.err
    assert "Traceback" not in quiet.err
    assert "KeyError: 'k'" in loud.err.split("Traceback")[1]
    assert len(list((file.parent / ".toolplug" / "crashes").iterdir())) == 1


@pytest.mark.slow
def test_call_names_the_line_that_blocks_the_loop(run: Run, parser: Path) -> None:
    done = run("call", "block")

    assert done.out == "done\n"
    assert "provider 'parser' holds up the event loop, " in done.err
    assert f"parser_mod.py:{line_of('time.sleep')} in Parser.block" in done.err


@pytest.mark.parametrize(
    ("options", "levels"),
    [
        ((), {"WARNING"}),
        (("-v",), {"INFO", "WARNING"}),
        (("-vv",), {"DEBUG", "INFO", "WARNING"}),
        (("--verbose", "--verbose"), {"DEBUG", "INFO", "WARNING"}),
        (("--log-level", "error"), set[str]()),
        (("--log-level", "info"), {"INFO", "WARNING"}),
        (("--debug",), {"DEBUG", "INFO", "WARNING"}),
    ],
)
def test_the_log_has_what_the_command_line_asks_for(
    run: Run, package: Package, write: Callable[..., Path], options: tuple[str, ...], levels: set[str]
) -> None:
    code = """
        from toolplug import FunctionProvider, tool
        class Talker(FunctionProvider):
            @tool
            async def talk(self) -> str:
                self.log.debug("talker: debug")
                self.log.info("talker: info")
                self.log.warning("talker: warning")
                return "done"
    """
    package("toolplug-talker", {"talker": "talker_mod:Talker"}, talker_mod=code)
    write("providers:\n  talker: {enabled: true}")

    done = run("call", "talk", *options)

    assert {line.split()[1] for line in done.err.splitlines() if "talker: " in line} == levels
    assert not logging.getLogger("aiosqlite").isEnabledFor(logging.DEBUG)  # it shows the values that it writes


@pytest.mark.parametrize("words", [("-h",), ("call", "-h"), ("sessions", "-h"), ("sessions", "list", "-h")])
def test_h_is_help(run: Run, words: tuple[str, ...]) -> None:
    assert (run(*words).code, run(*words).out) == (0, run(*words[:-1], "--help").out)


@pytest.mark.requirement("C-10-log-options")
@pytest.mark.process
def test_the_package_runs_as_a_module() -> None:
    command = [sys.executable, "-m", "toolplug", "--version"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env={**os.environ, "NO_COLOR": "1"})

    assert done.stdout.startswith("toolplug ")
