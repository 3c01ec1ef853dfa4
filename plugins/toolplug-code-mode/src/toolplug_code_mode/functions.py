"""The functions that the scripts of one caller may call: which tools they are, their stubs, and how they are found."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import NamedTuple

from toolplug import Catalog, ToolDefinition, ToolExecutor, open_catalog
from toolplug.catalog import Tool
from toolplug.runtime import LeastRecentlyUsed
from toolplug.search import ToolIndexes, make_indexes, search
from toolplug_code_mode.limits import MAX_DESCRIPTION, MAX_FOUND, MAX_LISTED, MAX_TABLES
from toolplug_code_mode.stubs import EXPORTED_BY_HEAD, HEAD, function_names, stub_of

_DECLARED = re.compile(r"^(?:async def |class |)(\w+)(?=\(| = TypedDict)", re.MULTILINE)
_WORD = re.compile(r"[^\W\d]\w*")


class Function(NamedTuple):
    """A tool under the name that it has in scripts."""

    name: str
    tool: Tool

    @property
    def definition(self) -> ToolDefinition:
        """The definition of the tool."""
        return self.tool.definition

    @property
    def read_only(self) -> bool:
        """Whether its author promises that it changes nothing."""
        return self.definition.hints.read_only is True

    @property
    def stub(self) -> str:
        """The function in Python, with its types."""
        return stub_of(self.name, self.definition)


class Functions:
    """The functions of one catalog by their names.

    `left_out` are the names of tools that scripts may not call.
    """

    def __init__(self, catalog: Catalog, may_call: Callable[[Tool], bool]) -> None:
        self.catalog = catalog
        tools = {tool.definition.wire: tool for tool in catalog.values()}
        allowed = {wire for wire, tool in tools.items() if may_call(tool)}
        self.by_name: Mapping[str, Function] = {
            name: Function(name, tools[wire]) for name, wire in function_names(allowed).items()
        }
        self.left_out = frozenset(tools.keys() - allowed)
        self._indexes: ToolIndexes | None = None

    def named_in(self, code: str) -> Sequence[Function]:
        """Return the functions whose names are words of the script."""
        words = dict.fromkeys(_WORD.findall(code))
        return [self.by_name[word] for word in words if word in self.by_name]

    def stubs_for(self, code: str) -> str:
        """Return the stubs against which a script is checked: checking all of a thousand would take seconds."""
        text = stub_text(self.named_in(code))
        # The checker imports `*`, which leaves out what begins with an underscore.
        return f"{text}\n__all__ = {EXPORTED_BY_HEAD + _DECLARED.findall(text)}\n"

    def find(self, query: str) -> tuple[Sequence[Function], int]:
        """Return the functions that fit a query, the best first, and how many there are. Blocks for a moment."""
        by_tool = {id(each.definition): each for each in self.by_name.values()}
        if self._indexes is None:
            self._indexes = make_indexes([each.definition for each in self.by_name.values()])
        hits = search(self._indexes.both, query, MAX_FOUND)
        return [by_tool[id(each)] for each in (hits.best or hits.near)], len(self.by_name)


def stub_text(functions: Sequence[Function]) -> str:
    """Return the stubs of some functions after what all of them need."""
    return "\n".join([HEAD, *(each.stub for each in functions)])


class FunctionTables:
    """The functions of callers, kept for each list of tools for as long as it stays the same.

    `callers` is the setting, `source` the key of the code mode itself, whose own tools no script calls.
    """

    def __init__(self, callers: str | Sequence[str], source: str) -> None:
        self._callers = callers
        self._source = source
        self._tables = LeastRecentlyUsed[int, Functions](MAX_TABLES)

    async def of(self, tools: ToolExecutor) -> Functions:
        """Return the functions of the caller of these tools."""
        return self.of_catalog(await open_catalog(tools))

    def of_catalog(self, catalog: Catalog) -> Functions:
        """Return the functions of a caller with this catalog."""
        # A kept table holds its catalog, so that no other one has the same number.
        table = self._tables.get(id(catalog))
        if table is None:
            table = Functions(catalog, self._may_call)
            self._tables.put(id(catalog), table)
        return table

    def description(self, catalog: Catalog, text: str) -> str | None:
        """Return the description of `run_code` with all functions of a catalog; None if these are too many."""
        if sum(map(self._may_call, catalog.values())) > MAX_LISTED:
            return None
        functions = [*Functions(catalog, self._may_call).by_name.values()]
        whole = f"{text}\n\nThe functions that there are:\n\n{stub_text(functions)}"
        return whole if functions and len(whole.encode()) <= MAX_DESCRIPTION else None

    def _may_call(self, tool: Tool) -> bool:
        definition = tool.definition
        # One that calls other tools by their names, as `call_tool` does, would call those that are left out.
        if definition.ref.source == self._source or tool.plan.forward is not None:
            return False
        if self._callers == "all":
            return True
        if not isinstance(self._callers, str):
            names = (definition.name, definition.wire, f"{definition.ref.source}.{definition.ref.name}")
            return any(fnmatchcase(name, pattern) for pattern in self._callers for name in names)
        read_only = definition.hints.read_only is True
        return read_only or (self._callers == "guarded" and asks_person(tool))


def asks_person(tool: Tool) -> bool:
    """Return whether the policy of the tool has a person approve each call."""
    return tool.plan.approval is not None and not tool.plan.watched
