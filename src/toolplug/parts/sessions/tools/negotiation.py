"""Registrations and updates of a plugin: checked completely, then applied to the state of its session."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple, cast

import orjson

from toolplug.catalog.call import EMPTY
from toolplug.catalog.definition import wire_name
from toolplug.catalog.exact_json import Answer
from toolplug.catalog.text import clean_text, cleaned_json
from toolplug.errors import ApiError, InvalidDefinition
from toolplug.foreign.sanitise import RemovedParts
from toolplug.parts.sessions.limits import MAX_ENVIRONMENT_BYTES, MAX_SET_BYTES
from toolplug.parts.sessions.record import SessionState
from toolplug.parts.sessions.shared import SessionServices
from toolplug.parts.sessions.tools.session_tool import (
    CleanedTool,
    DeclaredCapability,
    DeclaredLevels,
    DefinitionCache,
    SessionTool,
    ToolDifference,
    ToolSet,
    declared_levels,
    read_capabilities,
    tool_set,
    unmet,
)
from toolplug.runtime.duplicates import first_repeated
from toolplug.runtime.tasks import in_slices
from toolplug.signatures.values import encode_value

_LEVELS_AROUND = 16
"""Levels of JSON that records and answers may have around an environment: the depth of JSON is limited."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Registration:
    """A registration as the plugin sent it. `plugin_type` None keeps the session's; `atomic`: all tools or none."""

    tools: Sequence[object]
    plugin_type: str | None = None
    capabilities: Sequence[object] = ()
    environment: Mapping[str, object] = field(default_factory=lambda: EMPTY)
    atomic: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolChanges:
    """An update as the plugin sent it; all of it is applied, or nothing."""

    added: Sequence[object] = ()
    removed: Sequence[str] = ()
    modified: Sequence[object] = ()


class FailedToolAnswer(Answer):
    """A rejected tool. `recoverable`: the same definition may be accepted another time."""

    toolName: str
    error: str
    recoverable: bool


class RefusedTool(NamedTuple):
    """A rejected tool. `recoverable`: the same definition may be accepted at another time."""

    name: str
    error: str
    recoverable: bool

    def fields(self) -> FailedToolAnswer:
        return {"toolName": self.name, "error": self.error, "recoverable": self.recoverable}


class RegistrationResult(NamedTuple):
    """The result of a registration: accepted names, rejected tools, and what was removed from accepted definitions."""

    names: tuple[str, ...]
    failed: tuple[RefusedTool, ...]
    revision: int
    cleaned: tuple[CleanedTool, ...] = ()


class UpdateResult(NamedTuple):
    """The result of an update; `cleaned` is what was removed from its definitions."""

    revision: int
    difference: ToolDifference
    cleaned: tuple[CleanedTool, ...] = ()


class Negotiated(NamedTuple):
    """A checked registration: the accepted tools in order, the `failed` ones, and what was removed (`cleaned`)."""

    plugin_type: str | None
    capabilities: tuple[DeclaredCapability, ...]
    environment: Mapping[str, object]
    tools: ToolSet
    failed: tuple[RefusedTool, ...]
    cleaned: tuple[CleanedTool, ...]

    def apply_to(self, state: SessionState) -> SessionState:
        """Return the state with this registration; the same object if nothing changes."""
        plugin_type = state.plugin_type if self.plugin_type is None else self.plugin_type
        same = (
            state.registered
            and (state.plugin_type, state.capabilities, state.environment)
            == (plugin_type, self.capabilities, self.environment)
            # The order as well, which a set comparison would not see: models are listed the tools in it.
            and list(state.tools.tools) == list(self.tools.tools)
            and not state.tools.difference(self.tools)
        )
        if same:
            return state
        return replace(
            state,
            registered=True,
            revision=state.revision + 1,
            plugin_type=plugin_type,
            capabilities=self.capabilities,
            environment=self.environment,
            tools=self.tools,
        )


class NegotiatedChanges(NamedTuple):
    """A checked update; `cleaned` is what was removed from its definitions."""

    added: tuple[SessionTool, ...]
    removed: tuple[str, ...]
    modified: tuple[SessionTool, ...]
    cleaned: tuple[CleanedTool, ...]


