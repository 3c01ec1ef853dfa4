"""The body of an answer: the JSON texts in it, whether it is a stream of events or one JSON value.

What a body is follows from its first bytes. Servers send JSON where a stream was asked for, a stream where none was,
and either one with the wrong content type.
"""

from __future__ import annotations

import json
import re
from collections.abc import AsyncGenerator, AsyncIterable, Iterator
from typing import Final, NamedTuple

from jiter import from_json

from toolplug.catalog.exact_json import without_collections
from toolplug.catalog.validation.json_size import count_long_digits
from toolplug.parts.responses.limits import MAX_JSON_BYTES, MAX_LONG_DIGITS, MAX_NAMES, MAX_VALUES

_UNCOUNTED_BYTES: Final = 256 * 1024
"""A shorter text has at most `MAX_VALUES` values, each with a comma or bracket."""
_MAX_REREAD_BYTES: Final = 256 * 1024
"""A longer text is not read again by `json`, which takes three times as long and knows half a surrogate pair."""
_FIELD = re.compile(rb"(?:data|event|id|retry)? ?:")
_MARK: Final = b"\xef\xbb\xbf"
_SNIFFED_BYTES: Final = 8
"""The longest name of a field, with its blank and colon, has as many."""
_TEXT = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"', re.DOTALL)


class BodyPart(NamedTuple):
    """One text of a body.

    `event` is the name of its event, `message` without one, and None for a body that is no stream. `is_cut` is true for
    what comes last in a stream without the empty line that ends an event.
    """

    text: bytes
    event: str | None
    is_cut: bool = False


class BodyRefused(ValueError):
    """A body exceeds a limit."""


async def read_body(chunks: AsyncIterable[bytes]) -> AsyncGenerator[BodyPart]:
    """Yield the events of a stream, or one part for any other body; none if it is empty. Raises `BodyRefused`."""
    body: _Events | _Whole | None = None
    unread = b""
    async for chunk in chunks:
        unread += chunk
        if body is None:
            unread = unread.removeprefix(_MARK).lstrip()
            if len(unread) < _SNIFFED_BYTES:
                continue
            body = _form_of(unread)
        for part in body.add(unread):
            yield part
        unread = b""
    body = body or _form_of(unread)
    for part in (*body.add(unread), *body.end()):
        yield part


def _form_of(begin: bytes) -> _Events | _Whole:
    return _Events() if _FIELD.match(begin) else _Whole()


class _Whole:
    """Collects a body that is no stream."""

    def __init__(self) -> None:
        self._chunks: list[bytes] = []
        self._size = 0

    def add(self, chunk: bytes) -> Iterator[BodyPart]:
        """Take a chunk; nothing is known before the last one. Raises `BodyRefused`."""
        self._chunks.append(chunk)
        self._size += len(chunk)
        _check_size(self._size)
        return iter(())

    def end(self) -> Iterator[BodyPart]:
        """Yield the whole body, unless it is empty."""
        text = b"".join(self._chunks).strip()
        if text:
            yield BodyPart(text, None)


class _Events:
    """Puts the lines of an event stream together, however the network has cut them."""

    def __init__(self) -> None:
        self._line: list[bytes] = []
        self._event = b""
        self._data: list[bytes] = []
        self._size = 0
        self._after_return = False

    def add(self, chunk: bytes) -> Iterator[BodyPart]:
        """Yield the events that end in this chunk. Raises `BodyRefused`."""
        if self._after_return and chunk.startswith(b"\n"):
            chunk = chunk[1:]
        self._after_return = chunk.endswith(b"\r")
        for line in chunk.splitlines(keepends=True):
            self._line.append(line)
            self._size += len(line)
            _check_size(self._size)
            if line.endswith((b"\n", b"\r")):
                whole, self._line = b"".join(self._line).rstrip(b"\r\n"), []
                yield from self._read(whole)

    def end(self) -> Iterator[BodyPart]:
        """Yield what has no empty line after it."""
        if self._line:
            yield from self._read(b"".join(self._line))
        for part in self._dispatch():
            yield part._replace(is_cut=True)

    def _read(self, line: bytes) -> Iterator[BodyPart]:
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if not line:
            yield from self._dispatch()
        elif name == b"data":
            self._data.append(value)
        elif name == b"event":
            self._event = value
        elif line.startswith(b"{"):  # a proxy's own error, written into the stream as it is
            self._data.append(line)

    def _dispatch(self) -> Iterator[BodyPart]:
        text, name = b"\n".join(self._data).strip(), self._event.decode("utf-8", "replace")
        self._data, self._event, self._size = [], b"", 0
        if text:
            yield BodyPart(text, name or "message")


def _check_size(size: int) -> None:
    if size > MAX_JSON_BYTES:
        raise BodyRefused(f"one part of it has more than {MAX_JSON_BYTES // 1024 // 1024} MiB")


def check_values(text: bytes) -> None:
    """Raise `BodyRefused` if the JSON has more values, names or long numbers than are read; they are not built."""
    if len(text) <= _UNCOUNTED_BYTES:
        return
    if count_long_digits(text) > MAX_LONG_DIGITS:
        raise BodyRefused(f"one part of it has more than {MAX_LONG_DIGITS:,} digits of long integers")
    if _separators(text) <= MAX_VALUES and text.count(b":") <= MAX_NAMES:
        return
    names = text.count(b'":') - text.count(rb"\":")  # at least; to take the texts out takes 10 times as long
    bare = text if names > MAX_NAMES or text.count(b'"') > 2 * MAX_VALUES else _TEXT.sub(b"", text)
    if bare.count(b":") > MAX_NAMES:
        raise BodyRefused(f"one part of it has more than {MAX_NAMES:,} names in objects")
    if bare is text or _separators(bare) > MAX_VALUES:
        raise BodyRefused(f"one part of it has more than {MAX_VALUES:,} values")


def parse_json(text: bytes) -> object:
    """Return the value of a JSON text. Raises `ValueError` or `RecursionError` if it is not JSON."""
    with without_collections():
        try:
            return from_json(text, allow_inf_nan=True)
        except ValueError:
            if len(text) > _MAX_REREAD_BYTES:
                raise
            return json.loads(text)


def _separators(text: bytes) -> int:
    return text.count(b",") + text.count(b"[") + text.count(b"{")
