"""The operations of a document as tools: which ones, under which names, with which arguments."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import NamedTuple, cast
from urllib.parse import quote

from toolplug import ToolDefinition, ToolHints, foreign_definition
from toolplug.errors import InvalidDefinition
from toolplug_openapi.arguments import STYLES, Argument, Arguments, Body, Parameter, rank, read_parameter
from toolplug_openapi.document import Document, Node, OperationRefused, as_list, as_object, as_text
from toolplug_openapi.schemas import MAX_SCHEMA_DEPTH, MAX_SCHEMA_NODES, SchemaWriter
from toolplug_openapi.settings import METHODS, OperationFilter

OWN_HEADERS = frozenset(
    {"accept", "accept-encoding", "authorization", "connection", "content-length", "content-type", "cookie", "expect"}
    | {"host", "keep-alive", "proxy-authorization", "te", "trailer", "transfer-encoding", "upgrade"}
)
"""Headers that are never an argument: OpenAPI ignores three of them, the others are those of the connection."""

HINTS: Mapping[str, ToolHints] = {
    "get": ToolHints(read_only=True, idempotent=True, destructive=False),
    "put": ToolHints(read_only=False, idempotent=True, destructive=True),
    "delete": ToolHints(read_only=False, idempotent=True, destructive=True),
    "post": ToolHints(read_only=False),
    "patch": ToolHints(read_only=False),
}
"""The properties of methods in HTTP (RFC 9110, section 9.2)."""

_WORD = re.compile(r"[^A-Za-z0-9_-]+")
_SENT_AS_IT_IS = "/?:@!$&'()*+,;=-._~%"
_TEMPLATE = re.compile(r"{([^{}]*)}")
MAX_PATH = 2_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One operation that is a tool: how it is called, and the definition of the tool.

    `path` may end with a query of its own. `server` is set where it has another one than the rest. `security`:
    alternatives of schemes that it needs, None where nothing is said.
    """

    id: str
    method: str
    path: str
    server: str | None
    arguments: tuple[Argument, ...]
    body: Body | None
    security: tuple[frozenset[str], ...] | None
    name: str
    description: str
    parameters: dict[str, object]
    output: dict[str, object] | None


class Found(NamedTuple):
    """An operation of the document, not judged yet.

    `id` is its operationId, else, or where an earlier one has that, `METHOD /path`. `path` is sent, not `stated_path`.
    """

    id: str
    method: str
    stated_path: str
    path: str
    item: Node
    raw: Node


def operations_of(document: Document) -> tuple[list[Found], dict[str, str]]:
    """Return the operations in the document's order, and the reason for each one left out, by its place."""
    found: dict[str, Found] = {}
    skipped: dict[str, str] = {}
    for stated_path, raw_item in as_object(document.root["paths"]).items():
        if stated_path.startswith("x-"):
            continue
        try:
            item = document.resolve(raw_item, "the path")
            path = _sent_path(stated_path)
        except OperationRefused as error:
            skipped[stated_path[:200]] = str(error)
            continue
        for method in METHODS:
            if item.get(method) is None:
                continue
            place, raw = f"{method.upper()} {stated_path}", as_object(item[method])
            stated = as_text(raw.get("operationId"))
            id_ = place if not stated or stated in found else stated
            if id_ in found:
                skipped[place] = f"another operation has {id_!r} as its operationId; give one of them another"
            else:
                found[id_] = Found(id_, method, stated_path, path, item, raw)
    return list(found.values()), skipped


def _sent_path(path: str) -> str:
    """Return the path as it is sent. Raises `OperationRefused`.

    A fragment is not sent: documents tell operations of one path apart by it. What no URL may have is encoded.
    """
    path = path.partition("#")[0]
    if len(path) > MAX_PATH or not path.isprintable():
        raise OperationRefused("its path has characters that nobody can see, or too many of them")
    pieces = _TEMPLATE.split(path if path.startswith("/") else f"/{path}")
    # the text between templates, and the names in them, in turn
    return "".join(f"{{{piece}}}" if at % 2 else quote(piece, safe=_SENT_AS_IT_IS) for at, piece in enumerate(pieces))


