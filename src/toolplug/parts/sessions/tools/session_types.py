"""The kinds of applications that have lent tools to sessions, with these tools: what a host has seen, in memory."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import islice
from typing import NamedTuple

from toolplug.parts.sessions.limits import MAX_ALL_TYPES, MAX_TYPE_TEXT, MAX_TYPE_TOOLS, MAX_TYPES
from toolplug.parts.sessions.record import SessionState


class SeenTool(NamedTuple):
    """A tool as it was lent last; the description is cut."""

    name: str
    description: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenType:
    """A kind of application, as one of its sessions was registered last. Times are seconds on the store's clock."""

    plugin_type: str
    tools: tuple[SeenTool, ...]
    tool_count: int
    capabilities: tuple[str, ...]
    first_seen: float
    last_seen: float


class SessionTypes:
    """The kinds of each tenant that were seen last, at most `MAX_TYPES` of one and `MAX_ALL_TYPES` in all."""

    def __init__(self) -> None:
        # By tenant and kind, the one that was seen last at the end.
        self._seen: dict[tuple[str, str], SeenType] = {}

    def note(self, state: SessionState, now: float) -> None:
        """Remember what a session is lent; one that nothing was registered in has no kind yet."""
        if not state.registered:
            return
        key = (state.tenant, state.plugin_type)
        before = self._seen.pop(key, None)
        if before is None:
            self._make_room(state.tenant)
        some = islice(state.tools.tools.values(), MAX_TYPE_TOOLS)
        seen = SeenType(
            plugin_type=state.plugin_type,
            tools=tuple(SeenTool(tool.name, tool.definition.description[:MAX_TYPE_TEXT]) for tool in some),
            tool_count=len(state.tools),
            capabilities=tuple(dict.fromkeys(item.type for item in state.capabilities)),
            first_seen=now,
            last_seen=now,
        )
        self._seen[key] = seen if before is None else replace(seen, first_seen=before.first_seen)

    def of(self, tenant: str) -> tuple[SeenType, ...]:
        """Return the kinds of one tenant, the one that was seen last first."""
        return tuple(seen for (owner, _), seen in reversed(self._seen.items()) if owner == tenant)

    def _make_room(self, tenant: str) -> None:
        own = [key for key in self._seen if key[0] == tenant]
        # Those of the tenant itself first: what one tenant registers must not drop what another one has.
        if len(own) >= MAX_TYPES:
            del self._seen[own[0]]
        elif len(self._seen) >= MAX_ALL_TYPES:
            del self._seen[next(iter(self._seen))]
