"""The tools of a request, as functions, which all backends support.

function    unchanged
custom      the client's own tool with a text as input: a function with one text parameter
namespace   the client's own functions and custom tools, each offered as `namespace__name`
tool_search makes functions with `defer_loading` deferred ones, which the host's own search finds
mcp         a server by its label: tools of the caller's catalog, as a host does not connect to servers of a request
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, Literal, NamedTuple, cast

import orjson

from toolplug.catalog.catalog import Catalog
from toolplug.catalog.definition import ANY_OBJECT, Offered, ToolDefinition
from toolplug.catalog.exact_json import as_object, dump_json
from toolplug.errors import InvalidDefinition, ResponseRefused
from toolplug.model_apis.stubs import StubWarning
from toolplug.parts.responses.limits import MAX_FUNCTIONS

CUSTOM: Final = "custom"
MCP: Final = "mcp"
SEARCH: Final = "tool_search"

Entry = Mapping[str, object]

_NAMESPACE: Final = "namespace"
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_INPUT = "input"
_PARAMETERS: Entry = {
    "type": "object",
    "properties": {_INPUT: {"type": "string"}},
    "required": [_INPUT],
    "additionalProperties": False,
}
_IGNORED = "only the model calls functions here, so allowed_callers is ignored"
_UNSEARCHED = "defer_loading needs a tool of type tool_search in the request; the function is offered at once"
_UNINDEXED = "defer_loading is ignored, since the function cannot be searched for"
_SEARCHED_HERE = "this host searches itself, so execution: client is ignored"


class ClientTool(NamedTuple):
    """A tool of the client, with its names in the request."""

    kind: Literal["function", "custom"]
    name: str
    namespace: str | None = None


class RequestTools(NamedTuple):
    """The tools of one request.

    `functions`: in Responses form, with those of namespaces in place; `places`: the index of each in the request;
    `own`: the client's tools by the model's names; `deferred`: the definitions of those to search for; `servers`: the
    entries of type `mcp`, with their indexes.
    """

    functions: Sequence[Entry]
    places: Sequence[int]
    own: Mapping[str, ClientTool]
    deferred: Mapping[str, ToolDefinition]
    servers: Sequence[tuple[int, Entry]]
    warnings: Sequence[StubWarning]


class RequestedServerTools:
    """The tools of a catalog by their servers, so that no entry of a request looks through the whole catalog."""

    def __init__(self, catalog: Catalog) -> None:
        self._tools: dict[str, list[ToolDefinition]] = {}
        self._named: dict[tuple[str, object], list[ToolDefinition]] = {}
        for tool in catalog.definitions():
            if tool.ref.kind != "session":
                self._tools.setdefault(tool.ref.source, []).append(tool)
                for name in {tool.ref.name, tool.name, tool.wire}:
                    self._named.setdefault((tool.ref.source, name), []).append(tool)

    def of(self, label: object) -> Sequence[ToolDefinition]:
        """Return the tools of a server, in listing order; none for an unknown one."""
        return self._tools.get(label, ()) if isinstance(label, str) else ()

    def find(self, label: object, name: object) -> Sequence[ToolDefinition]:
        """Return those that have this name: the server's own, the canonical or the wire name."""
        return self._named.get((label, name), ()) if isinstance(label, str) and isinstance(name, str) else ()

    def passing(self, entry: Entry) -> frozenset[str]:
        """Return the wire names that an entry's own filter includes; an empty filter includes all."""
        label, allowed = entry.get("server_label"), entry.get("allowed_tools")
        given = as_object(allowed)
        names = given.get("tool_names") if given else allowed
        tools: Iterable[ToolDefinition] = self.of(label)
        if isinstance(names, list) and names:
            tools = [tool for name in cast("list[object]", names) for tool in self.find(label, name)]
        if given.get("read_only") is True:
            tools = [tool for tool in tools if tool.hints.read_only]
        return frozenset(tool.wire for tool in tools)


class NamedServers(NamedTuple):
    """The entries of type `mcp`: the wire names that they offer, and those that their filters exclude."""

    declared: frozenset[str]
    left_out: frozenset[str]
    warnings: Sequence[StubWarning]


def name_for_model(name: str, namespace: object) -> str:
    """Return the backend's name of a tool, which may be in a namespace."""
    return f"{namespace}__{name}" if isinstance(namespace, str) and namespace else name


