"""Writes another program's file of MCP servers: in one step, for its owner only, next to a copy of the old one."""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from dataclasses import replace
from itertools import count
from pathlib import Path
from tempfile import mkstemp
from typing import Literal, NamedTuple

from toolplug.errors import ConfigError, Problem
from toolplug.foreign.client_files import ClientProgram
from toolplug.parts.mcp.client_files.reading import parse_client_file, read_bytes
from toolplug.parts.mcp.client_files.server_insertion import Server, find_server, with_server

_BY_HAND = "--print prints the entry to add by hand"

Done = Literal["added", "replaced", "unchanged"]


class WrittenFile(NamedTuple):
    """What was done to the file, with the file itself behind links, and the copy of the old one, if there was one."""

    done: Done
    file: Path
    copy: Path | None = None


def write_server(file: Path, program: ClientProgram, name: str, entry: Server, *, over: bool) -> WrittenFile:
    """Add the server to the program's file, which need not exist. `over`: also in the place of another one.

    Raises `ConfigError`, and then the file is as it was: for one that cannot be read or written, that has another
    server of this name, or that changed meanwhile.
    """
    target = Path(os.path.realpath(file))
    try:
        old = _read(target, file)
        done = _plan(old, target, program, name, entry, over=over)
        if done == "unchanged":
            return WrittenFile(done, target)
        new = with_server(old or b"", target, program, name, entry)
        target.parent.mkdir(parents=True, exist_ok=True)
        copy = None if old is None else _write_copy(target, old)
        _replace(target, old, new)
    except ConfigError as error:
        problems = [replace(each, hint=each.hint or f"correct it; {_BY_HAND}") for each in error.problems]
        raise ConfigError(problems) from None
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise ConfigError([_problem("cannot_write", f"cannot be written: {reason}", file, _BY_HAND)]) from None
    return WrittenFile(done, target, copy)


def _read(target: Path, named: Path) -> bytes | None:
    """Return the bytes of the file, or None without one. Raises `OSError`, and `ConfigError` for what is no file."""
    try:
        mode = target.stat().st_mode
    except FileNotFoundError:
        return None
    if not stat.S_ISREG(mode):
        raise ConfigError([_problem("no_file", "is no file", named, "--file names another one")])
    return read_bytes(target)


def _plan(old: bytes | None, file: Path, program: ClientProgram, name: str, entry: Server, *, over: bool) -> Done:
    """Return what is to be done. Raises `ConfigError` for another server of this name, unless it goes `over` it."""
    present = find_server(parse_client_file(old, file), program, name) if old and old.strip() else None
    if present == entry:
        return "unchanged"
    if present is not None and not over:
        message = f"{program.section}.{name} is there already, and is another server"
        hint = "--replace overwrites it, --name NAME adds a second one"
        raise ConfigError([_problem("exists", message, file, hint)])
    return "added" if present is None else "replaced"


def _write_copy(target: Path, old: bytes) -> Path:
    """Write the old file next to it, under a name that is free. Raises `OSError`."""
    for number in count():
        copy = target.with_name(f"{target.name}.bak{number or ''}")
        with suppress(FileExistsError):
            handle = os.open(copy, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            _write_whole(handle, old)
            return copy
    raise AssertionError  # numbers have no end


def _replace(target: Path, old: bytes | None, new: bytes) -> None:
    """Put the new file in the place of the old one, in one step. Raises `OSError`, and `ConfigError` if it changed."""
    handle, name = mkstemp(prefix=f".{target.name}.", dir=target.parent)  # for its owner only
    try:
        _write_whole(handle, new)
        if _read(target, target) != old:
            raise ConfigError([_problem("changed", "has changed meanwhile", target, "run the command again")])
        os.replace(name, target)
    except BaseException:
        with suppress(OSError):
            os.unlink(name)
        raise


def _problem(code: str, message: str, file: Path, hint: str) -> Problem:
    return Problem(code=code, message=message, file=str(file), hint=hint)


def _write_whole(handle: int, data: bytes) -> None:
    """Write the data to the disk, and close the file."""
    with os.fdopen(handle, "wb") as stream:
        stream.write(data)
        stream.flush()
        os.fsync(stream.fileno())
