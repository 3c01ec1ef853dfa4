"""Messages to and from the worker of a container, which is not trusted: the code that it runs shares its process.

A message is two lengths of four bytes, a JSON object and a payload. Lengths and fields are checked before anything is
kept, and whatever is wrong with a message ends the container.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Annotated, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, ValidationError

MAX_HEAD = 1024 * 1024
MAX_FILES = 1000
MAX_PATH = 1024

FoundFile = tuple[
    Annotated[str, Field(min_length=1, max_length=MAX_PATH)],
    Annotated[int, Field(ge=0, le=1 << 50)],
    Annotated[int, Field(ge=0, lt=1 << 63)],
]
"""Path in the working folder, bytes and time of the last change in nanoseconds."""


class ChannelBroken(Exception):
    """The worker has ended, or its answer is no answer."""


class Head(BaseModel):
    """What an answer says in JSON. Without `ok`, the payload says why, and `errno` is the error of the system."""

    model_config = ConfigDict(extra="forbid", strict=True)

    ok: bool
    errno: int | None = None
    files: Annotated[list[FoundFile], Field(max_length=MAX_FILES, strict=False)] = []


class Answer(NamedTuple):
    """One answer of the worker."""

    head: Head
    payload: bytes


class Channel:
    """Asks one thing at a time. `max_payload` are the most bytes of an answer."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, max_payload: int) -> None:
        self._reader = reader
        self._writer = writer
        self._max_payload = max_payload

    async def ask(self, asked: Mapping[str, object], payload: bytes = b"") -> Answer:
        """Return the answer. Raises `ChannelBroken`; a cancelled question leaves the channel unusable."""
        head = json.dumps(asked).encode()
        try:
            self._writer.write(len(head).to_bytes(4, "big") + len(payload).to_bytes(4, "big") + head + payload)
            await self._writer.drain()
            lengths = await self._reader.readexactly(8)
            sizes = int.from_bytes(lengths[:4], "big"), int.from_bytes(lengths[4:], "big")
            if sizes[0] > MAX_HEAD or sizes[1] > self._max_payload:
                raise ChannelBroken("an answer of its process is too long")
            answer = Head.model_validate_json(await self._reader.readexactly(sizes[0]))
            return Answer(answer, await self._reader.readexactly(sizes[1]))
        except (asyncio.IncompleteReadError, OSError):
            raise ChannelBroken("its process has ended") from None
        except ValidationError:
            raise ChannelBroken("an answer of its process is malformed") from None
