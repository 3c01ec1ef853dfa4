"""`search_tools` and `call_tool`: a catalog of thousands of tools for models whose API does not search tools itself.

many deferred tools     the two are listed last; a model sees them instead of the deferred ones
search_tools            searches the catalog of its caller, so that nobody finds what he may not call
call_tool               is the call of the tool that it names: its gates, limits, hooks, metrics and result
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, NamedTuple, cast

import orjson

from toolplug.catalog.call import CallContext, ToolCall, ToolResult, ToolStatus
from toolplug.catalog.catalog import Catalog
from toolplug.catalog.definition import ALWAYS, CALL_TOOL, SEARCH_SOURCE, SEARCH_TOOLS, ToolDefinition, ToolHints
from toolplug.catalog.exact_json import as_list, as_object
from toolplug.catalog.layered_catalog import layer_catalogs
from toolplug.catalog.plan import Forward, Plan, Tool
from toolplug.catalog.render import describe
from toolplug.crashes import CodeOwner, log_crash
from toolplug.errors import InvalidArguments, ToolError
from toolplug.execution.executor import ToolExecutor
from toolplug.execution.plans import CallServices, own_tool
from toolplug.execution.run import run
from toolplug.runtime.lru import LeastRecentlyUsed
from toolplug.runtime.threads import in_own_thread
from toolplug.search.index import ToolIndex, ToolIndexes, make_indexes
from toolplug.search.ranking import Hits, search, telling_words
from toolplug.signatures.values import decode_arguments

THRESHOLD: Final = 20
"""Below this number of deferred tools all are offered: their definitions cost about as much as one search."""

MAX_FOUND: Final = 20
MAX_QUERY: Final = 1_000
MAX_RESULT_BYTES: Final = 16 * 1024
"""The size of a result; the best tool is described whole in any case."""
FUNCTIONS: Final = "deferred_functions"
"""In the options of a call of `search_tools`: definitions of functions of the client, by the model's names."""
DEFAULT_FOUND: Final = 5
"""Tools in an answer to a query without `limit`."""
# Bytes of the schema that a model is shown again when its arguments were invalid.
_MAX_HINT = 8 * 1024
# Characters of the description of a tool that is over the size of the result.
_SHORT = 300
# Words of a tool by which it is found, for people.
_SHOWN_WORDS = 8
_INDEXES = 32
_WORTH_KEEPING = 200
"""Tools of an index that is reused after a change; a smaller one is made anew in a few milliseconds."""
_PAIRS = 64
_RANK_S = 5.0
"""How long a plugin may take to rank tools, before the host's own search answers."""
_MAX_RANKED = 1_000
"""Names of a plugin's answer that are read."""
_TIMEOUT_S = 30.0
_LARGEST_RESULT = 1024 * 1024


class ToolRanker(NamedTuple):
    """An implementation of `rank_tools`, and the plugin that it comes from."""

    ask: Callable[[str, Sequence[ToolDefinition]], object]
    owner: CodeOwner

    async def rank(self, query: str, tools: Sequence[ToolDefinition]) -> Sequence[ToolDefinition] | None:
        """Return the tools that it answers, the best first; None if it leaves it to others, or has failed."""
        try:
            async with asyncio.timeout(_RANK_S):
                names = self.ask(query, tools)
                if inspect.isawaitable(names):
                    names = await names
            if names is None:
                return None
            if isinstance(names, str) or not isinstance(names, Sequence):
                raise TypeError(f"{type(names).__name__} is no list of names")
        except Exception as error:  # noqa: BLE001  code of a plugin
            log_crash("rank_tools()", error, self.owner, then="the host's own search answers")
            return None
        known = {name: tool for tool in reversed(tools) for name in (tool.wire, tool.name)}
        asked = cast("Sequence[object]", names)[:_MAX_RANKED]
        return list(
            {id(known[name]): known[name] for name in asked if isinstance(name, str) and name in known}.values()
        )


