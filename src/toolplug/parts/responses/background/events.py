"""The events of background responses: replayed in the process that makes them, and followed from the store elsewhere.

The record of a response's events has all events up to some moment, and its log has those since, in parts. While a
response is in progress, only a store that several processes share gets parts.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import NamedTuple, cast

from toolplug.catalog.exact_json import as_object, dump_json, load_json
from toolplug.errors import StoreError
from toolplug.parts.responses.builder import FINAL, Event, ResponseAnswer
from toolplug.parts.responses.items.hosted import event_name
from toolplug.parts.responses.items.input_items import is_hosted_call
from toolplug.parts.responses.stored import StoredResponses, events_key
from toolplug.stores.store import KEPT_EVENTS

SHARED_EVERY_S = 0.1
PAUSE_S = 1.0
"""Between two tries while the store cannot answer."""
PART_BYTES = 64 * 1024
LOOK_S = 5.0
"""So often a listener looks whether the process that makes the response still runs."""

_MAX_PARTS = KEPT_EVENTS - 2
"""Parts of a log after which the record gets all events again, as the log drops its oldest entries."""
_CHANGED = b"-"
"""The entry of the log for a change of the record itself."""
_LOG = logging.getLogger("toolplug.responses")
_LAST = {"completed": "response.completed", "failed": "response.failed"}


class EventBuffer:
    """The events so far, by number. None is dropped, so that a listener may be arbitrarily slow."""

    def __init__(self, events: Iterable[Event] = ()) -> None:
        self.events: list[Event] = list(events)
        self._is_over = False
        self._news = asyncio.Event()

    def add(self, event: Event) -> None:
        """Append an event and wake the listeners."""
        self.events.append(event)
        self._tell()

    def break_off(self, response: ResponseAnswer) -> None:
        """Append the final events of the open items and of the response, for a response that was stopped."""
        done = {event["output_index"] for event in self.events if event["type"] == "response.output_item.done"}
        for index, item in enumerate(response["output"]):
            if index not in done:
                kind = str(item["type"])
                if is_hosted_call(kind):
                    self._say(event_name(kind, "failed"), item_id=item["id"], output_index=index)
                self._say("response.output_item.done", output_index=index, item=item)
        self._say(_LAST.get(response["status"], "response.incomplete"), response=response)

    def end(self) -> None:
        """End the buffer: listeners stop after its last event."""
        self._is_over = True
        self._tell()

    async def play(self, after: int) -> AsyncGenerator[Event]:
        """Yield each event after that number: the existing ones, then the others as they come."""
        place = after + 1
        while True:
            while place < len(self.events):
                yield self.events[place]
                place += 1
            if not await self.more(place):
                return

    async def more(self, count: int) -> bool:
        """Wait for more than `count` events; return False if no more come."""
        while len(self.events) <= count:
            if self._is_over:
                return False
            await self._news.wait()
        return True

    def _say(self, kind: str, **fields: object) -> None:
        self.add({"type": kind, "sequence_number": len(self.events), **fields})

    def _tell(self) -> None:
        self._news.set()
        self._news = asyncio.Event()


class _LoadedEvents(NamedTuple):
    events: list[Event]
    revision: int
    position: int


class StoredEvents:
    """The events of background responses in a store. Each method may raise `StoreError`."""

    def __init__(self, stored: StoredResponses) -> None:
        self._stored = stored
        self._store = stored.store

    async def keep(self, tenant: str, response: str, events: Sequence[Event], *, expected: int | None = None) -> None:
        """Store all events so far. Raises `StoreConflict` unless the record has the revision `expected`."""
        key, value = events_key(tenant, response), dump_json(events)
        await self._store.commit(key, value, expected=expected, ttl_s=self._stored.ttl_s, events=[_CHANGED])

    async def read(self, tenant: str, response: str) -> _LoadedEvents | None:
        """Return the events that the record has, none or some while it is in progress; None if they are not kept."""
        record = await self._store.read(events_key(tenant, response))
        if record is None:
            return None
        return _LoadedEvents(cast("list[Event]", load_json(record.value)), record.revision, record.position)

    @asynccontextmanager
    async def share_events(self, tenant: str, response: str, buffer: EventBuffer) -> AsyncGenerator[None]:
        """Write new events for other processes while the context is open."""
        sharing = asyncio.create_task(self._share(tenant, response, buffer), name="toolplug-response-events")
        try:
            yield
        finally:
            sharing.cancel()
            await asyncio.gather(sharing, return_exceptions=True)

    async def follow(self, tenant: str, response: str) -> AsyncGenerator[list[Event]]:
        """Yield all events so far, again when there are more or none have come for `LOOK_S`, until their end.

        The list is the same each time. If the events are deleted, it ends as well.
        """
        key, events = events_key(tenant, response), list[Event]()
        kept = await self.read(tenant, response)
        while kept is not None:
            _add(events, kept.events)
            yield events
            if is_over(events):
                return
            position, replaced = None, False  # the log has parts that the record does not have, and older ones
            while not replaced:
                log = await self._store.events(key, position, wait_s=LOOK_S)
                replaced = not log.known
                for entry in log.entries:
                    if entry.data != _CHANGED:
                        _add(events, cast("list[Event]", load_json(entry.data)))
                    elif entry.id > kept.position:
                        replaced = True
                    position = entry.id
                yield events
            kept = await self.read(tenant, response)

    async def _share(self, tenant: str, response: str, buffer: EventBuffer) -> None:
        key = events_key(tenant, response)
        written, parts, pause_s = 0, 0, SHARED_EVERY_S
        while await buffer.more(written):
            await asyncio.sleep(pause_s)
            count = len(buffer.events)
            new = _parts(buffer.events[written:count])
            try:
                if parts + len(new) >= _MAX_PARTS:  # the log drops its oldest entries
                    await self.keep(tenant, response, buffer.events[:count])
                    parts = 0
                elif await self._store.extend(key, events=new):
                    parts += len(new)
                else:
                    return  # the response is deleted
                written, pause_s = count, SHARED_EVERY_S
            except StoreError as error:
                _LOG.warning("the events of a response do not reach other processes now: %s", error)
                pause_s = PAUSE_S


def is_over(events: Sequence[Event]) -> bool:
    """Return True if the last of the events is that of a response that has ended."""
    return bool(events) and as_object(events[-1].get("response")).get("status") in FINAL


def _add(events: list[Event], others: Iterable[Event]) -> None:
    """Append those of the others that follow."""
    for event in others:
        if event["sequence_number"] == len(events):
            events.append(event)


def _parts(events: Sequence[Event]) -> list[bytes]:
    """Return the events as JSON arrays, each of about `PART_BYTES` at most unless one event is larger."""
    parts, part, size = list[bytes](), list[bytes](), 0
    for event in events:
        data = dump_json(event)
        if part and size + len(data) > PART_BYTES:
            parts.append(b"[" + b",".join(part) + b"]")
            part, size = [], 0
        part.append(data)
        size += len(data)
    return [*parts, b"[" + b",".join(part) + b"]"]
