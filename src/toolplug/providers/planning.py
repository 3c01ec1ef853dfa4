"""Tools with plans, from a provider's tools and the operator's rules."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from functools import partial

from toolplug.catalog.call import CallContext, CallerAuth, ToolCall
from toolplug.catalog.definition import ALWAYS, Offered, ToolDefinition, check_provider_tool_name
from toolplug.catalog.plan import CallRunner, Target, Tool
from toolplug.catalog.schema import Schema
from toolplug.config.nearest import name_hint
from toolplug.config.units import DEFAULT_ORIGIN
from toolplug.errors import InvalidDefinition, ProviderError
from toolplug.execution.accounting import level_of
from toolplug.execution.limiters import SourceSwitch
from toolplug.execution.plans import NO_RULE, CallServices, PlanBuilder, PlanSource, ToolRule
from toolplug.execution.resolved_limits import NO_LIMITS, LimitLevel
from toolplug.execution.task_runner import OutsideRunner
from toolplug.execution.user_auth import AuthOwner
from toolplug.providers.authoring import BoundTool, bound_tools
from toolplug.providers.entry import ProviderEntry, ProviderState
from toolplug.providers.lifecycle import run_step
from toolplug.providers.provider import FunctionProvider, outside_target
from toolplug.runtime.duplicates import first_repeated

_LOG = logging.getLogger("toolplug.providers")

KIND = "native"


def planned_tools(
    entry: ProviderEntry, provider: FunctionProvider, services: CallServices, switch: SourceSwitch, threads: CallRunner
) -> list[Tool]:
    """Return the provider's tools, in its own order. Raises `ProviderError`, naming the tool, for an invalid one."""
    bound = run_step(entry, "tools()", lambda: _bound(provider))
    names = [tool.definition.name for tool in bound]
    _check(entry, names)
    planner = _ToolPlanner(entry, services, switch, threads, provider.accepts_idempotency_key)
    # The inherited one asks tools() again for each name, to find what it has just given.
    own_can_execute = type(provider).can_execute is not FunctionProvider.can_execute
    listed: list[Tool] = []
    for tool in bound:
        name = tool.definition.name
        rule = entry.tools.get(name, NO_RULE)
        if rule.policy == "disable":
            continue
        # A provider of its own making may list what it refuses; such a tool would only cost the model a call.
        if own_can_execute and not run_step(
            entry, f"can_execute({name!r})", lambda name=name: provider.can_execute(name)
        ):
            _LOG.warning("%s lists the tool %r but its can_execute refuses it: left out", entry.owner, name)
            continue
        listed.append(planner.tool(tool, rule))
    return listed


def _bound(provider: FunctionProvider) -> Sequence[BoundTool]:
    """Return the targets of calls: the decorated methods, unless the provider overrides `tools` or `execute`."""
    methods = {tool.definition.name: tool for tool in bound_tools(provider)}
    own_execute = type(provider).execute is not FunctionProvider.execute
    bound: list[BoundTool] = []
    for definition in provider.tools():
        _check_schema(definition)
        method = methods.get(definition.name)
        if method is not None and not own_execute:
            # The definition that `tools()` has returned: an override may have changed the text of a decorated method.
            bound.append(method._replace(definition=definition, copies=not definition.parameters.only_scalars))
        else:
            outside = outside_target(provider)
            # What runs outside of this process gets a copy as it is: scalars need no other.
            copies = outside is None or not definition.parameters.only_scalars
            runner = None if outside is None else OutsideRunner()
            bound.append(BoundTool(definition, outside or provider.execute, False, True, None, copies, runner))
    return bound


def _check_schema(definition: ToolDefinition) -> None:
    """Raise `InvalidDefinition` for an invalid schema, or one whose patterns exceed their limits."""
    try:
        definition.parameters.check()
    except InvalidDefinition as error:
        raise InvalidDefinition(f"the tool {definition.name!r}: {error}") from None


def _check(entry: ProviderEntry, names: Sequence[str]) -> None:
    for name in names:
        run_step(entry, "tools()", lambda name=name: check_provider_tool_name(name))
    check_once(entry, "lists the tool", names, fix="give one of them another name")
    for error in unknown_tools(entry, names):
        raise error


