"""What a host tells about a session: each event as a value."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Literal

from pydantic import BaseModel, ConfigDict, JsonValue
from pydantic.alias_generators import to_camel

PluginStatus = Literal["attached", "waiting", "detached"]
"""The application is connected; is not, but may come back; is gone, and calls of its tools are unavailable."""


_PLUGIN_GONE = "plugin_gone"


class _Event(BaseModel):
    """Keys that this version does not know are passed over, so that an older client can read a newer host."""

    model_config: ClassVar[ConfigDict] = ConfigDict(frozen=True, extra="ignore", alias_generator=to_camel)


class OfferedTool(_Event):
    """A tool of a session. One that is not `available` is listed but cannot be called; `reason` says why."""

    name: str
    description: str = ""
    input_schema: Mapping[str, JsonValue]
    output_schema: Mapping[str, JsonValue] | None = None
    annotations: Mapping[str, JsonValue] | None = None
    requires: tuple[JsonValue, ...] | None = None
    available: bool = True
    reason: str | None = None

    def while_plugin_is(self, status: PluginStatus) -> OfferedTool:
        """The tool while its application is in this state; what stands in its way otherwise goes on to."""
        if self.reason not in {None, _PLUGIN_GONE}:
            return self
        away = status == "detached"
        return self.model_copy(update={"available": not away, "reason": _PLUGIN_GONE if away else None})

    def definition(self) -> dict[str, JsonValue]:
        """The tool as its application registered it."""
        return self.model_dump(mode="json", by_alias=True, exclude_unset=True, exclude={"available", "reason"})


class ToolUpdates(_Event):
    """Tools that came, the names of those that went, and tools that have another definition than before."""

    added: tuple[OfferedTool, ...] = ()
    removed: tuple[str, ...] = ()
    modified: tuple[OfferedTool, ...] = ()


class ToolsChanged(_Event):
    """The tools of a session are others from this `revision` on; `timestamp` is ISO 8601 in UTC."""

    session_code: str
    updates: ToolUpdates
    revision: int
    timestamp: str
    reason: str = ""


class StatusChanged(_Event):
    """The session's application came or went; its tools are available with it."""

    session_code: str
    status: PluginStatus
    timestamp: str


class Snapshot(_Event):
    """Everything about a session's tools at one moment.

    Without a registration (`registered`) they are the host's default tools for sessions.
    """

    session_code: str
    revision: int
    registered: bool
    plugin_status: PluginStatus
    tools: tuple[OfferedTool, ...]

    def after(self, change: ToolsChanged | StatusChanged) -> Snapshot:
        """The snapshot after a change that follows it."""
        if isinstance(change, StatusChanged):
            tools = tuple(tool.while_plugin_is(change.status) for tool in self.tools)
            return self.model_copy(update={"plugin_status": change.status, "tools": tools})
        updates = change.updates
        own = {tool.name: tool for tool in self.tools} if self.registered else {}
        for name in updates.removed:
            own.pop(name, None)
        own |= {tool.name: tool for tool in (*updates.modified, *updates.added)}
        tools = tuple(tool.while_plugin_is(self.plugin_status) for tool in own.values())
        return self.model_copy(update={"revision": change.revision, "registered": True, "tools": tools})


class Resumed(_Event):
    """The stream goes on where it broke: nothing was missed."""

    resumed: Literal[True]


class ToolRequest(_Event):
    """A call of a tool that waits for this application's answer; sent again, it has the same `id`."""

    id: str
    tool: str
    arguments: Mapping[str, JsonValue] = {}


class ToolCancelled(_Event):
    """Nobody waits any more for the answer to this request."""

    id: str
    reason: str = ""
