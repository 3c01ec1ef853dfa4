"""The ids of events: positions in a session's log, with room between them for what one stream alone is told.

A request is told to its stream before it stands in the log, so that its caller waits for no disk. It takes the next id
behind the position that the stream is at: position × 10,000 + 1, + 2, …; what the log tells has position × 10,000.
"""

from __future__ import annotations

import re

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
