"""One answer of a model's server, from its first byte to its end: complete, or an error that says why not.

There is no empty success: an answer of which nothing could be read fails. The server's own words about its errors go
to the log, shortened and escaped, and to nobody else.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, AsyncIterable, Iterator
from contextlib import aclosing
from typing import Final

from toolplug.errors import BackendFailed
from toolplug.parts.responses.answers.body import BodyPart, BodyRefused, check_values, parse_json, read_body
from toolplug.parts.responses.answers.completions import delta_of, garbage
from toolplug.parts.responses.backend import ENDED, Delta, Usage
from toolplug.parts.responses.limits import MAX_ANSWER_CHARS, MAX_LEFT_OUT, MAX_PARTS

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
