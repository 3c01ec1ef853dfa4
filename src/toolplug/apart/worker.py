"""The process of a provider: it imports and describes it, starts it on its own event loop, and runs its calls.

`main` is given one end of a socket, and memory of both processes. The first message says what to import; the answer
describes it. A second one starts the provider. The process ends with its provider, and when the host is gone.
"""

from __future__ import annotations

import asyncio
import json
import logging
import mmap
import os
import select
import socket
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any, NoReturn

from toolplug.apart.frames import ANSWER, BEGUN, NOTE, PROTOCOL, Frame, FrameReader, Peer, encode_frame
from toolplug.apart.limits import ADOPT_S, FRAME_SLACK, GONE_S, MAX_LINE
from toolplug.apart.running import RunningProvider, refuse_hooks
from toolplug.apart.values import Head, encode_error
from toolplug.config.document import Document, Section, parse_document
from toolplug.config.yaml_tree import KeyPath
from toolplug.errors import Problem, ProviderError
from toolplug.packages.entry_points import GROUP, InstalledProvider
from toolplug.packages.entry_settings import configure_entry
from toolplug.packages.loading import ProviderType, load
from toolplug.providers.entry import ProviderEntry
from toolplug.providers.provider import FunctionProvider

_READ = 64 * 1024
_HELLO_BYTES = 16 * 1024 * 1024


def main(descriptor: int, page_descriptor: int) -> None:
    """Serve the host at the other end of the socket, and end the process."""
    page = mmap.mmap(page_descriptor, BEGUN.size)
    os.close(page_descriptor)
    ours = socket.socket(fileno=descriptor)
    ours.settimeout(ADOPT_S)
    # The descriptor is this process's alone: what the provider starts must not speak to the host.
    os.set_inheritable(descriptor, False)
    _leave_with_host(ours)
    frame = _receive(ours, FrameReader(_HELLO_BYTES))
    hello = frame.head
    # Of another environment the host gives none, and its own stay.
    sys.path[:] = [*hello["path"], *(each for each in sys.path if each not in hello["path"])]
    _enter_confinement(hello)
    log = _HostLog()
    logging.basicConfig(level=hello.get("level", logging.INFO), handlers=[log])
    try:
        loaded, entry, problems = _load(hello, frame.body)
        described = _describe(loaded, entry, problems) | _list_data(hello, loaded, entry, problems)
    except BaseException as error:  # noqa: BLE001  the provider's package is a stranger's
        ours.sendall(encode_frame(ANSWER, {"id": 0, "error": encode_error(error)}))
        _leave(1)
    ours.sendall(encode_frame(ANSWER, {**described, "id": 0}))
    # One who only wanted to know what it is closes the socket, or says nothing more.
    if not select.select([ours], [], [], ADOPT_S)[0] or not ours.recv(1, socket.MSG_PEEK):
        _leave(0)
    ours.setblocking(False)
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        longest = int(hello["max_result_bytes"]) + FRAME_SLACK
        runner.run(_serve(ours, entry, loaded, longest, log, page, confined=hello["confined"]))
        _leave(0)


def _enter_confinement(hello: Head) -> None:
    """Take on the bounds, before the provider is imported, and see that what was granted is what was mounted."""
    for path, *identity in hello["files"]:
        status = os.stat(path)
        if [status.st_dev, status.st_ino] != identity:
            print(f"{path} is not what was granted when the provider was started", file=sys.stderr)  # noqa: T201
            _leave(1)
    if any(bound is not None for bound in hello["bounds"].values()):
        import_module("toolplug.apart.confinement.bounds").limit_process(hello["bounds"], alone=hello["confined"])
    if hello["proxy"]:
        import_module("toolplug.apart.confinement.network").forward_connections()


class _HostLog(logging.Handler):
    """Sends what the process logs to the host, with its level; before there is a connection it is printed."""

    def __init__(self) -> None:
        super().__init__()
        self.peer: Peer | None = None
        self.setFormatter(logging.Formatter("%(message)s"))

    def emit(self, record: logging.LogRecord) -> None:
        """Send one record, from any thread."""
        try:
            text = self.format(record)
            if not record.name.startswith("toolplug."):
                text = f"{record.name}: {text}"
            note = {"note": "log", "level": record.levelno, "text": text[:MAX_LINE]}
            if self.peer is None or self.peer.lost is not None:
                print(text, file=sys.stderr)  # noqa: T201  the host reads it
            elif threading.current_thread() is threading.main_thread():
                self.peer.send(NOTE, note)
            else:
                self.peer.loop.call_soon_threadsafe(self.peer.send, NOTE, note)
        except Exception:  # noqa: BLE001  as every handler of the standard library
            self.handleError(record)


