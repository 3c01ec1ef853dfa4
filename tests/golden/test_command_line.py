"""What the commands print, and how they end."""

from __future__ import annotations

import logging
import re
import sys
from collections.abc import Callable, Iterator
from importlib.metadata import entry_points
from pathlib import Path

import pytest
from tests.golden.conftest import DESK, KEYS, Golden
from tests.golden.transcript import Transcript, shown

pytestmark = pytest.mark.process

COMMANDS = (
    "init",
    "serve",
    "providers",
    "doctor",
    "check",
    "tools",
    "call",
    "explain",
    "diff",
    "schema",
    "new-provider",
    "discover",
    "connect",
    "sessions",
    "sessions list",
    "sessions show",
    "sessions tail",
    "sessions call",
    "toolsets",
    "toolsets list",
    "toolsets show",
    "toolsets build",
    "toolsets equip",
    "toolsets unequip",
    "toolsets delete",
    "toolsets export",
    "toolsets import",
    "notes",
    "notes list",
    "notes add",
    "notes remove",
    "agents",
    "agents list",
    "agents show",
    "agents allow",
    "agents revoke",
    "approvals",
    "approvals list",
    "approvals approve",
    "approvals deny",
    "keys",
    "keys new",
)
GOOD = (
    KEYS
    + DESK
    + """\
  hello: {enabled: false}
toolsets: {office: {prefix: office, from: provider:desk}}
agents: {researcher: {toolsets: [office]}, writer: {toolsets: []}}
"""
)
RULES = "  desk: {enabled: true, tools: {fails: deny, move: ask, away: disable, waits: {limits: {timeout: 50ms}}}}"
WRONG = """\
providers:
  desk:
    enabled: true
    color: red
    limits: {timeout: soon}
  nosuch: {enabled: false}
auth: {}
limts: {}
agents: {researcher: {toolsets: [none]}}
"""
Run = Callable[..., None]


_FRAMES = re.compile(r"(Traceback \(most recent call last\):\n)(?:  .*\n)+")
"""The frames of a traceback, whose lines change with the code."""


class Terminal:
    """A transcript of commands, all run in this process and in one folder."""

    def __init__(self, folder: Path, capture: pytest.CaptureFixture[str], patch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self.transcript = Transcript()
        self.transcript.hide(str(folder), "<folder>")
        self.transcript.hide(sys.executable, "<python>")
        self.transcript.hide(str(Path(__file__).parent), "<golden>")
        self._capture = capture
        self._patch = patch

    def run(self, *words: str) -> None:
        """Run one command; its exit code and both of its streams are recorded."""
        self._patch.setattr(sys, "argv", ["toolplug", *words])
        self._capture.readouterr()
        (command,) = entry_points(group="console_scripts", name="toolplug")
        try:
            code = command.load()()
        except SystemExit as ended:
            code = ended.code
        out, err = self._capture.readouterr()
        err = _FRAMES.sub(r"\1  <frames>\n", err)
        said = f"$ toolplug {' '.join(words)}\nexit {code}\n"
        said += f"--- stdout\n{shown(out)}" if out else ""
        said += f"--- stderr\n{shown(err)}" if err else ""
        self.transcript.add(said)

    def write(self, text: str, name: str = "providers.yaml") -> None:
        (self.folder / name).write_text(text, "utf-8")


@pytest.fixture
def terminal(
    site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[Terminal]:
    """A terminal of 100 columns without colours, in an empty folder."""
    folder = tmp_path / "project"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.setenv("HOME", str(folder))
    for name, value in (
        ("COLUMNS", "100"),
        ("LINES", "50"),
        ("NO_COLOR", "1"),
        ("TERM", "dumb"),
        ("PYTHONPATH", str(site)),
    ):
        monkeypatch.setenv(name, value)
    for name in ("TOOLPLUG_CONFIG", "FORCE_COLOR", "GITHUB_ACTIONS", "PY_COLORS", "XDG_CONFIG_HOME"):
        monkeypatch.delenv(name, raising=False)
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield Terminal(folder, capsys, monkeypatch)
    root.handlers[:] = handlers
    root.setLevel(level)


def test_the_help_of_every_command(terminal: Terminal, golden: Golden) -> None:
    terminal.run("--help")
    for command in COMMANDS:
        terminal.run(*command.split(), "--help")
    terminal.run("--version")
    terminal.run("nosuch")
    terminal.run("call")
    terminal.run("check", "--nosuch")
    golden("command_help", terminal.transcript.text())


def test_commands_over_a_good_configuration(terminal: Terminal, golden: Golden) -> None:
    terminal.write(GOOD)
    for command in (
        "check",
        "providers",
        "doctor",
        "tools",
        "explain echo",
        "explain office.echo --agent researcher",
        "explain nope",
        "diff other.yaml",
        "agents list",
        "agents show researcher",
        "toolsets list",
        "notes list",
        "approvals list",
        "sessions list",
    ):
        terminal.write(GOOD.replace("hello: {enabled: false}", "hello: {enabled: true}"), "other.yaml")
        terminal.run(*command.split())
        terminal.run(*command.split(), "--json")
    for form in ("chat", "responses", "anthropic", "mcp"):
        terminal.run("tools", "--format", form)
    golden("commands", terminal.transcript.text())


def test_calls_from_the_command_line(terminal: Terminal, golden: Golden) -> None:
    terminal.write(GOOD.replace("  desk: {enabled: true, public_routes: true}", RULES))
    for words in (
        ("echo", "text=otters"),
        ("echo", '{"text": "otters"}'),
        ("echo",),
        ("echo", "text"),
        ("echo", "text=1", "more=2"),
        ("move", '{"to": {"x": 1}}'),
        ("values",),
        ("own_result",),
        ("own_error",),
        ("fails",),
        ("away",),
        ("panics",),
        ("waits",),
        ("nope",),
        ("counts", "upto=2"),
    ):
        terminal.run("call", *words)
        terminal.run("call", *words, "--json")
    golden("command_calls", terminal.transcript.text())


def test_commands_over_a_wrong_configuration(terminal: Terminal, golden: Golden) -> None:
    terminal.run("check")
    terminal.run("check", "--json")
    terminal.run("providers")
    terminal.write(WRONG)
    for command in ("check", "providers", "doctor", "tools", "call echo", "explain echo"):
        terminal.run(*command.split())
        terminal.run(*command.split(), "--json")
    terminal.write("providers: [")
    terminal.run("check")
    golden("command_problems", terminal.transcript.text())


def test_what_commands_write(terminal: Terminal, golden: Golden) -> None:
    terminal.run("init")
    terminal.run("init")
    terminal.run("check")
    terminal.run("new-provider", "weather")
    files = sorted(path for path in terminal.folder.rglob("*") if path.is_file())
    for path in files:
        terminal.transcript.add(f"=== {path}\n{shown(path.read_text('utf-8'))}")
    golden("command_files", terminal.transcript.text())


def test_the_schema_of_the_configuration(terminal: Terminal, golden: Golden) -> None:
    terminal.write(GOOD)
    terminal.run("schema", "-o", "-")
    terminal.run("schema")
    golden("command_schema", terminal.transcript.text())
