"""The real command in processes of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import Condition, Thread
from types import MappingProxyType

import httpx2
from tests.cli.done import Done

TOOLPLUG = Path(sys.executable).with_name("toolplug")
PATIENCE_S = 90.0


def toolplug(
    *arguments: str,
    folder: Path,
    site: Path | None = None,
    environ: Mapping[str, str] = MappingProxyType({}),
    stdin: str | None = None,
    patience_s: float = PATIENCE_S,
) -> Done:
    """Run one command to its end; `site` is a folder with further packages, `stdin` what it reads."""
    done = subprocess.run(
        [TOOLPLUG, *arguments],
        cwd=folder,
        env={**_environment(site), **environ},
        input=stdin,
        capture_output=True,
        text=True,
        timeout=patience_s,
        check=False,
    )
    return Done(done.returncode, done.stdout, done.stderr)


class Serving:
    """A running `toolplug serve`; its stderr is read line by line."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.lines: list[str] = []
        self._news = Condition()
        self._ended = False
        self._reader = Thread(target=self._read)
        self._reader.start()

    def wait_for(self, text: str, *, times: int = 1, patience_s: float = PATIENCE_S) -> str:
        """The line in which the text stands for the n-th time, once it is there."""
        with self._news:
            found = self._news.wait_for(lambda: self._ended or self._count(text) >= times, patience_s)
            assert found, self.lines
            assert self._count(text) >= times, self.lines
            return [line for line in self.lines if text in line][times - 1]

    @property
    def url(self) -> str:
        """Where it listens."""
        return self.wait_for("toolplug listening on ").split()[-1]

    def call(self, name: str, /, **arguments: object) -> httpx2.Response:
        """One tool call over HTTP."""
        return httpx2.post(f"{self.url}/v1/tool-calls", json={"name": name, "arguments": arguments}, timeout=PATIENCE_S)

    def send(self, number: signal.Signals) -> None:
        """Send a signal."""
        self.process.send_signal(number)

    def end(self) -> int:
        """Wait for the end; the exit code."""
        code = self.process.wait(PATIENCE_S)
        self._reader.join()
        return code

    def _count(self, text: str) -> int:
        return sum(text in line for line in self.lines)

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            with self._news:
                self.lines.append(line.rstrip("\n"))
                self._news.notify_all()
        with self._news:
            self._ended = True
            self._news.notify_all()


@contextmanager
def serving(
    *arguments: str,
    folder: Path,
    site: Path | None = None,
    environ: Mapping[str, str] = MappingProxyType({}),
    command: str = "serve",
    printed: Path = Path(os.devnull),
    program: Sequence[str | Path] = (TOOLPLUG,),
) -> Iterator[Serving]:
    """`toolplug serve` on a free port, killed at the end of the block if it has not ended by then.

    What it prints besides its log goes to `printed`; `program` is the words that start a forked `toolplug`.
    """
    with printed.open("w") as stdout:
        process = subprocess.Popen(
            [*program, command, "--port", "0", *arguments],
            cwd=folder,
            env={**_environment(site), **environ},
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=subprocess.PIPE,
            text=True,
        )
    service = Serving(process)
    try:
        yield service
    finally:
        process.kill()
        service.end()
        assert process.stderr is not None
        process.stderr.close()


def _environment(site: Path | None) -> dict[str, str]:
    environment = {name: value for name, value in os.environ.items() if name != "TOOLPLUG_CONFIG"}
    return {**environment, "PYTHONPATH": str(site)} if site is not None else environment
