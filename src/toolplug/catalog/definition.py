"""What a tool is: its identity and everything that a listing says about it."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import NamedTuple

import orjson

from toolplug.catalog.schema import Schema
from toolplug.catalog.text import cleaned_description
from toolplug.errors import InvalidDefinition

MAX_DESCRIPTION_BYTES = 8 * 1024

_TOOL_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_FOREIGN_NAME = re.compile(r"[A-Za-z0-9_.\-/]{1,128}")
ANY_OBJECT: Mapping[str, object] = {"type": "object", "properties": {}}


class ToolRef(NamedTuple):
    """The identity of a tool. `name` is the source's own for it, which no reshaping touches.

    `kind` is the kind of source (`native`, `session`, `mcp`, `remote`), `source` its key; `digest` is taken over name,
    description and schemas with keys sorted, so that key order is no change.
    """

    kind: str
    source: str
    name: str
    digest: str


class ToolHints(NamedTuple):
    """What the author promises about the tool's effects; None means that nothing is promised.

    `internal` keeps a tool out of catalog listings for people.
    """

    read_only: bool | None = None
    idempotent: bool | None = None
    destructive: bool | None = None
    internal: bool = False


class HostedItem(NamedTuple):
    """The OpenResponses item that each call of a tool is shown as (docs/reference/responses.md).

    `type` is one of the four that clients know, or `slug:name`. `events` are its life-cycle events between
    `in_progress` and `completed`. `fields` are its own fields with the values that they have before the tool has
    answered; then each is what the result's `metadata` has under its name. `on_include` are dotted paths that are shown
    only where a request's `include` names `<type>.<path>`.
    """

    type: str
    events: tuple[str, ...] = ()
    fields: Mapping[str, object] = MappingProxyType({})
    on_include: tuple[str, ...] = ()


class Hosted(NamedTuple):
    """How a tool stands behind built-in stubs such as `{"type": "web_search"}` (docs/reference/responses.md).

    `options` is the schema of the stub's own keys (None: it takes none); `item` how its calls are shown (None: as any
    other tool's).
    """

    stubs: tuple[str, ...] = ()
    options: Schema | None = None
    item: HostedItem | None = None


class Note(NamedTuple):
    """Advice that a user attached to a tool."""

    name: str
    text: str


NO_HINTS = ToolHints()


@dataclass(frozen=True, slots=True, init=False, eq=False)
class ToolDefinition:
    """Everything that a listing says about a tool; frozen.

    `name` is what this catalog calls it, `ref` what it is. Provider authors give name, description and parameters (a
    JSON Schema of type object, as `Schema` or as a mapping); the registry fills in the rest of `ref`. `timeout_s` is
    the author's own wish, which configuration overrides. What nobody can see, and a heading of notes, is taken out of
    the description. Raises `InvalidDefinition` for a bad schema and for a description that is no Unicode text or over
    8 KiB.
    """

    name: str
    description: str
    parameters: Schema
    output_schema: Schema | None
    ref: ToolRef
    hints: ToolHints
    notes: tuple[Note, ...]
    hosted: Hosted | None
    timeout_s: float | None
    wire: str = field(init=False, repr=False)
    fragments: dict[str, bytes] = field(init=False, repr=False)

    def __init__(
        self,
        *,
        name: str,
        description: str = "",
        parameters: Schema | Mapping[str, object] = ANY_OBJECT,
        output_schema: Schema | Mapping[str, object] | None = None,
        ref: ToolRef | None = None,
        hints: ToolHints = NO_HINTS,
        notes: tuple[Note, ...] = (),
        hosted: Hosted | None = None,
        timeout_s: float | None = None,
    ) -> None:
        _check_description(name, description)
        description = cleaned_description(description)
        schema = parameters if isinstance(parameters, Schema) else Schema(parameters)
        output = Schema(output_schema) if isinstance(output_schema, Mapping) else output_schema
        put = object.__setattr__
        put(self, "name", name)
        put(self, "description", description)
        put(self, "parameters", schema)
        put(self, "output_schema", output)
        put(self, "ref", ref or ToolRef("native", "", name, _digest(name, description, schema, output)))
        put(self, "hints", hints)
        put(self, "notes", notes)
        put(self, "hosted", hosted)
        put(self, "timeout_s", timeout_s)
        put(self, "wire", wire_name(name))
        put(self, "fragments", {})

    @property
    def signature(self) -> tuple[object, ...]:
        """Equal for two definitions that list alike in every dialect."""
        return (self.name, self.ref, self.hints, self.notes)

    def owned_by(self, kind: str, source: str) -> ToolDefinition:
        """The same definition as a tool of this source."""
        return replace(self, ref=self.ref._replace(kind=kind, source=source))


def _check_description(name: str, description: str) -> None:
    try:
        size = len(description.encode())
    except UnicodeEncodeError:
        raise InvalidDefinition(f"the description of {name!r} is not Unicode text (it has a lone surrogate)") from None
    if size > MAX_DESCRIPTION_BYTES:
        raise InvalidDefinition(f"the description of {name!r} has {size} bytes, {MAX_DESCRIPTION_BYTES} are allowed")


def _digest(name: str, description: str, parameters: Schema, output: Schema | None) -> str:
    named = [name, description, parameters.value, output.value if output else None]
    return hashlib.sha256(orjson.dumps(named, option=orjson.OPT_SORT_KEYS)).hexdigest()


def check_provider_tool_name(name: str) -> None:
    """Raise `InvalidDefinition` unless the name is one that a provider's tool may have."""
    if not _TOOL_NAME.fullmatch(name):
        raise InvalidDefinition(
            f"{name!r} is no name for a provider's tool; 1 to 64 of the characters A-Z a-z 0-9 _ - are allowed"
        )


