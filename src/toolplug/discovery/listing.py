"""What a server listed → the tools that are kept of it, and which are not and why."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import orjson

from toolplug.discovery.record import FoundTool
from toolplug.discovery.record_bytes import body_of, in_slices, same_object, tool_line
from toolplug.discovery.sanitise import Cuts, sanitised
from toolplug.discovery.server_state import Kept, Listing
from toolplug.errors import InvalidDefinition

MAX_TOOLS = 10_000
MAX_BODY_BYTES = 16 * 1024 * 1024
"""Of all tools of a server together; those that come after are left out."""
MAX_LEFT_OUT = 100
"""Lines of the report."""


class _Read(NamedTuple):
    """A tool that is kept, its bytes, and a digest of what the server sent."""

    sent: bytes
    tool: FoundTool
    line: bytes


class ListReader:
    """Reads the lists of one server. What it sends again as it was is not looked at again: lists may come often."""

    def __init__(self, server: str) -> None:
        self._server = server
        self._last: Mapping[bytes, _Read] = {}

    async def read(self, raw: Sequence[object], kept: Kept) -> Listing:
        """The tools, in the server's order; those that are as they are kept are the same objects.

        Takes as long as it takes, in slices.
        """
        left_out = Cuts(at_most=MAX_LEFT_OUT)
        known = {tool.name: tool for tool in kept.record.tools}
        each = await in_slices(self._each(raw, known, left_out))
        found = [read for read in each if read is not None]
        self._last = {read.sent: read for read in found if read.sent}
        return Listing(tuple(read.tool for read in found), body_of(read.line for read in found), left_out.lines())

    def _each(self, raw: Sequence[object], known: Mapping[str, FoundTool], left_out: Cuts) -> Iterator[_Read | None]:
        """Each tool in turn; None for one that is left out."""
        seen: set[str] = set()
        size = 0
        for index, sent in enumerate(raw):
            if index == MAX_TOOLS:
                left_out.add((str(index),), f"only {MAX_TOOLS} of {len(raw)} tools are kept")
                return
            try:
                read = self._read(sent, known)
            except InvalidDefinition as error:
                left_out.add((str(index),), str(error))
                yield None
                continue
            if read.tool.name in seen:
                left_out.add((str(index), read.tool.name), "another tool of this name comes before")
            elif size + len(read.line) > MAX_BODY_BYTES:
                left_out.add((str(index), read.tool.name), f"the tools together have over {MAX_BODY_BYTES} bytes")
            else:
                seen.add(read.tool.name)
                size += len(read.line) + 1
                yield read
                continue
            yield None

    def _read(self, sent: object, known: Mapping[str, FoundTool]) -> _Read:
        digest = _digest(sent)
        last = self._last.get(digest)
        if last is not None:
            tool = same_object(last.tool, known.get(last.tool.name))
            return last if tool is last.tool else last._replace(tool=tool)
        tool = sanitised(sent, self._server)
        tool = same_object(tool, known.get(tool.name))
        return _Read(digest, tool, tool_line(tool))


def _digest(sent: object) -> bytes:
    """Equal for what is sent again as it was; nothing for what is no JSON, and so is never taken for another."""
    try:
        return hashlib.blake2b(orjson.dumps(sent), digest_size=20).digest()
    except (TypeError, orjson.JSONEncodeError):
        return b""
