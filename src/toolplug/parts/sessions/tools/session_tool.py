"""Session tools: checked definitions, sets of tools, capabilities and requirements."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Literal, NamedTuple, cast, get_args
from weakref import WeakValueDictionary

import orjson

from toolplug.catalog.definition import ALWAYS, NO_HINTS, Offered, ToolDefinition, ToolHints, check_foreign_tool_name
from toolplug.catalog.exact_json import dump_json
from toolplug.catalog.plan import Tool
from toolplug.catalog.schema import MAX_SCHEMA_BYTES, Schema
from toolplug.catalog.text import cleaned_json
from toolplug.errors import ApiError, HiddenCharacter, InvalidDefinition
from toolplug.execution.plans import CallServices, PlanBuilder, PlanSource, ToolPolicy
from toolplug.execution.resolved_limits import DefaultTimeout, LimitLevel
from toolplug.foreign.sanitise import RemovedParts, sanitise_schema
from toolplug.signatures.values import encode_value

CapabilityType = Literal["data_analysis", "visualization", "messaging", "storage", "computation"]
CapabilityLevel = Literal["basic", "advanced", "enterprise"]
PluginStatus = Literal["attached", "waiting", "detached"]
"""A stream of the plugin is open; none is, within the grace time; none is."""
StreamRole = Literal["client", "plugin"]

TYPES: tuple[CapabilityType, ...] = get_args(CapabilityType)
LEVELS: tuple[CapabilityLevel, ...] = get_args(CapabilityLevel)
"""In rising order."""

_CAPABILITY_KEYS = frozenset({"type", "level", "resources"})


class DeclaredCapability(NamedTuple):
    """A capability of the application; `resources` are any JSON values, stored as they are."""

    type: CapabilityType
    level: CapabilityLevel
    resources: tuple[object, ...]


class CapabilityRequirement(NamedTuple):
    """A capability that a tool needs; `level` is the lowest sufficient one, None for any."""

    type: CapabilityType
    level: CapabilityLevel | None


def read_capabilities(raw: Sequence[object]) -> tuple[DeclaredCapability, ...]:
    """Check declared capabilities. Raises `ApiError` (`invalid_capability`) with the path of the first invalid one."""
    return tuple(_read_capability(item, f"capabilities[{index}]") for index, item in enumerate(raw))


def read_requirements(raw: object) -> tuple[CapabilityRequirement, ...]:
    """Check the requirements of a tool: types, or objects of type and level. Raises `InvalidDefinition`."""
    if not isinstance(raw, list):
        raise InvalidDefinition("requires must be a list of capability types or of {type, level}", at="requires")
    return tuple(_read_requirement(item, f"requires[{index}]") for index, item in enumerate(cast("list[object]", raw)))


DeclaredLevels = Mapping[str, int]
"""The best declared level of each type of capability, as an index of `LEVELS`."""


def declared_levels(declared: Iterable[DeclaredCapability]) -> DeclaredLevels:
    """Return the best level of each declared type."""
    best: dict[str, int] = {}
    for capability in declared:
        # A type may be declared twice; the higher level counts, in whatever order they come.
        best[capability.type] = max(best.get(capability.type, 0), LEVELS.index(capability.level))
    return best


def unmet(required: Sequence[CapabilityRequirement], best: DeclaredLevels) -> str | None:
    """Return the first requirement that is not met, as text; None if all are."""
    for item in required:
        least = LEVELS.index(item.level) if item.level is not None else 0
        if item.type not in best:
            return f"it requires the capability {item.type!r}, which was not declared"
        if best[item.type] < least:
            return f"it requires {item.type!r} at level {item.level!r}; {LEVELS[best[item.type]]!r} was declared"
    return None


def _read_capability(raw: object, at: str) -> DeclaredCapability:
    if not isinstance(raw, Mapping):
        raise _invalid(f"{at} must be an object of type, level and resources", at)
    given = cast("Mapping[str, object]", raw)
    for key in given:
        if key not in _CAPABILITY_KEYS:
            message = f"{at} has the unknown key {_quote(key)}; known: type, level, resources"
            raise _invalid(message, f"{at}.{key[:80]}")
    type_, level = given.get("type"), given.get("level")
    if type_ not in TYPES:
        raise _invalid(f"{at}.type {_quote(type_)} is not known; known: {', '.join(TYPES)}", f"{at}.type")
    if level not in LEVELS:
        raise _invalid(f"{at}.level {_quote(level)} is not known; known: {', '.join(LEVELS)}", f"{at}.level")
    resources = given.get("resources", [])
    if not isinstance(resources, list):
        raise _invalid(f"{at}.resources must be a list", f"{at}.resources")
    return DeclaredCapability(type_, level, tuple(cast("list[object]", resources)))


def _read_requirement(raw: object, at: str) -> CapabilityRequirement:
    if isinstance(raw, str):
        raw = {"type": raw}
    if not isinstance(raw, Mapping) or not set(cast("Mapping[str, object]", raw)) <= {"type", "level"}:
        raise InvalidDefinition(f"{at} must be a capability type, or an object of type and level", at=at)
    given = cast("Mapping[str, object]", raw)
    type_, level = given.get("type"), given.get("level")
    if type_ not in TYPES:
        raise InvalidDefinition(f"{at} {_quote(type_)} is not known; known: {', '.join(TYPES)}", at=at)
    if level is not None and level not in LEVELS:
        known = ", ".join(LEVELS)
        raise InvalidDefinition(f"{at}.level {_quote(level)} is not known; known: {known}", at=f"{at}.level")
    return CapabilityRequirement(type_, level)


def _invalid(message: str, at: str) -> ApiError:
    return ApiError("invalid_capability", message, param=at)


def _quote(value: object) -> str:
    return repr(value)[:80]


KIND = "session"
SOURCE = "_session"
"""The label of every session in metrics, and the source of its tools: session codes appear in addresses only."""

MAX_DEFINITION_BYTES = MAX_SCHEMA_BYTES
_NO_ARGUMENTS = Schema({"type": "object", "properties": {}, "additionalProperties": False})
"""The parameters of a tool without `inputSchema`."""
_TOOL_KEYS = ("name", "description", "inputSchema", "outputSchema", "annotations", "requires")
_HINTS = ("readOnlyHint", "idempotentHint", "destructiveHint")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, weakref_slot=True)
class SessionTool:
    """A tool of a session; `wire` is its JSON in metadata and events."""

    definition: ToolDefinition
    wire: bytes
    requires: tuple[CapabilityRequirement, ...]

    @property
    def name(self) -> str:
        """The name that the session's plugin gave it."""
        return self.definition.name