async def _serve(
    ours: socket.socket,
    entry: ProviderEntry,
    loaded: ProviderType,
    max_frame: int,
    log: _HostLog,
    page: mmap.mmap,
    *,
    confined: bool,
) -> None:
    loop = asyncio.get_running_loop()

    def build() -> FunctionProvider:
        provider = loaded.build(entry.key, entry.settings)
        refuse_hooks(entry, provider)
        return provider

    running = RunningProvider(entry, build, max_frame, page, confined=confined)
    await loop.create_connection(lambda: running, sock=ours)
    log.peer = running
    await running.ended.wait()
    if not running.closed:
        # The host is gone: what the provider holds elsewhere is given back, in the time that is left.
        with suppress(TimeoutError):
            async with asyncio.timeout(GONE_S):
                await running.close()


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """Return the loop of `toolplug serve` where it is installed."""
    try:
        return import_module("uvloop").new_event_loop
    except ImportError:
        return None


def _leave(code: int) -> NoReturn:
    """End the process, whatever threads the provider has left."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)


def _leave_with_host(ours: socket.socket) -> None:
    """End the process some time after the host is gone, also if the provider blocks the event loop."""

    def watch() -> None:
        poll = select.poll()
        poll.register(ours, select.POLLHUP | getattr(select, "POLLRDHUP", 0))
        poll.poll()
        threading.Event().wait(GONE_S + 1)
        os._exit(1)

    if hasattr(select, "poll"):
        threading.Thread(target=watch, name="toolplug-host", daemon=True).start()


def _receive(ours: socket.socket, reader: FrameReader) -> Frame:
    while data := ours.recv(_READ):
        reader.add(data)
        for frame in reader:
            return frame
    _leave(0)


def _load(hello: Head, code: bytes) -> tuple[ProviderType, ProviderEntry, list[Head]]:
    """Import the provider and check its settings. Raises `ProviderError`."""
    module, attribute, source = hello["module"], hello["attribute"], hello.get("source")
    found = InstalledProvider(
        type=hello["type"],
        entry_point=EntryPoint(hello["type"], f"{module}:{attribute}".rstrip(":"), GROUP),
        distribution=hello["distribution"],
        version=hello["version"],
        excluded_by=hello.get("excluded_by", ""),
        editable=hello["editable"],
        file=None if source is None else Path(source),
        code=code,
    )
    loaded = load(found)
    entry = ProviderEntry(
        key=hello["key"],
        type=found.type,
        distribution=found.distribution,
        version=found.version,
        package=found.module,
    )
    given, path = hello["own"], tuple(hello["own"]["path"])
    raw: Any = given["raw"]
    for part in reversed(path):
        raw = {part: raw}
    # JSON is YAML: the provider's own settings, as the file has them.
    parsed = parse_document(json.dumps(raw).encode(), file=given["file"])
    section = Section(
        document=_NotingDocument(file=given["file"], root=parsed.root),
        path=path,
        value=given["value"],
        broken=frozenset(map(tuple, given.get("broken", ()))),
        withheld=frozenset(given.get("withheld", ())),
    )
    problems: list[Problem] = []
    entry = configure_entry(entry, section, loaded, dict.fromkeys(hello["host_keys"], ()), problems)
    return loaded, entry, [_encode_problem(problem) for problem in problems]


@dataclass(frozen=True, slots=True, kw_only=True)
class _NotingDocument(Document):
    """A document whose problems have the path of their value, as JSON: the host knows the lines of its file."""

    def problem(self, path: KeyPath, *, code: str, message: str, hint: str = "", at_key: bool = False) -> Problem:
        """Return a problem with the path in place of a position."""
        return Problem(code=code, message=message, path=json.dumps(path), column=int(at_key), hint=hint)


def _encode_problem(problem: Problem) -> Head:
    """Return a problem as JSON; one of the whole entry has no path."""
    path = problem.path if problem.path.startswith("[") else None
    return {
        "path": path,
        "code": problem.code,
        "message": problem.message,
        "hint": problem.hint,
        "at_key": bool(problem.column),
    }


def _describe(loaded: ProviderType, entry: ProviderEntry, problems: list[Head]) -> Head:
    """Return what a host knows of a type before it starts it. Raises `ProviderError`."""
    names = set(loaded.hooks.names)
    refuse_hooks(entry, loaded.plugin, names=names)
    return {
        "protocol": PROTOCOL,
        "problems": problems,
        "secrets": _secrets(entry),
        "tools": loaded.tools,
        "routes": loaded.routes,
        "scopes": None if loaded.scopes is None else sorted(loaded.scopes),
        "unchecked": loaded.unchecked,
        "names_sign_in": loaded.names_sign_in,
    }


def _list_data(hello: Head, loaded: ProviderType, entry: ProviderEntry, problems: list[Head]) -> Head:
    """Return the data files of an entry with valid settings, or why there are none: only a lock asks for them."""
    if problems:
        return {}
    try:
        return {"data": dict(loaded.data_of(entry.settings, Path(hello["own"]["file"]).parent))}
    except ProviderError as error:
        return {"data_refused": str(error)}


def _secrets(entry: ProviderEntry) -> list[str]:
    """Return the texts of the settings that no message may show, which the host masks in what the process prints."""
    return sorted(getattr(entry.masked, "args", [()])[0])