def read_tools(entries: Sequence[Entry]) -> RequestTools:
    """Read the tools of a request. Raises `ResponseRefused` for one that cannot be offered."""
    functions: list[Entry] = []
    places: list[int] = []
    own: dict[str, ClientTool] = {}
    deferred: dict[str, ToolDefinition] = {}
    servers: list[tuple[int, Entry]] = []
    warnings: list[StubWarning] = []
    searches = any(entry.get("type") == SEARCH for entry in entries)
    for index, entry in enumerate(entries):
        kind, at = entry.get("type"), f"tools[{index}]"
        if not isinstance(kind, str) or not kind:
            raise make_refusal(f"{at}.type", "a tool has a type, such as function")
        if kind == MCP:
            servers.append((index, entry))
            continue
        if kind == SEARCH:
            if entry.get("execution") == "client":
                warnings.append(StubWarning("options_ignored", index, SEARCH, _SEARCHED_HERE))
            continue
        found = _in_namespace(entry, at) if kind == _NAMESPACE else [(entry, None, at)]
        for tool, namespace, place in found:
            if namespace is not None and tool["type"] not in {"function", CUSTOM}:
                message = f"{place}: a tool in a namespace is a function or custom; this one is dropped"
                warnings.append(StubWarning("unmatched_stub", index, str(tool["type"]), message))
                continue
            function = as_function(tool, namespace)
            if len(functions) == MAX_FUNCTIONS:
                message = f"{place}: a request has at most {MAX_FUNCTIONS:,} functions, with those of namespaces"
                raise ResponseRefused("too_many", message, param=place)
            functions.append(function)
            places.append(index)
            if tool["type"] not in {"function", CUSTOM}:
                continue
            _add(own, tool, namespace, place)
            ignored = [_IGNORED] if tool.get("allowed_callers") else []
            if tool.get("defer_loading"):
                definition = _searchable(function) if searches else None
                if definition is not None:
                    deferred[str(function["name"])] = definition
                else:
                    ignored.append(_UNINDEXED if searches else _UNSEARCHED)
            kind = str(tool["type"])
            warnings += [StubWarning("options_ignored", index, kind, f"{place}: {message}") for message in ignored]
    return RequestTools(functions, places, own, deferred, servers, warnings)


def _searchable(function: Entry) -> ToolDefinition | None:
    """Return the function as a definition to search for; None if its description or schema is over the limits."""
    described, parameters = function.get("description"), function.get("parameters")
    try:
        return ToolDefinition(
            name=str(function["name"]),
            description=described if isinstance(described, str) else "",
            parameters=as_object(parameters) or ANY_OBJECT,
            offered=Offered("search"),
        )
    except InvalidDefinition:
        return None


def as_function(tool: Entry, namespace: str | None = None) -> Entry:
    """Return the function for a custom tool or one in a namespace; other tools unchanged.

    A grammar is described to the model, but not enforced.
    """
    if namespace is not None:
        tool = {**tool, "name": name_for_model(str(tool.get("name")), namespace)}
    if tool.get("type") != CUSTOM:
        return tool
    form = as_object(tool.get("format"))
    told = [text] if isinstance(text := tool.get("description"), str) else []
    if form.get("type") == "grammar":
        told.append(f"The input keeps to this grammar ({form.get('syntax')}):\n{form.get('definition')}")
    described = {"description": "\n\n".join(told)} if told else {}
    return {"type": "function", "name": tool.get("name"), **described, "parameters": _PARAMETERS}


def as_function_choice(choice: object, servers: RequestedServerTools) -> object:
    """Return the choice with functions instead of custom tools, namespaces and servers; other choices unchanged."""
    given = as_object(choice)
    if given.get("type") == "allowed_tools":
        inner = as_object(given["allowed_tools"]) if "allowed_tools" in given else given
        listed = inner.get("tools")
        if not isinstance(listed, list):
            return choice
        if not listed:
            return inner.get("mode", "auto")
        entries = _distinct(cast("list[object]", listed))
        tools = _distinct(each for entry in entries for each in _functions_of(entry, servers))
        return {"type": "allowed_tools", "mode": inner.get("mode", "auto"), "tools": tools}
    functions = _functions_of(choice, servers)
    if len(functions) > 1:
        return {"type": "allowed_tools", "mode": "required", "tools": functions}
    return functions[0]


def _distinct(entries: Iterable[object]) -> list[object]:
    """Return the entries without those that say the same as an earlier one."""
    distinct: dict[bytes, object] = {}
    for entry in entries:
        distinct.setdefault(dump_json(entry), entry)
    return list(distinct.values())


