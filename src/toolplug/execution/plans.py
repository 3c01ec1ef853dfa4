"""Plans of tools: the rule that an operator sets for a tool, the services of every call, and the builder of plans."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, Literal, NamedTuple, Self

from pydantic import Field, model_validator

from toolplug import library_types
from toolplug.catalog.call import CallContext, no_tools
from toolplug.catalog.catalog import Catalog
from toolplug.catalog.definition import ALWAYS, Offer, Offered, ToolDefinition
from toolplug.catalog.plan import (
    NO_GRANTS,
    Approval,
    CallRunner,
    Forward,
    Gate,
    GrantRule,
    Plan,
    PolicyGate,
    Setting,
    Target,
    TenantsGate,
    Tool,
)
from toolplug.catalog.schema import Schema
from toolplug.config.units import DEFAULT_ORIGIN, Duration, FileMapping
from toolplug.crashes import CodeOwner
from toolplug.execution.accounting import CallAccounting, CallCounters, WatchedPolicy
from toolplug.execution.call_hooks import LiveCallHooks
from toolplug.execution.executor import ModelTools, add_listener
from toolplug.execution.idempotency import Replays
from toolplug.execution.limiters import AbandonedCallLimit, SourceSwitch
from toolplug.execution.resolved_limits import (
    NO_LIMITS,
    DefaultTimeout,
    LimitLevel,
    Limits,
    LimitSources,
    ResolvedLimits,
)
from toolplug.execution.run import UnknownCalls
from toolplug.execution.task_runner import TaskRunner
from toolplug.execution.user_auth import PartCredentials, ScopeOf, no_scope

UNKNOWN = "_unknown"
"""The source and name, in metrics, of calls of unknown tools."""

CALL_SCOPE = "tools:call"

ToolsOf = Callable[[CallContext], ModelTools]
"""Returns the tools of the caller of a context, for `CallContext.tools`."""


class AskCaller(FileMapping):
    """The policy `{ask: caller}`: a person approves each call, also the caller's own, where its client can ask."""

    ask: Literal["caller"]


PolicyWord = Literal["allow", "ask", "deny", "disable"]
Policy = PolicyWord | AskCaller

DEFAULT_POLICY: PolicyWord = "allow"

MAX_GRANT_S = 168 * 3600.0
"""The longest life of a grant: a week, after which somebody looks again."""


class GrantSettings(FileMapping):
    """What people may allow at once for the calls of a tool: for how long, how widely, and whatever the arguments."""

    most: Annotated[
        Duration, Field(le=MAX_GRANT_S, description="for how long a grant may hold, at most 168h; 0 forbids grants")
    ] = 0.0
    scope: Annotated[
        Literal["session", "caller"], Field(description="the widest: one session, or every one of the caller")
    ] = "session"
    any: Annotated[bool, Field(description="allow grants for every call, whatever its arguments")] = False


class ToolRule(FileMapping):
    """The operator's rule for one tool under `tools:`; a bare policy is short for `{policy: …}`."""

    policy: Policy | None = None
    limits: Limits = NO_LIMITS
    tenants: Annotated[tuple[str, ...] | None, Field(strict=False, min_length=1, max_length=10_000)] = None
    offer: Annotated[Offer | None, Field(description="to models, of this tool")] = None
    grants: Annotated[GrantSettings | None, Field(description="what a person may allow for several calls at once")] = (
        None
    )
    watch: Annotated[
        bool, Field(description="the policy only says what it would have done, in the audit log and metrics")
    ] = False

    @model_validator(mode="after")
    def _check_watch(self) -> Self:
        if self.watch and self.policy in ("allow", "disable"):
            raise ValueError("watch is for the policies ask and deny")
        return self

    def policy_in(self, policy: Policy | None, origin: str) -> ToolPolicy:
        """Return the policy in effect, which comes from `origin`, with what the rule says beside it."""
        allowed = NO_GRANTS if self.grants is None else GrantRule(**self.grants.model_dump())
        return ToolPolicy(policy or DEFAULT_POLICY, origin, allowed, self.watch)

    def offer_for(self, origin: Callable[[str], str], source: Offered = ALWAYS) -> Offered:
        """Return how models are offered the tool: by this rule, else as its `source` says."""
        return source if self.offer is None else Offered(self.offer, origin("offer"), of_tool=True)

    def admits_tenant(self, tenant: str) -> bool:
        """Return whether the rule lets this tenant see the tool."""
        return self.tenants is None or tenant in self.tenants

    def gates(self, origin: Callable[[str], str]) -> tuple[Gate, ...]:
        """Return the gates that restrict who may see the tool; `origin` returns file and line of a key of the rule."""
        return () if self.tenants is None else (TenantsGate(frozenset(self.tenants), origin("tenants")),)