async def negotiate(asked: Registration, tenant: str, shared: SessionServices) -> Negotiated:
    """Check a registration. Raises `ApiError` if it cannot be accepted even in part."""
    _check_count(len(asked.tools), shared.limits.max_tools)
    capabilities = read_capabilities(asked.capabilities)
    _check_environment(asked)
    # After the check, whose messages name what the plugin has sent.
    capabilities = tuple(map(_clean, capabilities))
    levels = declared_levels(capabilities)
    good: list[SessionTool] = []
    failed: list[RefusedTool] = []
    names: dict[str, str] = {}
    cleaned_tools: list[CleanedTool] = []
    # A thousand tools take long to check: other tasks have their turn in between.
    async for raw in in_slices(asked.tools):
        removed = RemovedParts()
        outcome = _candidate(raw, removed, levels, names, tenant, shared)
        if isinstance(outcome, RefusedTool):
            failed.append(outcome)
            continue
        good.append(outcome)
        if lines := removed.lines():
            cleaned_tools.append(CleanedTool(outcome.name, lines))
    if failed and (asked.atomic or not good):
        how = "the registration is atomic, and" if asked.atomic else "no tool is good:"
        first = f"{how} {failed[0].name!r} failed: {failed[0].error}"
        details = {"failedTools": [tool.fields() for tool in failed]}
        raise ApiError("registration_failed", first, "tools", details=details)
    tools = tool_set(good)
    _check_size(tools)
    plugin_type = None if asked.plugin_type is None else clean_text(asked.plugin_type)
    environment = cast("Mapping[str, object]", cleaned_json(dict(asked.environment)))
    return Negotiated(plugin_type, capabilities, environment, tools, tuple(failed), tuple(cleaned_tools))


async def read_changes(asked: ToolChanges, pool: DefinitionCache) -> NegotiatedChanges:
    """Check an update. Raises `ApiError` (`invalid_tool`) with the path of the first invalid definition."""
    cleaned_tools: list[CleanedTool] = []
    added = await _definitions(asked.added, "toolUpdates.added", pool, cleaned_tools)
    modified = await _definitions(asked.modified, "toolUpdates.modified", pool, cleaned_tools)
    changes = NegotiatedChanges(added, tuple(asked.removed), modified, tuple(cleaned_tools))
    _check_each_once(changes)
    return changes


def apply_update(state: SessionState, changes: NegotiatedChanges, shared: SessionServices) -> SessionState:
    """Return the state after an update; the same object if nothing changes. Raises `ApiError`."""
    if not state.registered:
        message = "nothing is registered in this session; begin with register-tools"
        raise ApiError("not_registered", message)
    _check_existence(state, changes)
    remaining = state.tools.apply_changes((), changes.removed, ())
    # Names and wire names in one map, since a model may use either.
    names = {wire_name(name): name for name in remaining.tools}
    names |= {name: name for name in remaining.tools}
    levels = declared_levels(state.capabilities)
    for key, tools in (("added", changes.added), ("modified", changes.modified)):
        for index, tool in enumerate(tools):
            clash = _clash(tool, levels, names if key == "added" else {}, state.tenant, shared)
            if clash is not None:
                raise ApiError("invalid_tool", f"{tool.name!r}: {clash}", param=f"toolUpdates.{key}[{index}]")
    tools = state.tools.apply_changes(changes.added, changes.removed, changes.modified)
    if not state.tools.difference(tools):
        return state
    _check_count(len(tools), shared.limits.max_tools)
    _check_size(tools)
    return replace(state, tools=tools, revision=state.revision + 1)


def _candidate(
    raw: object,
    removed: RemovedParts,
    levels: DeclaredLevels,
    names: dict[str, str],
    tenant: str,
    shared: SessionServices,
) -> SessionTool | RefusedTool:
    """Check one tool of a registration, and add its canonical and wire name to `names`, those before it."""
    try:
        tool = shared.pool.tool(raw, removed)
    except InvalidDefinition as error:
        return RefusedTool(_name_in(raw), str(error), False)
    clash = _clash(tool, levels, names, tenant, shared)
    return tool if clash is None else RefusedTool(tool.name, clash, True)


