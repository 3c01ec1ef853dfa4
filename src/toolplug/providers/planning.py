"""Plans of what a started provider offers: its tools, prompts and resources, under the operator's rules."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TypeVar, cast

from toolplug.catalog.call import CallContext, CallerAuth, ToolCall, ToolResult
from toolplug.catalog.definition import ALWAYS, ANY_OBJECT, Offered, ToolDefinition, ToolRef, check_provider_tool_name
from toolplug.catalog.offering import OfferedEntry, Offering
from toolplug.catalog.plan import NO_HOOKS, CallRunner, Plan, Target, Tool
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
from toolplug.providers.offering.decorators import contents_of, is_async, messages_of
from toolplug.providers.offering.definitions import Completion, Prompt, Resource
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


def drain_seconds(entry: ProviderEntry, services: CallServices) -> float:
    """Return how many seconds the provider's calls may go on after it was switched off."""
    return plan_builder(entry, services).drain_s


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
    twice = first_repeated(names)
    if twice is not None:
        raise ProviderError(
            f"{entry.owner} lists the tool {twice!r} twice",
            state=ProviderState.START_FAILED,
            fix="give one of them another name",
        )
    for error in unknown_tools(entry, names):
        raise error


def unknown_tools(entry: ProviderEntry, names: Sequence[str]) -> Iterator[ProviderError]:
    """Return a problem for each rule of the entry that names a tool which the provider does not have."""
    for name in entry.tools:
        if name not in names:
            yield ProviderError(
                f"{entry.owner} has no tool {name!r}",
                state=ProviderState.CONFIG_INVALID,
                fix=name_hint(name, names),
                at=("tools", name),
            )


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
        """Return the tool of a bound method with its rule."""
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
            _LOG.warning(
                "%s: results of %r are not checked, as its output schema is invalid: %s",
                self._entry.owner,
                definition.name,
                error,
            )
            return None
        return definition.output_schema


def plan_builder(entry: ProviderEntry, services: CallServices) -> PlanBuilder:
    """Return the builder of the plans of a provider."""
    return PlanBuilder(
        services,
        LimitLevel((KIND, entry.key), entry.limits, partial(entry.origin, "limits")),
        host=LimitLevel((), entry.host_limits, partial(entry.host_origin, "limits")),
        owner=entry.owner,
    )


T = TypeVar("T")

GET_PROMPT = "prompts/get"
READ_RESOURCE = "resources/read"
COMPLETE = "completion/complete"
"""The `tool_name` in metrics of what is asked of a source besides its tools."""

MAX_COMPLETIONS = 100
"""The most values of one completion, by the protocol."""


def planned_offering(
    entry: ProviderEntry,
    provider: FunctionProvider,
    services: CallServices,
    switch: SourceSwitch,
    threads: CallRunner,
) -> Offering:
    """Return the prompts and resources of a provider, in its own order.

    Raises `ProviderError` if one is offered twice or its hooks return something else.
    """
    planner = _OfferingPlanner(entry, services, switch, threads)
    prompts = run_step(entry, "prompts()", lambda: _all_of(Prompt, provider.prompts()))
    resources = run_step(entry, "resources()", lambda: _all_of(Resource, provider.resources()))
    _check_once(entry, "prompt", [prompt.name for prompt in prompts])
    _check_once(entry, "resource", [resource.uri for resource in resources])
    whole = [planner.resource(item) for item in resources if not item.variables]
    return Offering(
        prompts={item.name: planner.prompt(item) for item in prompts},
        resources={item.key: item for item in whole},
        templates={item.uri: planner.resource(item) for item in resources if item.variables},
    )


def _all_of(kind: type[T], items: Iterable[object]) -> list[T]:
    found: list[T] = []
    for item in items:
        if not isinstance(item, kind):
            raise InvalidDefinition(f"{item!r:.200} is no {kind.__name__}; return toolplug.{kind.__name__} objects")
        found.append(item)
    return found


def _check_once(entry: ProviderEntry, what: str, names: Sequence[str]) -> None:
    twice = first_repeated(names)
    if twice is not None:
        raise ProviderError(
            f"{entry.owner} offers the {what} {twice!r} twice",
            state=ProviderState.START_FAILED,
            fix="leave one of them out",
        )


