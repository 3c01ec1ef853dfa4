"""What a scripted model says, turn by turn: values, of which each is one answer of the backend."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of one turn, as Chat Completions counts them."""

    prompt: int = 10
    completion: int = 5
    cached: int = 0
    reasoning: int = 0


@dataclass(frozen=True, slots=True)
class Call:
    """One tool call. `arguments` is text, which need not be JSON."""

    name: str
    arguments: str = "{}"
    id: str = "call_1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """One good answer. `finish` None stands for `tool_calls` where there are calls, else `stop`.

    A stream of it has fragments of `size` characters: reasoning, text, then the calls one after the other.
    """

    text: str = ""
    reasoning: str = ""
    refusal: str = ""
    calls: tuple[Call, ...] = ()
    finish: str | None = None
    usage: Usage | None = Usage()
    size: int = 4

    @property
    def finish_reason(self) -> str:
        return self.finish or ("tool_calls" if self.calls else "stop")


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """An error of the backend's own."""

    status: int
    message: str = "the backend is not well"
    headers: Mapping[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True, slots=True, kw_only=True)
class Garbled:
    """The turn's first `after` fragments, then bytes that are no JSON."""

    turn: Turn
    after: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class CutOff:
    """The turn's first `after` fragments; then the connection breaks."""

    turn: Turn
    after: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """The turn's first `after` fragments; then the answer ends as if it were whole, without a finish reason."""

    turn: Turn
    after: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class Gate:
    """Where a turn stands still: `reached` when it does, until `go`, or until its client has `left`."""

    reached: asyncio.Event = field(default_factory=asyncio.Event)
    go: asyncio.Event = field(default_factory=asyncio.Event)
    left: asyncio.Event = field(default_factory=asyncio.Event)


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """The turn's first `after` fragments, then the rest when the gate opens. 0: a slow first byte."""

    turn: Turn
    gate: Gate
    after: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Raw:
    """Bytes that no model's server should send: `piece` so many `times`, without end where that is None.

    `left` is set when the client has gone.
    """

    piece: bytes
    times: int | None = 1
    pause_s: float = 0.0
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    left: asyncio.Event = field(default_factory=asyncio.Event)


Answer = Turn | Raw | Refused | Garbled | CutOff | Ended | Held


def says(text: str) -> Turn:
    """A turn of text alone."""
    return Turn(text=text)


def calls(*made: Call) -> Turn:
    """A turn of calls alone."""
    return Turn(calls=made)
