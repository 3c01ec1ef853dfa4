"""Plans: the target of a tool's call and every rule around it, as data that `run` executes and `explain` prints."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import CoroutineType
from typing import Any, Literal, NamedTuple, Protocol

from toolplug import library_types
from toolplug.catalog.call import EMPTY, CallContext, Principal, ToolCall, ToolResult, no_tools
from toolplug.catalog.definition import ToolDefinition, ToolRef
from toolplug.catalog.schema import Schema
from toolplug.crashes import CodeOwner


class TenantsGate(NamedTuple):
    """Hides the tool from all other tenants: `tools: {name: {tenants: […]}}`."""

    tenants: frozenset[str]
    origin: str

    name = "tenants"
    hides = True

    def refusal(self, principal: Principal) -> str | None:
        return None if principal.tenant in self.tenants else f"tenant {principal.tenant!r} is not among its tenants"


class ShownGate(NamedTuple):
    """Hides the tool from those to whom it is not shown, such as those whose own list does not have it."""

    shows: Callable[[Principal], bool]
    otherwise: str
    origin: str

    name = "shown"
    hides = True

    def refusal(self, principal: Principal) -> str | None:
        return None if self.shows(principal) else self.otherwise


class PolicyGate(NamedTuple):
    """Lists the tool and refuses every call: `policy: deny`."""

    origin: str
    name = "policy"
    hides = False

    def refusal(self, principal: Principal) -> str | None:
        return "its policy is deny"


class ScopeGate(NamedTuple):
    """Lists the tool and refuses calls of principals without this scope."""

    scope: str
    origin: str

    name = "scope"
    hides = False

    def refusal(self, principal: Principal) -> str | None:
        return None if principal.has_scope(self.scope) else f"the scope {self.scope!r} is missing"


Gate = TenantsGate | ShownGate | PolicyGate | ScopeGate
"""A rule about who may see or call a tool."""


class Target(Protocol):
    """The code of a tool. The call has the tool's own name, and its arguments as an object.

    It returns a coroutine if the plan's runner is a `TaskRunner`, else it may block and returns the value.
    """

    def __call__(self, call: ToolCall, context: CallContext, /) -> Any: ...


class Forward(Protocol):
    """Answers the calls of a tool that acts on its caller's tools; `tools` is the caller's `ToolExecutor`."""

    def __call__(self, tools: Any, call: ToolCall, context: CallContext, /) -> CoroutineType[Any, Any, ToolResult]: ...


class Setting(NamedTuple):
    """The effective value of one setting, and the line or default that it comes from."""

    name: str
    value: str
    origin: str


class Refusal(NamedTuple):
    """The reason why a limiter does not admit a call, and the seconds after which it may."""

    what: str
    retry_after_s: float


class Limiter(Protocol):
    """A limit on the calls of a tool, which admits each call or refuses it.

    * `setting`, `usage`: the name of its setting, and how much of it is in use, for people
    * `refusal`: returns the refusal that a call would get now, None if it would be admitted
    * `admit`: waits for a free place until `deadline` (loop time) at most; a refused call uses nothing of the limit
    * `on_answer`: called once for each admitted call, with the status that the caller gets
    * `on_end`: called once for each admitted call, when the tool has ended; after a timeout that may be later
    """

    @property
    def setting(self) -> str: ...
    @property
    def usage(self) -> str: ...
    def refusal(self) -> Refusal | None: ...
    async def admit(self, deadline: float) -> Refusal | None: ...
    def on_answer(self, status: str) -> None: ...
    def on_end(self) -> None: ...


class EndableWork(Protocol):
    """A call or a request whose caller waits: it belongs to the source with this `switch`.

    * `drain_s`: seconds for which it may go on when its source is switched off; infinite if the source decides alone
    * `end`: answers the caller that the time to drain is over, and asks the code to stop
    """

    @property
    def switch(self) -> library_types.SourceSwitch: ...
    @property
    def drain_s(self) -> float: ...
    def end(self) -> None: ...


class CallRunner(Protocol):
    """Runs a target apart from its caller: a coroutine in a task, a function that may block in a thread.

    `start` returns the target's value if it ends in its first step, else the `RunningCall` to wait for. It raises what
    the target raises in that step.
    """

    def start(self, target: Target, call: ToolCall, context: CallContext, /) -> object: ...


class CallSpan(Protocol):
    """The span of one call, of a tracer.

    ```python
    from toolplug import CallSpan

    class Span(CallSpan):
        headers = {"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}

        def end(self, result):
            print("gone" if result is None else result.status)
    ```
    """

    @property
    def headers(self) -> Mapping[str, str]:
        """The W3C headers of the span, `traceparent` and `tracestate`, for what the tool calls itself."""
        ...

    def end(self, result: ToolResult | None) -> None:
        """End the span with the result of the call; None if the caller went away."""


class CallTracer(Protocol):
    """Makes a span for each call, also for refused ones; the hook `call_tracers` returns them.

    ```python
    import asyncio

    from toolplug import CallSpan, CallTracer, FunctionProvider, FunctionRegistry, hookimpl, tool

    class Span(CallSpan):
        headers = {}

        def __init__(self, name: str, ended: list[str]) -> None:
            self.name, self.ended = name, ended

        def end(self, result):
            self.ended.append(f"{self.name}: {'gone' if result is None else result.status}")

    class Tracer(CallTracer):
        def __init__(self) -> None:
            self.ended = []

        def start(self, call, context, tool):
            return Span(call.name, self.ended)

    class Traced(FunctionProvider):
        tracer = Tracer()

        @hookimpl
        def call_tracers(self):
            return [self.tracer]

        @tool
        async def ping(self) -> str:
            "Answer."
            return "pong"

    async def main():
        async with FunctionRegistry([Traced()]) as registry:
            await registry.call("ping")
        assert Traced.tracer.ended == ["ping: success"]

    asyncio.run(main())
    ```
    """

    def start(self, call: ToolCall, context: CallContext, tool: ToolDefinition | None) -> CallSpan | None:
        """Begin the span of a call, or return None for no span; `tool` is None for an unknown name.

        Runs before everything else of the call and in the context of the caller, so that spans of the tool itself are
        children of one that is made current here.
        """
        ...


class HookSource(Protocol):
    """Has the current hooks of a host, None while no plugin has any."""

    @property
    def current(self) -> library_types.CallHooks | None: ...


class _NoHooks:
    """The hooks of plans without a host."""

    __slots__ = ()
    current: library_types.CallHooks | None = None


NO_HOOKS: HookSource = _NoHooks()


class ApprovalClaim(Protocol):
    """The right to make one approved call. Its methods never raise.

    `arguments` are what runs in place of those of the call, None for those; `metadata` becomes part of the result's.
    `ticket` is the approval that this call uses up, None for none; `goes_on` that for which the tool has waited, if so.
    """

    @property
    def ticket(self) -> str | None: ...
    @property
    def goes_on(self) -> str | None: ...
    @property
    def arguments(self) -> Mapping[str, object] | None: ...
    @property
    def metadata(self) -> Mapping[str, object]: ...

    async def release(self, waits: Mapping[str, object] = EMPTY) -> None:
        """Return the right if no provider was reached, or until the end of `waits`, which the tool waits for."""

    async def end(self) -> None:
        """Let no other call go on under this right."""


class Approval(Protocol):
    """Approval of calls by a person; `claim_at_once` is not for calls that name one, nor where a plugin wants one."""

    async def claim(
        self,
        plan: Plan,
        call: ToolCall,
        context: CallContext,
        why: str | None = None,
        listed: str | None = None,
    ) -> ApprovalClaim | ToolResult:
        """Return the right to make an approved call, else a refusal with the way to approve it; `why`: a plugin's."""
        ...

    def claim_at_once(
        self, plan: Plan, call: ToolCall, inner: ToolCall, context: CallContext, listed: str | None = None
    ) -> ApprovalClaim | None:
        """Return the right to make a call where nothing is awaited for it, None to `claim` it; `inner` is decoded."""
        ...