class _OfferingPlanner:
    """Builds the plans of one provider's prompts and resources, which share three counters."""

    def __init__(
        self,
        entry: ProviderEntry,
        services: CallServices,
        switch: SourceSwitch,
        threads: CallRunner,
    ) -> None:
        self._entry = entry
        self._accounting = services.accounting
        self._builder = plan_builder(entry, services)
        self._switch = switch
        self._threads = threads

    def prompt(self, prompt: Prompt) -> OfferedEntry:
        """Return a prompt with its plans."""

        def result(call: ToolCall, value: object) -> ToolResult:
            described = {"description": prompt.description} if prompt.description else {}
            return ToolResult(structured={**described, "messages": messages_of(value)})

        return OfferedEntry(
            key=prompt.name,
            fields=prompt.fields,
            plan=self._plan(GET_PROMPT, prompt.name, prompt.get, result, prompt.parameters),
            completion=self._completion(prompt.name, prompt.completions),
        )

    def resource(self, resource: Resource) -> OfferedEntry:
        """Return a resource, or template, with its plans. A call has the URI as its name."""

        def read(arguments: Mapping[str, object], context: CallContext) -> object:
            variables = cast("Mapping[str, object]", arguments["variables"])
            return resource.read(variables, context)

        async def read_async(arguments: Mapping[str, object], context: CallContext) -> object:
            return await cast("Awaitable[object]", read(arguments, context))

        def result(call: ToolCall, value: object) -> ToolResult:
            uri = str(cast("Mapping[str, object]", call.arguments)["uri"])
            return ToolResult(structured={"contents": [contents_of(value, uri, resource.mime_type)]})

        function = read_async if is_async(resource.read) else read
        return OfferedEntry(
            key=resource.uri,
            fields=resource.fields,
            plan=self._plan(READ_RESOURCE, resource.uri, function, result, ANY_OBJECT),
            completion=self._completion(resource.uri, resource.completions),
        )

    def _completion(self, name: str, completions: Mapping[str, Completion]) -> Plan | None:
        if not completions:
            return None

        async def values(arguments: Mapping[str, object], context: CallContext) -> object:
            source = completions.get(str(arguments["argument"]), ())
            typed = str(arguments["value"])
            if not callable(source):
                # A fixed list is filtered here; a function does its own filtering, perhaps by a database.
                return [text for text in source if text.casefold().startswith(typed.casefold())]
            found = source(typed)
            return list(await found if inspect.isawaitable(found) else found)

        def result(call: ToolCall, value: object) -> ToolResult:
            texts = cast("list[object]", value)
            if not all(isinstance(text, str) for text in texts):
                raise TypeError("the values of a completion are texts")
            shown = texts[:MAX_COMPLETIONS]
            completion = {"values": shown, "total": len(texts), "hasMore": len(texts) > len(shown)}
            return ToolResult(structured={"completion": completion})

        return self._plan(COMPLETE, name, values, result, ANY_OBJECT)

    def _plan(
        self,
        method: str,
        name: str,
        function: Callable[[Mapping[str, object], CallContext], object],
        result: Callable[[ToolCall, object], ToolResult],
        parameters: Mapping[str, object],
    ) -> Plan:
        key, waits = self._entry.key, is_async(function)
        # No digest: only approvals compare it, and these are for tools.
        definition = ToolDefinition(name=name, parameters=parameters, ref=ToolRef(KIND, key, name, ""))
        source = PlanSource(
            _target(function, result, waits=waits),
            self._switch,
            self._accounting.counters(key, method),
            self._accounting.abandoned_limit(KIND, key),
        )
        plan = self._builder.build(definition, source, blocking=None if waits else self._threads)
        return replace(plan, artifacts=None, hooks=NO_HOOKS)  # a part of a prompt or resource is of no use


def _target(
    function: Callable[[Mapping[str, object], CallContext], object],
    result: Callable[[ToolCall, object], ToolResult],
    *,
    waits: bool,
) -> Target:
    def arguments_of(call: ToolCall) -> Mapping[str, object]:
        return cast("Mapping[str, object]", call.arguments)  # decoded on its way here

    if waits:

        async def target(call: ToolCall, context: CallContext, /) -> ToolResult:
            return result(call, await cast("Awaitable[object]", function(arguments_of(call), context)))

        return target

    def blocking(call: ToolCall, context: CallContext, /) -> ToolResult:
        return result(call, function(arguments_of(call), context))

    return blocking