class CleanedTool(NamedTuple):
    """What was removed from a tool's definition, as lines `/path: why`."""

    name: str
    removed: tuple[str, ...]


class DefinitionCache:
    """Session tools by their JSON, held weakly: equal definitions of all sessions are one object."""

    def __init__(self) -> None:
        # Weak: a definition lives as long as a session has it.
        self._tools: WeakValueDictionary[bytes, SessionTool] = WeakValueDictionary()

    def tool(self, raw: object, removed: RemovedParts | None = None) -> SessionTool:
        """Return the tool that this JSON object defines, and add what is removed from it to `removed`.

        Raises `InvalidDefinition`, with the invalid key as `at`.
        """
        given = _object(raw)
        try:
            text = dump_json(given)
        except (TypeError, ValueError) as error:
            raise InvalidDefinition(f"the definition is not JSON: {error}") from None
        known = self._tools.get(text)
        if known is not None:
            return known
        if len(text) > MAX_DEFINITION_BYTES:
            raise InvalidDefinition(f"the definition has {len(text)} bytes, {MAX_DEFINITION_BYTES} are allowed")
        # `dump_json` writes NaN and infinity as null, so that only a text with a null can hide one.
        if b"null" in text and encode_value(given) is None:
            raise InvalidDefinition("the definition is not JSON: a number is out of range")
        tool = _read_tool(given, RemovedParts() if removed is None else removed)
        # Under its cleaned JSON: what is sent in two spellings is kept once.
        return self._tools.setdefault(tool.wire, tool)