def listed_name(call: ToolCall, tool: ToolDefinition | None) -> str:
    """Return the canonical name of the tool that is called, for people and logs: models call it by its wire name."""
    return call.name if tool is None else tool.name


class NeedsApproval(NamedTuple):
    """What a `before_call` returns for a call that a person must approve, whatever its policy says.

    ```python
    from toolplug import FunctionProvider, NeedsApproval, hookimpl

    class Nights(FunctionProvider):
        @hookimpl
        def before_call(self, call, context, tool):
            return NeedsApproval("it deletes") if tool.hints.destructive else None
    ```
    """

    reason: str


class WouldRefuse(NamedTuple):
    """What a `before_call` returns for a call that a rule would refuse if it were not only watched: the call passes.

    The audit log says `would: denied`, with the reason, and `…_watched_total` counts it.

    ```python
    from toolplug import FunctionProvider, WouldRefuse, hookimpl

    class Trial(FunctionProvider):
        @hookimpl
        def before_call(self, call, context, tool):
            return WouldRefuse("it deletes") if tool.hints.destructive else None
    ```
    """

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GrantRule:
    """What people may allow at once for the calls of a tool: `tools: {name: {grants: …}}`.

    * `most`: seconds for which a grant may hold, 0 for no grants
    * `scope`: the widest one: `session`, or `caller` for all sessions of the caller
    * `any`: a grant may allow every call, whatever its arguments
    """

    most: float = 0.0
    scope: Literal["session", "caller"] = "session"
    any: bool = False


