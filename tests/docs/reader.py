"""Somebody who does what a page says, from its first block to its last, in a folder and an environment of their own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import venv
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from signal import SIGTERM
from typing import Self

from tests.docs.fences import Command, Fence, commands, fences, matches
from tests.requirement_table import ROOT

SHOWN_PORTS = {"toolplug serve": "8080", "uvicorn": "8080", "litellm": "4000"}
"""The ports of every page, by the program that listens at one; each stands for a free one."""

COMMANDS: Mapping[str, str] = {
    "toolplug": "toolplug.cli.main",
    "pip": "pip",
    "pytest": "pytest",
    "uvicorn": "uvicorn",
}
"""What the environment has on its path, and the module that it is."""

EXAMPLES = ROOT / "examples"
INSTALLED = tuple(path for path in sys.path if path.endswith("site-packages"))

_EXPORT = re.compile(r"export (\w+)=.+")
_SERVER = re.compile(rf"(?:\w+=\S+ )*({'|'.join(SHOWN_PORTS)}) ")
_PORT = re.compile(r" --port (\d+)")
_LISTENING = re.compile(r"(?:toolplug listening|Uvicorn running) on http://[^:]+:(\d+)")
WITHIN_S = 150


class Untrue(AssertionError):
    """A page says what is not so."""


class Reader(AbstractContextManager["Reader"]):
    """One reader of one page. Leaving it stops the servers that it left running.

    `environ` is added to the reader's own; the examples of the project lie in the reader's folder. The reader has what
    is installed in the folders `packages`, by default what is installed here, and the `programs` of these folders.
    """

    def __init__(
        self, folder: Path, environ: Mapping[str, str], packages: Sequence[str] = (), programs: Sequence[Path] = ()
    ) -> None:
        self._folder = folder / "work"
        self._folder.mkdir()
        (self._folder / "examples").symlink_to(EXAMPLES)
        self._environ = {**_environment(folder / "venv", self._folder, packages or INSTALLED), **environ}
        self._environ["PATH"] = ":".join([self._environ["PATH"], *map(str, programs)])
        self._servers: dict[str, subprocess.Popen[str]] = {}
        self._ports: dict[str, str] = {}

    def __exit__(self, *_: object) -> None:
        for port in reversed(list(self._servers)):  # the one that asks the others first: a server waits for its clients
            self._stop(port)

    def read(self, page: str) -> Self:
        """Do everything. Raises `Untrue` at the first block that does not what the page says."""
        for block in fences(page):
            self._do(block)
        return self

    def _do(self, block: Fence) -> None:
        if block.title:
            file = self._folder / block.title
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(self._with_real_ports(block.text))
        if block.language == "console":
            for command in commands(block):
                self._run(block, command)
        elif block.language == "python":
            self._python(block)
        elif block.language == "yaml":
            self._yaml(block)
        elif not block.title:
            raise Untrue(f"line {block.line}: nobody can run a block of {block.language or 'no language'!r}")

    def _python(self, block: Fence) -> None:
        if Path(block.title).name.startswith("test_"):
            return
        ended = self._shell(["python", block.title] if block.title else ["python", "-c", block.text])
        if ended.returncode:
            raise Untrue(f"line {block.line}: the Python block fails:\n{ended.stdout}")

    def _yaml(self, block: Fence) -> None:
        file = self._folder / (block.title or "block.yaml")
        file.write_text(self._with_real_ports(block.text))
        ended = self._shell(["toolplug", "check", "-c", str(file)])
        if ended.returncode:
            raise Untrue(f"line {block.line}: the configuration is wrong:\n{ended.stdout}")

    def _run(self, block: Fence, command: Command) -> None:
        place = f"line {block.line}: $ {command.text}\n"
        if exported := _EXPORT.fullmatch(command.text):
            self._environ[exported[1]] = self._exported(place, command.text, exported[1])
            return
        if server := _SERVER.match(f"{command.text} "):
            printed, code = self._serve(command.text, server[1]), 0
        else:
            ended = self._shell(["bash", "-c", command.text])
            printed, code = ended.stdout, ended.returncode
        if command.shown is None and code:
            raise Untrue(f"{place}exits {code}:\n{printed}")
        for shown, real in self._ports.items():
            printed = printed.replace(real, shown)
        if command.shown is not None and not matches(command.shown, printed):
            raise Untrue(f"{place}prints\n{printed}\nand not\n{command.shown}")

    def _exported(self, place: str, command: str, name: str) -> str:
        """What the variable is after the command, which must be something."""
        ended = self._shell(["bash", "-c", f"{command}; printenv {name}"])
        if not (value := ended.stdout.strip()):
            raise Untrue(f"{place}exports nothing")
        return value

    def _shell(self, words: list[str]) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            list(map(self._with_real_ports, words)),
            cwd=self._folder,
            env=self._environ,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=WITHIN_S,
            check=False,
        )

    def _with_real_ports(self, text: str) -> str:
        """Return what the page says with the ports at which the servers listen that it has started."""
        for shown, real in self._ports.items():
            text = text.replace(shown, real)
        return text

    def _serve(self, command: str, program: str) -> str:
        """Start the server in place of the one at its port; what it prints until it listens."""
        named = _PORT.search(command)
        shown = named[1] if named else SHOWN_PORTS[program]
        self._stop(shown)
        # With exec in front a signal reaches the server itself, and no shell around it.
        started = re.sub(r"^((?:\w+=\S+ )*)", r"\1exec ", _PORT.sub("", command)) + " --port 0"
        server = self._servers[shown] = subprocess.Popen(
            ["bash", "-c", started],
            cwd=self._folder,
            env=self._environ,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        printed = ""
        for line in server.stderr or ():
            printed += line
            if listening := _LISTENING.search(line):
                self._ports[shown] = listening[1]
                return printed
        raise Untrue(f"$ {command}\ndoes not listen:\n{printed}")

    def _stop(self, port: str) -> None:
        server = self._servers.pop(port, None)
        if server is None:
            return
        server.send_signal(SIGTERM)
        _, rest = server.communicate(timeout=WITHIN_S)
        if server.returncode not in (0, -SIGTERM):
            raise Untrue(f"the server exits {server.returncode}:\n{rest}")


def _environment(place: Path, home: Path, seen: Sequence[str]) -> dict[str, str]:
    """A virtual environment that sees the packages in these folders, and whose own ones come first."""
    venv.create(place, with_pip=False, symlinks=True)
    python = place / "bin" / "python"
    packages = next(place.glob("lib/*/site-packages"))
    lines = [f"import site; site.addsitedir({path!r})\n" for path in seen]
    (packages / "surroundings.pth").write_text("".join(lines))
    for name, module in COMMANDS.items():
        script = place / "bin" / name
        script.write_text(f'#!/bin/sh\nexec {python} -m {module} "$@"\n')
        script.chmod(0o755)
    return {
        "PATH": f"{place / 'bin'}:{os.defpath}:/usr/bin:/bin",
        "HOME": str(home),
        "LANG": "C.UTF-8",
        "NO_COLOR": "1",
        "COLUMNS": "120",
        "PYTHONUNBUFFERED": "1",
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        # Packages are built with what is installed here, so that no network is needed.
        "PIP_NO_BUILD_ISOLATION": "0",
    }
