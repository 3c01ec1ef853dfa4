"""The log of a session as those read it who look for what went wrong."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import orjson

from toolplug.sessions.log_entry import NOBODY, REQUEST, read_entry
from toolplug.stores.store import Event


class LoggedEvent(NamedTuple):
    """One event; the arguments of a request are not in its data."""

    id: int
    event: str
    data: dict[str, object]


def logged_events(events: Iterable[Event]) -> tuple[LoggedEvent, ...]:
    """The events of a log that anybody was told."""
    shown: list[LoggedEvent] = []
    for event in events:
        entry = read_entry(event.data)
        if entry.audience == NOBODY:
            continue
        data: dict[str, object] = orjson.loads(entry.data)
        if entry.event == REQUEST:
            data.pop("arguments", None)
        shown.append(LoggedEvent(event.id, entry.event, data))
    return tuple(shown)
