"""What commands print on a terminal, rendered in this process: pretty results, bounded tables, places of problems."""

from __future__ import annotations

import json
import logging
import re
import sys
from collections.abc import Callable, Iterator
from io import StringIO
from pathlib import Path

import pytest
from tests.cli.conftest import Run
from tests.host.conftest import Package

from toolplug.cli.logs import AuditLines, log_service
from toolplug.cli.main import main

pytestmark = pytest.mark.requirement("I33-8-terminal")

Write = Callable[..., Path]
Terminal = Callable[..., str]
MANY = """
    from toolplug import FunctionProvider, ToolDefinition, tool

    class Archive(FunctionProvider):
        def tools(self):
            return [ToolDefinition(name=f"archive_{n}", description="Look up.") for n in range(100)]

        async def execute(self, call, context):
            return "x"

    class Few(FunctionProvider):
        @tool
        def describe(self) -> dict[str, object]:
            "Describe."
            return {"name": "tea", "price": 3.5, "tags": ["[red]", "hot"]}
"""
ESCAPES = re.compile(r"\x1b\[[0-9;]*m")


class _Screen(StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Terminal]:
    """`terminal("call", "describe")`: what the command writes on a terminal of 120 columns."""
    monkeypatch.chdir(tmp_path)
    for name in ("TOOLPLUG_CONFIG", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "120")
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level

    def shown(*arguments: str) -> str:
        screen = _Screen()
        with monkeypatch.context() as patch:
            patch.setattr(sys, "stdout", screen)
            patch.setattr(sys, "stderr", screen)
            main(arguments)
        return screen.getvalue()

    yield shown
    root.handlers[:] = handlers
    root.setLevel(level)


@pytest.fixture
def shops(package: Package, write: Write) -> None:
    package("toolplug-shops", {"archive": "shops_mod:Archive", "few": "shops_mod:Few"}, shops_mod=MANY)
    write("providers: {few: {enabled: true}, archive: {enabled: true}}")