def matches(filter_: OperationFilter, each: Found) -> bool:
    """Return whether the operation has everything that the filter names."""
    return (
        (filter_.operation is None or fnmatchcase(each.id, filter_.operation))
        and (filter_.method is None or filter_.method.lower() == each.method)
        and (filter_.path is None or fnmatchcase(each.stated_path, filter_.path))
        and (filter_.tag is None or filter_.tag in as_list(each.raw.get("tags")))
    )


def tool_name(each: Found, rename: Mapping[str, str]) -> str:
    """Return the configured name of the tool, else one made of the operationId, at most 64 characters long."""
    if each.id in rename:
        return rename[each.id]
    name = _WORD.sub("_", each.id).strip("_") or each.method
    return name if len(name) <= 64 else f"{name[:55]}_{hashlib.sha256(name.encode()).hexdigest()[:8]}"


class _Attempt(NamedTuple):
    """How much of the schemas is kept: up to so many references and levels. `alone`: each argument is judged alone."""

    steps: int
    depth: int
    alone: bool = False


_ATTEMPTS = (
    _Attempt(MAX_SCHEMA_NODES, MAX_SCHEMA_DEPTH),
    _Attempt(3, MAX_SCHEMA_DEPTH),
    _Attempt(3, 8),
    _Attempt(1, 8),
    _Attempt(1, 8, alone=True),
    _Attempt(0, 4, alone=True),
)


def operation_of(
    document: Document,
    each: Found,
    name: str,
    *,
    server: str | None,
    taken: Container[tuple[str, str]],
    whole: bool,
) -> tuple[Operation, Sequence[str]]:
    """Return the tool of an operation, and a line for each part removed from it. Raises `OperationRefused`.

    `taken` are places and lower-case names that credentials fill: they are no arguments. `whole`: its answer is given
    untrimmed, so that the schema of the answer holds. Where its schemas are more than a tool may have, those that many
    references lead to become any value, and then those that cannot be kept at all.
    """
    parameters, notes = _parameters(document, each)
    reason = ""
    for attempt in _ATTEMPTS:
        writer = SchemaWriter(document, "request", most_steps=attempt.steps, most_depth=attempt.depth)
        arguments = Arguments(writer)
        for parameter in parameters:
            name_of = parameter.name.lower()
            is_own = parameter.place == "header" and name_of in OWN_HEADERS
            if not is_own and (parameter.place, name_of) not in taken:
                arguments.add_parameter(parameter)
        raw_body = each.raw.get("requestBody")
        body = None if raw_body is None else arguments.add_body(document, raw_body)
        output = _output(document, each) if whole else None
        if attempt.alone:
            _drop_schemas(arguments, writer.defs)
        try:
            definition, removed = _definition(each, name, arguments, writer.defs, output)
        except InvalidDefinition as error:
            reason = reason or f"{error}; larger parts of its schemas are any value"
            continue
        made = Operation(
            id=each.id,
            method=each.method.upper(),
            path=each.path,
            server=server,
            arguments=tuple(arguments.found),
            body=body,
            security=_security(document, each.raw),
            name=name,
            description=definition.description,
            parameters=dict(definition.parameters.value),
            output=None if definition.output_schema is None else dict(definition.output_schema.value),
        )
        return made, [*notes, *writer.notes, *([reason] if reason else ()), *removed]
    raise OperationRefused(reason.partition("; larger")[0])


def _drop_schemas(arguments: Arguments, defs: Node) -> None:
    """Make any value of each argument whose schema no tool may have."""
    for argument, schema in arguments.properties.items():
        try:
            foreign_definition(
                name="one", description="", parameters={"type": "object", "properties": {"x": schema}, "$defs": defs}
            )
        except InvalidDefinition:
            arguments.properties[argument] = {}


