"""Commands at a real terminal: groups of the help, progress, colours, `-q`, and completion by the shell."""

from __future__ import annotations

import os
import pty
import re
import struct
import subprocess
import termios
from collections.abc import Callable
from fcntl import ioctl
from pathlib import Path

import pytest
from tests.cli.process import PATIENCE_S, TOOLPLUG

pytestmark = pytest.mark.judge

HELLO = "providers: {hello: {enabled: true}}\n"
ESCAPES = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]")


def at_terminal(folder: Path, *arguments: str, columns: int = 80, **environment: str) -> str:
    """What one command writes to its terminal, which is so wide, as it is."""
    master, slave = pty.openpty()
    ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
    unwanted = {"NO_COLOR", "COLUMNS", "TOOLPLUG_CONFIG"}
    given = {name: value for name, value in os.environ.items() if name not in unwanted}
    whole = {**given, "TERM": "xterm", "XDG_CACHE_HOME": str(folder / "cache"), **environment}
    with subprocess.Popen(
        [TOOLPLUG, *arguments], cwd=folder, env=whole, stdin=slave, stdout=slave, stderr=slave
    ) as process:
        os.close(slave)
        shown = b""
        while True:
            try:
                read = os.read(master, 65536)
            except OSError:  # the terminal is closed: the command has ended
                break
            if not read:
                break
            shown += read
        process.wait(PATIENCE_S)
    os.close(master)
    return shown.decode().replace("\r\n", "\n")


def completed(folder: Path, *words: str) -> list[str]:
    """What bash would offer for the last of the words."""
    environment = {
        **os.environ,
        "XDG_CACHE_HOME": str(folder / "cache"),
        "_TOOLPLUG_COMPLETE": "complete_bash",
        "COMP_WORDS": " ".join(words),
        "COMP_CWORD": str(len(words) - 1),
    }
    done = subprocess.run(
        [TOOLPLUG], cwd=folder, env=environment, capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )
    return done.stdout.split()


@pytest.mark.requirement("C-10-at-terminal")
@pytest.mark.parametrize("columns", [60, 120])
def test_the_help_is_grouped_and_as_wide_as_the_terminal(tmp_path: Path, columns: int) -> None:
    shown = ESCAPES.sub("", at_terminal(tmp_path, "--help", columns=columns))
    assert re.findall(r"╭─ (\w+)", shown) == ["Options", "Write", "Run", "Look", "Decide"]
    assert max(map(len, shown.splitlines())) == columns


@pytest.mark.requirement("C-10-at-terminal")
def test_listing_servers_shows_progress_at_a_terminal_unless_quiet(tmp_path: Path, write: Callable[..., Path]) -> None:
    write("mcp_servers: {gone: {command: /bin/false}}")
    assert "listing the tools of MCP servers" in at_terminal(tmp_path, "discover")
    assert "listing the tools of MCP servers" not in at_terminal(tmp_path, "discover", "-q")
    piped = subprocess.run([TOOLPLUG, "discover"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (piped.returncode, "\x1b" in piped.stdout + piped.stderr) == (1, False)


@pytest.mark.requirement("C-10-at-terminal")
def test_the_schema_shows_progress_at_a_terminal(tmp_path: Path, write: Callable[..., Path]) -> None:
    write(HELLO)
    assert "asking the packages for their settings" in at_terminal(tmp_path, "schema")


@pytest.mark.requirement("C-10-at-terminal")
@pytest.mark.parametrize("command", [("check", "--start"), ("doctor",)])
def test_starting_the_providers_shows_progress_at_a_terminal_unless_quiet(
    tmp_path: Path, write: Callable[..., Path], command: tuple[str, ...]
) -> None:
    write(HELLO)
    shown = at_terminal(tmp_path, *command)
    assert "starting the providers" in shown
    assert "starting the providers" not in at_terminal(tmp_path, *command, "-q")
    piped = subprocess.run([TOOLPLUG, *command], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (piped.returncode, "\x1b" in piped.stdout + piped.stderr) == (0, False)


@pytest.mark.requirement("C-10-at-terminal")
def test_a_status_has_a_colour_unless_no_color_is_set(tmp_path: Path, write: Callable[..., Path]) -> None:
    write(HELLO)
    assert "\x1b[33munknown_tool" in at_terminal(tmp_path, "call", "nothing")
    for unwanted in {"NO_COLOR": "1"}, {"TERM": "dumb"}:
        plain = at_terminal(tmp_path, "call", "nothing", **unwanted)
        assert "unknown_tool" in plain
        assert "\x1b[3" not in plain


@pytest.mark.requirement("C-10-completion")
def test_a_shell_completes_tools_and_their_arguments_from_what_was_listed(
    tmp_path: Path, write: Callable[..., Path]
) -> None:
    write(HELLO)
    assert completed(tmp_path, "toolplug", "call", "he") == []
    at_terminal(tmp_path, "tools")
    (tmp_path / "providers.yaml").write_text("providers: {hello: {enabled: true, type: gone}}\n")  # nothing is read
    assert completed(tmp_path, "toolplug", "call", "he") == ["hello"]
    assert completed(tmp_path, "toolplug", "explain", "he") == ["hello"]
    assert completed(tmp_path, "toolplug", "call", "hello", "") == ["name="]
    assert completed(tmp_path, "toolplug", "call", "--tenant", "other", "he") == []
