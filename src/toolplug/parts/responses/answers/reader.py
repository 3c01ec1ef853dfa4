"""One answer of a model's server, from its first byte to its end: complete, or an error that says why not.

There is no empty success: an answer of which nothing could be read fails. The server's own words about its errors go
to the log, shortened and escaped, and to nobody else.

Whether a body is a stream of events or one JSON value follows from its first bytes. Servers send JSON where a stream
was asked for, a stream where none was, and either one with the wrong content type.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import AsyncGenerator, AsyncIterable, Iterator
from contextlib import aclosing
from typing import Final, NamedTuple

from jiter import from_json

from toolplug.catalog.exact_json import without_collections
from toolplug.catalog.validation.json_size import count_long_digits
from toolplug.errors import BackendFailed
from toolplug.parts.responses.answers.completions import delta_of, garbage
from toolplug.parts.responses.backend import ENDED, Delta, Usage
from toolplug.parts.responses.limits import (
    MAX_ANSWER_CHARS,
    MAX_JSON_BYTES,
    MAX_LEFT_OUT,
    MAX_LONG_DIGITS,
    MAX_NAMES,
    MAX_PARTS,
    MAX_VALUES,
)

_DONE: Final = b"[DONE]"
_PINGS: Final = frozenset({"ping", "heartbeat", "keepalive", "keep-alive"})
_CALLS: Final = frozenset({"tool_calls", "function_call"})
_MAX_WORDS: Final = 500
_MAX_NOTES: Final = 5

_LOG = logging.getLogger("toolplug.responses")


async def read_answer(chunks: AsyncIterable[bytes], secret: str | None) -> AsyncGenerator[Delta]:
    """Yield the deltas of a body. Raises `BackendFailed`; `secret` is taken out of what goes to the log."""
    reader = _AnswerReader(secret)
    try:
        async with aclosing(read_body(chunks)) as parts:
            async for part in parts:
                if part.text.startswith(_DONE) and part.event is not None:
                    reader.done = True
                    break
                delta = reader.read(part)
                if delta is not None:
                    yield delta
    except BodyRefused as error:
        raise garbage(str(error)) from error
    if reader.usage is not None:
        yield Delta(usage=reader.usage)
    for delta in reader.end():
        yield delta


def log_words(words: bytes | str, secret: str | None) -> None:
    """Log what a server says about its error, without the API key."""
    text = words[: 8 * _MAX_WORDS].decode("utf-8", "replace") if isinstance(words, bytes) else words
    said = text if secret is None else text.replace(secret, "***")
    _LOG.warning("the model's server said: %r", said[:_MAX_WORDS])


def broke_off() -> BackendFailed:
    """Return the error for an answer that has no end."""
    return BackendFailed("backend_broke_off", "the model's server stopped in the middle of its answer")


class _AnswerReader:
    """Reads the parts of one answer. `usage` is the last one, as some servers send it with every chunk."""

    def __init__(self, secret: str | None) -> None:
        self.done: bool = False
        self.usage: Usage | None = None
        self._secret = secret
        self._place = 0
        self._chars = 0
        self._thinks = False
        self._answers = False
        self._finish: str | None = None
        self._notes: list[str] = []
        self._left_out = 0

    def read(self, part: BodyPart) -> Delta | None:
        """Return the delta of a part, None if it has none. Raises `BackendFailed`."""
        self._place += 1
        if self._place > MAX_PARTS:
            raise garbage(f"it has more than {MAX_PARTS:,} events")
        if part.event == "error":
            log_words(part.text, self._secret)
            raise BackendFailed("backend_error", "the model's server failed in the middle of its answer")
        whole = part.event is None
        try:
            check_values(part.text)
            value = parse_json(part.text)
        except BodyRefused as error:
            raise garbage(str(error)) from error
        except (ValueError, RecursionError) as error:
            if part.is_cut or part.event in _PINGS:
                return None
            if whole and part.text[:1] not in (b"{", b"[", b'"'):  # a page or a line of text
                log_words(part.text, self._secret)
                raise BackendFailed("backend_error", "the model's server answered with an error") from error
            raise garbage("it is not JSON") from error
        begun = self._answers or self._thinks
        try:
            delta = delta_of(value, whole=whole, note=self._note, begun=begun)
        except BackendFailed as error:
            if error.code == "backend_error" or whole:
                log_words(part.text, self._secret)
            raise
        return self._note_pieces(delta, whole=whole)

    def end(self) -> Iterator[Delta]:
        """Yield the last delta, if there is one more.

        Raises `BackendFailed` for an answer that is not complete, or of which nothing could be read.
        """
        if self._notes:
            more = f"; and {self._left_out - len(self._notes)} more" if self._left_out > len(self._notes) else ""
            _LOG.warning("left out of an answer of the model's server: %s%s", "; ".join(self._notes), more)
        if not self._place:
            raise garbage("it is empty")
        if self._notes and not (self._answers or self._thinks):
            raise garbage(self._notes[0])
        if self._finish in _CALLS and not self._answers:
            raise garbage("it announces calls and has none")
        if self._finish is not None:
            return
        if not (self.done and self._answers):
            raise broke_off()
        yield Delta(finish=ENDED)

    def _note_pieces(self, delta: Delta, *, whole: bool) -> Delta:
        self._chars += len(delta.text) + len(delta.reasoning) + len(delta.refusal)
        self._chars += sum(len(call.arguments) for call in delta.calls)
        if self._chars > MAX_ANSWER_CHARS:
            raise garbage(f"its texts have more than {MAX_ANSWER_CHARS:,} characters")
        called = any(call.id or call.name or call.arguments for call in delta.calls)
        self._answers = self._answers or called or bool(delta.text or delta.refusal)
        self._thinks = self._thinks or bool(delta.reasoning)
        self._finish = delta.finish or self._finish or ("stop" if whole else None)
        self.usage = delta.usage or self.usage
        return delta._replace(usage=None)

    def _note(self, what: str) -> None:
        self._left_out += 1
        if self._left_out > MAX_LEFT_OUT:
            raise garbage(f"more than {MAX_LEFT_OUT:,} things in it cannot be used")
        if len(self._notes) < _MAX_NOTES:
            self._notes.append(f"chunk {self._place}: {what}")


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
