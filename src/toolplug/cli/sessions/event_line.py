"""One event of a session's log as a line for people."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

import orjson
from pydantic import BaseModel

from toolplug.catalog.cleaning import cleaned
from toolplug.sessions.log_entry import CANCELLED, REQUEST, STATUS, UPDATE
from toolplug.sessions.logged_event import LoggedEvent


class _Tool(BaseModel):
    name: str


class _Changes(BaseModel):
    added: list[_Tool]
    removed: list[str]
    modified: list[_Tool]


class _Update(BaseModel):
    updates: _Changes
    revision: int
    timestamp: str
    reason: str


class _Request(BaseModel):
    id: str
    tool: str
    deadline: str
    attempt: int


class _Cancelled(BaseModel):
    id: str
    reason: str


class _Status(BaseModel):
    status: str
    timestamp: str


def event_line(event: LoggedEvent) -> str:
    """Position, name and what it says; nothing in it moves the cursor or begins another line."""
    said = " ".join(cleaned(_SAID.get(event.event, _other)(event.data)).split())
    return f"{event.id:>6}  {event.event:<24}  {said}"


def _update(data: Mapping[str, object]) -> str:
    update = _Update.model_validate(data)
    changes = update.updates
    names = [
        *(f"+{tool.name}" for tool in changes.added),
        *(f"-{name}" for name in changes.removed),
        *(f"~{tool.name}" for tool in changes.modified),
    ]
    reason = f" ({update.reason})" if update.reason else ""
    return f"{update.timestamp} revision {update.revision}: {' '.join(names) or 'no tools'}{reason}"


def _request(data: Mapping[str, object]) -> str:
    request = _Request.model_validate(data)
    again = f", attempt {request.attempt}" if request.attempt > 1 else ""
    return f"{request.tool}{again}, until {request.deadline} ({request.id})"


def _cancelled(data: Mapping[str, object]) -> str:
    cancelled = _Cancelled.model_validate(data)
    return f"{cancelled.reason} ({cancelled.id})"


def _status(data: Mapping[str, object]) -> str:
    status = _Status.model_validate(data)
    return f"{status.timestamp} {status.status}"


def _other(data: Mapping[str, object]) -> str:
    """The event of a newer toolplug."""
    return orjson.dumps(data).decode()


_SAID: Mapping[str, Callable[[Mapping[str, object]], str]] = MappingProxyType(
    {UPDATE: _update, REQUEST: _request, CANCELLED: _cancelled, STATUS: _status}
)