def check_foreign_tool_name(name: str) -> None:
    """Raise `InvalidDefinition` unless the name is one that the tool of a session or an MCP server may have."""
    if not _FOREIGN_NAME.fullmatch(name):
        raise InvalidDefinition(
            f"{name[:200]!r} is no name for a tool; 1 to 128 of the characters A-Z a-z 0-9 _ . - / are allowed",
            at="name",
        )


MAX_WIRE_NAME = 64

_LEGAL = re.compile(r"[A-Za-z0-9_-]{1,64}")
_ILLEGAL_CHARACTER = re.compile(r"[^A-Za-z0-9_-]")
_HASHED = re.compile(r".*_-[a-z2-7]{8}", re.DOTALL)
_HEAD = 54


def wire_name(name: str) -> str:
    """Return what a model API gets for a canonical name: always the same, of `[A-Za-z0-9_-]{1,64}`.

    It depends on the canonical name alone, so that adding or removing a tool never renames another
    (docs/reference/names.md).
    """
    if not _HASHED.fullmatch(name):
        if _LEGAL.fullmatch(name) and "__" not in name:
            return name
        prefix, dot, tool = name.partition(".")
        joined = f"{prefix}__{tool}"
        if dot and _joins(prefix, tool) and len(joined) <= MAX_WIRE_NAME and not _HASHED.fullmatch(joined):
            return joined
    digest = base64.b32encode(hashlib.sha256(name.encode("utf-8", "surrogatepass")).digest()).decode("ascii").lower()
    return f"{_ILLEGAL_CHARACTER.sub('_', name)[:_HEAD]}_-{digest[:8]}"


def _joins(prefix: str, tool: str) -> bool:
    """Return whether the double underscore between the two parts is the only one."""
    return (
        bool(_LEGAL.fullmatch(prefix) and _LEGAL.fullmatch(tool))
        and "__" not in prefix
        and "__" not in tool
        and not prefix.endswith("_")
        and not tool.startswith("_")
    )
