"""A list of tools that stays for a conversation, so that the cache of the model's API does: changes are told as text.

head      what the model is sent in every request, byte by byte, with `call_tool` from the first
changes   what came, went or has other parameters since: a text in the next message of the user or answer of a tool
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple, cast

import orjson

from toolplug.catalog.call import CallContext, ToolCall, ToolResult, ToolStatus, own_parts
from toolplug.catalog.catalog import Catalog
from toolplug.catalog.definition import CALL_TOOL, SEARCH_TOOLS
from toolplug.catalog.exact_json import as_object, dump_json
from toolplug.catalog.layered_catalog import layer_catalogs
from toolplug.catalog.plan import Plan, Tool
from toolplug.execution.executor import Listener, ModelTools, ToolExecutor, Unsubscribe, entered_catalog
from toolplug.search.tools import (
    FoundTools,
    announced_call_definition,
    call_through,
    found_names,
    target_call,
    without_search,
)

MAX_CHANGES = 200
"""Changes that a conversation is told of; then its list is sent anew, as reading them costs more than that."""
MAX_CHANGES_BYTES = 64 * 1024
"""Of the texts that tell them."""

_LOG = logging.getLogger("toolplug.search")
_PAIR = frozenset({SEARCH_TOOLS, CALL_TOOL})
_BEGIN, _END = "<tool_changes>", "</tool_changes>"
_REMOVED = "Removed, a call of them fails: "
_AGAIN = "Available again: "
_ADDED = f"Added, call it with {CALL_TOOL}: "
_CHANGED = f"Changed, call it with {CALL_TOOL} and with arguments for this definition: "

_ANEW = f"{_BEGIN}\nThe list of tools is sent anew; it takes the place of all changes before.\n{_END}"
_NO_TARGET = f'{CALL_TOOL} takes {{"name": the name of a tool, "arguments": an object}}, and names no tool of its own'
_SOURCE = "_conversation"
# The calls of a conversation are run by its executor, and by the plans of that one's catalog.
_NOT_RUN = cast("Plan", None)

Function = Mapping[str, object]
"""A tool for a model: `name`, `description` and `parameters`."""


class KnownTool(NamedTuple):
    """What a model has been told last of a tool: the digest of its definition, and whether it can be called."""

    digest: str
    callable: bool


class ToolNews(NamedTuple):
    """The changes between what a model knows and what there is.

    `text` is for the model, empty if it need not be told; `known` has what it knows then of each tool that changed.
    """

    text: str
    known: Mapping[str, KnownTool]

    @property
    def told(self) -> int:
        """The number of changes in the text."""
        return len(self.known) if self.text else 0


class KnownTools:
    """The tools as the model of one conversation knows them, and how much it was told since the list was sent."""

    def __init__(self, listed: Iterable[Function]) -> None:
        self._known = {str(each["name"]): KnownTool(_digest(each), True) for each in listed}
        self.changes: int = 0
        self.bytes: int = 0

    def compare(self, listed: Mapping[str, Function], found: Collection[str] = ()) -> ToolNews:
        """Return the changes to these tools, by name, in order. A search has just told the model of those `found`."""
        lines: list[str] = []
        again: list[str] = []
        known: dict[str, KnownTool] = {}
        for name, function in listed.items():
            before, now = self._known.get(name), KnownTool(_digest(function), True)
            if before == now:
                continue
            known[name] = now
            if before is not None and before.digest == now.digest:
                again.append(name)
            elif before is not None or name not in found:
                lines.append(f"{_ADDED if before is None or not before.callable else _CHANGED}{_write(function)}")
        gone = [name for name, tool in self._known.items() if tool.callable and name not in listed]
        known |= {name: self._known[name]._replace(callable=False) for name in gone}
        lines = [
            *([f"{_REMOVED}{', '.join(gone)}"] if gone else []),
            *([f"{_AGAIN}{', '.join(again)}"] if again else []),
            *lines,
        ]
        return ToolNews("\n".join([_BEGIN, *lines, _END]) if lines else "", known)

    def has_room(self, changes: ToolNews) -> bool:
        """Return whether a conversation may be told of these changes, too."""
        return (
            self.changes + changes.told <= MAX_CHANGES and self.bytes + len(changes.text.encode()) <= MAX_CHANGES_BYTES
        )

    def learn(self, changes: ToolNews) -> None:
        """Note that the model is told of these changes."""
        self._known.update(changes.known)
        self.changes += changes.told
        self.bytes += len(changes.text.encode())

    def restore(self, known: Mapping[str, KnownTool], changes: int, told_bytes: int) -> None:
        """Know what an earlier response has told, and how much it was in all."""
        self._known.update(known)
        self.changes, self.bytes = changes, told_bytes


def functions_in(tools: Iterable[object]) -> dict[str, Function]:
    """Return the functions of tools in Chat Completions form by name, without the two that search."""
    functions = [as_object(as_object(tool).get("function")) for tool in tools]
    return {str(each["name"]): each for each in functions if each and each.get("name") not in _PAIR}


def _digest(function: Function) -> str:
    return hashlib.sha256(dump_json([function.get("description"), function.get("parameters")])).hexdigest()[:16]


def _write(function: Function) -> str:
    """Return the definition as JSON in one line, in which no text of it ends the list of changes."""
    fields = {key: function[key] for key in ("name", "description", "parameters") if function.get(key) is not None}
    return dump_json(fields).decode().replace("<", "\\u003c")


def with_text(result: ToolResult, text: str) -> ToolResult:
    """Return the result with a text after its output."""
    if not text:
        return result
    output = f"{result.output}\n\n{text}" if result.output else text
    # The parts that the output repeats would no longer be known as such.
    return result._replace(output=output, parts=tuple(own_parts(result.output, result.parts)))


class ConversationTools(ModelTools):
    """The tools of an executor for one conversation of a loop of one's own: the list stays, changes are told as text.

    It lists what the executor listed at first, and `call_tool`, which calls what came since. Calls are checked and run
    by the executor as it is now: a tool that was removed is an unknown one at once. Changes are appended to the next
    answer of a tool; `changes()` returns those for the next message of the user. It is an executor, so that adapters of
    agent frameworks take it. Raises `ValueError` if the executor has a `call_tool` of its own.

    ```python
    import asyncio

    from toolplug import ConversationTools, FunctionProvider, Principal, open_host, tool

    class Shop(FunctionProvider):
        @tool
        def price(self, item: str) -> str:
            "Say what an item costs."
            return f"{item}: 3.50 EUR"

    async def main():
        async with open_host({"store": "memory://"}, providers={"shop": Shop()}) as host:
            tools = host.executor_for(Principal(scopes=frozenset({"tools:call"})))
            view: ConversationTools = tools.conversation()
            before = view.for_openai()
            assert [each["function"]["name"] for each in before] == ["price", "call_tool"]
            await host.disable("shop", by=Principal(scopes=frozenset({"admin"})))
            assert view.for_openai() == before
            assert "Removed, a call of them fails: price" in view.changes()
            assert (await view.call("price", item="tea")).status == "unknown_tool"

    asyncio.run(main())
    ```
    """

    def __init__(self, executor: ToolExecutor) -> None:
        self._executor = executor
        self.lists: int = 0
        """How many lists the conversation has had: one, and one more each time that it was told of too many changes."""
        self._begin()

    def _begin(self) -> None:
        catalog = self._seen = entered_catalog(self._executor)
        self._searches, self._found = catalog.searchable, FoundTools()
        shown = without_search(catalog.shown) if catalog.searchable else catalog
        if shown.find(CALL_TOOL) is not None:
            raise ValueError(f"there is a tool called {CALL_TOOL}, which a list that stays needs; rename it")
        pair = [catalog[SEARCH_TOOLS].definition] if catalog.searchable else []
        own = [*pair, announced_call_definition(searches=catalog.searchable)]
        # Of another source than the two of a searchable catalog: APIs with a search of their own need every definition.
        added = [Tool(each.owned_by("native", _SOURCE), _NOT_RUN) for each in own]
        self._head = layer_catalogs(shown, Catalog(added))
        self._known = KnownTools(self._list_known(catalog).values())
        self.lists += 1

    @property
    def closed_because(self) -> str:
        """The reason why no tool can be called, as the owner has not opened the executor; empty when it has."""
        return getattr(self._executor, "closed_because", "")

    @property
    def catalog(self) -> Catalog:
        """The list that stays. What can be called is in that of the executor."""
        return self._head

    def can_execute(self, name: str) -> bool:
        """Return True for exactly the names in the list; one of them may be gone, and is refused when it is called."""
        return self._head.find(name) is not None

    def subscribe(self, listener: Listener) -> Unsubscribe:
        """Call the listener with each difference of the executor."""
        return self._executor.subscribe(listener)

    def changes(self) -> str:
        """Return what has changed since the last time, for the next message of the user; empty if nothing has.

        After more than 200 changes or 64 KiB of them the list is made anew instead, and the log says so.
        """
        catalog = entered_catalog(self._executor)
        if catalog is self._seen:
            return ""
        changes = self._known.compare(self._list_known(catalog))
        if catalog.searchable != self._searches or not self._known.has_room(changes):
            _LOG.warning("the list of tools of a conversation is sent anew, after %d changes", self._known.changes)
            self._begin()
            return _ANEW
        self._seen = catalog
        self._known.learn(changes)
        return changes.text

    async def execute(self, call: ToolCall, context: CallContext | None = None) -> ToolResult:
        """Run one call by the tools of now, one of `call_tool` as the call that it names; changes follow the output."""
        target = target_call(call) if call.name == CALL_TOOL else None
        if target is not None:
            result = await call_through(self._executor, target, context)
        elif call.name == CALL_TOOL and not self._executor.can_execute(CALL_TOOL):
            result = ToolResult(call.id, CALL_TOOL, _NO_TARGET, ToolStatus.INVALID_ARGUMENTS)
        else:
            result = await self._executor.execute(call, context)
        if call.name == SEARCH_TOOLS and self._found.add(found_names(result.structured)):
            known = self._known.compare(self._list_known(self._seen), self._found.names)
            self._known.learn(known)
        return with_text(result, self.changes())

    def _list_known(self, catalog: Catalog) -> dict[str, Function]:
        """Return what the model is to know of: the tools that are shown, and those that it has found."""
        return functions_in(orjson.loads(self._found.visible_tools(catalog).render("chat")))
