"""An event as it stands in a session's log: a line of its name, its audience and its revision, then its JSON."""

from __future__ import annotations

from typing import NamedTuple

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
