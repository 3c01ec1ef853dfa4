"""MCP content for clients: results of calls, pages of tools, and progress notifications."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, TypeVar

from toolplug.catalog.call import ToolResult, own_parts
from toolplug.catalog.catalog import Catalog
from toolplug.catalog.exact_json import as_object
from toolplug.catalog.render import WRAPPED, fragment, wraps
from toolplug.catalog.schema import Schema
from toolplug.execution.results import Reports
from toolplug.signatures.values import encode_value

R = TypeVar("R")
E = TypeVar("E")


class _McpProgress(NamedTuple):
    progress: float
    total: float | None
    message: str | None


class RisingProgress:
    """Sends the progress that `report` receives; progress that does not rise is dropped, as MCP demands."""

    def __init__(self, send: Callable[[float, float | None, str | None], Awaitable[None]]) -> None:
        self._send = send
        self._reports = Reports(self._pass_on)
        self._highest = -math.inf

    def report(self, progress: float, total: float | None = None, message: str | None = None) -> None:
        """Take one report, from any thread. Invalid progress is dropped. Never blocks."""
        if _is_number(progress) and (total is None or _is_number(total)):
            self._reports.take(_McpProgress(progress, total, message if isinstance(message, str) else None))

    async def during(self, execute: Callable[[], Awaitable[R]]) -> R:
        """Run the call and send its progress; reports from before its end are sent before the result."""
        return await self._reports.during(execute)

    async def _pass_on(self, report: _McpProgress) -> None:
        if report.progress > self._highest:
            self._highest = report.progress
            await self._send(*report)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)


PAGE_TOOLS = 1_000
"""So many that clients which never ask for a second page lose nothing that a model could use."""
PAGE_BYTES = 4 * 1024 * 1024


class Page(NamedTuple):
    """A JSON array of tools, and the cursor of the next page, None after the last one."""

    tools: bytes
    next_cursor: str | None


def page(catalog: Catalog, cursor: str | None) -> Page | None:
    """Return the first page, or the page of a cursor; None if the catalog has no place for the cursor.

    A cursor is the name after which the page begins, so that it stays valid while other tools come and go.
    """
    if cursor is None and len(catalog) <= PAGE_TOOLS:
        whole = catalog.render("mcp")
        if len(whole) <= PAGE_BYTES:
            return Page(whole, None)
    names = iter(catalog)
    if cursor is not None and cursor not in names:  # the search leaves the iterator behind the cursor
        return None
    tools, last = first_page(((name, fragment(catalog[name].definition, "mcp")) for name in names), len)
    return Page(b"[%b]" % b",".join(tools), last)


def first_page(entries: Iterable[tuple[str, E]], size_of: Callable[[E], int]) -> tuple[list[E], str | None]:
    """Return the entries of one page, and the key of the last one as the cursor, None where no others follow."""
    page: list[E] = []
    size, last = 0, ""
    for key, entry in entries:
        size += size_of(entry) + 1
        if page and (len(page) == PAGE_TOOLS or size > PAGE_BYTES):
            return page, last
        page.append(entry)
        last = key
    return page, None


APPROVAL = "toolplug/approval"
"""In a request's `_meta`: the approval that a call needs, where a person has given it."""

META = "_meta"
"""In a result's metadata: what an MCP server has put in the `_meta` of its own."""

_OWN = "toolplug/"
_NO_VALUE = "The tool ran, once; it gave no value of its output schema but this text:"

Block = Mapping[str, object]


def content_of(result: ToolResult, is_block: Callable[[Block], bool], listed: Schema | None) -> dict[str, object]:
    """Return the result as MCP content; each status except success is an error.

    A part that is no content block becomes text. `structuredContent` is set if the value is an object, or is wrapped in
    one since `listed`, the output schema of the tool, is not of one, as both eras require. They also require a value of
    a schema that is listed, and the SDKs' clients raise without one, so that the model reads nothing: where the tool
    gave text, or its value was cut to text, the answer is an error whose first block says that the tool ran. The status
    of a failure, and what only the caller may read, is in `_meta`, next to the server's own keys; there is no `_meta`
    without any.
    """
    meta: dict[str, object] = {**as_object(result.metadata.get(META))}
    if result.is_error:  # some clients print every key to the model: a success says nothing that it does not see
        meta[f"{_OWN}status"] = result.status.value
    if metadata := {key: value for key, value in result.metadata.items() if key != META}:
        meta[f"{_OWN}metadata"] = metadata
    if result.retry_after_s is not None:
        meta[f"{_OWN}retry_after_s"] = result.retry_after_s
    content = [
        block if is_block(block) else {"type": "text", "text": encode_value(block) or ""}
        for block in _blocks(result.output, result.parts)
    ]
    answer: dict[str, object] = {
        "content": content,
        "isError": result.is_error,
        "resultType": "complete",
    }
    if meta:
        answer["_meta"] = meta
    structured = result.structured
    if listed is None or result.is_error:
        if isinstance(structured, dict):
            answer["structuredContent"] = structured
        return answer
    text_is_value = structured is None and result.output != "null"
    value = result.output if text_is_value else structured
    if text_is_value and not listed.is_valid(value):
        content.insert(0, {"type": "text", "text": _NO_VALUE})
        answer["isError"] = True
    else:
        answer["structuredContent"] = {WRAPPED: value} if wraps(listed) else value
    return answer


class PlacedText(str):
    """The text of a result, with the number of its characters before each of the result's parts.

    It equals the plain text. Code that replaces the text thereby drops the places, so that they are never wrong.
    """

    __slots__ = ("places",)

    places: tuple[int, ...]

    @classmethod
    def of(cls, text: str, places: Iterable[int]) -> PlacedText:
        """Return the text with the number of its characters before each part; each place is between two lines."""
        placed = cls(text)
        placed.places = tuple(places)
        return placed


def _blocks(output: str, parts: Sequence[Block]) -> Iterator[Block]:
    """Return text and parts in the server's order; the text first if the order is not known."""
    if not isinstance(output, PlacedText):
        parts = own_parts(output, parts)
    places = output.places if isinstance(output, PlacedText) else [len(output)] * len(parts)
    written = 0
    for part, at in zip(parts, places, strict=True):
        if at > written:
            yield _text_block(output[written:at])
            written = at + 1
        yield part
    if written < len(output) or not (output or parts):
        yield _text_block(output[written:])


def _text_block(text: str) -> Block:
    return {"type": "text", "text": text}
