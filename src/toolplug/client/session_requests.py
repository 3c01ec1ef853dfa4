"""The requests of an application to its session (docs/reference/sessions.md)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple, cast, get_args

import orjson
from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_camel

from toolplug.client.events import OfferedTool
from toolplug.client.host_requests import HostRequests
from toolplug.client.tool import Answer, Capability, CapabilityLevel, Definition, Environment, Function, Tool

Definitions = Mapping[str, Definition]
"""Definitions by name, in their order."""


class Difference(NamedTuple):
    """The difference between two sets of tools; false if there is none.

    ```python
    from toolplug.client import Difference, Tool, compare_tools

    def add(row: str) -> int:
        "Add a row."
        return 1

    def drop(row: str) -> int:
        "Drop a row."
        return 1

    found: Difference = compare_tools([Tool(add)], [Tool(add, name="append"), Tool(drop)])
    assert found.removed == ("add",)
    assert [tool["name"] for tool in found.added] == ["append", "drop"]
    ```
    """

    added: tuple[Definition, ...]
    removed: tuple[str, ...]
    modified: tuple[Definition, ...]

    def __bool__(self) -> bool:
        return bool(self.added or self.removed or self.modified)

    def wire(self) -> dict[str, object]:
        """Return the `toolUpdates` of an update, without empty fields."""
        return {key: list(part) for key, part in self._asdict().items() if part}


def difference(old: Definitions, new: Definitions) -> Difference:
    """Compare whole definitions; the order of keys and of tools does not matter."""
    return Difference(
        added=tuple(definition for name, definition in new.items() if name not in old),
        removed=tuple(name for name in old if name not in new),
        modified=tuple(
            definition for name, definition in new.items() if name in old and _text(old[name]) != _text(definition)
        ),
    )


Described = Tool | Function | OfferedTool | Definition
"""A tool in any form in which an application has one: its own, a function, that of an event, or a definition."""


def compare_tools(before: Iterable[Described], after: Iterable[Described]) -> Difference:
    """Return what was added, removed and modified between two lists of tools.

    For an application that sends its own requests; an `Application` does this by itself (`replace`).
    """
    return difference(_by_name(before), _by_name(after))


def needed_capabilities(tools: Iterable[Described]) -> list[Capability]:
    """Return the capabilities that the tools require, each at the highest level that one of them needs.

    An application that offers these tools declares them. Raises pydantic's `ValidationError` for an unknown type.
    """
    needed: dict[str, Capability] = {}
    for definition in map(_define, tools):
        for item in cast("Iterable[str | Definition]", definition.get("requires") or ()):
            given = {"type": item} if isinstance(item, str) else item
            # A level of None is any, which the default is.
            found = Capability.model_validate({key: value for key, value in given.items() if value is not None})
            known = needed.get(found.type)
            if known is None or _LEVELS.index(found.level) > _LEVELS.index(known.level):
                needed[found.type] = found
    return list(needed.values())


def _by_name(tools: Iterable[Described]) -> Definitions:
    return {str(definition["name"]): definition for definition in map(_define, tools)}


def _define(tool: Described) -> Definition:
    if isinstance(tool, OfferedTool):
        return tool.definition()
    if isinstance(tool, Tool):
        return tool.definition
    return Tool(tool).definition if callable(tool) else tool


_LEVELS: tuple[CapabilityLevel, ...] = get_args(CapabilityLevel)


def _text(definition: Definition) -> bytes:
    # As text: `1`, `1.0` and `True` are equal in Python, and different in a schema.
    return orjson.dumps(definition, option=orjson.OPT_SORT_KEYS)


class _Answer(BaseModel):
    model_config: ClassVar[ConfigDict] = ConfigDict(frozen=True, extra="ignore", alias_generator=to_camel)


class CreatedOnHost(_Answer):
    """A new session; this is the only answer with its token."""

    code: str
    plugin_token: str


class FailedTool(_Answer):
    """A tool that the host has refused, and the reason."""

    tool_name: str
    error: str


class Registered(_Answer):
    """The tools of the session after a registration, and the refused ones."""

    registered_tools: tuple[str, ...]
    failed_tools: tuple[FailedTool, ...]
    revision: int


class Updated(_Answer):
    """The session's revision after an update."""

    revision: int


class Taken(_Answer):
    """The host's confirmation of an answer or progress report."""

    id: str


class ApplicationMetadata(_Answer):
    """The host's data of this application."""

    plugin_type: str | None = None
    capabilities: list[Any] = []
    environment: Mapping[str, Any] = {}
    tools: tuple[OfferedTool, ...]
    registered: bool
    revision: int


class RegistrationInfo(BaseModel):
    """The application's description, a part of each registration."""

    model_config: ClassVar[ConfigDict] = ConfigDict(frozen=True)

    plugin_type: str
    capabilities: tuple[Capability, ...]
    environment: Environment

    def wire(self) -> dict[str, object]:
        """Return the fields of a registration other than its tools."""
        return {
            "pluginType": self.plugin_type,
            "capabilities": [capability.wire() for capability in self.capabilities],
            "environment": self.environment.wire(),
        }


async def create(host: HostRequests, plugin_type: str, ttl_s: int | None) -> CreatedOnHost:
    """Create a session of the caller's tenant."""
    body: dict[str, object] = {"pluginType": plugin_type}
    if ttl_s is not None:
        body["ttlSeconds"] = ttl_s
    return await host.request_answer("POST", "/api/sessions", CreatedOnHost, body)


async def end(host: HostRequests, code: str) -> None:
    """End a session of the caller's tenant."""
    await host.request_response("DELETE", f"/api/sessions/{code}")


class SessionRequests:
    """The session's own routes, called with its token."""

    def __init__(self, host: HostRequests, code: str) -> None:
        self._host = host
        self._path = f"/api/sessions/{code}"

    @property
    def stream(self) -> str:
        """The path of the session's event stream."""
        return f"{self._path}/stream"

    async def metadata(self) -> ApplicationMetadata:
        """Return the host's current data of the application."""
        return await self._host.request_answer("GET", f"{self._path}/metadata", ApplicationMetadata)

    async def register(self, registration: RegistrationInfo, tools: Sequence[Definition]) -> Registered:
        """Replace all tools of the session."""
        body = {**registration.wire(), "tools": list(tools)}
        return await self._host.request_answer("POST", f"{self._path}/register-tools", Registered, body)

    async def update(self, difference: Difference, reason: str, revision: int) -> Updated:
        """Change the tools; fails if the session's revision is not the expected one."""
        body = {"toolUpdates": difference.wire(), "reason": reason}
        match = {"If-Match": str(revision)}
        return await self._host.request_answer("POST", f"{self._path}/update-tools", Updated, body, match)

    async def send(self, request_id: str, answer: Answer) -> None:
        """Answer a request, or report its progress."""
        await self._host.request_answer("POST", f"{self._path}/tool-results", Taken, {"id": request_id, **answer})