def _clash(
    tool: SessionTool, levels: DeclaredLevels, names: dict[str, str], tenant: str, shared: SessionServices
) -> str | None:
    """Return the reason why a valid tool cannot be accepted now; None after adding its names to `names`."""
    missing = unmet(tool.requires, levels)
    if missing is not None:
        return missing
    wire = tool.definition.wire
    # The one to name in the message: the name itself, or the one under which both would be called.
    met = tool.name if tool.name in names else wire
    other = names.get(met)
    if other is not None:
        return "duplicate name" if other == tool.name else f"{met!r} stands for {other!r} in a model's calls"
    owner = shared.neighbours.owner_of(tenant, tool.name) or shared.neighbours.owner_of(tenant, wire)
    if owner is not None:
        return f"the name belongs to {owner}; a session's tools need names of their own"
    names[tool.name] = names[wire] = tool.name
    return None


async def _definitions(
    given: Sequence[object], at: str, pool: DefinitionCache, cleaned_tools: list[CleanedTool]
) -> tuple[SessionTool, ...]:
    tools: list[SessionTool] = []
    async for index, raw in in_slices(enumerate(given)):
        removed = RemovedParts()
        try:
            tools.append(pool.tool(raw, removed))
        except InvalidDefinition as error:
            place = f"{at}[{index}]"
            param = f"{place}.{error.at}" if error.at else place
            # The first error ends it, unlike a registration: an update is applied whole or not at all.
            raise ApiError("invalid_tool", f"{place}: {error}", param=param) from None
        if lines := removed.lines():
            cleaned_tools.append(CleanedTool(tools[-1].name, lines))
    return tuple(tools)


def _check_each_once(changes: NegotiatedChanges) -> None:
    added, modified = ((tool.name for tool in tools) for tools in (changes.added, changes.modified))
    twice = first_repeated((*added, *changes.removed, *modified))
    if twice is not None:
        raise ApiError("invalid_tool", f"{twice!r} appears twice in this update", param="toolUpdates")


def _check_existence(state: SessionState, changes: NegotiatedChanges) -> None:
    known = state.tools.tools
    for index, tool in enumerate(changes.added):
        if tool.name in known:
            message = f"the session has a tool {tool.name!r} already; send it under modified"
            raise ApiError("tool_exists", message, param=f"toolUpdates.added[{index}].name")
    for key, names in (("removed", changes.removed), ("modified", [tool.name for tool in changes.modified])):
        for index, name in enumerate(names):
            if name not in known:
                message = f"the session has no tool {name[:128]!r}"
                raise ApiError("tool_not_found", message, param=f"toolUpdates.{key}[{index}]")


def _check_count(count: int, most: int) -> None:
    if count > most:
        raise ApiError("too_many_tools", f"{count} tools; a session may have {most}", param="tools")


def _check_size(tools: ToolSet) -> None:
    if tools.size > MAX_SET_BYTES:
        message = f"the definitions have {tools.size} bytes together; a session may have {MAX_SET_BYTES}"
        raise ApiError("too_many_tools", message, param="tools")


def _check_environment(asked: Registration) -> None:
    shown: object = [list(asked.capabilities), dict(asked.environment)]
    # Packed as deep as it will be in a record or an answer, so that it can be read again there.
    for _ in range(_LEVELS_AROUND):
        shown = [shown]
    try:
        size = len(orjson.dumps(shown)) - 2 * _LEVELS_AROUND
        if size <= MAX_ENVIRONMENT_BYTES and encode_value(shown) is None:
            raise TypeError("a number is out of range")
    except (TypeError, orjson.JSONEncodeError) as error:
        message = f"capabilities and environment cannot be kept as JSON: {error}"
        raise ApiError("invalid_environment", message, param="environment") from None
    if size > MAX_ENVIRONMENT_BYTES:
        message = f"capabilities and environment have {size} bytes together, {MAX_ENVIRONMENT_BYTES} are allowed"
        raise ApiError("invalid_environment", message, param="environment")


def _clean(capability: DeclaredCapability) -> DeclaredCapability:
    resources = cast("list[object]", cleaned_json(list(capability.resources)))
    return capability._replace(resources=tuple(resources))


def _name_in(raw: object) -> str:
    name = raw.get("name") if isinstance(raw, dict) else None  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
    return name[:128] if isinstance(name, str) else ""
