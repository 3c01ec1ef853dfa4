"""Reads the catalog that another host sends, a tool at a time.

A parser that is given the whole text of 16 MiB keeps the event loop for as long as that takes, a tenth of a second and
more. So only one member is read at once, and other tasks have their turn in between.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, Iterable, Iterator
from json import JSONDecodeError, JSONDecoder
from typing import NoReturn, TypeVar

from pydantic import JsonValue

MAX_TOOLS = 10_000
"""Tools, names and ways that a catalog may have."""
MAX_TOOL_CHARS = 160 * 1024
"""Characters of one member: a tool has two schemas of 64 KiB at most. To read so many takes up to 20 ms."""
MAX_TOOL_PARTS = 10_000
"""Objects and lists of one member, by its brackets."""
MAX_FIELDS = 100
SLICE_S = 0.005

_SPACE = re.compile(r"[ \t\n\r]*+")
_MAX_SPACE = 1024


T = TypeVar("T")


async def in_turns(items: Iterable[T]) -> AsyncGenerator[T]:
    """Yield each item; other tasks have their turn after every 5 ms of its use."""
    clock = asyncio.get_running_loop().time
    began = clock()
    for item in items:
        yield item
        if clock() - began > SLICE_S:
            await asyncio.sleep(0)
            began = clock()


class BadCatalog(ValueError):
    """The text is no catalog that this host takes; the message says why."""


async def read_catalog(text: str) -> dict[str, JsonValue]:
    """Return the value of a JSON object whose members may be lists and objects of up to `MAX_TOOLS` members each.

    Gives way to other tasks every 5 ms. Raises `BadCatalog`, before more members are built than may be there.
    """
    reader = _Reader(text)
    found: dict[str, JsonValue] = {}
    reader.take("{")
    while not reader.ends("}", first=not found):
        name = reader.name()
        match reader.peek():
            case "[":
                found[name] = await _list(reader)
            case "{":
                found[name] = await _object(reader)
            case _:
                found[name] = reader.value()
        if len(found) > MAX_FIELDS:
            raise BadCatalog(f"it has more than {MAX_FIELDS} fields")
    reader.end()
    return found


async def _list(reader: _Reader) -> list[JsonValue]:
    return [value async for _, value in in_turns(reader.members("[", "]"))]


async def _object(reader: _Reader) -> dict[str, JsonValue]:
    return {name: value async for name, value in in_turns(reader.members("{", "}"))}


def _refuse_constant(name: str) -> NoReturn:
    raise BadCatalog(f"{name} is no JSON")


class _Reader:
    """A place in a JSON text. Each method moves it forward, and raises `BadCatalog`."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._window, self._from = "", 0
        self._decoder = JSONDecoder(parse_constant=_refuse_constant)

    def peek(self) -> str:
        """Return the next character that is no space, empty at the end."""
        space = _SPACE.match(self._text, self._at, self._at + _MAX_SPACE)
        self._at = self._at if space is None else space.end()
        return self._text[self._at : self._at + 1]

    def take(self, character: str) -> None:
        """Take this character."""
        if self.peek() != character:
            raise BadCatalog(f"no {character!r} at character {self._at:,}")
        self._at += 1

    def ends(self, closing: str, *, first: bool) -> bool:
        """Take the end of a list or object, or the comma before another member; return whether it was the end."""
        if self.peek() == closing:
            self._at += 1
            return True
        if not first:
            self.take(",")
        return False

    def name(self) -> str:
        """Take the name of a member and the colon after it."""
        if self.peek() != '"':
            raise BadCatalog(f"no name at character {self._at:,}")
        name = str(self.value())
        self.take(":")
        return name

    def value(self) -> JsonValue:
        """Take a value of at most `MAX_TOOL_CHARS` characters."""
        self.peek()
        found = self._decode()
        if found is None:
            # No more of the text than a member may have, so that the parser cannot take longer.
            self._window, self._from = self._text[self._at : self._at + MAX_TOOL_CHARS + 1], self._at
            found = self._decode()
        if found is None:
            at, most = self._at, MAX_TOOL_CHARS
            raise BadCatalog(f"what begins at character {at:,} cannot be read, or is over {most:,} characters long")
        value, end = found
        if self._count("{", end) + self._count("[", end) > MAX_TOOL_PARTS:
            raise BadCatalog(f"what begins at character {self._at:,} has over {MAX_TOOL_PARTS:,} objects and lists")
        self._at = end
        return value

    def _count(self, bracket: str, end: int) -> int:
        return self._text.count(bracket, self._at, end)

    def _decode(self) -> tuple[JsonValue, int] | None:
        """Return the next value and its end, if all of it is in the window."""
        try:
            value, end = self._decoder.raw_decode(self._window, self._at - self._from)
        except (JSONDecodeError, RecursionError):
            return None
        except ValueError as error:  # a number of too many digits
            raise BadCatalog(str(error)[:200]) from None
        is_whole = end < len(self._window) or self._from + end == len(self._text)  # the digits of a number may go on
        return (value, self._from + end) if is_whole else None

    def members(self, opening: str, closing: str) -> Iterator[tuple[str, JsonValue]]:
        """Take a list or an object, and yield its members; those of a list have no names."""
        self.take(opening)
        count = 0
        while not self.ends(closing, first=not count):
            count += 1
            if count > MAX_TOOLS:
                raise BadCatalog(f"it lists more than {MAX_TOOLS:,} tools; allow its agent fewer")
            yield (self.name() if opening == "{" else ""), self.value()

    def end(self) -> None:
        """Check that nothing follows."""
        if self.peek():
            raise BadCatalog(f"more after the end, at character {self._at:,}")