def _object(raw: object) -> dict[str, object]:
    if not isinstance(raw, dict):
        raise InvalidDefinition("a tool must be an object with name, description and inputSchema")
    given = cast("dict[str, object]", raw)
    for key in map(str, given):
        if key not in _TOOL_KEYS:
            raise InvalidDefinition(f"unknown key {key[:80]!r}; known: {', '.join(_TOOL_KEYS)}", at=key[:80])
    return given


def _read_tool(given: Mapping[str, object], removed: RemovedParts) -> SessionTool:
    name = given.get("name")
    if not isinstance(name, str):
        raise InvalidDefinition("name must be text", at="name")
    check_foreign_tool_name(name)
    description = given.get("description")
    if description is not None and not isinstance(description, str):
        raise InvalidDefinition("description must be text", at="description")
    parameters = _schema(given.get("inputSchema"), "inputSchema", removed) or _NO_ARGUMENTS
    output = _schema(given.get("outputSchema"), "outputSchema", removed)
    requires = read_requirements(given["requires"]) if given.get("requires") is not None else ()
    hints = _hints(given.get("annotations"))
    annotations = cleaned_json(given.get("annotations"))
    if annotations != given.get("annotations"):
        removed.add(("annotations",), "invisible characters")
    try:
        definition = ToolDefinition(
            name=name, description=description or "", parameters=parameters, output_schema=output, hints=hints
        )
    except InvalidDefinition as error:
        raise InvalidDefinition(str(error), at="description") from None
    if description is not None and definition.description != description:
        removed.add(("description",), "invisible characters, or a heading of a user's own notes")
    wire = _wire({**given, "annotations": annotations}, definition)
    return SessionTool(definition=definition.owned_by(KIND, SOURCE), wire=wire, requires=requires)


def _schema(raw: object, at: str, removed: RemovedParts) -> Schema | None:
    """Return the schema, checked and then cleaned; None if there is none. Raises `InvalidDefinition`."""
    if raw is None:
        return None
    if not isinstance(raw, dict):
        raise InvalidDefinition(f"{at} must be a JSON Schema, an object", at=at)
    given = cast("dict[str, object]", raw)
    # Before the schema is compiled, so that this mistake gets a text of its own.
    if given.get("type", "object") != "object":
        raise InvalidDefinition(f"{at} must be of type object", at=f"{at}.type")
    try:
        schema = Schema(given)
        schema.check()
        value = sanitise_schema(given, (at,), removed)
        # The checked one where nothing was removed, since it is compiled already.
        return schema if value == given else Schema(value)
    except HiddenCharacter as error:
        raise InvalidDefinition(str(error), at=at) from None
    except InvalidDefinition as error:
        raise InvalidDefinition(f"{at}: {error}", at=at) from None


def _hints(raw: object) -> ToolHints:
    """Return the hints among MCP's tool annotations; other annotations are only stored."""
    if raw is None:
        return NO_HINTS
    if not isinstance(raw, dict) or any(
        isinstance(value, dict | list) for value in cast("dict[str, object]", raw).values()
    ):
        raise InvalidDefinition("annotations must be an object of texts, numbers and booleans", at="annotations")
    given = cast("dict[str, object]", raw)
    for key in _HINTS:
        if not isinstance(given.get(key), bool | None):
            raise InvalidDefinition(f"annotations.{key} must be true or false", at=f"annotations.{key}")
    read_only, idempotent, destructive = (cast("bool | None", given.get(key)) for key in _HINTS)
    return ToolHints(read_only, idempotent, destructive)


