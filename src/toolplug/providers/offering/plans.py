"""The prompts and resources of a started provider with their plans: its own code, run and limited like a tool's."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import replace
from typing import TypeVar, cast

from toolplug.catalog.call import CallContext, ToolCall, ToolResult
from toolplug.catalog.definition import ANY_OBJECT, ToolDefinition, ToolRef
from toolplug.catalog.offering import OfferedEntry, Offering
from toolplug.catalog.plan import NO_HOOKS, CallRunner, Plan, Target
from toolplug.errors import InvalidDefinition
from toolplug.execution.limiters import SourceSwitch
from toolplug.execution.plans import CallServices, PlanSource
from toolplug.providers.entry import ProviderEntry
from toolplug.providers.lifecycle import run_step
from toolplug.providers.offering.decorators import contents_of, is_async, messages_of
from toolplug.providers.offering.definitions import Completion, Prompt, Resource
from toolplug.providers.planning import KIND, check_once, plan_builder
from toolplug.providers.provider import FunctionProvider

T = TypeVar("T")

GET_PROMPT = "prompts/get"
READ_RESOURCE = "resources/read"
COMPLETE = "completion/complete"
"""The `tool_name` in metrics of what is asked of a source besides its tools."""

_TWICE = "leave one of them out"

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
    check_once(entry, "offers the prompt", [prompt.name for prompt in prompts], _TWICE)
    check_once(entry, "offers the resource", [resource.uri for resource in resources], _TWICE)
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