NO_RULE = ToolRule()


class ToolPolicy(NamedTuple):
    """The policy in effect for a tool, the file and line that sets it, the grants for it, and if it is only watched."""

    policy: Policy = DEFAULT_POLICY
    origin: str = DEFAULT_ORIGIN
    grants: GrantRule = NO_GRANTS
    watch: bool = False

    @property
    def word(self) -> PolicyWord:
        """The policy as one word, without who may approve."""
        return "ask" if isinstance(self.policy, AskCaller) else self.policy


class ChangeSignal:
    """A signal that something may have changed: `send` calls its listeners, which must not raise."""

    def __init__(self) -> None:
        self._listeners: dict[object, Callable[[], None]] = {}

    def listen(self, listener: Callable[[], None]) -> Callable[[], None]:
        """Call the listener from now on; return the function that ends it."""
        return add_listener(self._listeners, listener)

    def send(self) -> None:
        """Call every listener."""
        # A copy, since a listener may end itself or begin another one while it is called.
        for listener in tuple(self._listeners.values()):
            listener()


@dataclass(frozen=True, slots=True, kw_only=True)
class CallServices:
    """The services of every call of one host, or of a registry without a host.

    `runner` is opened and closed by the registry. `replay`, `approvals` and `artifacts` are None without a store for
    them. `hooks` has the current hooks of plugins; `limits` returns the current limits for every tool.
    `offering_changed` is sent when prompts or resources of any source may have changed. `tools_of` returns the tools
    of the caller of a context, for `CallContext.tools`. `scope_of` returns the scope of the credentials that a caller
    brings, which is in the key of all that is kept for it.
    """

    accounting: CallAccounting = field(default_factory=CallAccounting)
    runner: TaskRunner = field(default_factory=TaskRunner)
    replay: Replays | None = None
    approvals: Approval | None = None
    artifacts: library_types.Artifacts | None = None
    hooks: LiveCallHooks = field(default_factory=LiveCallHooks)
    limits: Callable[[], LimitLevel] = lambda: LimitLevel(())
    offering_changed: ChangeSignal = field(default_factory=ChangeSignal)
    tools_of: ToolsOf = no_tools
    scope_of: ScopeOf = no_scope
    credentials: PartCredentials = field(default_factory=PartCredentials)

    @property
    def unknown(self) -> UnknownCalls:
        return UnknownCalls(self.accounting.counters(UNKNOWN, UNKNOWN), self.hooks)


class PlanSource(NamedTuple):
    """The target of a plan's calls, the switch that stops them, and their counters; `late_s` is that of `Plan`.

    `runner` runs a target that is asynchronous, None for a task.
    """

    target: Target
    switch: SourceSwitch
    counters: CallCounters
    abandoned: AbandonedCallLimit
    late_s: float = 0.0
    runner: CallRunner | None = None


