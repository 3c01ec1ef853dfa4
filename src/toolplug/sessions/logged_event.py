"""The log of a session as those read it who look for what went wrong."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import orjson

from toolplug.sessions.event_id import event_id
from toolplug.sessions.log_entry import NOBODY, read_entry, told_id
from toolplug.stores.store import Event


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