@pytest.mark.usefixtures("shops")
def test_a_result_is_pretty_on_a_terminal_and_as_it_came_when_piped(
    terminal: Terminal, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    piped = run("call", "describe").out
    assert piped == '{"name":"tea","price":3.5,"tags":["[red]","hot"]}\n'
    shown = terminal("call", "describe")
    assert "\x1b[" in shown
    assert ESCAPES.sub("", shown) == json.dumps(json.loads(piped), indent=2) + "\n"
    monkeypatch.setenv("NO_COLOR", "1")
    plain = terminal("call", "describe")
    assert plain.startswith('{\n  "name": ') or "\x1b[3" not in plain


def test_audit_lines_for_people_have_no_colours_in_a_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    line = {"event": "tool.call", "outcome": "denied", "principal": "ada", "tenant": "default", "target": "wipe"}
    fields = {"name": "toolplug.audit", "levelno": logging.INFO, "levelname": "INFO", "msg": json.dumps(line)}
    text = AuditLines().format(logging.makeLogRecord(fields))
    assert text.endswith("INFO toolplug.audit: tool.call 'wipe' denied, by 'ada' of 'default'")


@pytest.mark.usefixtures("shops")
def test_tables_name_hundreds_of_tools_only_when_asked(terminal: Terminal, run: Run) -> None:
    for command in ("providers", "doctor"):
        assert re.search(r"archive .*100 tools", run(command).out)
        assert "describe" in run(command).out
        assert "archive_99" in run(command, "-v").out
    shown = ESCAPES.sub("", terminal("tools"))
    assert len(re.findall(r"\barchive_\d+ ", shown)) == 10
    assert "and 90 more of archive; toolplug tools -v lists all" in shown
    assert len(re.findall(r"\barchive_\d+ ", terminal("tools", "-v"))) == 100
    assert run("tools").out.count("\narchive_") == 100, "what is piped has all"


@pytest.mark.usefixtures("shops")
def test_a_table_of_a_terminal_has_the_heads_of_a_piped_one_and_loses_no_text(
    terminal: Terminal, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    lines = ESCAPES.sub("", terminal("providers")).splitlines()
    assert lines[0].split() == run("providers").out.splitlines()[0].split()
    assert "…" not in "".join(lines)
    shown = [line.split() for line in lines]
    assert ["archive", "archive", "active"] in [words[:3] for words in shown], "a state is not cut at its middle"
    monkeypatch.setenv("COLUMNS", "40")
    narrow = ESCAPES.sub("", terminal("providers")).splitlines()
    assert narrow[narrow.index("archive") :][:3] == ["archive", "  type: archive", "  state: active"], (
        "words stay whole"
    )
    assert "…" not in "".join(narrow)


@pytest.mark.usefixtures("shops")
@pytest.mark.parametrize("command", ["providers", "doctor"])
def test_packages_that_no_entry_names_are_one_line_of_a_terminal(terminal: Terminal, run: Run, command: str) -> None:
    shown = ESCAPES.sub("", terminal(command))
    assert "installed-not-enabled" not in shown
    assert re.search(r"\ninstalled, without an entry: .*\bhello\b.*\(-v shows each\)\n  an entry enables one: ", shown)
    assert "\n  console: `toolplug serve` has it without an entry" in shown
    for whole in terminal(command, "-v"), run(command).out:
        assert re.search(r"\nhello .*installed-not-enabled", ESCAPES.sub("", whole))


@pytest.mark.usefixtures("shops")
def test_a_call_that_a_setting_has_ended_or_cut_says_what_shows_the_setting(run: Run, write: Write) -> None:
    write("providers: {few: {enabled: true, limits: {max_result_bytes: 9}}}")
    cut = run("call", "describe")
    assert (cut.code, cut.err) == (
        0,
        "the result is longer than max_result_bytes (toolplug explain describe shows its line)\n",
    )
    file = write("providers: {few: {enabled: true, tools: {describe: deny}}}")
    denied = run("call", "describe", "-c", str(file))
    assert denied.err == f"denied (toolplug explain describe -c {file} shows the setting, and its line)\n"
    assert "providers.yaml:1" in run("explain", "describe", "-c", str(file)).out


def test_a_problem_shows_its_line_and_a_caret_on_a_terminal(terminal: Terminal, run: Run, tmp_path: Path) -> None:
    file = tmp_path / "providers.yaml"
    file.write_text("providers: {}\nauth:\n  api_keys:\n    - {key: [s3cret], subject: a}\nlimits: {timeout: soon}\n")
    shown = terminal("check")
    assert "\x1b[31m^" in shown
    lines = ESCAPES.sub("", shown).splitlines()
    at = next(n for n, line in enumerate(lines) if line.startswith("providers.yaml:5:"))
    assert lines[at + 1 : at + 3] == ["    5 | limits: {timeout: soon}", f"{' ' * 8}{' ' * 18}^"]
    assert "s3cret" not in "".join(line for line in lines if "|" in line)
    assert "^" not in run("check").out


def test_the_format_of_the_log_can_be_chosen(capsys: pytest.CaptureFixture[str]) -> None:
    root, audit = logging.getLogger(), logging.getLogger("toolplug.audit")
    before = (list(root.handlers), root.level, list(audit.handlers), audit.propagate)
    refusal = json.dumps(
        {"event": "tool.call", "outcome": "denied", "target": "order", "principal": "ann", "tenant": "shop"}
    )
    try:
        for people in (True, False):
            log_service(None, people=people, traces=False)
            logging.getLogger("toolplug.cli.serve").info("ready")
            audit.info(refusal)
        written = capsys.readouterr().err.splitlines()
    finally:
        root.handlers[:], audit.handlers[:], audit.propagate = before[0], before[2], before[3]
        root.setLevel(before[1])
    assert written[0].endswith("INFO toolplug.cli.serve: ready")
    assert ESCAPES.sub("", written[1]).endswith("tool.call 'order' denied, by 'ann' of 'shop'")
    assert json.loads(written[2])["message"] == "ready"
    assert written[3] == refusal


@pytest.mark.requirement("I33-8-file")
def test_a_tool_of_a_file_is_called_without_a_configuration(run: Run, tmp_path: Path) -> None:
    code = "from toolplug import tool\n\n@tool\ndef double(x: int) -> int:\n    'Double.'\n    return 2 * x\n"
    (tmp_path / "notes.py").write_text(code, "utf-8")
    assert run("call", "notes.py", "double", "x=3").out == "6\n"
    assert run("call", "-c", "notes.py", "double", "x=4").out == "8\n"
    nothing = run("call", "notes.py")
    assert (nothing.code, "name a tool of notes.py: toolplug call notes.py TOOL" in " ".join(nothing.err.split())) == (
        2,
        True,
    )


@pytest.mark.requirement("I33-8-file")
def test_a_file_that_a_command_does_not_take_is_said_to_be_named_by_an_option(run: Run, tmp_path: Path) -> None:
    (tmp_path / "notes.py").write_text("", "utf-8")
    for line in (("check", "notes.py"), ("explain", "notes.py", "double"), ("tools", "--json", "notes.py")):
        refused = run(*line)
        assert (refused.code, "a configuration is named by -c notes.py; see" in refused.err + refused.out) == (2, True)
    assert "named by -c" not in run("check", "-c", "notes.py", "twice").err


@pytest.mark.requirement("I33-8-file")
def test_a_file_that_is_served_alone_decides_as_a_whole_and_by_none_of_its_lines(run: Run, tmp_path: Path) -> None:
    code = (
        "import os\nfrom toolplug import tool\n\n@tool\ndef double(x: int) -> int:\n    'Double.'\n    return 2 * x\n"
    )
    (tmp_path / "notes.py").write_text(code, "utf-8")
    gates = run("explain", "-c", "notes.py", "double", "--json").json["gates"]
    assert {gate["gate"]: gate["origin"] for gate in gates}["switch"] == "notes.py"


def test_a_valid_file_counts_only_what_there_is_and_says_so_in_green(terminal: Terminal, write: Write) -> None:
    write("providers: {hello: {enabled: true}}")
    assert terminal("check") == "providers.yaml is \x1b[32mvalid\x1b[0m: 1 provider enabled\n"


def test_the_console_that_has_no_entry_is_said_to_be_served_all_the_same(run: Run, write: Write) -> None:
    write("providers: {hello: {enabled: true}}")
    listed = run("providers").out
    assert "\nconsole: " in listed
    assert "`toolplug serve` has it without an entry" in listed
    write("providers: {console: {enabled: true}}")
    assert "without an entry" not in run("providers").out
