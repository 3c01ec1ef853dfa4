"""Expansion of built-in tool stubs such as `{"type": "…"}` into functions, which all backends support.

A stub is an entry whose `type` is neither `function` nor `custom` and that has no function definition; its other keys
are options. The tools of the catalog declare the types (docs/reference/responses.md).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Protocol, cast

import orjson

from toolplug.catalog.catalog import Catalog
from toolplug.catalog.definition import ToolDefinition
from toolplug.catalog.exact_json import as_object, dump_json
from toolplug.catalog.render import fragment
from toolplug.errors import UnmatchedStub

# What a request's `tool_choice` says once its stubs are functions, in the Chat Completions form.
#
#     "auto" | "none" | "required"                   as it is
#     {"type": "function", …}                        as it is; the flat form of the Responses API is nested
#     {"type": "custom", …}                          as it is
#     {"type": <stub>}, one tool                     that function
#     {"type": <stub>}, several tools                allowed_tools with mode required: one of them must be called
#     {"type": "allowed_tools", …}                   each entry so; nested if it was flat; "none" when nothing is left,
#                                                    since a request that allows nothing we have allows nothing
#     anything else                                  dropped and reported
#
# The tools of the request are not changed: a choice of a type does not add its tools.

_DROPPED = "; it is dropped"
"""Ends the message of a warning: an error that refuses the request drops nothing."""

Names = Callable[[str], tuple[str, ...]]
"""The wire names of the tools that a stub type stands for in this request; none for an unmatched one."""

Report = Callable[[str, str], None]
"""Takes the type of a choice that matches nothing, as text, and the message."""


def mapped_choice(choice: object, names: Names, unmatched: Report) -> object:
    """Return the choice in Chat Completions form; the same object if nothing changes."""
    if choice is None or isinstance(choice, str):
        return choice
    given = as_object(choice)
    if not isinstance(choice, Mapping):
        unmatched("", f"tool_choice is neither text nor an object but {type(choice).__name__}{_DROPPED}")
        return None
    if given.get("type") == "allowed_tools":
        return _restrict_allowed(given, names, unmatched)
    functions = _functions(given, names, unmatched)
    if len(functions) > 1:
        return {"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": functions}}
    return functions[0] if functions else None


def _restrict_allowed(choice: Mapping[str, object], names: Names, unmatched: Report) -> object:
    inner = as_object(choice["allowed_tools"]) if "allowed_tools" in choice else choice
    listed = inner.get("tools")
    if not isinstance(listed, list | tuple):
        unmatched("allowed_tools", "tool_choice of type allowed_tools has no list of tools; nothing is allowed")
        return "none"
    entries = cast("list[object]", listed)
    distinct: dict[bytes, Mapping[str, object]] = {}
    for entry in entries:
        for function in _functions(as_object(entry), names, unmatched):
            # By their JSON: mappings are not hashable.
            distinct.setdefault(dump_json(function), function)
    tools = list(distinct.values())
    if not tools:
        return "none"
    if inner is not choice and len(tools) == len(entries) and all(a is b for a, b in zip(tools, entries, strict=True)):
        return choice
    return {"type": "allowed_tools", "allowed_tools": {"mode": inner.get("mode", "auto"), "tools": tools}}


def _functions(choice: Mapping[str, object], names: Names, unmatched: Report) -> list[Mapping[str, object]]:
    """Return the functions of one choice: itself, or those of a stub type."""
    kind = choice.get("type")
    if kind == "custom":
        return [choice]
    if kind == "function":
        nested = "function" in choice or "name" not in choice
        return [choice if nested else {"type": "function", "function": {"name": choice["name"]}}]
    named = names(kind) if isinstance(kind, str) else ()
    if not named:
        unmatched(kind if isinstance(kind, str) else "", f"tool_choice names {kind!r}, which matches no tool here")
    return [{"type": "function", "function": {"name": name}} for name in named]


class OptionsRefused(NamedTuple):
    """A stub's options are refused: its tools do not support the key, or the value is invalid."""

    supported: bool
    message: str