def _wire(given: Mapping[str, object], definition: ToolDefinition) -> bytes:
    kept = {key: given.get(key) for key in _TOOL_KEYS if given.get(key) is not None or key == "inputSchema"}
    if "description" in kept:
        kept["description"] = definition.description
    if "annotations" in kept:
        kept["annotations"] = orjson.Fragment(dump_json(kept["annotations"]))
    kept["inputSchema"] = orjson.Fragment(definition.parameters.text)
    if definition.output_schema is not None:
        kept["outputSchema"] = orjson.Fragment(definition.output_schema.text)
    # A copy: the encoder's own bytes keep their whole buffer, some kilobytes each.
    return bytes(memoryview(orjson.dumps(kept)))


class ToolDifference(NamedTuple):
    """The difference between two sets of tools: names of removed tools, and the added and modified ones in order."""

    added: tuple[SessionTool, ...] = ()
    removed: tuple[str, ...] = ()
    modified: tuple[SessionTool, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.added or self.removed or self.modified)

    def wire(self) -> bytes:
        """Return the JSON of `updates` in an event or answer."""
        names = orjson.dumps(list(self.removed))
        return b'{"added":%s,"removed":%s,"modified":%s}' % (
            render_tools(self.added),
            names,
            render_tools(self.modified),
        )


@dataclass(frozen=True, slots=True)
class ToolSet:
    """An immutable ordered set of tools by name."""

    tools: Mapping[str, SessionTool] = field(default_factory=lambda: MappingProxyType({}))

    def __len__(self) -> int:
        return len(self.tools)

    @property
    def size(self) -> int:
        """The total size of the definitions in bytes."""
        return sum(len(tool.wire) for tool in self.tools.values())

    def apply_changes(
        self, added: Iterable[SessionTool], removed: Iterable[str], modified: Iterable[SessionTool]
    ) -> ToolSet:
        """Return the set after an update; modified tools keep their places, added ones come last."""
        tools = dict(self.tools)
        for name in removed:
            del tools[name]
        for tool in (*modified, *added):
            tools[tool.name] = tool
        return ToolSet(tools)

    def difference(self, newer: ToolSet) -> ToolDifference:
        old, new = self.tools, newer.tools
        return ToolDifference(
            added=tuple(tool for name, tool in new.items() if name not in old),
            removed=tuple(name for name in old if name not in new),
            modified=tuple(tool for name, tool in new.items() if name in old and old[name].wire != tool.wire),
        )

    def wire(self) -> bytes:
        """Return the definitions as a JSON array."""
        return render_tools(tuple(self.tools.values()))


def tool_set(tools: Iterable[SessionTool]) -> ToolSet:
    """Return the set of these tools, whose names must differ."""
    return ToolSet({tool.name: tool for tool in tools})


def render_tools(tools: Sequence[SessionTool]) -> bytes:
    """Return definitions as a JSON array."""
    return b"[%s]" % b",".join([tool.wire for tool in tools])


DEADLINE_S = 30.0
LONGEST_S = 300.0
"""Seconds that a request may wait for its answer, by default and at most, unless `limits.timeout` is set
(reference/sessions.md)."""

_TIMEOUT = DefaultTimeout(DEADLINE_S, LONGEST_S, "default of session tools")

ALLOWED = ToolPolicy()


class SessionPlanner:
    """Builds the tools of all sessions under one policy; if the policy `hides` them, no session lists any.

    `offered` is how models are offered them.
    """

    def __init__(self, services: CallServices, policy: ToolPolicy = ALLOWED, offered: Offered = ALWAYS) -> None:
        self.services: CallServices = services
        self.hides: bool = policy.policy == "disable"
        self._policy = policy
        self._offered = offered
        self._builder = PlanBuilder(services, LimitLevel((KIND, SOURCE)), of_one_tenant=True)

    def tool(self, definition: ToolDefinition, source: PlanSource) -> Tool:
        """Return the tool of one session; the target of the source is its relay."""
        plan = self._builder.build(
            definition,
            source,
            self._policy,
            default_timeout=_TIMEOUT,
            output=definition.output_schema,
        )
        same = definition.offered == self._offered
        return Tool(definition if same else replace(definition, offered=self._offered), plan)
