"""The tools offered to the model in one turn: the client's functions and the caller's catalog."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple, cast

import orjson

from toolplug.catalog.call import CallContext, ToolCall, ToolResult
from toolplug.catalog.catalog import Catalog
from toolplug.catalog.definition import SEARCH_TOOLS, ToolDefinition
from toolplug.catalog.exact_json import as_object
from toolplug.catalog.layered_catalog import layer_catalogs
from toolplug.catalog.render import fragment
from toolplug.errors import ResponseRefused, UnmatchedStub
from toolplug.execution.executor import ToolExecutor
from toolplug.execution.isolated_hooks import OwnedTracer
from toolplug.model_apis.stubs import CHOICE, StubTable, StubWarning, expand_builtin_tools, mapped_choice
from toolplug.parts.responses.limits import MAX_TOOLS
from toolplug.parts.responses.request import ResponseRequest
from toolplug.parts.responses.request_tools import (
    CUSTOM,
    ClientTool,
    RequestedServerTools,
    as_function_choice,
    make_refusal,
    named_servers,
    read_tools,
)
from toolplug.search.tools import FUNCTIONS, ToolSearch, without_search

Names = frozenset[str]

_CHOICES = frozenset({"auto", "none", "required"})
_OF_FUNCTION = ("name", "description", "parameters", "strict")
_NOTHING: Names = frozenset()


class Offer(NamedTuple):
    """The tools of one turn.

    `tools` and `choice` are in Chat Completions form; `own` are the client's tools by the model's names, `hosted` the
    other tools, `withheld` the wire names of those that this request does not use, `allowed` the names that may be
    called (None: any); `options` are by canonical name. `catalog` has every tool that may be called.
    """

    tools: Sequence[object]
    choice: object
    own: Mapping[str, ClientTool]
    hosted: Sequence[ToolDefinition]
    withheld: Names
    catalog: Catalog
    allowed: Names | None
    options: Mapping[str, Mapping[str, object]]
    warnings: tuple[StubWarning, ...]

    def knows(self, name: str) -> bool:
        """Return whether there is a tool of this name."""
        return name in self.own or self.catalog.find(name) is not None


class _Listed(NamedTuple):
    catalog: Catalog


def make_offer(
    request: ResponseRequest, catalog: Catalog, search: ToolSearch | None, found: Sequence[str], *, strict: bool
) -> Offer:
    """Return the tools for a request and the current catalog; deferred ones only if they were `found`.

    Raises `ResponseRefused`.
    """
    brought = read_tools(request.tools or [])
    if brought.deferred and search is not None:
        catalog = _searchable(catalog, brought.deferred, search)
    own = frozenset(brought.own)
    _check_choice(request.tool_choice)
    servers = RequestedServerTools(catalog)
    given = as_function_choice(request.tool_choice, servers)
    try:
        expansion = expand_builtin_tools(brought.functions, _Listed(catalog), tool_choice=given, strict=strict)
    except UnmatchedStub as error:
        at = "tool_choice" if error.index == CHOICE else f"tools[{brought.places[error.index]}]"
        raise ResponseRefused("unmatched_stub", str(error), param=at) from None
    dropped = next((warning for warning in brought.warnings if warning.code == "unmatched_stub"), None)
    if strict and dropped is not None:
        raise ResponseRefused("unmatched_stub", dropped.message, param=f"tools[{dropped.index}]")
    named_by_type = named_servers(brought.servers, servers, strict=strict)
    listed = [_chat(entry) for entry in expansion.tools]
    chosen = _chosen_names(expansion.tool_choice, catalog)
    allowed = _intersect_allowed(request, expansion.tool_choice, chosen, catalog, servers)
    named = chosen | (allowed or _NOTHING) | named_by_type.declared
    stubbed = frozenset(str(_name_of(entry)) for entry in listed) - own
    unseen = frozenset(brought.deferred) - named
    later = [entry for entry in listed if _name_of(entry) in unseen]
    listed = [entry for entry in listed if _name_of(entry) not in unseen]
    hosted, withheld = _divide(catalog, own, named_by_type.left_out, stubbed | named)
    listed += [orjson.loads(fragment(tool, "chat")) for tool in hosted if tool.wire not in stubbed]
    deferred = {_name_of(entry): entry for entry in reversed(later)}
    for name in found:
        listed += [deferred[name]] if name in deferred else []
        tool = catalog.find(name)
        if tool is not None and tool.definition.deferred and tool.definition.wire not in withheld | stubbed | named:
            hosted.append(tool.definition)
            listed.append(orjson.loads(fragment(tool.definition, "chat")))
    tools = listed if allowed is None else [entry for entry in listed if _name_of(entry) in allowed]
    return Offer(
        tools,
        _choice(expansion.tool_choice, allowed, catalog) if tools else None,
        brought.own,
        hosted if allowed is None else [tool for tool in hosted if tool.wire in allowed],
        withheld,
        catalog,
        _NOTHING if given == "none" else allowed,
        {**expansion.options, SEARCH_TOOLS: {FUNCTIONS: brought.deferred}} if brought.deferred else expansion.options,
        (*_place(expansion.warnings, brought.places), *brought.warnings, *named_by_type.warnings),
    )


def _searchable(catalog: Catalog, functions: Mapping[str, ToolDefinition], search: ToolSearch) -> Catalog:
    deferred = len(functions) + (catalog.deferred if catalog.searchable else 0)
    rest = without_search(catalog)
    return layer_catalogs(rest, search.pair(deferred, len(rest) + len(functions)))


def _divide(catalog: Catalog, own: Names, left_out: Names, named: Names) -> tuple[list[ToolDefinition], Names]:
    """Return the tools that the model sees at once, and the wire names of those that the request does not use."""
    hosted: list[ToolDefinition] = []
    withheld: set[str] = set()
    searchable = catalog.searchable
    for tool in catalog.definitions():
        if not own.isdisjoint((tool.name, tool.wire)) or tool.wire in left_out:
            withheld.add(tool.wire)
        elif tool.wire in named or tool.offered.how == "always" or (tool.deferred and not searchable):
            hosted.append(tool)
        elif not tool.deferred:
            withheld.add(tool.wire)
    return hosted, frozenset(withheld)


def _place(warnings: Sequence[StubWarning], places: Sequence[int]) -> Iterator[StubWarning]:
    """Return the warnings with the index of each entry in the request."""
    for warning in warnings:
        yield warning if warning.index == CHOICE else replace(warning, index=places[warning.index])


def check_choice(request: ResponseRequest, offer: Offer) -> None:
    """Raise `ResponseRefused` if the choice names a function that is not offered."""
    if as_object(request.tool_choice).get("type") in {"function", CUSTOM}:
        name = _name_of(offer.choice)
        if name is None or not any(_name_of(entry) == name for entry in offer.tools):
            raise make_refusal("tool_choice", f"it names {name!r}, which is no tool of this request")


def _check_choice(choice: object) -> None:
    if isinstance(choice, str) and choice not in _CHOICES:
        raise make_refusal(
            "tool_choice", f"{choice!r} is no choice; auto, none and required are, and objects with a type"
        )
    if isinstance(choice, Mapping):
        given = as_object(cast("object", choice))
        if not isinstance(given.get("type"), str):
            raise make_refusal("tool_choice.type", "the type of a choice should be text")
        if given["type"] == "allowed_tools" and not isinstance(given.get("tools"), list):
            raise make_refusal("tool_choice.tools", "allowed_tools has a list of tools")
        for tools in (given.get("tools"), as_object(given.get("allowed_tools")).get("tools")):
            if isinstance(tools, list) and len(cast("list[object]", tools)) > MAX_TOOLS:
                at = "tool_choice.tools"
                raise ResponseRefused("too_many", f"{at}: allowed_tools has at most {MAX_TOOLS:,} tools", param=at)


def _chat(entry: object) -> object:
    """Return a tool in Chat Completions form; tools of stubs have it already."""
    tool = as_object(entry)
    if tool.get("type") != "function" or "function" in tool:
        return entry
    return {"type": "function", "function": {key: tool[key] for key in _OF_FUNCTION if tool.get(key) is not None}}


def _name_of(entry: object) -> object:
    return as_object(as_object(entry).get("function")).get("name")


def _chosen_names(choice: object, catalog: Catalog) -> Names:
    """Return the names in a choice, as wire names if the catalog has them."""
    given = as_object(choice)
    if given.get("type") == "allowed_tools":
        listed = as_object(given.get("allowed_tools")).get("tools")
        return frozenset(_wire(str(_name_of(entry)), catalog) for entry in cast("list[object]", listed))
    name = _name_of(choice)
    return frozenset({_wire(name, catalog)}) if isinstance(name, str) else _NOTHING


def _intersect_allowed(
    request: ResponseRequest, choice: object, chosen: Names, catalog: Catalog, servers: RequestedServerTools
) -> Names | None:
    """Return the names that are in both lists; None if there is no list."""
    by_choice = chosen if as_object(choice).get("type") == "allowed_tools" else None
    if choice == "none" and request.tool_choice != "none":
        by_choice = _NOTHING
    if not request.allowed_tools:  # an empty filter filters nothing
        return by_choice
    table = StubTable(catalog)

    def wires(kind: str) -> tuple[str, ...]:
        return tuple(tool.wire for tool in table.tools(kind))

    entries: list[object] = []
    for entry in request.allowed_tools:
        entries.append(_meant(entry, catalog, table) if isinstance(entry, str) else entry)
    meant = as_function_choice({"type": "allowed_tools", "tools": entries}, servers)
    mapped = mapped_choice(meant, wires, lambda kind, message: None)
    listed = _chosen_names(mapped, catalog)
    return listed if by_choice is None else listed & by_choice


def _meant(name: str, catalog: Catalog, table: StubTable) -> Mapping[str, object]:
    """Return the entry for a bare name: a function, or a stub by its type."""
    if catalog.find(name) is None and table.tools(name):
        return {"type": name}
    return {"type": "function", "name": name}


def _choice(choice: object, allowed: Names | None, catalog: Catalog) -> object:
    """Return the choice in a form that all backends accept."""
    given = as_object(choice)
    if given.get("type") == "allowed_tools":
        return as_object(given["allowed_tools"]).get("mode", "auto")
    if allowed is not None and not allowed:
        return "none"
    name = _name_of(choice)
    return choice if name is None else {"type": "function", "function": {"name": _wire(str(name), catalog)}}


def _wire(name: str, catalog: Catalog) -> str:
    tool = catalog.find(name)
    return name if tool is None else tool.definition.wire


Decide = Callable[[str, bool, str], Awaitable[None]]
"""Takes a ticket, whether its call is approved, and the reason, which may be empty.

