"""Tool definitions: identity, name, description, schemas and hints of a tool; names on model APIs."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Literal, NamedTuple

import orjson

from toolplug.catalog.schema import Schema
from toolplug.catalog.text import cleaned_description
from toolplug.errors import InvalidDefinition

MAX_DESCRIPTION_BYTES = 8 * 1024
MAX_TITLE_BYTES = 256

# What the function names of every model API allow: a dot is refused there, and so are more than 64 characters.
_LEGAL = re.compile(r"[A-Za-z0-9_-]{1,64}")
# What MCP allows; `wire_name` makes names for models from them.
_FOREIGN_NAME = re.compile(r"[A-Za-z0-9_.\-/]{1,128}")
ANY_OBJECT: Mapping[str, object] = {"type": "object", "properties": {}}


class ToolRef(NamedTuple):
    """The identity of a tool. `name` is its name at the source, which no prefix or renaming changes.

    `kind` is the kind of source (`native`, `session`, `mcp`, `remote`), `source` its key. `digest` is the SHA-256 of
    name, description and schemas with sorted keys, in hexadecimal.
    """

    kind: str
    source: str
    name: str
    digest: str


class ToolHints(NamedTuple):
    """The author's promises about the effects of a tool; None promises nothing.

    An `internal` tool is left out of listings for people. Arguments and results of a `sensitive` one are for its caller
    alone: no plugin keeps or shows them.

    ```python
    import asyncio

    from toolplug import FunctionRegistry, ToolHints, tool

    @tool(read_only=True)
    def price(item: str) -> str:
        "Say what an item costs."
        return f"{item}: 3.50 EUR"

    async def main():
        async with FunctionRegistry([price]) as registry:
            assert registry.catalog["price"].definition.hints == ToolHints(read_only=True)

    asyncio.run(main())
    ```
    """

    read_only: bool | None = None
    idempotent: bool | None = None
    destructive: bool | None = None
    internal: bool = False
    sensitive: bool = False


class HostedItem(NamedTuple):
    """The OpenResponses item that shows each call of a tool (docs/reference/responses.md).

    * `type`: one of the four that clients know, or `slug:name`
    * `events`: names of the life-cycle events between `in_progress` and `completed`
    * `fields`: its own fields with their values until the tool has returned; later ones are in the result's `metadata`
    * `on_include`: dotted paths that are sent only if the request's `include` has `<type>.<path>`
    * `at_end`: it appears when the call has ended, as that may be with a question to a person about a call that the
      tool made: then the item is an `mcp_approval_request`, and the tool goes on when its call is repeated with the
      ticket, also of a call that was denied

    ```python
    from toolplug import HostedItem, ToolResult, tool

    TIDE = HostedItem("acme:tide_call", fields={"table": None}, on_include=("table",))

    @tool(read_only=True, stub="tide", item=TIDE)
    def tide(place: str) -> ToolResult:
        "Say how high the tide is."
        return ToolResult(output=f"high at {place}", metadata={"table": [0, 1]})
    ```
    """

    type: str
    events: tuple[str, ...] = ()
    fields: Mapping[str, object] = MappingProxyType({})
    on_include: tuple[str, ...] = ()
    at_end: bool = False


class Hosted(NamedTuple):
    """The built-in stubs, such as `{"type": "web_search"}`, that a tool implements (docs/reference/responses.md).

    `options` is the schema of the stub's own keys, None if it has none; `item` shows its calls, None as function calls.
    """

    stubs: tuple[str, ...] = ()
    options: Schema | None = None
    item: HostedItem | None = None


Offer = Literal["always", "on_request", "search"]


class Offered(NamedTuple):
    """How a tool is offered to a model; it is listed and callable in any case (docs/how-to/search-tools.md).

    * `how`: `always`; `on_request`: by a response only if its request names the tool; `search`: once a search finds it
    * `origin`: the line of the configuration that sets it
    * `of_tool`: the rule of the tool itself sets it, so that a toolset does not change it
    """

    how: Offer = "always"
    origin: str = "default"
    of_tool: bool = False


ALWAYS = Offered()

SEARCH_TOOLS = "search_tools"
CALL_TOOL = "call_tool"
SEARCH_SOURCE = "_search"
"""The source of `search_tools` and `call_tool`: no provider can have this key."""
EQUIP_TOOLSET = "equip-toolset"
"""The tool of a provider of saved toolsets with which a caller replaces its own list (docs/reference/toolsets.md)."""


class Note(NamedTuple):
    """A named text that a user adds to the description of a tool.

    ```python
    import asyncio

    from toolplug import FunctionRegistry, Note, tool

    @tool
    def price(item: str) -> str:
        "Say what an item costs."
        return f"{item}: 3.50 EUR"

    async def main():
        async with FunctionRegistry([price]) as registry:
            noted = registry.catalog.annotated({"price": [Note("currency", "Always euros.")]})
            assert b"**currency**: Always euros." in noted.render("anthropic")

    asyncio.run(main())
    ```
    """

    name: str
    text: str


NO_HINTS = ToolHints()


@dataclass(frozen=True, slots=True, init=False, eq=False)
class ToolDefinition:
    """One tool as a catalog lists it; frozen.

    * `name`: the name in this catalog, with its prefix
    * `description`: the text for the model; hidden characters and headings of notes are removed from it
    * `parameters`, `output_schema`: JSON Schemas, as `Schema` or as a mapping; that of the parameters has type object
    * `ref`: the identity; without one, the registry fills it in
    * `timeout_s`: seconds that the author proposes; configuration overrides them
    * `offered`: how models are offered it, which configuration sets
    * `title`, `icons`: what MCP clients show to people, icons as the protocol has them; not part of the digest
    * `meta`: the `_meta` that the tool's MCP server lists it with, for MCP clients; not part of the digest
    * `wire`: the name on model APIs
    * `fragments`: the encoded definition by dialect, for `listing`

    Raises `InvalidDefinition` for an invalid schema, and for a description or title that is not Unicode text, or is
    over 8 KiB or 256 bytes.

    ```python
    import asyncio

    from toolplug import FunctionProvider, FunctionRegistry, ToolDefinition

    class Measured(FunctionProvider):
        "Lists what a sensor offers, without a method for each tool."

        def tools(self):
            return [ToolDefinition(name="height", description="Say how high the water is, in metres.")]

        async def execute(self, call, context):
            return "1.2"

    async def main():
        async with FunctionRegistry([Measured()]) as registry:
            assert (await registry.call("height")).output == "1.2"

    asyncio.run(main())
    ```
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
    offered: Offered
    title: str
    icons: tuple[Mapping[str, object], ...]
    meta: Mapping[str, object]
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
        offered: Offered = ALWAYS,
        title: str = "",
        icons: tuple[Mapping[str, object], ...] = (),
        meta: Mapping[str, object] = MappingProxyType({}),
    ) -> None:
        _check_text(name, "description", description, MAX_DESCRIPTION_BYTES)
        _check_text(name, "title", title, MAX_TITLE_BYTES)
        description = cleaned_description(description)
        schema = parameters if isinstance(parameters, Schema) else Schema(parameters)
        output = Schema(output_schema) if isinstance(output_schema, Mapping) else output_schema
        # The dataclass is frozen, and has an `__init__` of its own that converts what it is given.
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
        put(self, "offered", offered)
        put(self, "title", cleaned_description(title) if title else "")
        put(self, "icons", icons)
        put(self, "meta", meta)
        put(self, "wire", wire_name(name))
        # The one mutable field: a cache of encoded forms, which equal definitions would fill alike.
        put(self, "fragments", {})

    @property
    def signature(self) -> tuple[object, ...]:
        """A tuple that is equal for definitions with the same listing in every dialect."""
        listed = (self.name, self.ref, self.hints, self.notes)
        # Fields that were added later count only where they are set: etags of catalogs without them stay what they
        # were.
        shown = (*listed, self.title, self.icons) if self.title or self.icons else listed
        shown = (*shown, self.meta) if self.meta else shown
        return shown if self.offered.how == "always" else (*shown, self.offered.how)

    @property
    def deferred(self) -> bool:
        """True if a model is offered the tool only once a search has found it."""
        return self.offered.how == "search"

    def owned_by(self, kind: str, source: str, offered: Offered = ALWAYS) -> ToolDefinition:
        """Return the definition as a tool of this source, which models are offered like this."""
        return replace(self, ref=self.ref._replace(kind=kind, source=source), offered=offered)