def _definition(
    each: Found, name: str, arguments: Arguments, defs: Node, output: Node | None
) -> tuple[ToolDefinition, Sequence[str]]:
    """Return the definition. Raises `InvalidDefinition`."""
    schema: Node = {"type": "object", "properties": arguments.properties, "additionalProperties": False}
    if arguments.required:
        schema["required"] = arguments.required
    if defs:
        schema["$defs"] = defs
    return foreign_definition(
        name=name,
        description=_description(each),
        parameters=schema,
        output_schema=output,
        hints=HINTS[each.method],
    )


def _security(document: Document, raw: Node) -> tuple[frozenset[str], ...] | None:
    """Return the alternatives of schemes. Raises `OperationRefused`: nobody may guess what an operation is sent."""
    stated = raw.get("security")
    if stated is None:
        stated = document.root.get("security")
    if stated is None:
        return None
    if not isinstance(stated, list) or not all(isinstance(one, dict) for one in as_list(cast("object", stated))):
        raise OperationRefused("its security is no list of objects")
    return tuple(frozenset(as_object(one)) for one in as_list(cast("object", stated)))


def _parameters(document: Document, each: Found) -> tuple[Sequence[Parameter], list[str]]:
    """Return the parameters of path and operation, in the order of places, and a line for each that is not as stated.

    The path decides which parameters are in it. One that cannot be read costs an operation that only reads nothing
    else. Raises `OperationRefused` for one of an operation that changes something: without it, it may do another thing.
    """
    found: dict[tuple[str, str], Parameter] = {}
    notes: list[str] = []
    for raw in (*as_list(each.item.get("parameters")), *as_list(each.raw.get("parameters"))):
        try:
            parameter = read_parameter(document.resolve(raw, "a parameter"))
        except OperationRefused as error:
            if each.method != "get":
                raise
            notes.append(f"{error}; it is left out")
            continue
        found[parameter.place, parameter.name] = parameter
    in_path = set(_TEMPLATE.findall(each.path))
    for name in [name for place, name in found if place == "path" and name not in in_path]:
        del found["path", name]
        notes.append(f"its path has no {{{name}}}; this parameter is left out")
    for name in sorted(in_path - {name for place, name in found if place == "path"}):
        found["path", name] = read_parameter({"name": name, "in": "path", "schema": {"type": "string"}})
        notes.append(f"its path has {{{name}}}, which is no parameter of it; it is a text")
    return [parameter for place in STYLES for parameter in found.values() if parameter.place == place], notes


def _description(each: Found) -> str:
    parts = [as_text(each.raw.get("summary")).strip(), as_text(each.raw.get("description")).strip()]
    if parts[0] == parts[1]:
        parts.pop()
    text = "\n\n".join(part for part in parts if part) or f"{each.method.upper()} {each.stated_path}"
    return f"{text}\n\nDeprecated." if each.raw.get("deprecated") is True else text


def _output(document: Document, each: Found) -> Node | None:
    """Return the schema of a success if that is a JSON object, else None; also None for one that cannot be read."""
    responses = as_object(each.raw.get("responses"))
    successes = sorted(status for status in responses if re.fullmatch("2[0-9]{2}|2XX", status))
    try:
        answer = document.resolve(responses[successes[0]], "the answer") if successes else {}
        content = as_object(answer.get("content"))
        described = as_object(
            next((content[media_type] for media_type in content if rank(media_type)[1] == "json"), None)
        )
        writer = SchemaWriter(document, "response")
        schema = writer.write(document.resolve(described.get("schema"), "the schema of its answer"))
        if schema.get("type") == "object" and not writer.notes:
            return {**schema, "$defs": writer.defs} if writer.defs else schema
    except OperationRefused:
        pass
    return None
