"""What to call for a tool and every rule around it, as data. `run` acts on it, `explain` prints it."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from toolplug.catalog.call import CallContext, Principal, ToolCall, ToolResult
from toolplug.catalog.definition import ToolDefinition, ToolRef
from toolplug.catalog.schema import Schema


class Target(Protocol):
    """What a call reaches at last: gets the tool's own name and its arguments as an object.

    Asynchronous targets return a coroutine; with `Plan.threads` set, the target blocks in a thread of its provider.
    """

    def __call__(self, call: ToolCall, context: CallContext, /) -> Coroutine[Any, Any, object] | object: ...


class Setting(NamedTuple):
    """The effective value of one knob and the line or default that it came from."""

    knob: str
    value: str
    origin: str


class Gate(Protocol):
    """A rule about who may call. `hides`: its refusal reads as if the tool did not exist."""

    @property
    def name(self) -> str: ...
    @property
    def origin(self) -> str: ...
    @property
    def hides(self) -> bool: ...
    def refusal(self, principal: Principal) -> str | None:
        """The reason why this principal is refused, or None."""
        ...


class Refusal(NamedTuple):
    """What a limiter says when it does not admit a call."""

    what: str
    retry_after_s: float


class Limiter(Protocol):
    """A counter that every call must be admitted by, and that hears how the call ended.

    `admit` may wait (a queue) at most until `deadline`, in loop time; it takes nothing when it refuses. `left` is
    called exactly once for every admission, when the tool itself has ended.
    """

    async def admit(self, deadline: float) -> Refusal | None: ...
    def left(self, status: str) -> None: ...


class Switch(Protocol):
    """Whether the tool's source still takes calls, and how many of them run; set by its owner only."""

    open: bool
    running: int

    def leave(self) -> None: ...


class Series(Protocol):
    """Plain counters of one tool."""

    in_flight: int

    def record(self, status: str, seconds: float) -> None: ...


class Lanes(Protocol):
    """Tasks that carry calls apart from their callers."""

    def start(self, coroutine: Coroutine[Any, Any, object], depth: int, tenant: str) -> object: ...


class Threads(Protocol):
    """Daemon threads of one provider for its synchronous tools."""

    def start(self, function: Callable[[], object], depth: int, tenant: str) -> object: ...


class Observer(Protocol):
    """Host-wide hooks around every call. `before` may veto with a reason; neither can fail a call by raising."""

    async def before(self, call: ToolCall, context: CallContext) -> str | None: ...
    async def after(self, call: ToolCall, context: CallContext, result: ToolResult) -> None: ...


class Replay(Protocol):
    """Remembers the first result of a call under the caller's idempotency key."""

    async def begin(self, call: ToolCall, context: CallContext) -> ToolResult | None: ...
    async def finish(self, call: ToolCall, context: CallContext, result: ToolResult | None) -> None: ...


class Artifacts(Protocol):
    """Keeps results that are over their limit; gives back a handle."""

    async def keep(self, text: str, context: CallContext) -> str: ...


class Retry(NamedTuple):
    """How often a call is tried again after a panic, or a `ToolError` with `retry_after_s`."""

    attempts: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """One tool's call as data.

    `convert` turns validated arguments into what the target takes (raises `InvalidArguments`); `wants_context` says
    that the target looks at its context. Empty tuples and None cost nothing at the call.
    """

    ref: ToolRef
    target: Target
    schema: Schema
    switch: Switch
    series: Series
    lanes: Lanes
    timeout_s: float
    max_result_bytes: int
    convert: Callable[[Mapping[str, object]], Mapping[str, object]] | None = None
    wants_context: bool = True
    threads: Threads | None = None
    gates: tuple[Gate, ...] = ()
    limiters: tuple[Limiter, ...] = ()
    retry: Retry | None = None
    replay: Replay | None = None
    artifacts: Artifacts | None = None
    observers: tuple[Observer, ...] = ()
    settings: tuple[Setting, ...] = ()


class Tool(NamedTuple):
    """A definition and the plan behind it."""

    definition: ToolDefinition
    plan: Plan
