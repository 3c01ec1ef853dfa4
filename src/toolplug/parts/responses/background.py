"""Background responses, made by tasks of this process whether or not a client listens, and asked about in any process.

task    handles each event; a lease in the store tells other processes that it is alive
tape    of a streamed response: its events, replayed to the listeners of this process
record  the events in the store: after the end, and in a store that several processes share also before it

The record has all events up to some moment, and its log has those since, in parts. While a response is in progress,
only a store that several processes share gets parts.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Iterable, Sequence
from contextlib import AsyncExitStack, aclosing, asynccontextmanager, nullcontext
from dataclasses import dataclass
from typing import NamedTuple, cast

from toolplug.catalog.exact_json import as_object, dump_json, load_json
from toolplug.cluster.followed import Follower
from toolplug.cluster.processes import Processes
from toolplug.errors import ResponseRefused, StoreConflict, StoreError
from toolplug.parts.responses.builder import FINAL, Event, ResponseAnswer, ResponseBuilder
from toolplug.parts.responses.items.hosted import event_name
from toolplug.parts.responses.request import Item, is_hosted_call
from toolplug.parts.responses.stored import StoredResponse, StoredResponses, events_key, with_ids
from toolplug.runtime.tasks import wait_for_results
from toolplug.stores.store import KEPT_EVENTS, Change, Store

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


LEASES = "response-lease/"
LEASE_S = 60.0
RENEWED_S = 20.0
MISSING_S = 6.0
"""Seconds after which a process that is not there has ended: all are missing for a moment after the store was."""

_STOPPED = b"stopped"


class MakerLeases:
    """The leases of the responses in progress, each a record with the `Store.id` of the process that makes it.

    In a store that several processes share, a process hears that another one has stopped a response of its own:
    `stopped` is called with the ids of responses that may have been.
    """

    def __init__(
        self, store: Store, processes: Processes | None, stopped: Callable[[Collection[str]], Awaitable[None]]
    ) -> None:
        self.shared: bool = processes is not None and processes.joined
        self._store = store
        self._processes = processes
        self._stopped = stopped
        self._own: set[str] = set()
        self._seen: dict[str, float] = {}
        self._looked_at = 0.0
        self._follower: Follower | None = None
        if processes is not None and self.shared:
            processes.listen(self._look)

    async def take(self, response: str) -> None:
        """Write the lease of a response, which expires after `LEASE_S`. Raises `StoreError`."""
        if self.shared and self._follower is None:
            self._follower = Follower(self._store, LEASES, self._hear, self._look)
            try:
                await self._follower.start()
            except BaseException:
                self._follower = None
                raise
        await self._renew(response)

    @asynccontextmanager
    async def hold_lease(self, response: str) -> AsyncGenerator[None]:
        """Renew a lease while the context is open; that of a process that has died expires."""
        self._own.add(response)
        beating = asyncio.create_task(self._beat(response), name="toolplug-response-lease")
        try:
            yield
        finally:
            self._own.discard(response)
            beating.cancel()
            try:
                await self._store.commit(LEASES + response, None)
            except StoreError as error:
                _LOG.error("the lease of a response is not given back, and ends by itself: %s", error)

    async def lives(self, response: str) -> bool:
        """Return whether a process is making the response. Raises `StoreError`."""
        record = await self._store.read(LEASES + response)
        return record is not None and self._runs(record.value.decode())

    async def stop(self, response: str) -> None:
        """Let the process that makes the response know that it is cancelled or deleted. Raises `StoreError`."""
        record = await self._store.read(LEASES + response) if self.shared else None
        if record is not None:
            await self._store.extend(LEASES + response, events=[_STOPPED], to=record.value.decode() or None)

    async def aclose(self) -> None:
        """Hear of nothing any longer."""
        if self._follower is not None:
            await self._follower.aclose()

    def _runs(self, maker: str) -> bool:
        """Return False for a process that was missing at every look of the last `MISSING_S`."""
        now = asyncio.get_running_loop().time()
        if not self.shared or maker in ("", self._store.id) or now - self._looked_at > MISSING_S:
            return True
        return now - self._seen.setdefault(maker, now) < MISSING_S

    async def _renew(self, response: str) -> None:
        await self._store.commit(LEASES + response, self._store.id.encode(), ttl_s=LEASE_S, to=self._store.id)

    async def _beat(self, response: str) -> None:
        while True:
            await asyncio.sleep(RENEWED_S)
            try:
                await self._renew(response)
            except StoreError as error:
                _LOG.error("the lease of a response is not renewed: %s", error)

    async def _look(self) -> None:
        now = asyncio.get_running_loop().time()
        if now - self._looked_at > MISSING_S:  # the store was away, and with it the leases of all
            self._seen = dict.fromkeys(self._seen, now)
        self._looked_at = now
        if self._processes is not None:
            self._seen |= {name.partition(".")[0]: now for name in self._processes.others}
        if self._own:
            await self._stopped(tuple(self._own))

    async def _hear(self, change: Change) -> None:
        response = change.key.removeprefix(LEASES)
        if response in self._own and (change.events is None or change.events):
            await self._stopped((response,))


_MAKER_GONE = {"code": "server_error", "message": "the process that made the response has ended"}


class ResponseWriter:
    """Writes a response and remembers the revision, so that one stopped or deleted by another process stays so."""

    def __init__(
        self, stored: StoredResponses, tenant: str, draft: ResponseBuilder, sent: Sequence[Item], conversation: str
    ) -> None:
        self._stored = stored
        self.tenant: str = tenant
        self._draft = draft
        self._sent = with_ids(sent, draft.key)
        self._conversation = conversation
        self._revision = 0

    async def write(self) -> None:
        """Store the current response. Raises `StoreConflict` if another process has ended it, and `StoreError`."""
        try:
            self._revision = await self._stored.keep(self.tenant, self._make_stored(), expected=self._revision)
        except StoreConflict:
            mine = await self._stored.unfinished_revision(self.tenant, self._draft.id)
            if mine is None:
                raise
            # A write of ours has been done though it failed: nobody else writes a response but to end it.
            self._revision = await self._stored.keep(self.tenant, self._make_stored(), expected=mine)

    async def write_cancelled(self) -> None:
        """Store the response as cancelled, also if the last write failed, unless it is deleted. Raises `StoreError`."""
        if not self._revision or await self._stored.status(self.tenant, self._draft.id) is not None:
            await self._stored.keep(self.tenant, self._make_stored())

    def _make_stored(self) -> StoredResponse:
        draft = self._draft
        return StoredResponse(draft.object(), self._sent, self._conversation, draft.hidden, tool_list=draft.tool_list)


@dataclass(slots=True)
class _Running:
    task: asyncio.Task[None]
    tape: EventBuffer | None
    ending: bool = False


class Background:
    """The background responses of one host.

    `processes` are those that share the store: each can be asked for the responses of the others, and can stop them.
    """

    def __init__(self, stored: StoredResponses, processes: Processes | None) -> None:
        self._stored = stored
        self._events = StoredEvents(stored)
        self._leases = MakerLeases(stored.store, processes, self._end_stopped)
        self._running: dict[tuple[str, str], _Running] = {}

    async def begin(self, tenant: str, events: AsyncGenerator[Event], *, streamed: bool) -> ResponseAnswer:
        """Start a response in the background and return its first state; `streamed`: keep its events for listeners.

        Raises what making its first event raises, and `StoreError`.
        """
        async with AsyncExitStack() as broken_off:
            broken_off.push_async_callback(events.aclose)
            first = await anext(events)
            response = cast("ResponseAnswer", first["response"])
            key = (tenant, response["id"])
            await self._leases.take(key[1])
            tape = EventBuffer([first]) if streamed else None
            if tape is not None:
                await self._events.keep(*key, ())
            broken_off.pop_all()
        task = asyncio.create_task(self._make(key, events, tape), name="toolplug-response")
        self._running[key] = _Running(task, tape)
        task.add_done_callback(lambda _: self._running.pop(key, None))
        return response

    async def current(self, tenant: str, response: str) -> StoredResponse:
        """Return the response, `failed` if its process has died. Raises `ResponseRefused` and `StoreError`."""
        kept = await self._stored.read(tenant, response)
        if kept.is_over or await self._leases.lives(response):
            return kept
        return await self._stored.end(tenant, response, {"status": "failed", "error": _MAKER_GONE})

    async def listen(self, tenant: str, response: str, after: int) -> AsyncGenerator[Event]:
        """Yield the events after that number, whichever process makes the response.

        Raises `ResponseRefused` if the events are not kept, and `StoreError`.
        """
        running = self._running.get((tenant, response))
        if running is not None and running.tape is not None:
            return running.tape.play(after)
        if await self._events.read(tenant, response) is None:
            message = "there are no events of this response: only those that are made with background and stream"
            raise ResponseRefused("invalid_request", f"stream: {message} have them", param="stream")
        return self._follow(tenant, response, after + 1)

    async def stop(self, tenant: str, response: str) -> None:
        """Stop a response of this process, and wait for its end."""
        running = self._running.get((tenant, response))
        if running is not None:
            running.task.cancel()
            await asyncio.wait([running.task])

    async def stop_elsewhere(self, response: str) -> None:
        """Let another process that makes the response end it, as it is cancelled or deleted. Raises `StoreError`."""
        await self._leases.stop(response)

    async def finish(self) -> None:
        """Let the responses of this process go on for a moment: their calls have ended."""
        await wait_for_results([running.task for running in self._running.values()])

    async def aclose(self) -> None:
        """Stop all responses of this process and wait for their ends."""
        tasks = [running.task for running in self._running.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._leases.aclose()

    async def _make(self, key: tuple[str, str], events: AsyncGenerator[Event], tape: EventBuffer | None) -> None:
        shares = tape is not None and self._leases.shared
        try:
            async with self._leases.hold_lease(key[1]):
                try:
                    sharing = self._events.share_events(*key, tape) if tape is not None and shares else nullcontext()
                    async with aclosing(events), sharing:
                        async for event in events:
                            if tape is not None:
                                tape.add(event)
                finally:
                    self._running[key].ending = True
                    if tape is not None:
                        await self._end(key, tape)
        except StoreError as error:
            _LOG.error("a response in the background ended: %s", error)

    async def _end(self, key: tuple[str, str], tape: EventBuffer) -> None:
        """Store the events of the response, with final events if it was stopped."""
        try:
            if not is_over(tape.events):
                tape.break_off((await self._stored.read(*key)).response)
            await self._events.keep(*key, tape.events)
        except ResponseRefused:
            return
        finally:
            tape.end()

    async def _follow(self, tenant: str, response: str, place: int) -> AsyncGenerator[Event]:
        """Yield the events from this number on that another process makes or has made."""
        async with aclosing(self._events.follow(tenant, response)) as news:
            known, seen = -1, place
            async for events in news:
                if len(events) == known and not is_over(events):
                    await self._end_orphan(tenant, response, events)
                known = len(events)
                for event in events[place:]:
                    yield event
                place = max(place, known)
                # Whoever has seen more than the dead process has left hears of the end all the same.
                if seen >= known and is_over(events) and as_object(events[-1]["response"]).get("error") == _MAKER_GONE:
                    yield {**events[-1], "sequence_number": seen}
                    seen = -1

    async def _end_orphan(self, tenant: str, response: str, events: Sequence[Event]) -> None:
        """End the events of a response whose process has died, unless it has ended them itself."""
        if await self._leases.lives(response):
            return
        kept = await self._events.read(tenant, response)
        if kept is None or is_over(kept.events):
            return
        tape = EventBuffer(events)
        tape.break_off((await self.current(tenant, response)).response)
        try:
            await self._events.keep(tenant, response, tape.events, expected=kept.revision)
        except StoreConflict:
            return  # another process has ended them

    async def _end_stopped(self, responses: Collection[str]) -> None:
        """End those of these responses that another process has cancelled or deleted. Raises `StoreError`."""
        for (tenant, response), running in tuple(self._running.items()):
            ended = response in responses and await self._stored.status(tenant, response) in (None, "cancelled")
            if ended and not running.ending and not running.task.cancelling():
                running.task.cancel()
