"""What a server listed → the tools that are kept of it, and which are not and why."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from toolplug.discovery.cuts import Cuts
from toolplug.discovery.kept import Kept, Listing
from toolplug.discovery.record import FoundTool
from toolplug.discovery.record_bytes import body_of, same_object, tool_line
from toolplug.discovery.sanitised import sanitised
from toolplug.discovery.slices import in_slices
from toolplug.errors import InvalidDefinition

MAX_TOOLS = 10_000
MAX_BODY_BYTES = 16 * 1024 * 1024
"""Of all tools of a server together; those that come after are left out."""
MAX_LEFT_OUT = 100
"""Lines of the report."""


class _Kept(NamedTuple):
    tool: FoundTool
    line: bytes


async def read_listing(raw: Sequence[object], server: str, last: Kept) -> Listing:
    """The tools, in the server's order; those that are as in the `last` record are its objects.

    Takes as long as it takes, in slices.
    """
    left_out = Cuts(at_most=MAX_LEFT_OUT)
    kept = await in_slices(_kept(raw, server, last, left_out))
    found = [each for each in kept if each is not None]
    return Listing(tuple(each.tool for each in found), body_of(each.line for each in found), left_out.lines())


def _kept(raw: Sequence[object], server: str, last: Kept, left_out: Cuts) -> Iterator[_Kept | None]:
    """Each tool in turn; None for one that is left out."""
    known = {tool.name: tool for tool in last.record.tools}
    seen: set[str] = set()
    size = 0
    for index, each in enumerate(raw):
        if index == MAX_TOOLS:
            left_out.add((str(index),), f"only {MAX_TOOLS} tools are kept; {len(raw) - index} are left out")
            return
        try:
            tool = sanitised(each, server)
        except InvalidDefinition as error:
            left_out.add((str(index),), str(error))
            yield None
            continue
        tool = same_object(tool, known.get(tool.name))
        line = tool_line(tool)
        if tool.name in seen:
            left_out.add((str(index), tool.name), "another tool of this name comes before")
        elif size + len(line) > MAX_BODY_BYTES:
            left_out.add((str(index), tool.name), f"the tools together have over {MAX_BODY_BYTES} bytes")
        else:
            seen.add(tool.name)
            size += len(line) + 1
            yield _Kept(tool, line)
            continue
        yield None
