"""A scripted model in a thread, a configuration that names it, and `toolplug chat` at a terminal."""

from __future__ import annotations

import os
import pty
import re
import select
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.cli.process import PATIENCE_S, TOOLPLUG
from tests.http.served import serving_apart
from tests.responses.backend.scripted import ScriptedBackend

TOOLS = """
from pathlib import Path
from toolplug import ToolError, tool

@tool
def add(a: int, b: int) -> int:
    "Add two numbers."
    return a + b

@tool
def mail(to: str) -> str:
    "Send a mail."
    if to == "nobody":
        raise ToolError("no such\\x1b[2Jaddress")
    Path("sent").touch()
    return "sent"
"""


STUBBORN = """
import asyncio
from pathlib import Path
from toolplug import tool

@tool
async def stubborn() -> str:
    "Ignore that it is cancelled."
    Path("begun").touch()
    while True:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            Path("ignored").touch()
"""


@contextmanager
def scripted_model(folder: Path, more: str = "") -> Iterator[ScriptedBackend]:
    """Write providers.yaml with two tools, of which `mail` needs approval, and with the model, which is served."""
    (folder / "desk.py").write_text(TOOLS)
    model = ScriptedBackend()
    with serving_apart(model) as port:
        (folder / "providers.yaml").write_text(
            "store: memory://\n"
            "providers: {desk: {type: ./desk.py, enabled: true, tools: {mail: ask}}}\n"
            f"responses: {{backend: {{base_url: 'http://127.0.0.1:{port}/v1', model: m1, retries: 0}}}}\n{more}"
        )
        yield model


class Terminal:
    """A `toolplug chat` at a terminal; `shown` is what it has written so far."""

    def __init__(self, master: int, process: subprocess.Popen[bytes]) -> None:
        self._master = master
        self.process = process
        self.shown = ""

    def wait_for(self, text: str) -> str:
        """Read until the pattern is there, and return what came up to its end."""
        if (seen := self._within(PATIENCE_S, text)) is None:
            raise AssertionError(self.shown[-3000:])
        return seen

    def interrupt(self, then: str) -> None:
        """Press Ctrl-C until the pattern is written.

        CPython acts on a signal that arrives just before it waits for a key only after the next one.
        """
        for _ in range(3):
            self.type("\x03")
            if self._within(PATIENCE_S / 3, then) is not None:
                return
        raise AssertionError(self.shown[-3000:])

    def type(self, text: str) -> None:
        """Type the text."""
        os.write(self._master, text.encode())

    def _within(self, seconds: float, text: str) -> str | None:
        until = time.monotonic() + seconds  # a status line moves all the time
        while (found := re.search(text, self.shown)) is None:
            ready, _, _ = select.select([self._master], [], [], max(until - time.monotonic(), 0))
            if not ready or time.monotonic() > until:
                return None
            self.shown += os.read(self._master, 4096).decode(errors="replace")
        seen, self.shown = self.shown[: found.end()], self.shown[found.end() :]
        return seen

    def end(self) -> int:
        """Wait for the end, and return the exit code."""
        return self.process.wait(PATIENCE_S)


@contextmanager
def terminal(folder: Path, *options: str, columns: int = 200) -> Iterator[Terminal]:
    """Start the command on a terminal of its own, which makes Ctrl-C a signal."""
    pid, master = pty.openpty()
    environment = {**os.environ, "TERM": "xterm", "NO_COLOR": "1", "COLUMNS": str(columns)}
    command = ["setsid", "--ctty", "--wait", TOOLPLUG, "chat", *options]
    with subprocess.Popen(command, cwd=folder, env=environment, stdin=master, stdout=master, stderr=master) as process:
        os.close(master)
        try:
            yield Terminal(pid, process)
        finally:
            process.kill()
            os.close(pid)
