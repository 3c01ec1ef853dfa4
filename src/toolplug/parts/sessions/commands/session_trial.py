"""`toolplug sessions try`: lends the functions of a Python file to a session. Needs the extra `client`."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from traceback import extract_tb
from types import FunctionType
from typing import Any

import orjson

from toolplug.catalog.text import clean_text, in_one_line, pluralize
from toolplug.cli.output import echo, paint
from toolplug.errors import ConfigError, Problem
from toolplug.packages.loading import file_module, provider_file
from toolplug.providers.authoring import ToolMark
from toolplug.providers.plugins.implementations import marks_of

_TRIAL = "toolplug.client.trial"
"""Nothing of a host imports `toolplug.client`, which is the other side; this command is one of its users."""
_LOOK_EVERY_S = 0.3
"""Seconds between looks at the file: short beside the time that a person takes to look from one window to another."""
_NO_TYPE = re.compile(r"[^A-Za-z0-9._-]+")
_COLOURS = {"+": "green", "-": "red", "~": "yellow"}


async def try_file(file: Path, url: str, key: str | None, *, as_json: bool) -> None:
    """Lend the functions of the file until cancelled, and print what readers of the session get.

    Raises `ConfigError` for a file that cannot be lent at first, and `HostError`.
    """
    trial = import_module(_TRIAL)
    output = _TrialOutput(file, url, as_json=as_json)
    wanted = trial.Trial(
        read=lambda: [trial.LentFunction(*each) for each in read_functions(file)],
        saved=_watch(file),
        begun=output.begin,
        seen=output.show_change,
        problem=output.show_problem,
    )
    kind = _NO_TYPE.sub("-", file.stem).strip("-._")[:64] or "trial"
    await trial.try_functions(wanted, url, api_key=key, plugin_type=kind)


def read_functions(file: Path) -> Sequence[tuple[Any, ...]]:
    """Return the functions of a file: those with `@tool`, each with its options; without any, every public one.

    Raises `ConfigError`, with the line at fault.
    """
    try:
        module = file_module(provider_file(str(file.absolute()), file.parent), fresh=True)
    except Exception as error:
        raise ConfigError([_failure(file, error)]) from error
    own = [
        value
        for name, value in vars(module).items()
        if isinstance(value, FunctionType) and value.__module__ == module.__name__ and not name.startswith("_")
    ]
    marked = [(function, mark) for function in own for mark in marks_of(function) if isinstance(mark, ToolMark)]
    if not own:
        message = "has no function to lend; define one with a docstring"
        raise ConfigError([Problem(code="no_functions", message=message, file=str(file))])
    if not marked:
        return [(function,) for function in own]
    options = [(function, mark.options) for function, mark in marked]
    return [
        (
            function,
            given.name,
            given.description,
            given.hints.read_only,
            given.hints.idempotent,
            given.hints.destructive,
        )
        for function, given in options
    ]


def _failure(file: Path, error: Exception) -> Problem:
    if isinstance(error, SyntaxError):
        return Problem(code="invalid_code", message=f"SyntaxError: {error.msg}", file=str(file), line=error.lineno or 0)
    lines = [frame.lineno for frame in extract_tb(error.__traceback__) if frame.filename.endswith(file.name)]
    text = f"{type(error).__name__}: {error}" if lines else str(error)
    return Problem(code="invalid_code", message=text, file=str(file), line=(lines[-1] if lines else 0) or 0)


async def _watch(file: Path) -> AsyncGenerator[None]:
    """Yield after each change of the file; one that an editor is replacing is looked at again."""
    seen = _stamp(file)
    while True:
        await asyncio.sleep(_LOOK_EVERY_S)
        now = _stamp(file)
        if now is not None and now != seen:
            seen = now
            yield


def _stamp(file: Path) -> tuple[int, int] | None:
    with suppress(OSError):
        stat = file.stat()
        return stat.st_mtime_ns, stat.st_size
    return None


class _TrialOutput:
    """Prints a try: as lines, or each event as one JSON object a line."""

    def __init__(self, file: Path, url: str, *, as_json: bool) -> None:
        self._file = file
        self._url = url.rstrip("/")
        self._as_json = as_json

    def begin(self, code: str) -> None:
        place = f"{self._url}/api/sessions/{code}"
        if self._as_json:
            self._print({"event": "begun", "data": {"code": code, "mcpUrl": f"{place}/mcp"}})
            return
        echo(f"session {paint(code, 'green')} lends {self._file}, and ends with Ctrl-C")
        echo(f"  MCP clients  {place}/mcp")
        echo(f"  a prompt     toolplug sessions prompt {code} --url {self._url}")
        echo(f"  a call       toolplug sessions call {code} TOOL --url {self._url}")

    def show_change(self, change: Any) -> None:
        """Print an event of `toolplug.client`, as a reader of the session gets it."""
        kind = type(change).__name__
        if self._as_json:
            data = change.model_dump(mode="json", by_alias=True, exclude_unset=True)
            self._print({"event": kind, "data": data})
        elif kind == "Snapshot":
            names = [tool.name for tool in change.tools]
            echo(f"revision {change.revision}: {pluralize(len(names), 'tool')}: {', '.join(names) or '-'}")
        elif kind == "StatusChanged":
            echo(f"{change.timestamp} the application is {change.status}")
        else:
            parts = change.updates
            names = [
                *(("+", tool.name) for tool in parts.added),
                *(("-", name) for name in parts.removed),
                *(("~", tool.name) for tool in parts.modified),
            ]
            shown = " ".join(paint(f"{sign}{name}", _COLOURS[sign]) for sign, name in names)
            reason = f" ({in_one_line(clean_text(change.reason))})" if change.reason else ""
            echo(f"{change.timestamp} revision {change.revision}: {shown or 'no tools'}{reason}")

    def show_problem(self, text: str) -> None:
        if self._as_json:
            self._print({"event": "problem", "data": {"message": text}})
        else:
            echo(f"{paint('not lent', 'red')}: {text}; the tools before stay", err=True)

    def _print(self, event: object) -> None:
        echo(orjson.dumps(event).decode())