class ToolSearch:
    """Adds the two tools to catalogs, and searches them. Indexes are kept for the catalogs that were searched last."""

    def __init__(self, services: CallServices) -> None:
        self._services = services
        self.rankers: Sequence[ToolRanker] = ()
        """Plugins that are asked before the host's own search."""
        self._indexes: LeastRecentlyUsed[int, tuple[Catalog, asyncio.Future[ToolIndexes]]] = LeastRecentlyUsed(_INDEXES)
        self._newest: ToolIndexes | None = None
        """The index that was made last of a catalog of many tools, to be reused for the next after a change."""
        self._pairs: LeastRecentlyUsed[tuple[int, int], Catalog] = LeastRecentlyUsed(_PAIRS)

    def add_search_tools(self, catalog: Catalog) -> Catalog:
        """Return the catalog with the two tools last, if `THRESHOLD` are deferred and no provider has their names.

        Otherwise the catalog itself, of which every tool is then rendered. A session's tools of these names are left
        out, as for every name of the host: an application does not decide what the others' tools cost.
        """
        if catalog.deferred < THRESHOLD:
            return catalog
        named = [tool for name in (SEARCH_TOOLS, CALL_TOOL) if (tool := catalog.find(name)) is not None]
        if any(tool.definition.ref.kind == "native" for tool in named):
            return catalog
        rest = catalog.where(lambda tool: not any(tool is each for each in named)) if named else catalog
        return layer_catalogs(rest, self.pair(rest.deferred, len(rest)))

    def pair(self, deferred: int, total: int) -> Catalog:
        """Return the two tools for a catalog of so many tools, which their descriptions tell the model."""
        pair = self._pairs.get((deferred, total))
        if pair is None:
            pair = Catalog(
                [
                    self._tool(_search_definition(deferred, total), self._search),
                    self._tool(_CALL_DEFINITION, self._call),
                ]
            )
            self._pairs.put((deferred, total), pair)
        return pair

    def announced_call(self, *, searches: bool) -> Catalog:
        """Return `call_tool` for a list that stays, as it calls what was announced later, too."""
        return Catalog([self._tool(announced_call_definition(searches=searches), self._call)])

    def _tool(self, definition: ToolDefinition, forward: Forward) -> Tool:
        return own_tool(
            self._services,
            definition,
            _not_forwarded,
            timeout_s=_TIMEOUT_S,
            max_result_bytes=_LARGEST_RESULT,
            forward=forward,
        )

    async def _search(self, tools: ToolExecutor, call: ToolCall, context: CallContext) -> ToolResult:
        """Search the deferred tools of the caller, and the functions that came with the request."""
        catalog = tools.catalog
        functions = cast("Mapping[str, ToolDefinition]", context.options.get(FUNCTIONS, {}))

        async def target(call: ToolCall, context: CallContext) -> ToolResult:
            given = cast("Mapping[str, Any]", call.arguments)  # the schema has checked them
            return await self._found(tools, given["query"], int(given.get("limit", DEFAULT_FOUND)), functions)

        plan = _listed_plan(catalog, SEARCH_TOOLS) or self.pair(0, 0)[SEARCH_TOOLS].plan
        return await run(replace(plan, target=target), call, context)

    async def _call(self, tools: ToolExecutor, call: ToolCall, context: CallContext) -> ToolResult:
        """Make the call that the arguments name."""
        catalog, target = tools.catalog, target_call(call)
        if target is None:
            plan = _listed_plan(catalog, CALL_TOOL) or self.pair(0, 0)[CALL_TOOL].plan
            return await run(plan, call, context)
        return await call_through(tools, target, context)

    async def _found(
        self, tools: ToolExecutor, query: str, most: int, functions: Mapping[str, ToolDefinition]
    ) -> ToolResult:
        """Return the result of a search for the deferred tools, and for functions by the model's names."""
        catalog = tools.catalog
        made = [await self._index(part) for part in catalog.parts if part.deferred] if catalog.searchable else []
        indexes = [index for each in made for index in each.both]
        if functions:
            indexes.append(await in_own_thread(lambda: ToolIndex(functions.values())))
        hits = await self._rank_by_plugins(indexes, query, most) or search(indexes, query, most)
        # By identity: a function of the client and a tool of the catalog may have one name.
        names = {id(definition): name for name, definition in functions.items()}
        now = tools.catalog  # another one, if tools were removed while the index was built
        best = [item for item in hits.best if id(item) in names or now is catalog or now.find(item.name) is not None]
        value: dict[str, object] = {
            "tools": list(_bound(best, names)),
            "unmatched": list(hits.unmatched),
            "of": hits.of,
        }
        if not hits.best:
            value["hint"] = _nothing_fits(query, hits, names)
        elif not best:
            value["hint"] = "the tools that have these words were removed during the search; search again"
        return ToolResult(output=orjson.dumps(value).decode(), structured=value)

    async def _rank_by_plugins(self, indexes: Sequence[ToolIndex], query: str, most: int) -> Hits | None:
        """Return what the first plugin that ranks tools answers; None if none does."""
        if not self.rankers:
            return None
        tools = [each for index in indexes for each in index.present]
        for ranker in self.rankers:
            best = await ranker.rank(query, tools)
            if best is not None:
                return Hits(best[:most], (), len(tools))
        return None

    async def _index(self, part: Catalog) -> ToolIndexes:
        """Return the index of a catalog, which is made in a thread, once for all that search it."""
        kept = self._indexes.get(id(part))
        if kept is None:
            # The future is kept before it is done, so that all that search meanwhile wait for the same index.
            making = asyncio.ensure_future(in_own_thread(lambda: make_indexes(_list_deferred(part), self._newest)))
            kept = (part, making)
            self._indexes.put(id(part), kept)
        try:
            # A searcher that is cancelled must not end the index of the others.
            made = await asyncio.shield(kept[1])
        except RuntimeError:  # no thread could be started; the next search tries again
            self._indexes.drop(id(part))
            raise
        if len(made.old.definitions) >= _WORTH_KEEPING:
            self._newest = made
        return made