NO_GRANTS = GrantRule()


class Retry(NamedTuple):
    """The number of times that a call is retried after a panic, or a `ToolError` with `retry_after_s`."""

    attempts: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The execution of one tool's calls, as data.

    * `timeout_s`: seconds of a call without a deadline; a caller's deadline can only shorten them
    * `longest_s`: seconds that a caller's deadline may ask for instead, None for `timeout_s`
    * `late_s`: seconds after the deadline in which the target, which is cancelled then, may still return a value
    * `convert`: turns validated arguments into those of the target; raises `InvalidArguments`
    * `wants_context`: the target reads its context
    * `tools_of`: the `tools` of that context
    * `copies`: the target could change its arguments, so it gets a copy
    * `output`: the output type that the tool declares, which its results must match; None to check none
    * `approvals`: who is asked where a plugin wants an approval, whatever the policy
    * `caller_approves`: callers may approve their own calls
    * `grants`: what people may allow for several calls at once
    * `watched`: the policy that is only watched, empty if none is
    * `limits`: the resolved limits with their sources, None for a tool that is not configurable; fields that every call
      needs are copies
    * `hooks`: the hooks of plugins, which a change of plugins replaces
    * `owner`: the provider whose code runs, for the log
    * `forward`: answers each call instead, with the executor that was called; it may call that executor's other tools
    * `needs_pipeline`: True if a rule of the plan surrounds the call; empty tuples and None cost nothing
    * `at_once`: the approval, if it is all that surrounds the call
    """

    ref: ToolRef
    target: Target
    schema: Schema
    switch: library_types.SourceSwitch
    counters: library_types.CallCounters
    abandoned: library_types.AbandonedCallLimit
    runner: CallRunner
    timeout_s: float
    max_result_bytes: int
    longest_s: float | None = None
    late_s: float = 0.0
    convert: Callable[[Mapping[str, object]], Mapping[str, object]] | None = None
    wants_context: bool = True
    tools_of: Callable[[CallContext], library_types.ModelTools] = no_tools
    copies: bool = True
    output: Schema | None = None
    gates: tuple[Gate, ...] = ()
    limiters: tuple[Limiter, ...] = ()
    retry: Retry | None = None
    approval: Approval | None = None
    approvals: Approval | None = None
    caller_approves: bool = False
    grants: GrantRule = NO_GRANTS
    watched: str = ""
    replay: library_types.Replays | None = None
    artifacts: library_types.Artifacts | None = None
    hooks: HookSource = NO_HOOKS
    settings: tuple[Setting, ...] = ()
    limits: library_types.ResolvedLimits | None = None
    owner: CodeOwner | None = None
    forward: Forward | None = None
    needs_pipeline: bool = field(init=False)
    at_once: Approval | None = field(init=False)

    def __post_init__(self) -> None:
        more = self.limiters or self.retry or self.artifacts
        object.__setattr__(self, "needs_pipeline", bool(self.approval or more))
        object.__setattr__(self, "at_once", None if more else self.approval)


class Tool(NamedTuple):
    """A definition and the plan behind it.

    ```python
    from toolplug import Catalog
    from toolplug.catalog import Tool

    def list_read_only(catalog: Catalog) -> list[str]:
        tools: list[Tool] = list(catalog.values())
        return [each.definition.name for each in tools if each.definition.hints.read_only]
    ```
    """

    definition: ToolDefinition
    plan: Plan
