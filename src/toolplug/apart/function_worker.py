"""The process of one function: it reads bytes, gives them to the function, and sends what the function returns.

    first      4 bytes length, and JSON: `path`, `module`, `name`, `seconds`, `memory`
    request    8 bytes length, and the bytes
    answer     1 byte kind, 4 bytes length, and so many bytes: pieces, then the end, or what the function has raised

A script without imports of our own, since a page of a few KB waits for its start: asyncio alone takes 30 ms.
"""

from __future__ import annotations

import json
import logging
import os
import select
import signal
import struct
import sys
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from importlib import import_module
from typing import IO, Any

READY, PIECE, END, RAISED = b"r", b"p", b"e", b"x"
HEAD = struct.Struct(">cI")
FIRST = struct.Struct(">I")
REQUEST = struct.Struct(">Q")
MAX_PIECE = 64 * 1024
"""Bytes of one piece of an answer, and of the text of what was raised."""
_MAX_TEXT = 2_000


def main() -> None:
    """Answer requests until there are no more."""
    source, sink = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    # What a library prints does not disturb the answers, and what it reads is no request.
    os.dup2(2, 1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    hello = json.loads(source.read(*FIRST.unpack(source.read(FIRST.size))))
    sys.path[:] = hello["path"]
    _limit(hello["memory"])
    logging.disable()  # a library has a line for each fault of a document
    function: Any = import_module(hello["module"])
    for part in hello["name"].split("."):
        function = getattr(function, part)
    _leave_with_host(source.fileno())
    _send(sink, READY)
    while head := source.read(REQUEST.size):
        data = source.read(*REQUEST.unpack(head))
        _set_timer(hello["seconds"])
        last = _answer(function, data, sink)
        # Before the last message: the process must not end of a call whose answer the host has.
        _set_timer(0)
        _send(sink, *last)


def _answer(function: Callable[[bytes], bytes | Iterable[bytes]], data: bytes, sink: IO[bytes]) -> tuple[bytes, bytes]:
    """Send what the function returns, and return the last message."""
    waiting = bytearray()
    try:
        found = function(data)
        for part in (found,) if isinstance(found, bytes) else found:
            if len(waiting) + len(part) > MAX_PIECE:
                _send_pieces(sink, waiting)
                waiting.clear()
            if len(part) > MAX_PIECE:
                _send_pieces(sink, part)
            else:
                waiting += part
        _send_pieces(sink, waiting)
    except MemoryError:
        waiting.clear()
        return RAISED, b'{"kind": "memory", "text": "MemoryError"}'
    except BaseException as error:  # noqa: BLE001  whatever a library raises for a hostile document
        kind = "import" if isinstance(error, ImportError) else "raised"
        text = f"{type(error).__name__}: {error}"[:_MAX_TEXT]
        return RAISED, json.dumps({"kind": kind, "text": text}).encode()
    return END, b""


def _send_pieces(sink: IO[bytes], data: bytes | bytearray) -> None:
    with memoryview(data) as view:
        for start in range(0, len(view), MAX_PIECE):
            piece = view[start : start + MAX_PIECE]
            sink.write(HEAD.pack(PIECE, len(piece)))
            sink.write(piece)


def _send(sink: IO[bytes], kind: bytes, data: bytes = b"") -> None:
    sink.write(HEAD.pack(kind, len(data)))
    sink.write(data)
    sink.flush()


def _limit(memory: int) -> None:
    try:
        resource = import_module("resource")
    except ImportError:  # on Windows: the host ends the process by the clock
        return
    resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    # Not 0: py3langid unpacks its model of 68 MB into a temporary file.
    resource.setrlimit(resource.RLIMIT_FSIZE, (memory, memory))


def _set_timer(seconds: float) -> None:
    """End the process after so many seconds of CPU time, in a call into C too; 0 for never."""
    if hasattr(signal, "setitimer"):
        signal.setitimer(signal.ITIMER_PROF, seconds)


def _leave_with_host(descriptor: int) -> None:
    """End the process when nobody waits for its answer any more."""
    if hasattr(select, "poll"):
        poll = select.poll()
        poll.register(descriptor, 0)  # the end of the other side is always told
        threading.Thread(target=partial(_leave_after, poll), name="toolplug-host", daemon=True).start()


def _leave_after(poll: Any) -> None:
    poll.poll()
    os._exit(0)


if __name__ == "__main__":
    with suppress(BrokenPipeError):
        main()