def named_servers(entries: Sequence[tuple[int, Entry]], servers: RequestedServerTools, *, strict: bool) -> NamedServers:
    """Return what the entries of type `mcp` offer.

    With `strict` raises `ResponseRefused` for a server that is not in the catalog, and for an option that only the host
    can set.
    """
    declared: set[str] = set()
    mentioned: dict[str, Sequence[ToolDefinition]] = {}
    warnings: list[StubWarning] = []
    for index, entry in entries:
        label = entry.get("server_label")
        tools = servers.of(label)
        if not tools:
            message = f"server_label {label!r} is no server of your catalog, and no other is called; it is dropped"
            warnings.append(StubWarning("unmatched_stub", index, MCP, message))
            continue
        if entry.get("require_approval") not in (None, "never"):
            message = "this host's policies say which calls a person approves, so require_approval is ignored"
            warnings.append(StubWarning("options_ignored", index, MCP, message))
        mentioned[str(label)] = tools
    for entry in _distinct(
        {"server_label": entry.get("server_label"), "allowed_tools": entry.get("allowed_tools")} for _, entry in entries
    ):
        declared |= servers.passing(as_object(entry))
    left_out = {tool.wire for tools in mentioned.values() for tool in tools}
    if strict and warnings:
        first = warnings[0]
        raise ResponseRefused("unmatched_stub", first.message, param=f"tools[{first.index}]")
    return NamedServers(frozenset(declared), frozenset(left_out - declared), warnings)


def input_of(arguments: str) -> str:
    """Return the input text of a custom tool's call; the raw arguments if the model has not followed the schema."""
    try:
        text = as_object(orjson.loads(arguments)).get(_INPUT)
    except orjson.JSONDecodeError:
        return arguments
    return text if isinstance(text, str) else arguments


def arguments_of(text: str) -> str:
    """Return the function's arguments, as JSON, for a text."""
    return orjson.dumps({_INPUT: text}).decode()


def _in_namespace(entry: Entry, at: str) -> Iterator[tuple[Entry, str, str]]:
    namespace, tools = entry.get("name"), entry.get("tools")
    if not isinstance(namespace, str) or not _NAME.fullmatch(namespace):
        raise make_refusal(f"{at}.name", "a namespace has a name of 1 to 64 of the characters A-Z a-z 0-9 _ -")
    if not isinstance(tools, list):
        raise make_refusal(f"{at}.tools", "a namespace has a list of tools")
    for place, given in enumerate(cast("list[object]", tools)):
        tool = as_object(given)
        kind = tool.get("type")
        if not isinstance(kind, str) or not kind:
            raise make_refusal(f"{at}.tools[{place}].type", "a tool in a namespace is a function or custom")
        yield tool, namespace, f"{at}.tools[{place}]"


def _add(own: dict[str, ClientTool], tool: Entry, namespace: str | None, at: str) -> None:
    name = tool.get("name")
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise make_refusal(f"{at}.name", "a function has a name of 1 to 64 of the characters A-Z a-z 0-9 _ -")
    if not isinstance(tool.get("parameters", {}), dict | None):
        raise make_refusal(f"{at}.parameters", "parameters should be a JSON Schema")
    if tool["type"] == CUSTOM and not isinstance(tool.get("format"), dict | None):
        raise make_refusal(f"{at}.format", "format should be an object with a type")
    whole = name_for_model(name, namespace)
    if not _NAME.fullmatch(whole):
        raise make_refusal(
            f"{at}.name", f"the model knows it as {whole!r}, which is over 64 characters; use shorter names"
        )
    added = ClientTool("custom" if tool["type"] == CUSTOM else "function", name, namespace)
    if own.setdefault(whole, added) != added:
        raise make_refusal(f"{at}.name", f"another tool of this request is {whole!r} for the model; rename one of them")


def _functions_of(choice: object, servers: RequestedServerTools) -> list[object]:
    given = as_object(choice)
    kind, name, namespace = given.get("type"), given.get("name"), given.get("namespace")
    if kind == MCP:
        label = given.get("server_label")
        tools = servers.of(label) if name is None else servers.find(label, name)
        return [{"type": "function", "name": tool.wire} for tool in tools] or [choice]
    if kind == CUSTOM or (kind == "function" and namespace is not None):
        return [{"type": "function", "name": name_for_model(str(name), namespace)}]
    return [choice]


def make_refusal(at: str, message: str) -> ResponseRefused:
    """Return the error for a field of a request, by its place."""
    return ResponseRefused("invalid_request", f"{at}: {message}", param=at)
