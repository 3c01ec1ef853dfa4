"""The operations of a document as tools: which ones, under which names, with which arguments."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Annotated, Any, Literal, NamedTuple, cast

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from toolplug import ToolDefinition, ToolHints, foreign_definition
from toolplug.errors import InvalidDefinition
from toolplug_openapi.document import Document, Node, OperationRefused, as_list, as_object
from toolplug_openapi.schemas import SchemaWriter
from toolplug_openapi.settings import METHODS, OperationFilter

Place = Literal["path", "query", "header", "cookie"]

STYLES: Mapping[str, tuple[str, ...]] = {
    "path": ("simple", "label", "matrix"),
    "query": ("form", "spaceDelimited", "pipeDelimited", "deepObject"),
    "header": ("simple",),
    "cookie": ("form",),
}
"""The styles that a place may have, the default first (OpenAPI 3.1, section 4.8.12)."""

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
_PATH = re.compile(r"/[^\s?#\\\x00-\x1f\x7f\ud800-\udfff]*")
_TOKEN = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_TEMPLATE = re.compile(r"{([^{}]*)}")
_MERGEABLE = frozenset({"type", "properties", "required", "title", "description", "default", "examples"})
"""An object schema with these keywords alone is merged into the arguments; any other is the one argument `body`."""


class _Raw(BaseModel):
    model_config = ConfigDict(frozen=True, populate_by_name=True)


class Parameter(_Raw):
    """A Parameter Object; `schema_` or `content` says what it holds."""

    name: Annotated[str, Field(min_length=1, max_length=256, pattern=r"^[^\x00-\x20\x7f]+$")]
    place: Annotated[Place, Field(alias="in")]
    required: bool = False
    description: str = ""
    style: str | None = None
    explode: bool | None = None
    schema_: Annotated[object, Field(alias="schema")] = None
    content: dict[str, object] | None = None


class RawOperation(_Raw):
    """An Operation Object, as far as it is read."""

    id: Annotated[str | None, Field(alias="operationId")] = None
    summary: str = ""
    description: str = ""
    deprecated: bool = False
    parameters: tuple[Any, ...] = ()
    body: Annotated[object, Field(alias="requestBody")] = None
    responses: dict[str, object] = {}
    security: list[dict[str, list[str]]] | None = None


class Argument(NamedTuple):
    """One argument of a tool and where its value goes; `media` is set where the value is sent as JSON text."""

    argument: str
    name: str
    place: Place | Literal["body"]
    style: str = ""
    explode: bool = False
    media: bool = False


class Body(NamedTuple):
    """How a body is sent: as `json`, `form` or `text`.

    `whole`: it is one argument, else an object of several; `required`: it is sent without any of them too.
    """

    media_type: str
    kind: str
    whole: bool
    required: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """One operation that is a tool. `security`: alternatives of schemes that it needs, None where nothing is said."""

    id: str
    method: str
    path: str
    arguments: tuple[Argument, ...]
    body: Body | None
    security: tuple[frozenset[str], ...] | None
    definition: ToolDefinition


class Found(NamedTuple):
    """An operation of the document, not judged yet; `id` is its operationId, else `METHOD /path`."""

    id: str
    method: str
    path: str
    item: Node
    raw: Node


def operations_of(document: Document) -> tuple[list[Found], dict[str, str]]:
    """Return the operations in the document's order, and the reason for each one left out, by its place."""
    found: dict[str, Found] = {}
    skipped: dict[str, str] = {}
    for path, raw_item in as_object(document.root["paths"]).items():
        if path.startswith("x-"):
            continue
        try:
            item = document.resolved(raw_item, "the path")
            if not _PATH.fullmatch(path):
                raise OperationRefused("a path begins with / and has no space, query or fragment")
        except OperationRefused as error:
            skipped[path[:200]] = str(error)
            continue
        for method in METHODS:
            if item.get(method) is None:
                continue
            place, raw = f"{method.upper()} {path}", as_object(item[method])
            stated = raw.get("operationId")
            id_ = stated if isinstance(stated, str) and stated else place
            other = found.setdefault(id_, Found(id_, method, path, item, raw))
            if (other.method, other.path) != (method, path):
                first = f"{other.method.upper()} {other.path}"
                skipped[place] = f"{first} has the operationId {id_!r} too; the first is offered"
    return list(found.values()), skipped


