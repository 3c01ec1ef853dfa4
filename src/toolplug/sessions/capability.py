"""What an application says that it can do, and what a tool requires of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, cast, get_args

from toolplug.errors import InvalidDefinition, SessionRefused
from toolplug.sessions.vocabulary import CapabilityLevel, CapabilityType

TYPES: tuple[CapabilityType, ...] = get_args(CapabilityType)
LEVELS: tuple[CapabilityLevel, ...] = get_args(CapabilityLevel)
"""In rising order."""

_KEYS = frozenset({"type", "level", "resources"})


class Capability(NamedTuple):
    """One thing that the application can do; `resources` are its own words, kept as they are."""

    type: CapabilityType
    level: CapabilityLevel
    resources: tuple[object, ...]


class Requirement(NamedTuple):
    """A capability that a tool needs; `level` is the least, None: any."""

    type: CapabilityType
    level: CapabilityLevel | None


def read_capabilities(raw: Sequence[object]) -> tuple[Capability, ...]:
    """The declared capabilities. Raises `SessionRefused` (`invalid_capability`) with the path of the first bad one."""
    return tuple(_read(item, f"capabilities[{index}]") for index, item in enumerate(raw))


def read_requirements(raw: object) -> tuple[Requirement, ...]:
    """What a tool requires: types, or objects of type and level. Raises `InvalidDefinition`."""
    if not isinstance(raw, list):
        raise InvalidDefinition("requires must be a list of capability types or of {type, level}", at="requires")
    return tuple(_required(item, f"requires[{index}]") for index, item in enumerate(cast("list[object]", raw)))


def unmet(required: Sequence[Requirement], declared: Sequence[Capability]) -> str | None:
    """What is missing for these requirements; None where nothing is."""
    best: dict[str, int] = {}
    for capability in declared:
        best[capability.type] = max(best.get(capability.type, 0), LEVELS.index(capability.level))
    for item in required:
        least = LEVELS.index(item.level) if item.level is not None else 0
        if item.type not in best:
            return f"it requires the capability {item.type!r}, which was not declared"
        if best[item.type] < least:
            return f"it requires {item.type!r} at level {item.level!r}; {LEVELS[best[item.type]]!r} was declared"
    return None


def _read(raw: object, at: str) -> Capability:
    if not isinstance(raw, Mapping):
        raise _invalid(f"{at} must be an object of type, level and resources", at)
    given = cast("Mapping[str, object]", raw)
    for key in given:
        if key not in _KEYS:
            message = f"{at} has the unknown key {_named(key)}; known: type, level, resources"
            raise _invalid(message, f"{at}.{key[:80]}")
    type_, level = given.get("type"), given.get("level")
    if type_ not in TYPES:
        raise _invalid(f"{at}.type {_named(type_)} is not known; known: {', '.join(TYPES)}", f"{at}.type")
    if level not in LEVELS:
        raise _invalid(f"{at}.level {_named(level)} is not known; known: {', '.join(LEVELS)}", f"{at}.level")
    resources = given.get("resources", [])
    if not isinstance(resources, list):
        raise _invalid(f"{at}.resources must be a list", f"{at}.resources")
    return Capability(type_, level, tuple(cast("list[object]", resources)))


def _required(raw: object, at: str) -> Requirement:
    if isinstance(raw, str):
        raw = {"type": raw}
    if not isinstance(raw, Mapping) or not set(cast("Mapping[str, object]", raw)) <= {"type", "level"}:
        raise InvalidDefinition(f"{at} must be a capability type, or an object of type and level", at=at)
    given = cast("Mapping[str, object]", raw)
    type_, level = given.get("type"), given.get("level")
    if type_ not in TYPES:
        raise InvalidDefinition(f"{at} {_named(type_)} is not known; known: {', '.join(TYPES)}", at=at)
    if level is not None and level not in LEVELS:
        known = ", ".join(LEVELS)
        raise InvalidDefinition(f"{at}.level {_named(level)} is not known; known: {known}", at=f"{at}.level")
    return Requirement(type_, level)


def _invalid(message: str, at: str) -> SessionRefused:
    return SessionRefused("invalid_capability", message, param=at)


def _named(value: object) -> str:
    return repr(value)[:80]
