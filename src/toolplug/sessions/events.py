"""The events of a session: ids, JSON data, entries of the log, and frames on the wire."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import orjson

from toolplug.catalog.catalog import Catalog
from toolplug.catalog.definition import ToolDefinition
from toolplug.execution.accounting import timestamp
from toolplug.sessions.record import SessionState
from toolplug.sessions.session_tool import Difference, PluginStatus, ToolSet
from toolplug.stores.store import Event

# The ids of events: positions in a session's log, with room between them for what one stream alone is told.
#
# A request is told to its stream before it stands in the log, so that its caller waits for no disk. It takes the next
# id behind the position that the stream is at: position × 10,000 + 1, + 2, …; what the log tells has position ×
# 10,000.

ROOM = 10_000

_ID = re.compile("[0-9]{1,18}")


def event_id(position: int) -> int:
    """The id of the event at this position of the log."""
    return position * ROOM


def position_of(event: int) -> int:
    """The position of an event of the log; for one that was told without it, the one that its stream was at."""
    return event // ROOM


def is_logged(event: int) -> bool:
    """Is it the id of an event that the log told."""
    return event % ROOM == 0


def read_event_id(text: str) -> int | None:
    """The id that a client has sent; None where it cannot be one."""
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
"""Said to nobody: tells the processes that follow the log to look at the record."""


class LogEntry(NamedTuple):
    """`audience` is everybody, the plugin's streams, nobody, or one stream that has been told already (`told_as`).

    `revision` is that of the session after an update, 0 for other events.
    """

    event: str
    audience: str
    data: bytes
    revision: int = 0


def told_as(event: int) -> str:
    """The audience of what one stream was told under this id before it stood in the log."""
    return f"{_TOLD}{event}"


def told_id(entry: LogEntry) -> int | None:
    """The id under which one stream was told it before it stood in the log; None for what the log tells."""
    return int(entry.audience[len(_TOLD) :]) if entry.audience.startswith(_TOLD) else None


def entry_bytes(entry: LogEntry) -> bytes:
    """The entry as the store keeps it; its data is one line of JSON."""
    return b"%s %s %d\n%s" % (entry.event.encode(), entry.audience.encode(), entry.revision, entry.data)


def read_entry(raw: bytes) -> LogEntry:
    """The entry that these bytes keep."""
    head, _, data = raw.partition(b"\n")
    event, audience, revision = head.decode().split(" ")
    return LogEntry(event, audience, data, int(revision))


class LoggedEvent(NamedTuple):
    """One event, under the id that its readers were told; a request stands in the log without its arguments."""

    id: int
    event: str
    data: dict[str, object]


class LogPage(NamedTuple):
    """A part of a log, and the id to ask for the next part with."""

    events: tuple[LoggedEvent, ...]
    position: int


def log_page(events: Sequence[Event], after: int) -> LogPage:
    """These events of a log, which come after this one."""
    return LogPage(logged_events(events), event_id(events[-1].id) if events else after)


def logged_events(events: Iterable[Event]) -> tuple[LoggedEvent, ...]:
    """The events of a log that anybody was told."""
    shown: list[LoggedEvent] = []
    for event in events:
        entry = read_entry(event.data)
        if entry.audience == NOBODY:
            continue
        shown.append(LoggedEvent(told_id(entry) or event_id(event.id), entry.event, orjson.loads(entry.data)))
    return tuple(shown)


_AVAILABLE = b',"available":true}'


def tool_list(tools: ToolSet, away: str | None, shadowed: Callable[[str], bool]) -> bytes:
    """The definitions as a JSON array; `away` is why none can be called, `shadowed` tells whose name was taken."""
    shown: list[bytes] = []
    for name, tool in tools.tools.items():
        reason = "shadowed" if shadowed(name) else away
        shown.append(
            tool.wire[:-1] + (_AVAILABLE if reason is None else b',"available":false,"reason":"%s"}' % reason.encode())
        )
    return b"[%s]" % b",".join(shown)


def default_tool_list(catalog: Catalog) -> bytes:
    """The tools of a session whose plugin has registered nothing, in the same shape."""
    return orjson.dumps([_defined(definition) for definition in catalog.definitions()])


def _defined(definition: ToolDefinition) -> dict[str, object]:
    shown: dict[str, object] = {
        "name": definition.name,
        "description": definition.description,
        "inputSchema": orjson.Fragment(definition.parameters.text),
    }
    if definition.output_schema is not None:
        shown["outputSchema"] = orjson.Fragment(definition.output_schema.text)
    return shown | {"available": True}


def frame(event: str, data: bytes, event_id: int | None = None) -> bytes:
    """`data` is compact JSON, and becomes one line for every reader, so nobody can write a second event into it.

    The event-stream format ends a line at CR and LF only, but `str.splitlines`, and with it `iter_lines` of httpx, ends
    one at U+0085, U+2028 and U+2029, too.
    """
    data = data.replace(b"\xc2\x85", b"\\u0085").replace(b"\xe2\x80\xa8", b"\\u2028")
    data = data.replace(b"\xe2\x80\xa9", b"\\u2029")
    if event_id is None:
        return b"event: %s\ndata: %s\n\n" % (event.encode(), data)
    return b"id: %d\nevent: %s\ndata: %s\n\n" % (event_id, event.encode(), data)


def connected_data(code: str, state: SessionState, status: PluginStatus, tools: bytes | None) -> bytes:
    """How a stream begins: with the tools as a JSON array; without them where it goes on from an earlier event."""
    begin: dict[str, object] = {
        "sessionCode": code,
        "revision": state.revision,
        "registered": state.registered,
        "pluginStatus": status,
    }
    if tools is not None:
        begin["tools"] = orjson.Fragment(tools)
    return orjson.dumps(begin | {"resumed": tools is None})


def update_data(code: str, state: SessionState, difference: Difference, reason: str) -> bytes:
    """How the session came into this state."""
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
    """That the plugin has come or gone."""
    return orjson.dumps({"sessionCode": code, "status": status, "timestamp": timestamp(at)})