def matches(filter_: OperationFilter, each: Found) -> bool:
    """Return whether the operation has everything that the filter names."""
    return (
        (filter_.operation is None or fnmatchcase(each.id, filter_.operation))
        and (filter_.method is None or filter_.method.lower() == each.method)
        and (filter_.path is None or fnmatchcase(each.path, filter_.path))
        and (filter_.tag is None or filter_.tag in as_list(each.raw.get("tags")))
    )


def tool_name(each: Found, rename: Mapping[str, str]) -> str:
    """Return the configured name of the tool, else one made of the operationId, at most 64 characters long."""
    if each.id in rename:
        return rename[each.id]
    name = _WORD.sub("_", each.id).strip("_") or each.method
    return name if len(name) <= 64 else f"{name[:55]}_{hashlib.sha256(name.encode()).hexdigest()[:8]}"


def endpoint(
    document: Document, each: Found, name: str, *, taken: Container[tuple[str, str]], whole: bool
) -> tuple[Endpoint, Sequence[str]]:
    """Return the tool of an operation, and a line for each part removed from it. Raises `OperationRefused`.

    `taken` are places and lower-case names that credentials fill: they are no arguments. `whole`: its answer is given
    untrimmed, so that the schema of the answer holds.
    """
    try:
        operation = RawOperation.model_validate(each.raw)
    except ValidationError as error:
        raise OperationRefused(_first(error)) from None
    writer = SchemaWriter(document, "request")
    arguments = _Arguments(writer)
    for parameter in _parameters(document, each, operation):
        name_of = parameter.name.lower()
        is_own = parameter.place == "header" and name_of in OWN_HEADERS
        if not is_own and (parameter.place, name_of) not in taken:
            arguments.add_parameter(parameter)
    body = arguments.add_body(document, operation.body) if operation.body is not None else None
    schema: Node = {"type": "object", "properties": arguments.properties, "additionalProperties": False}
    if arguments.required:
        schema["required"] = arguments.required
    if writer.defs:
        schema["$defs"] = writer.defs
    try:
        definition, removed = foreign_definition(
            name=name,
            description=_description(each, operation),
            parameters=schema,
            output_schema=_output(document, operation) if whole else None,
            hints=HINTS[each.method],
        )
    except InvalidDefinition as error:
        raise OperationRefused(str(error)) from None
    made = Endpoint(
        id=each.id,
        method=each.method.upper(),
        path=each.path,
        arguments=tuple(arguments.found),
        body=body,
        security=_security(document, operation),
        definition=definition,
    )
    return made, removed


def _security(document: Document, operation: RawOperation) -> tuple[frozenset[str], ...] | None:
    stated = document.root.get("security") if operation.security is None else operation.security
    if not isinstance(stated, list):
        return None
    return tuple(frozenset(as_object(each)) for each in as_list(cast("object", stated)))


def _first(error: ValidationError) -> str:
    first = error.errors(include_url=False)[0]
    return f"{'.'.join(map(str, first['loc']))}: {first['msg']}"


def _parameters(document: Document, each: Found, operation: RawOperation) -> Iterator[Parameter]:
    """Yield the parameters of path and operation, in the order of places. Raises `OperationRefused`."""
    found: dict[tuple[str, str], Parameter] = {}
    for raw in (*as_list(each.item.get("parameters")), *operation.parameters):
        try:
            parameter = Parameter.model_validate(document.resolved(raw, "a parameter"))
        except ValidationError as error:
            raise OperationRefused(f"a parameter is wrong: {_first(error)}") from None
        found[parameter.place, parameter.name] = parameter
    named = set(_TEMPLATE.findall(each.path))
    declared = {name for place, name in found if place == "path"}
    if named != declared:
        wrong = ", ".join(sorted(named ^ declared))
        raise OperationRefused(f"its path {each.path!r:.200} and its path parameters do not agree about {wrong:.200}")
    for place in ("path", "query", "header", "cookie"):
        yield from (parameter for parameter in found.values() if parameter.place == place)