Does nothing where the asker may not decide.
"""


async def decided_elsewhere(ticket: str, approve: bool, reason: str) -> None:
    """Do nothing: this caller may not decide."""


class ToolCaller(NamedTuple):
    """The tools of one response.

    `context` is that of each call; `listing` returns the catalog of a turn, if `executor.catalog` is not enough;
    `search` finds the client's own deferred functions; with `strict`, an unknown stub refuses the request; `leave` is
    called when the response has ended; `warnings` are those about the request itself, for the answer; `tracers` make
    spans of the response; `is_live` returns whether a catalog has a source whose tools come and go.
    """

    executor: ToolExecutor
    context: CallContext = CallContext()
    listing: Callable[[], Awaitable[Catalog]] | None = None
    search: ToolSearch | None = None
    decide: Decide = decided_elsewhere
    strict: bool = False
    leave: Callable[[], object] = lambda: None
    warnings: Sequence[Mapping[str, object]] = ()
    tracers: Sequence[OwnedTracer] = ()
    is_live: Callable[[Catalog], bool] = lambda _: False

    async def catalog(self) -> Catalog:
        """Return the current tools."""
        return self.executor.catalog if self.listing is None else await self.listing()

    async def execute(self, call: ToolCall, context: CallContext, offer: Offer) -> ToolResult:
        """Run a hosted call; `search_tools` may be a tool of the offer alone."""
        tool = offer.catalog.find(call.name)
        if tool is not None and tool.plan.forward is not None:
            return await tool.plan.forward(self.executor, call, context)
        return await self.executor.execute(call, context)
