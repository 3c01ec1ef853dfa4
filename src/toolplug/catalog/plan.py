"""What to call for a tool and every rule around it, as data. `run` acts on it, `explain` prints it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from toolplug.catalog.call import CallContext, Principal, ToolCall, ToolResult
from toolplug.catalog.definition import ToolDefinition, ToolRef
from toolplug.catalog.schema import Schema
from toolplug.crashes import CodeOwner


class Target(Protocol):
    """What a call reaches at last: gets the tool's own name and its arguments as an object.

    It returns a coroutine where the plan's runner is a `TaskRunner`, and blocks where it runs in a thread.
    """

    def __call__(self, call: ToolCall, context: CallContext, /) -> Any: ...


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
    """A counter that every call must be admitted by.

    `knob` is the setting that it stands for, `used` says for people how much of it is taken. `admit` may wait (a queue)
    at most until `deadline`, in loop time; it takes nothing when it refuses. `refusal` is what it would say now where
    it would refuse. For every admission `answered` is called once with the status that the caller gets, and `ended`
    once when the tool itself has ended, which is later for one that is abandoned at its deadline.
    """

    @property
    def knob(self) -> str: ...
    @property
    def used(self) -> str: ...
    def refusal(self) -> Refusal | None: ...
    async def admit(self, deadline: float) -> Refusal | None: ...
    def answered(self, status: str) -> None: ...
    def ended(self) -> None: ...


class Switch(Protocol):
    """Whether the tool's source still takes calls, and how many of them run; set by its owner only."""

    open: bool
    running: int

    def leave(self) -> None: ...


class AbandonedCallLimit(Protocol):
    """Counts a source's calls that were given up but still run; `open` refuses further ones."""

    running: int
    limit: int

    def abandon(self) -> None: ...

    def refusal(self) -> Refusal: ...


class CallCounters(Protocol):
    """Plain counters of one tool."""

    in_flight: int

    def record(self, status: str, seconds: float) -> None: ...


class CallRunner(Protocol):
    """Runs a target apart from its caller: in a task for coroutines, in a thread for functions that block.

    `start` takes the first step: the target's value when it ended there, else the `RunningCall` to wait for. What the
    target raises in that step is raised.
    """

    def start(self, target: Target, call: ToolCall, context: CallContext, /) -> object: ...


class Observer(Protocol):
    """Host-wide hooks around every call. `before` may veto with a reason, within seconds; neither raises."""

    async def before(self, call: ToolCall, context: CallContext, within_s: float, /) -> str | None: ...
    async def after(self, call: ToolCall, context: CallContext, result: ToolResult) -> None: ...


class ApprovalClaim(Protocol):
    """The right to make one approved call."""

    async def release(self) -> None:
        """Give the right back: the provider was not reached. Never raises."""
        ...


class Approval(Protocol):
    """Calls that a person must approve."""

    async def claim(self, plan: Plan, call: ToolCall, context: CallContext) -> ApprovalClaim | ToolResult:
        """The right to make this very call, where it has been approved; else the refusal that says how it can be."""
        ...


class Replay(Protocol):
    """Remembers the first result of a call under its caller's idempotency key.

    `begin` gives that result, or a refusal, or None: then the call, which may take `seconds`, is this caller's to make,
    and `finish` must follow once, with None where the provider was not reached.
    """

    async def begin(self, plan: Plan, call: ToolCall, context: CallContext, seconds: float) -> ToolResult | None: ...
    async def finish(self, plan: Plan, context: CallContext, result: ToolResult | None) -> None: ...


class Artifacts(Protocol):
    """Keeps results that are over their limit."""

    async def keep(self, text: str, context: CallContext) -> str:
        """Keep the text for this caller; the handle for `read_result`."""
        ...


class Retry(NamedTuple):
    """How often a call is tried again after a panic, or a `ToolError` with `retry_after_s`."""

    attempts: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """One tool's call as data.

    `convert` turns validated arguments into what the target takes (raises `InvalidArguments`). `wants_context` says
    that the target looks at its context, `copies` that it could change the caller's arguments, so that it gets a copy.
    `timeout_s` holds where the caller names no deadline; one that does may only shorten it, or, where there is a
    `longest_s`, ask for so much. With `caller_approves` its callers may approve their own calls. `limits` is what the
    limits were resolved to as a whole, with what they were drawn from (read it with `limits_of`); the fields that every
    call looks at are taken from it. `owner` is whose code runs, for the log. Empty tuples and None cost nothing at the
    call; `needs_pipeline` is set where there is more around it.
    """

    ref: ToolRef
    target: Target
    schema: Schema
    switch: Switch
    counters: CallCounters
    abandoned: AbandonedCallLimit
    runner: CallRunner
    timeout_s: float
    max_result_bytes: int
    longest_s: float | None = None
    convert: Callable[[Mapping[str, object]], Mapping[str, object]] | None = None
    wants_context: bool = True
    copies: bool = True
    gates: tuple[Gate, ...] = ()
    limiters: tuple[Limiter, ...] = ()
    retry: Retry | None = None
    approval: Approval | None = None
    caller_approves: bool = False
    replay: Replay | None = None
    artifacts: Artifacts | None = None
    observers: tuple[Observer, ...] = ()
    settings: tuple[Setting, ...] = ()
    limits: object = None
    owner: CodeOwner | None = None
    needs_pipeline: bool = field(init=False)

    def __post_init__(self) -> None:
        more = self.observers or self.approval or self.limiters or self.retry or self.artifacts
        object.__setattr__(self, "needs_pipeline", bool(more))


class Tool(NamedTuple):
    """A definition and the plan behind it."""

    definition: ToolDefinition
    plan: Plan