class PlanBuilder:
    """Builds the plans of the tools of one source: a provider, an MCP server, a toolset, or all sessions.

    level: the limits of the source
    host: the limits of every tool; None for the current ones of the services
    of_one_tenant: failures of the source do not count in the breakers of other tenants
    owner: the owner of the tools' code, for logs

    Tools without limits of their own share one resolved value.
    """

    def __init__(
        self,
        services: CallServices,
        level: LimitLevel,
        *,
        host: LimitLevel | None = None,
        of_one_tenant: bool = False,
        owner: CodeOwner | None = None,
    ) -> None:
        self._services = services
        self._levels = (services.limits() if host is None else host, level)
        self._owner = owner
        self._of_one_tenant = of_one_tenant
        self._resolved: dict[tuple[object, ...], ResolvedLimits] = {}

    @property
    def drain_s(self) -> float:
        """Seconds that running calls may take to end when the source is switched off."""
        return LimitSources(self._levels).resolve(CallAccounting()).drain_s

    def build(
        self,
        definition: ToolDefinition,
        source: PlanSource,
        policy: ToolPolicy | None = None,
        own: LimitLevel | None = None,
        *,
        author_timeout_s: float | None = None,
        default_timeout: DefaultTimeout | None = None,
        blocking: CallRunner | None = None,
        repeatable: bool = False,
        gates: tuple[Gate, ...] = (),
        convert: Callable[[Mapping[str, object]], Mapping[str, object]] | None = None,
        wants_context: bool = True,
        copies: bool | None = None,
        output: Schema | None = None,
    ) -> Plan:
        """Return the plan of one tool.

        policy: the policy in effect; None if none applies
        own: the limits of the tool itself; None if it has none
        author_timeout_s: the timeout that the tool's author set
        default_timeout: the timeout where no level sets one, None for the general default
        blocking: the runner of a synchronous target; None for a coroutine function
        repeatable: retries are safe, whatever the hints of the tool
        copies: whether the target could change arguments of any kind; None if it changes none
        The others are fields of `Plan`; the gate of the policy `deny` comes after `gates`.
        """
        services, hints = self._services, definition.hints
        repeatable = repeatable or bool(hints.read_only or hints.idempotent)
        limits = self._limits(own, author_timeout_s, blocking is not None, repeatable, default_timeout)
        settings, approval, watched = limits.settings, None, ""
        if policy is not None:
            watched = policy.word if policy.watch and policy.word in ("ask", "deny") else ""
            settings = (Setting("policy", policy.word, policy.origin), *settings)
            if watched:
                approval = WatchedPolicy(services.accounting, f"policy: {watched}")
            elif policy.word == "deny":
                gates = (*gates, PolicyGate(policy.origin))
            elif policy.word == "ask":
                approval = services.approvals
        return Plan(
            ref=definition.ref,
            target=source.target,
            schema=definition.parameters,
            switch=source.switch,
            counters=source.counters,
            abandoned=source.abandoned,
            runner=blocking or source.runner or services.runner,
            late_s=source.late_s,
            convert=convert,
            wants_context=wants_context,
            tools_of=services.tools_of,
            output=output,
            copies=not definition.parameters.only_scalars if copies is None else copies,
            gates=gates,
            approval=approval,
            approvals=services.approvals,
            grants=NO_GRANTS if policy is None else policy.grants,
            watched=watched,
            caller_approves=policy is not None and isinstance(policy.policy, AskCaller),
            replay=services.replay,
            hooks=services.hooks,
            settings=settings,
            owner=self._owner,
            **limits.in_plan(services.artifacts),
        )

    def _limits(
        self,
        own: LimitLevel | None,
        author_timeout_s: float | None,
        blocking: bool,
        repeatable: bool,
        default_timeout: DefaultTimeout | None,
    ) -> ResolvedLimits:
        key = (author_timeout_s, blocking, repeatable, self._of_one_tenant, default_timeout)
        limits = self._resolved.get(key) if own is None else None
        if limits is None:
            levels = self._levels if own is None else (*self._levels, own)
            limits = LimitSources(levels, *key).resolve(self._services.accounting)
            if own is None:
                self._resolved[key] = limits
        return limits


def add_limits(catalog: Catalog, level: LimitLevel, services: CallServices) -> Catalog:
    """Return the tools under the limits of this level in addition to their own (docs/reference/configuration.md).

    A timeout or size of a tool's own rule stays; a counter counts the calls of all these tools by all callers. Tools
    that are not configurable stay as they are.
    """

    def change(_: ToolDefinition, plan: Plan) -> Plan:
        limits = plan.limits
        if limits is None:
            return plan
        resolved = limits.sources.within(level).resolve(services.accounting)
        policy = [item for item in plan.settings if item.name == "policy"]
        return replace(plan, settings=(*policy, *resolved.settings), **resolved.in_plan(services.artifacts))

    return catalog.planned(change)


def own_tool(
    services: CallServices,
    definition: ToolDefinition,
    target: Target,
    *,
    timeout_s: float,
    max_result_bytes: int,
    forward: Forward | None = None,
) -> Tool:
    """Return a tool of toolplug itself, which no configuration, policy or plugin changes."""
    ref = definition.ref
    plan = Plan(
        ref=ref,
        target=target,
        schema=definition.parameters,
        switch=SourceSwitch(),
        counters=services.accounting.counters(ref.source, ref.name),
        abandoned=services.accounting.abandoned_limit(ref.kind, ref.source),
        runner=services.runner,
        timeout_s=timeout_s,
        max_result_bytes=max_result_bytes,
        forward=forward,
    )
    return Tool(definition, plan)