def _check_text(name: str, what: str, text: str, limit: int) -> None:
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        raise InvalidDefinition(f"the {what} of {name!r} is not Unicode text (it has a lone surrogate)") from None
    if size > limit:
        raise InvalidDefinition(f"the {what} of {name!r} has {size} bytes, {limit} are allowed")


def _digest(name: str, description: str, parameters: Schema, output: Schema | None) -> str:
    # Title and icons are left out: a server that changes its picture does not lose its approval.
    named = [name, description, parameters.value, output.value if output else None]
    return hashlib.sha256(orjson.dumps(named, option=orjson.OPT_SORT_KEYS)).hexdigest()


def check_provider_tool_name(name: str) -> None:
    """Raise `InvalidDefinition` unless a provider's tool may have the name."""
    if not _LEGAL.fullmatch(name):
        raise InvalidDefinition(
            f"{name!r} is not a valid name for a provider's tool; 1 to 64 of the characters A-Z a-z 0-9 _ - are allowed"
        )


def check_foreign_tool_name(name: str) -> None:
    """Raise `InvalidDefinition` unless a tool of a session or an MCP server may have the name."""
    if not _FOREIGN_NAME.fullmatch(name):
        raise InvalidDefinition(
            f"{name[:200]!r} is not a valid name for a tool;"
            " 1 to 128 of the characters A-Z a-z 0-9 _ . - / are allowed",
            at="name",
        )


_ILLEGAL_CHARACTER = re.compile(r"[^A-Za-z0-9_-]")
_HASHED = re.compile(r".*_-[a-z2-7]{8}", re.DOTALL)
_AMBIGUOUS = re.compile(r"__|_\.|\._|^\.|\.$")
"""Names that are not joined with a double underscore, since it would not show where the prefix ends."""
_HEAD = 54  # with `_-` and the digest, 64 characters


def wire_name(name: str) -> str:
    """Return the name of a tool on model APIs, of `[A-Za-z0-9_-]{1,64}` (docs/reference/names.md).

    It depends on the canonical name alone, so that adding or removing a tool never renames another.
    """
    # A name that looks like one with a digest gets a digest of its own, or a tool could take the name of another.
    if not _HASHED.fullmatch(name):
        if _LEGAL.fullmatch(name) and "__" not in name:
            return name
        joined = name.replace(".", "__", 1)
        if _LEGAL.fullmatch(joined) and not _AMBIGUOUS.search(name) and not _HASHED.fullmatch(joined):
            return joined
    # Base32: a digest may be lower-cased on the way, and has no characters that the APIs refuse. Eight characters are
    # 40 bits, so that ten thousand names meet by chance once in twenty thousand catalogs.
    digest = base64.b32encode(hashlib.sha256(name.encode("utf-8", "surrogatepass")).digest()).decode("ascii").lower()
    return f"{_ILLEGAL_CHARACTER.sub('_', name)[:_HEAD]}_-{digest[:8]}"