class StubTable:
    """The stub types of a catalog. A type belongs to the first provider that declares it, with its tools in order."""

    def __init__(self, catalog: Catalog) -> None:
        self._tools: dict[str, list[ToolDefinition]] = {}
        self._others: dict[str, ToolDefinition] = {}
        for definition in catalog.definitions():
            for stub in dict.fromkeys(definition.hosted.stubs if definition.hosted else ()):
                tools = self._tools.setdefault(stub, [])
                if tools and _provider(tools[0]) != _provider(definition):
                    self._others.setdefault(stub, definition)
                else:
                    tools.append(definition)

    def tools(self, kind: str) -> tuple[ToolDefinition, ...]:
        """Return the tools of a type, in listing order; empty for an unknown type."""
        return tuple(self._tools.get(kind, ()))

    def find_double(self, kind: str) -> str | None:
        """Return the provider that has the type, and another one that declares it too, if there is one."""
        other = self._others.get(kind)
        if other is None:
            return None
        return (
            f"stub type {kind!r} is declared by {self._tools[kind][0].ref.source!r} and by {other.ref.source!r}; the "
            "first one is used"
        )

    def options(self, kind: str, given: Mapping[str, object]) -> Mapping[str, Mapping[str, object]] | OptionsRefused:
        """Return the options by tool name, to each tool those that it declares; a refusal if no tool declares one."""
        tools = self.tools(kind)
        unsupported = [key for key in given if not any(_supports(tool, key) for tool in tools)]
        if unsupported:
            known = sorted({key for tool in tools for key in _read_declared(tool)})
            return OptionsRefused(
                supported=False,
                message=f"stub {kind!r} does not support {_list_keys(unsupported)}; it takes {_list_keys(known)}",
            )
        taken: dict[str, Mapping[str, object]] = {}
        for tool in tools:
            mine = {key: value for key, value in given.items() if _supports(tool, key)}
            lines = tool.hosted.options.refusals(mine) if tool.hosted and tool.hosted.options else ()
            if lines:
                return OptionsRefused(
                    supported=True, message=f"the options of stub {kind!r} are not valid: {'; '.join(lines)}"
                )
            taken[tool.name] = mine
        return taken


def _provider(definition: ToolDefinition) -> tuple[str, str]:
    return (definition.ref.kind, definition.ref.source)


def _supports(tool: ToolDefinition, key: str) -> bool:
    """Return whether the option is declared; an object schema without `additionalProperties` allows no others here."""
    if tool.hosted is None or tool.hosted.options is None:
        return False
    schema = tool.hosted.options.value
    open_ended = schema.get("additionalProperties", False) is not False or "patternProperties" in schema
    return open_ended or "properties" not in schema or key in _read_declared(tool)


def _read_declared(tool: ToolDefinition) -> Mapping[str, object]:
    options = tool.hosted.options if tool.hosted else None
    return as_object(options.value.get("properties") if options else None)


def _list_keys(keys: list[str]) -> str:
    return ", ".join(repr(key) for key in keys) or "no options"


StubCode = Literal[
    "unmatched_stub", "unsupported_option", "invalid_option", "name_taken", "duplicate_type", "options_ignored"
]

CHOICE = -1
"""The index of a warning about `tool_choice`, which stands at no position of the tools."""


class HasCatalog(Protocol):
    """The part of a tool executor that expansion reads."""

    @property
    def catalog(self) -> Catalog: ...


@dataclass(frozen=True, slots=True)
class StubWarning:
    """A warning about a request's stubs, for its author.

    `index` is that of the entry in the request, `CHOICE` for the tool choice; `type` is the stub's, or empty. The stub
    was dropped: `unmatched_stub`, `unsupported_option`, `invalid_option`. Its tool was not added: `name_taken`, the
    client has a function of that name. No effect: `duplicate_type`, another provider declares the type too;
    `options_ignored`, an earlier stub of the same tool has other options, or the host has no such option.
    """

    code: StubCode
    index: int
    type: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Expansion:
    """The tools of a request without stubs.

    `tools`: a new list with the client's own entries, the same objects in the same order, and each other tool in place
    of the first stub that expands to it. `options`: by canonical tool name, for `CallContext.options`; only tools whose
    stub has any.

    ```python
    import asyncio

    from toolplug import Expansion, FunctionRegistry, expand_builtin_tools, tool

    @tool(stub="weather")
    def weather(city: str) -> str:
        "Say what the weather is."
        return f"rain in {city}"

    async def main():
        async with FunctionRegistry([weather]) as registry:
            request: Expansion = expand_builtin_tools([{"type": "weather"}, {"type": "tarot"}], registry)
            assert [each["function"]["name"] for each in request.tools] == ["weather"]
            assert [each.code for each in request.warnings] == ["unmatched_stub"]

    asyncio.run(main())
    ```
    """

    tools: list[Any]
    tool_choice: object
    options: Mapping[str, Mapping[str, object]]
    warnings: tuple[StubWarning, ...]


