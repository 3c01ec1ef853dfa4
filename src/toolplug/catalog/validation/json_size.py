"""The number of parts of a JSON text, counted before it is read: a parser builds them all before anyone can refuse.

One call of the parser cannot be interrupted, and a text of one size may take 1 ms or 200: a name of its own takes 0.4
µs, an object or array 0.2, a text 0.15, a number 0.03. Counting commas, brackets and quotes takes 2 ms a mebibyte.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple, cast

from jiter import from_json

from toolplug import library_types
from toolplug.catalog.exact_json import load_json, without_collections
from toolplug.errors import InvalidJson

MAX_NAMES: Final = 64 * 1024
"""Names of members of objects."""
MAX_CONTAINERS: Final = 64 * 1024
"""Objects and arrays; a mebibyte of rows has half as many."""
MAX_PARTS: Final = 160 * 1024
"""Names, texts, objects and arrays together."""
MAX_ITEMS: Final = 256 * 1024
"""Values of any type."""
MAX_LONG_DIGITS: Final = 256 * 1024
"""Digits in integers of more than 1,000: reading one of 4,300 takes 50 µs, writing it 270."""

_COUNTED_FROM_BYTES = 64 * 1024
"""A shorter text takes at most 5 ms to read, whatever is in it."""
_COUNTED_UP_TO_BYTES = 1024 * 1024
"""A longer text is counted in pieces at once: counting it whole takes too long."""
# So few are read by the parser that looks for duplicates, however wide their objects are.
_FEW_NAMES = 8 * 1024
_WIDE = 8
"""Names of an object, on average, above which the parser takes longer than we do to look for duplicates."""
# What is counted at once; after a few milliseconds the pieces give other tasks a turn.
_PIECE_BYTES = 256 * 1024
# Searched in a text whose digits are all zeros: `bytes.count` is a search in C, a pattern would visit each digit.
_LONG = b"0" * 1000
_ZEROS = bytes.maketrans(b"123456789", b"000000000")


class _Counts(NamedTuple):
    names: int
    containers: int
    texts: int
    items: int
    long_digits: int

    def excess(self) -> str | None:
        """Return the limit that is exceeded, as text; None if none is."""
        names, containers, texts, items, long_digits = self
        if names > MAX_NAMES:
            return f"{MAX_NAMES:,} names in objects"
        if containers > MAX_CONTAINERS:
            return f"{MAX_CONTAINERS:,} objects and arrays"
        if containers + texts > MAX_PARTS:
            return f"{MAX_PARTS:,} names, texts, objects and arrays"
        if items > MAX_ITEMS:
            return f"{MAX_ITEMS:,} values"
        return f"{MAX_LONG_DIGITS:,} digits of long integers" if long_digits > MAX_LONG_DIGITS else None

    def wide_names(self) -> int | None:
        """Return the number of names, if the objects are so wide that the parser is slow to look for duplicates."""
        return self.names if self.names > _WIDE * self.containers else None


class JsonSize(NamedTuple):
    """The size of a JSON text: the limit that it exceeds, as text; and its names, None if they are few an object."""

    excess: str | None = None
    names: int | None = None


async def measure(text: bytes) -> JsonSize:
    """Count the parts of a JSON text, such as a body, in steps.

    What is no JSON is counted up to the place where its reader stops, at least.
    """
    found = _NO_COUNTS
    if _is_small(text):
        return JsonSize()
    async for found in library_types.in_slices(_count_pieces(text)):
        if found.excess():
            break
    return JsonSize(found.excess(), found.wide_names())


async def load_measured(text: bytes, size: JsonSize) -> object:
    """Return the value of a JSON text that exceeds nothing. Raises `InvalidJson`; of a duplicate key without its name.

    jiter takes 35 ms instead of 13 for 65,000 names of one object if it looks for duplicates; whether all names are
    there is seen afterwards, in steps. Of 54,000 objects it takes 23 instead of 16, and the steps 40.
    """
    if size.names is None:
        return load_json(text)
    value = _load(text)
    members = 0
    async for count in library_types.in_slices(_members(value)):
        members += count
    _check_members(members, size.names)
    return value


def load_within_limits(text: bytes) -> object:
    """Do the same for a caller that cannot wait. Raises also `TooManyParts`."""
    if _is_small(text):
        return load_json(text)
    found = _NO_COUNTS
    for found in _count_pieces(text):
        if found.excess():
            raise TooManyParts(found.excess())
    names = found.wide_names()
    if names is None:
        return load_json(text)
    value = _load(text)
    _check_members(sum(_members(value)), names)
    return value


class TooManyParts(Exception):
    """A JSON text exceeds a limit of this module."""


def _load(text: bytes) -> object:
    try:
        with without_collections():
            return from_json(text, allow_inf_nan=False, cache_mode="none")
    except ValueError as error:
        raise InvalidJson(str(error)) from None


def _members(value: object) -> Iterator[int]:
    """Yield the number of members of each object, and 0 for each array."""
    parts = [value]
    while parts:
        part = parts.pop()
        if isinstance(part, dict):
            inner = cast("dict[str, object]", part)
            yield len(inner)
            # A stack, not recursion: the text decides how deep it is.
            parts += [item for item in inner.values() if isinstance(item, dict | list)]
        elif isinstance(part, list):
            yield 0
            parts += [item for item in cast("list[object]", part) if isinstance(item, dict | list)]


def _check_members(members: int, names: int) -> None:
    # Fewer members than names: some name came twice in its object, and the parser kept the last one.
    if members < names:
        raise InvalidJson("duplicate key", duplicate_key=True)


_NO_COUNTS = _Counts(0, 0, 0, 0, 0)


def _is_small(text: bytes) -> bool:
    """Return True if there are few parts even if none of the punctuation is inside a text."""
    if len(text) <= _COUNTED_FROM_BYTES:
        return True
    if len(text) > _COUNTED_UP_TO_BYTES:
        return False
    found = _count(text, text.count(b'"') // 2, text)
    return found.names <= _FEW_NAMES and found.excess() is None


def _count(outside: bytes, texts: int, digits: bytes) -> _Counts:
    return _Counts(
        names=outside.count(b":"),
        containers=outside.count(b"{") + outside.count(b"["),
        texts=texts,
        items=outside.count(b","),
        long_digits=count_long_digits(digits),
    )


def count_long_digits(text: bytes) -> int:
    """Return the digits of integers of more than 1,000, of each in whole thousands; also those inside texts."""
    return text.translate(_ZEROS).count(_LONG) * len(_LONG)


def _count_pieces(text: bytes) -> Iterator[_Counts]:
    """Yield what was found so far, after each piece of the text; punctuation inside texts is not counted."""
    total, marks, in_text, start = _NO_COUNTS, 0, False, 0
    while start < len(text):
        piece = text[start : start + _PIECE_BYTES]
        escapes = len(piece) - len(piece.rstrip(b"\\"))
        # A piece that ends in a backslash would split an escaped quotation mark from it, and turn inside and outside
        # around.
        if escapes % 2:  # a pair of characters stays in one piece
            piece += text[start + len(piece) : start + len(piece) + 1]
        start += len(piece)
        bare = piece.replace(rb"\\", b"").replace(rb"\"", b"")
        found = bare.count(b'"')
        marks += found
        if marks // 2 > MAX_PARTS:  # enough to refuse it; splitting there would take long
            yield total._replace(texts=marks // 2)
            return
        # Every second part is outside of texts; which ones depends on where the last piece ended.
        outside = b"".join(bare.split(b'"')[in_text::2])
        in_text ^= bool(found % 2)
        new = _count(outside, 0, outside)
        total = _Counts(*(had + more for had, more in zip(total, new, strict=True)))._replace(texts=marks // 2)
        yield total