def _list_deferred(part: Catalog) -> list[ToolDefinition]:
    return [item for item in part.definitions() if item.deferred]


def _nothing_fits(query: str, hits: Hits, names: Mapping[int, str]) -> str:
    """Return, in words, that no tool does what was asked for."""
    asked = query.strip()
    said = f"No tool fits {asked[:_SHORT]!r}" if asked else "No tool fits a query without words"
    near = ", ".join(names.get(id(definition), definition.wire) for definition in hits.near)
    return (
        f"{said}; nearest: {near}"
        if near
        else f"{said}: none of the {hits.of:,} tools that are not listed has its words"
    )


async def call_through(tools: ToolExecutor, target: ToolCall, context: CallContext | None) -> ToolResult:
    """Make the call that a call of `call_tool` stands for; if its arguments are invalid, add the schema to the answer.

    That is the present one: what the model has been told may be older.
    """
    tool = tools.catalog.find(target.name)
    result = await tools.execute(target, context)
    if result.status is not ToolStatus.INVALID_ARGUMENTS or tool is None:
        return result
    schema = tool.definition.parameters.text
    if len(schema) > _MAX_HINT:
        return result
    return result._replace(output=f"{result.output}\nThe parameters of {target.name}: {schema.decode()}")


def without_search(catalog: Catalog) -> Catalog:
    """Return the catalog without the two tools."""
    return catalog.where(lambda tool: tool.definition.ref.source != SEARCH_SOURCE)


def deferral(catalog: Catalog, definition: ToolDefinition) -> str:
    """Return, for people, whether a deferred tool of a caller's catalog is searched for, and by which words."""
    total = len(without_search(catalog))
    if catalog.searchable:
        found_by = ", ".join(telling_words(definition)[:_SHOWN_WORDS])
        return f"deferred, found by: {found_by}; {total - catalog.deferred:,} of {total:,} tools are shown"
    if catalog.deferred < THRESHOLD:
        return f"shown all the same, as fewer than {THRESHOLD} tools are deferred"
    return f"shown all the same, as a provider has a tool called {SEARCH_TOOLS} or {CALL_TOOL}"


def target_call(call: ToolCall) -> ToolCall | None:
    """Return the call that a call of `call_tool` stands for; None if its arguments are invalid, or name the two."""
    try:
        given = decode_arguments(call.arguments)
    except InvalidArguments:
        return None
    name, arguments = given.get("name"), given.get("arguments", {})
    if not isinstance(name, str) or not isinstance(arguments, dict | str) or name in (SEARCH_TOOLS, CALL_TOOL):
        return None
    if not given.keys() <= {"name", "arguments"}:
        return None
    return ToolCall(call.id, name, cast("dict[str, object] | str", arguments))


async def _not_forwarded(call: ToolCall, context: CallContext) -> ToolResult:
    """Answer a call of `call_tool` that names one of the two tools."""
    given = as_object(call.arguments)
    raise ToolError(f"call {given.get('name')} itself, not through {CALL_TOOL}")


def _listed_plan(catalog: Catalog, name: str) -> Plan | None:
    """Return the plan of one of the two tools, with what the catalog's owner has added to it; None if it has none."""
    tool = catalog.find(name)
    return tool.plan if tool is not None and tool.definition.ref.source == SEARCH_SOURCE else None