def expand_builtin_tools(
    tools: Sequence[object] | None, registry: HasCatalog, *, tool_choice: object = None, strict: bool = False
) -> Expansion:
    """Return the request's tools with each stub replaced by the tools of its type, and its `tool_choice` mapped.

    Changes neither the request nor the registry. A stub that no listed tool declares, or whose options its provider
    does not support, is removed with a warning, or, with `strict`, raises `UnmatchedStub`.
    """
    entries = list(tools or ())
    request = _Request(StubTable(registry.catalog), frozenset(_own_names(entries)), strict)
    expanded: list[object] = []
    for index, entry in enumerate(entries):
        if _is_stub(entry):
            expanded += [orjson.loads(fragment(tool, "chat")) for tool in request.expand(index, entry)]
        else:
            expanded.append(entry)
    choice = mapped_choice(tool_choice, request.chosen_functions, request.choice_unmatched)
    return Expansion(tools=expanded, tool_choice=choice, options=request.options, warnings=tuple(request.warnings))


class _Request:
    """The state of one request while its stubs are expanded in order."""

    def __init__(self, table: StubTable, own_names: frozenset[str], strict: bool) -> None:
        self.options: dict[str, Mapping[str, object]] = {}
        self.warnings: list[StubWarning] = []
        self._table = table
        self._own_names = own_names
        self._strict = strict
        self._listed: set[str] = set()
        self._expanded: dict[str, bool] = {}

    def expand(self, index: int, entry: object) -> list[ToolDefinition]:
        """Return the tools to list in place of a stub: those of its type that are not in the request already."""
        stub = as_object(entry)
        given = stub.get("type")
        kind = given if isinstance(given, str) else ""
        tools = self._table.tools(kind)
        if not tools:
            self._refuse("unmatched_stub", index, kind, _describe_unmatched(entry, given))
            return []
        doubled = self._table.find_double(kind)
        if doubled and kind not in self._expanded:
            self._warn("duplicate_type", index, kind, doubled)
        options = self._table.options(kind, {key: value for key, value in stub.items() if key != "type"})
        # False until one stub of the type is kept: a choice of a type whose stubs were all dropped matches nothing.
        self._expanded.setdefault(kind, False)
        if isinstance(options, OptionsRefused):
            code = "invalid_option" if options.supported else "unsupported_option"
            self._refuse(code, index, kind, options.message)
            return []
        self._expanded[kind] = True
        return [tool for tool in tools if self._adds(tool, index, kind, options.get(tool.name))]

    def chosen_functions(self, kind: str) -> tuple[str, ...]:
        """Return the functions of a choice of this type; none if each stub of the type was dropped."""
        return tuple(tool.wire for tool in self._table.tools(kind)) if self._expanded.get(kind, True) else ()

    def choice_unmatched(self, kind: str, message: str) -> None:
        self._refuse("unmatched_stub", CHOICE, kind, message)

    def _adds(self, tool: ToolDefinition, index: int, kind: str, options: Mapping[str, object] | None) -> bool:
        if not self._own_names.isdisjoint((tool.name, tool.wire)):
            self._warn("name_taken", index, kind, f"the request has a function {tool.wire!r} of its own, which is used")
            return False
        if options and self.options.setdefault(tool.name, options) != options:
            self._warn("options_ignored", index, kind, f"an earlier stub gave {tool.wire!r} other options, which hold")
        added = tool.name not in self._listed
        self._listed.add(tool.name)
        return added

    def _refuse(self, code: StubCode, index: int, kind: str, message: str) -> None:
        if self._strict:
            raise UnmatchedStub(message.removesuffix(_DROPPED), index=index, type=kind)
        self._warn(code, index, kind, message)

    def _warn(self, code: StubCode, index: int, kind: str, message: str) -> None:
        self.warnings.append(StubWarning(code, index, kind, message))


def _is_stub(entry: object) -> bool:
    given = as_object(entry)
    return given.get("type") not in ("function", "custom") and not isinstance(given.get("function"), Mapping)


def _own_names(entries: Sequence[object]) -> Iterator[str]:
    """Return the names of the client's functions, nested as in Chat Completions or flat as in the Responses API."""
    for entry in entries:
        if _is_stub(entry):
            continue
        own = as_object(entry)
        for place in (own, as_object(own.get("function")), as_object(own.get("custom"))):
            name = place.get("name")
            if isinstance(name, str):
                yield name


def _describe_unmatched(entry: object, kind: object) -> str:
    if not isinstance(entry, Mapping):
        return f"an entry of tools is no object but {type(entry).__name__}{_DROPPED}"
    if kind is None:
        return f"an entry of tools has no type and no function{_DROPPED}"
    return f"no active provider declares stub type {kind!r}{_DROPPED}"