class _Arguments:
    """Collects the arguments of one tool. Names that clash get the place as suffix, `id_query`."""

    def __init__(self, writer: SchemaWriter) -> None:
        self.found: list[Argument] = []
        self.properties: Node = {}
        self.required: list[str] = []
        self._writer = writer

    def add_parameter(self, parameter: Parameter) -> None:
        """Add a parameter. Raises `OperationRefused` for a name or style that its place cannot have."""
        style = parameter.style or STYLES[parameter.place][0]
        if style not in STYLES[parameter.place]:
            raise OperationRefused(f"the parameter {parameter.name!r} in {parameter.place} has the style {style!r:.40}")
        if parameter.place == "header" and not _TOKEN.fullmatch(parameter.name):
            raise OperationRefused(f"the parameter {parameter.name!r:.80} has no name that a header may have")
        raw, media = parameter.schema_, False
        if parameter.content:
            media_type, described = next(iter(parameter.content.items()))
            media = _kind(media_type) == "json"
            raw = as_object(described).get("schema")
        explode = style == "form" if parameter.explode is None else parameter.explode
        required = parameter.required or parameter.place == "path"
        schema = self._writer.write({} if raw is None else raw)
        argument = self._add(parameter.name, parameter.place, schema, required, parameter.description)
        self.found.append(Argument(argument, parameter.name, parameter.place, style, explode, media))

    def add_body(self, document: Document, raw: object) -> Body:
        """Add the body. Raises `OperationRefused` for one that is neither JSON nor a form nor text."""
        body = document.resolved(raw, "requestBody")
        content = as_object(body.get("content"))
        kinds = {_kind(media_type): media_type for media_type in reversed(content)}
        kind = next((kind for kind in ("json", "form", "text") if kind in kinds), None)
        if kind is None:
            offered = ", ".join(content)[:200] or "nothing"
            raise OperationRefused(
                f"its body is {offered}; bodies of JSON, application/x-www-form-urlencoded and plain text are supported"
            )
        schema = document.resolved(content[kinds[kind]], "the content of its body").get("schema", {})
        is_required = body.get("required") is True
        inner = None if kind == "text" else self._mergeable(document, schema, is_required)
        if inner is None:
            argument = self._add("body", "body", self._writer.write(schema), is_required, body.get("description"))
            self.found.append(Argument(argument, "body", "body"))
        else:
            needed = as_list(inner.get("required"))
            for name, value in as_object(inner["properties"]).items():
                argument = self._add(name, "body", as_object(value), name in needed)
                self.found.append(Argument(argument, name, "body"))
        return Body(kinds[kind], kind, whole=inner is None, required=is_required)

    def _mergeable(self, document: Document, schema: object, is_required: bool) -> Node | None:
        """Return the schema of a body whose properties can be arguments of the tool, else None."""
        written = self._writer.write(document.resolved(schema, "the schema of its body"))
        properties = written.get("properties")
        is_open = written.get("additionalProperties", True) not in (True, False)
        if not isinstance(properties, dict) or not properties or written.get("type") != "object" or is_open:
            return None
        if not written.keys() <= _MERGEABLE | {"additionalProperties"}:
            return None
        return written if is_required or not written.get("required") else None

    def _add(self, name: str, place: str, schema: Node, required: bool, description: object = None) -> str:
        base = _WORD.sub("_", name.replace(".", "_")).strip("_")[:48] or place
        candidates = (base, f"{base}_{place}", *(f"{base}_{place}_{number}" for number in range(2, 500)))
        argument = next(each for each in candidates if each not in self.properties)
        self.properties[argument] = {**schema, "description": description} if description else schema
        if required:
            self.required.append(argument)
        return argument


def _kind(media_type: str) -> str:
    """Return `json`, `form` or `text`, or nothing for any other media type."""
    essence = media_type.partition(";")[0].strip().lower()
    if not media_type.isascii() or not media_type.isprintable():
        return ""
    if essence == "application/json" or essence.endswith("+json"):
        return "json"
    return {"application/x-www-form-urlencoded": "form", "text/plain": "text"}.get(essence, "")


def _description(each: Found, operation: RawOperation) -> str:
    parts = [operation.summary.strip(), operation.description.strip()]
    if parts[0] == parts[1]:
        parts.pop()
    text = "\n\n".join(part for part in parts if part) or f"{each.method.upper()} {each.path}"
    return f"{text}\n\nDeprecated." if operation.deprecated else text


def _output(document: Document, operation: RawOperation) -> Node | None:
    """Return the schema of a success if that is a JSON object, else None; also None for one that cannot be read."""
    successes = sorted(status for status in operation.responses if re.fullmatch("2[0-9]{2}|2XX", status))
    try:
        answer = document.resolved(operation.responses[successes[0]], "the answer") if successes else {}
        content = as_object(answer.get("content"))
        described = as_object(
            next((content[media_type] for media_type in content if _kind(media_type) == "json"), None)
        )
        writer = SchemaWriter(document, "response")
        schema = writer.write(document.resolved(described.get("schema"), "the schema of its answer"))
        if schema.get("type") == "object":
            return {**schema, "$defs": writer.defs} if writer.defs else schema
    except OperationRefused:
        pass
    return None
