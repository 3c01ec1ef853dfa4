"""The events of one session, over as many connections as it takes."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from typing import Generic, TypeVar

from httpx2 import EventSource, RequestError, Response, ServerSentEvent
from pydantic import BaseModel

from toolplug.client.host_requests import HostRequests
from toolplug.client.pace import Pace
from toolplug.errors import SessionOver

_LOG = logging.getLogger("toolplug.client")

MAX_EVENT_BYTES = 16 * 1024 * 1024
"""Twice what all definitions of one session may have together."""

Event = TypeVar("Event")
Readers = Mapping[str, Callable[[bytes], Event]]


class _Error(BaseModel):
    """The host's last word."""

    code: str
    message: str


class _Unreadable(Exception):
    """An event that is not what its name says."""


class EventStream(Generic[Event]):
    """Reads what a host tells about one session, and connects again where a connection breaks or falls silent.

    `readers` make a value of an event's data, by the event's name; one that raises `ValueError` says that the data
    cannot be read. Other events are passed over.
    """

    def __init__(self, host: HostRequests, path: str, readers: Readers[Event], pace: Pace) -> None:
        self._host = host
        self._path = path
        self._readers = readers
        self._pace = pace
        self._last_id = ""

    async def events(self, first: Response | None = None) -> AsyncGenerator[Event]:
        """Every event once, in order, or a new snapshot where that cannot be. Whoever leaves it closes it.

        `first`: a connection that is `opened` already. Raises `SessionOver`, or `HostRefused` where asking again is no
        use; never ends otherwise. A connection that breaks as soon as it is open is opened again later and later.
        """
        clock = asyncio.get_running_loop().time
        pause_s = 0.0
        while True:
            response = first or await self._pace.insist(self.opened)
            first, opened_at = None, clock()
            async with aclosing(response):
                try:
                    async for sent in EventSource(response, MAX_EVENT_BYTES):
                        event = self._read(sent)
                        if event is not None:
                            yield event
                        self._last_id = sent.id or self._last_id
                    _LOG.info("the host closed the event stream; connecting again")
                except RequestError as error:
                    _LOG.info("the event stream broke (%s); connecting again", str(error) or type(error).__name__)
                except _Unreadable as error:
                    self._last_id = ""
                    _LOG.warning("%s; asking for a snapshot", error)
            brief = clock() - opened_at < pause_s
            pause_s = min(pause_s * 2, self._pace.longest_s) if brief else self._pace.first_s
            await asyncio.sleep(random.uniform(0, pause_s))

    async def opened(self) -> Response:
        """One connection, which goes on after the last event that was taken."""
        headers = {"Last-Event-ID": self._last_id} if self._last_id else {}
        return await self._host.opened(self._path, headers, self._pace.silence_s)

    def _read(self, sent: ServerSentEvent) -> Event | None:
        reader = _Error.model_validate_json if sent.event == "error" else self._readers.get(sent.event)
        if reader is None:
            return None
        try:
            event = reader(sent.data.encode())
        except ValueError:
            raise _Unreadable(f"an event {sent.event!r} cannot be read") from None  # its text may hold arguments
        if isinstance(event, _Error):
            raise SessionOver(event.code, event.message)
        return event
