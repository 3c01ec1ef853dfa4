"""The messages between a host and its Ray driver, over one socket for each actor: a length, a kind, the bytes."""

from __future__ import annotations

import asyncio
import struct

BEGIN, END, REASON, TEXT, DATA = range(5)
"""The kinds: begin a session with the actor, or it has begun; it has ended; why there is none; a worker's messages."""
MAX_MESSAGE = 2 * 1024 * 1024
"""Bytes of a message: twice what a worker may send at once."""
_HEAD = struct.Struct(">IB")


async def read_message(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    """Return the kind and the bytes of the next message. Raises `EOFError` at the end, and `ConnectionError`."""
    size, kind = _HEAD.unpack(await reader.readexactly(_HEAD.size))
    if size > MAX_MESSAGE:
        raise ConnectionResetError(f"a message of {size} bytes")
    return kind, await reader.readexactly(size)


def write_message(writer: asyncio.StreamWriter, kind: int, data: bytes = b"") -> None:
    """Write a message."""
    writer.write(_HEAD.pack(len(data), kind) + data)