def check_once(entry: ProviderEntry, what: str, names: Sequence[str], fix: str) -> None:
    """Raise `ProviderError` if a name is there twice; `what` is what the provider does with each."""
    twice = first_repeated(names)
    if twice is not None:
        raise ProviderError(f"{entry.owner} {what} {twice!r} twice", state=ProviderState.START_FAILED, fix=fix)


def unknown_tools(entry: ProviderEntry, names: Sequence[str]) -> Iterator[ProviderError]:
    """Return a problem for each rule of the entry that names a tool which the provider does not have."""
    for name in entry.tools:
        if name not in names:
            said, fix = f"{entry.owner} has no tool {name!r}", name_hint(name, names)
            yield ProviderError(said, state=ProviderState.CONFIG_INVALID, fix=fix, at=("tools", name))


class _ToolPlanner:
    """Builds the tools of one provider."""

    def __init__(
        self,
        entry: ProviderEntry,
        services: CallServices,
        switch: SourceSwitch,
        threads: CallRunner,
        accepts_key: bool,
    ) -> None:
        self._entry = entry
        self._accepts_key = accepts_key
        self._accounting = services.accounting
        self._credentials = services.credentials
        self._switch = switch
        self._threads = threads
        self._builder = plan_builder(entry, services)
        self._offered = ALWAYS if entry.offer == "always" else Offered(entry.offer, entry.origin("offer"))

    def tool(self, bound: BoundTool, rule: ToolRule) -> Tool:
        entry, accounting = self._entry, self._accounting
        origin = partial(entry.origin, "tools", bound.definition.ref.name)
        definition = bound.definition.owned_by(KIND, entry.key, rule.offer_for(origin, self._offered))
        ref = definition.ref
        own = LimitLevel(level_of(ref), rule.limits, partial(origin, "limits"))
        plan = self._builder.build(
            definition,
            PlanSource(
                self._target(bound),
                self._switch,
                accounting.counters(entry.key, ref.name),
                accounting.abandoned_limit(KIND, entry.key),
                runner=bound.runner,
            ),
            rule.policy_in(rule.policy, DEFAULT_ORIGIN if rule.policy is None else origin("policy")),
            None if rule.limits == NO_LIMITS else own,
            author_timeout_s=definition.timeout_s,
            blocking=self._threads if bound.blocking else None,
            repeatable=self._accepts_key,
            gates=rule.gates(origin),
            convert=bound.convert,
            wants_context=bound.wants_context,
            copies=bound.copies,
            output=self._output(definition),
        )
        return Tool(definition, plan)

    def _target(self, bound: BoundTool) -> Target:
        """Return the target of a tool; with `user_auth`, its context has the credentials of callers."""
        auth = self._entry.user_auth
        if auth is None or not bound.wants_context:
            return bound.target
        owner, credentials = AuthOwner(KIND, self._entry.key), self._credentials

        async def get(context: CallContext, refused: str) -> str:
            return await credentials.credential(owner, auth, context, refused)

        given = CallerAuth(get, *auth.sent_as)

        def call_as_user(call: ToolCall, context: CallContext, /) -> object:
            return bound.target(call, context._replace(user_auth=given))

        return call_as_user

    def _output(self, definition: ToolDefinition) -> Schema | None:
        """Return the output type that results must match; None for none, or for one that is not valid."""
        try:
            if definition.output_schema is not None:
                definition.output_schema.check()
        except InvalidDefinition as error:
            text = "%s: results of %r are not checked, as its output schema is invalid: %s"
            _LOG.warning(text, self._entry.owner, definition.name, error)
            return None
        return definition.output_schema


def plan_builder(entry: ProviderEntry, services: CallServices) -> PlanBuilder:
    return PlanBuilder(
        services,
        LimitLevel((KIND, entry.key), entry.limits, partial(entry.origin, "limits")),
        host=LimitLevel((), entry.host_limits, partial(entry.host_origin, "limits")),
        owner=entry.owner,
    )