def _bound(definitions: Iterable[ToolDefinition], names: Mapping[int, str]) -> Iterator[dict[str, object]]:
    """Yield the tools as a model reads them; what is over the size of a result is cut, the best tool excepted."""
    left = MAX_RESULT_BYTES
    for place, definition in enumerate(definitions):
        about, parameters = describe(definition), definition.parameters
        name, size = names.get(id(definition), definition.wire), len(about.encode()) + len(parameters.text)
        if not place or size <= left:
            left -= size
            yield {"name": name, "description": about, "parameters": parameters.value}
        else:
            yield {"name": name, "description": about[:_SHORT], "parameters": "left out; search for it alone"}


MOST_FOUND: Final = 50
"""Tools that one conversation is offered in addition; those that it finds later are called with `call_tool`."""


class FoundTools:
    """Names of tools in the order in which they were found. None is ever moved or removed, for the prompt cache."""

    __slots__ = ("_names",)

    def __init__(self) -> None:
        self._names: dict[str, None] = {}

    def add(self, names: Iterable[str]) -> bool:
        """Add the names that are new, at most `MOST_FOUND` in all; return whether there was one."""
        before = len(self._names)
        for name in names:
            if len(self._names) < MOST_FOUND:
                self._names[name] = None
        return len(self._names) > before

    @property
    def names(self) -> Sequence[str]:
        """The wire names, in order."""
        return tuple(self._names)

    def visible_tools(self, catalog: Catalog) -> Catalog:
        """Return the tools that the model sees: those that are not deferred, then those that were found."""
        if not catalog.searchable or not self._names:
            return catalog.shown
        found = [tool for name in self._names if (tool := catalog.find(name)) and tool.definition.deferred]
        # Else they would still be deferred, and not be rendered.
        listed = [Tool(replace(item.definition, offered=ALWAYS), item.plan) for item in found]
        return Catalog([*catalog.shown.values(), *listed], prefixes=catalog.prefixes)


def found_names(output: object) -> Sequence[str]:
    """Return the wire names in a result of `search_tools`, given as its text or value; none if it is no such result."""
    if isinstance(output, str):
        try:
            output = orjson.loads(output)
        except orjson.JSONDecodeError:
            return ()
    tools = as_object(output).get("tools")
    listed = as_list(tools)
    names = [as_object(tool).get("name") for tool in listed]
    return [name for name in names if isinstance(name, str)]


def _search_definition(deferred: int, total: int) -> ToolDefinition:
    return ToolDefinition(
        name=SEARCH_TOOLS,
        description=f"Find tools that are not listed here: {total - deferred:,} of your {total:,} tools are listed,"
        f" {deferred:,} are not. Search by what the tool should do, in a few words. Returns names, descriptions and"
        f" parameters of the best matches. Call one by its name if it is listed by then, else with {CALL_TOOL}.",
        parameters={
            "type": "object",
            "properties": {
                "query": {"type": "string", "minLength": 1, "maxLength": MAX_QUERY, "description": "a few words"},
                "limit": {"type": "integer", "minimum": 1, "maximum": MAX_FOUND, "default": DEFAULT_FOUND},
            },
            "required": ["query"],
            "additionalProperties": False,
        },
        hints=ToolHints(read_only=True, idempotent=True, destructive=False, internal=True),
    ).owned_by("native", SEARCH_SOURCE)


_CALL_DEFINITION = ToolDefinition(
    name=CALL_TOOL,
    description=f"Call a tool that {SEARCH_TOOLS} has found and that is not listed.",
    parameters={
        "type": "object",
        "properties": {
            "name": {"type": "string", "description": f"as {SEARCH_TOOLS} gives it"},
            "arguments": {"type": "object", "description": "as the tool's parameters say"},
        },
        "required": ["name"],
        "additionalProperties": False,
    },
    hints=ToolHints(internal=True),
).owned_by("native", SEARCH_SOURCE)


def announced_call_definition(*, searches: bool) -> ToolDefinition:
    """Return the definition of `call_tool` in a list that stays; `searches`: next to `search_tools`."""
    found = f"that {SEARCH_TOOLS} has found, or " if searches else ""
    about = (
        f"Call a tool that is not listed: one {found}that a list of changes in a later message has added or changed."
    )
    return replace(_CALL_DEFINITION, description=about)
