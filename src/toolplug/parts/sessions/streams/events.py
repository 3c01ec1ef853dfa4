"""Events of a session: ids, JSON data, log entries, and frames of the event stream."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import orjson

from toolplug.catalog.catalog import Catalog
from toolplug.catalog.definition import ToolDefinition
from toolplug.config.units import timestamp
from toolplug.parts.sessions.record import SessionState
from toolplug.parts.sessions.tools.session_tool import PluginStatus, ToolDifference, ToolSet
from toolplug.stores.store import Event

ROOM = 10_000
"""The id of a logged event is its position × 10,000. The ids between are for events that are sent to one stream first.

A request is sent to its stream before it is logged, so that its caller does not wait for the disk. It gets the next id
after the position of the stream: position × 10,000 + 1, + 2, …
"""

# Eighteen digits fit into the 64 bits of a store's positions, whatever a client sends as `Last-Event-ID`.
_ID = re.compile("[0-9]{1,18}")


def event_id(position: int) -> int:
    """Return the id of the event at this position of the log."""
    return position * ROOM


def position_of(event: int) -> int:
    """Return the log position of an event; for one that was sent before it was logged, the position of its stream."""
    return event // ROOM


def is_logged(event: int) -> bool:
    """Return True for the id of an event that streams read from the log."""
    return event % ROOM == 0


def read_event_id(text: str) -> int | None:
    """Return the event id that a client has sent; None for any other text."""
    return int(text) if _ID.fullmatch(text) else None


EVERYBODY = "*"
PLUGIN = "plugin"
NOBODY = "-"
_TOLD = "@"

UPDATE = "tool-availability-update"
REQUEST = "tool-request"
CANCELLED = "tool-cancelled"
STATUS = "plugin-status"
GONE = "session-gone"
"""Sent to no stream: makes the processes that follow the log read the record again."""


class LogEntry(NamedTuple):
    """One entry of the log: `data` is compact JSON, `revision` that of the session after an update, else 0.

    `audience` is everybody, the plugin's streams, nobody, or one stream that has received the event (`told_as`).
    """

    event: str
    audience: str
    data: bytes
    revision: int = 0


def told_as(event: int) -> str:
    """Return the audience of an event that one stream received with this id before it was logged."""
    return f"{_TOLD}{event}"


def told_id(entry: LogEntry) -> int | None:
    """Return the id with which one stream received the entry before it was logged; None for other entries."""
    # The id is a part of the audience, so that entries of earlier versions read as before.
    return int(entry.audience[len(_TOLD) :]) if entry.audience.startswith(_TOLD) else None


def entry_bytes(entry: LogEntry) -> bytes:
    """Return the entry as it is stored: a line of event, audience and revision, then the data."""
    # A line of plain text before the data: the host looks at event and audience of each entry and seldom at the data.
    return b"%s %s %d\n%s" % (entry.event.encode(), entry.audience.encode(), entry.revision, entry.data)


def read_entry(raw: bytes) -> LogEntry:
    """Return the entry that `entry_bytes` has encoded."""
    head, _, data = raw.partition(b"\n")
    event, audience, revision = head.decode().split(" ")
    return LogEntry(event, audience, data, int(revision))


class StoredSessionEvent(NamedTuple):
    """One event with the id that its readers received, and its data as JSON; requests have no arguments here."""

    id: int
    event: str
    text: bytes

    @property
    def data(self) -> dict[str, object]:
        """The data; each use reads the text again."""
        return orjson.loads(self.text)

    @property
    def line(self) -> str:
        """The event as one line of JSON, as the host answers it."""
        return orjson.dumps({"id": self.id, "event": self.event, "data": orjson.Fragment(self.text)}).decode()


class LogPage(NamedTuple):
    """A part of a log; `position` is the event id to request the next part with."""

    events: tuple[StoredSessionEvent, ...]
    position: int


def log_page(events: Sequence[Event], after: int) -> LogPage:
    """Return these events of a log, which follow the event with the id `after`."""
    return LogPage(logged_events(events), event_id(events[-1].id) if events else after)


def logged_events(events: Iterable[Event]) -> tuple[StoredSessionEvent, ...]:
    """Return the events of a log that were sent to any stream."""
    entries = [(event.id, read_entry(event.data)) for event in events]
    return tuple(
        StoredSessionEvent(told_id(entry) or event_id(position), entry.event, entry.data)
        for position, entry in entries
        if entry.audience != NOBODY
    )


_AVAILABLE = b',"available":true}'


def tool_list(tools: ToolSet, away: str | None, shadowed: Callable[[str], bool]) -> bytes:
    """Return the tools as a JSON array; `away` is why none is available, `shadowed` tells if a name is taken."""
    shown: list[bytes] = []
    for name, tool in tools.tools.items():
        reason = "shadowed" if shadowed(name) else away
        shown.append(
            # The encoded tool without its closing brace: encoding it again for each reader would cost more than all the
            # rest.
            tool.wire[:-1] + (_AVAILABLE if reason is None else b',"available":false,"reason":"%s"}' % reason.encode())
        )
    return b"[%s]" % b",".join(shown)


def default_tool_list(catalog: Catalog) -> bytes:
    """Return the default tools, of a session without registered tools, in the shape of `tool_list`."""
    return orjson.dumps([_define(definition) for definition in catalog.definitions()])


def _define(definition: ToolDefinition) -> dict[str, object]:
    shown: dict[str, object] = {
        "name": definition.name,
        "description": definition.description,
        "inputSchema": orjson.Fragment(definition.parameters.text),
    }
    if definition.output_schema is not None:
        shown["outputSchema"] = orjson.Fragment(definition.output_schema.text)
    return shown | {"available": True}


def connected_data(code: str, state: SessionState, status: PluginStatus, tools: bytes | None) -> bytes:
    """Return the data of `connected`; `tools` is a JSON array, None for a stream that resumes after an event."""
    begin: dict[str, object] = {
        "sessionCode": code,
        "revision": state.revision,
        "registered": state.registered,
        "pluginStatus": status,
    }
    if tools is not None:
        begin["tools"] = orjson.Fragment(tools)
    return orjson.dumps(begin | {"resumed": tools is None})


def update_data(code: str, state: SessionState, difference: ToolDifference, reason: str) -> bytes:
    """Return the data of an update by which the session came into this state."""
    return orjson.dumps(
        {
            "sessionCode": code,
            "updates": orjson.Fragment(difference.wire()),
            "revision": state.revision,
            "timestamp": timestamp(state.updated_at),
            "reason": reason,
        }
    )


def status_data(code: str, status: PluginStatus, at: float) -> bytes:
    """Return the data of a change of the plugin's status; `at` is in seconds since the epoch."""
    return orjson.dumps({"sessionCode": code, "status": status, "timestamp": timestamp(at)})
