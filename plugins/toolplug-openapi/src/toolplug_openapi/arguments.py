"""The arguments of a tool: the parameters of an operation and the properties of its body, each with its way of sending.

A body is JSON, a form, or what a text can be: a file is its text, or a `data:` URL (RFC 2397) where it is none.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import count
from typing import Literal, NamedTuple, cast

from toolplug_openapi.document import Document, Node, OperationRefused, as_list, as_object, as_text
from toolplug_openapi.schemas import SchemaWriter

Place = Literal["path", "query", "header", "cookie"]
Kind = Literal["json", "form", "multipart", "text"]

STYLES: Mapping[str, tuple[str, ...]] = {
    "path": ("simple", "label", "matrix"),
    "query": ("form", "spaceDelimited", "pipeDelimited", "deepObject"),
    "header": ("simple",),
    "cookie": ("form",),
}
"""The styles that a place may have, the default first (OpenAPI 3.1, section 4.8.12)."""

MAX_NAME = 256
FILE_TEXT = "its text, or a data: URL such as data:image/png;base64,…"
"""What a description says of an argument that is sent as a file."""

_NAME = re.compile(r"[^\x00-\x1f\x7f\ud800-\udfff]+")
_WORD = re.compile(r"[^A-Za-z0-9_-]+")
_TOKEN = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_MERGEABLE = frozenset({"type", "properties", "required", "title", "description", "default", "examples"})
"""An object schema with these keywords alone is merged into the arguments; any other is the one argument `body`."""
_JSON = re.compile(r"(application|text)/json|[^*]+\+json")
_ANY_JSON = frozenset({"*/*", "application/*", "*", "*/json"})


class Parameter(NamedTuple):
    """A Parameter Object; `schema` or `content` says what it holds."""

    name: str
    place: Place
    required: bool
    description: str
    style: str
    explode: bool
    schema: object
    content: Node


def read_parameter(raw: Node) -> Parameter:
    """Return a parameter; a field of no use has its default. Raises `OperationRefused` without a name and a place."""
    name, place = raw.get("name"), raw.get("in")
    if not isinstance(name, str) or len(name) > MAX_NAME or not _NAME.fullmatch(name):
        raise OperationRefused(f"the parameter {name!r:.80} has no name that a request can carry")
    if not isinstance(place, str) or place not in STYLES:
        raise OperationRefused(f"the parameter {name!r:.80} is in {place!r:.40}, not in path, query, header or cookie")
    if place == "header" and not _TOKEN.fullmatch(name):
        raise OperationRefused(f"the parameter {name!r:.80} has no name that a header may have")
    style = as_text(raw.get("style"))
    if style not in STYLES[place]:
        style = STYLES[place][0]
    explode = raw.get("explode")
    return Parameter(
        name,
        cast("Place", place),
        required=place == "path" or raw.get("required") in (True, "true"),
        description=as_text(raw.get("description")),
        style=style,
        explode=explode if isinstance(explode, bool) else style == "form",
        schema=raw.get("schema"),
        content=as_object(raw.get("content")),
    )


class Argument(NamedTuple):
    """One argument of a tool and where its value goes; `media` is set where the value is sent as JSON text."""

    argument: str
    name: str
    place: Place | Literal["body"]
    style: str = ""
    explode: bool = False
    media: bool = False


class Encoding(NamedTuple):
    """How a property of a form is sent: in a style, or as a part of a media type; `file`: as a file of its own."""

    style: str = ""
    explode: bool = True
    media_type: str = ""
    file: bool = False


class Body(NamedTuple):
    """How a body is sent.

    `whole`: it is one argument, else an object of several; `required`: it is sent without any of them too. `encodings`
    are those of a form's properties that are not sent in the usual way.
    """

    media_type: str
    kind: Kind
    whole: bool
    required: bool
    encodings: Mapping[str, Encoding]


class Arguments:
    """Collects the arguments of one tool. Names that clash get the place as suffix, `id_query`."""

    def __init__(self, writer: SchemaWriter) -> None:
        self.found: list[Argument] = []
        self.properties: Node = {}
        self.required: list[str] = []
        self._writer = writer

    def add_parameter(self, parameter: Parameter) -> None:
        """Add a parameter."""
        raw, media = parameter.schema, False
        if parameter.content:
            media_type, described = next(iter(parameter.content.items()))
            media = rank(media_type)[1] == "json"
            raw = as_object(described).get("schema")
        schema = self._writer.write({} if raw is None else raw)
        argument = self._add(parameter.name, parameter.place, schema, parameter.required, parameter.description)
        self.found.append(
            Argument(argument, parameter.name, parameter.place, parameter.style, parameter.explode, media)
        )

    def add_body(self, document: Document, raw: object) -> Body | None:
        """Add the body; None for one without content. Raises `OperationRefused` for one that cannot be sent."""
        body = document.resolve(raw, "requestBody")
        content = as_object(body.get("content"))
        if not content:  # as converters of older documents write "none"
            return None
        media_type = min((each for each in content if rank(each)[1]), key=lambda each: rank(each)[0], default=None)
        kind, sent_as = rank(media_type or "")[1:]
        if media_type is None or kind is None:
            offered = ", ".join(content)[:200]
            raise OperationRefused(f"its body is {offered}; a body is JSON, a form, or one text or file")
        described = document.resolve(content[media_type], "the content of its body")
        schema, is_required = described.get("schema", {}), body.get("required") is True
        if kind == "text":
            text: Node = {"type": "string", "description": FILE_TEXT}
            argument = self._add("body", "body", text, is_required, as_text(body.get("description")))
            self.found.append(Argument(argument, "body", "body"))
            return Body(sent_as, kind, whole=True, required=is_required, encodings={})
        written = self._writer.write(schema)
        encodings = {} if kind == "json" else _encodings(document, schema, as_object(described.get("encoding")))
        inner = self._mergeable(document, schema, written, is_required)
        if inner is None:
            argument = self._add("body", "body", written, is_required, as_text(body.get("description")))
            self.found.append(Argument(argument, "body", "body"))
        else:
            needed = as_list(inner.get("required"))
            for name, value in as_object(inner["properties"]).items():
                is_file = kind == "multipart" and name in encodings and encodings[name].file
                described_as = _file_schema(as_object(value)) if is_file else as_object(value)
                argument = self._add(name, "body", described_as, name in needed)
                self.found.append(Argument(argument, name, "body"))
        return Body(sent_as, kind, whole=inner is None, required=is_required, encodings=encodings)

    def _mergeable(self, document: Document, schema: object, written: Node, is_required: bool) -> Node | None:
        """Return the schema of a body whose properties can be arguments of the tool, else None."""
        if "$ref" in written:
            written = self._writer.write(document.resolve(schema, "the schema of its body"))
        properties = written.get("properties")
        is_open = written.get("additionalProperties", True) not in (True, False)
        if not isinstance(properties, dict) or not properties or written.get("type") != "object" or is_open:
            return None
        if not written.keys() <= _MERGEABLE | {"additionalProperties"}:
            return None
        return written if is_required or not written.get("required") else None

    def _add(self, name: str, place: str, schema: Node, required: bool, description: str = "") -> str:
        base = _WORD.sub("_", name.replace(".", "_")).strip("_")[:48] or place
        argument, numbers = base, count(2)
        if argument in self.properties:
            argument = f"{base}_{place}"
        while argument in self.properties:
            argument = f"{base}_{place}_{next(numbers)}"
        self.properties[argument] = {**schema, "description": description} if description else schema
        if required:
            self.required.append(argument)
        return argument


def rank(media_type: str) -> tuple[int, Kind | None, str]:
    """Return how good a media type is for a body, 0 the best, its kind, None if none, and the type that is sent."""
    essence = media_type.partition(";")[0].strip().lower()
    if not media_type.isascii() or not media_type.isprintable() or not essence:
        return 9, None, ""
    if essence == "application/json":
        return 0, "json", media_type
    if _JSON.fullmatch(essence):
        return 1, "json", media_type
    if essence in _ANY_JSON or essence.endswith("+json"):
        return 2, "json", "application/json"
    if essence == "application/x-www-form-urlencoded":
        return 3, "form", media_type
    if essence in ("multipart/form-data", "multipart/*"):
        return 4, "multipart", "multipart/form-data"
    if essence.startswith("multipart/") or "/" not in essence:
        return 9, None, ""
    if "*" in essence:
        return 7, "text", "text/plain" if essence == "text/*" else "application/octet-stream"
    return (5 if essence == "text/plain" else 6), "text", media_type


def _encodings(document: Document, schema: object, stated: Node) -> dict[str, Encoding]:
    """Return how properties of a form are sent: as its Encoding Objects say, and files where the schema says binary."""
    try:
        properties = as_object(document.resolve(schema, "the schema of its body").get("properties"))
    except OperationRefused:
        properties = {}
    found = {name: Encoding(file=True) for name, raw in properties.items() if _is_file(document, raw)}
    for name, raw in stated.items():
        given = as_object(raw)
        style, explode = as_text(given.get("style")), given.get("explode")
        if style not in STYLES["query"]:
            style = ""
        media_type = as_text(given.get("contentType")).partition(",")[0].strip()
        if not media_type.isascii() or not media_type.isprintable() or "*" in media_type:
            media_type = ""
        found[name] = Encoding(
            style=style,
            explode=explode if isinstance(explode, bool) else style in ("", "form"),
            media_type=media_type,
            file=name in found,
        )
    return found


def _is_file(document: Document, raw: object) -> bool:
    try:
        schema = document.resolve(raw, "a property")
    except OperationRefused:
        return False
    if schema.get("type") == "array":
        return _is_file(document, schema.get("items"))
    return schema.get("format") == "binary" or "contentMediaType" in schema


def _file_schema(schema: Node) -> Node:
    """Return the schema of the argument for a file, or for several."""
    text: Node = {"type": "string", "description": FILE_TEXT}
    if schema.get("type") == "array":
        return {**schema, "items": text}
    said = as_text(schema.get("description"))
    return {**text, "description": f"{said} ({FILE_TEXT})"} if said else text
