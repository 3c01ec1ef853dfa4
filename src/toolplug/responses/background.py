"""Background responses, made by tasks of this process whether or not a client listens.

task    handles each event; a lease in the store tells other processes that it is alive
tape    of a streamed response: its events, replayed to the listeners of this process
record  the same after its end, for later listeners and other processes
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Iterable, Sequence
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from typing import NamedTuple, cast

from toolplug.errors import ResponseRefused, StoreConflict, StoreError
from toolplug.responses.builder import FINAL, Event, ResponseAnswer, ResponseBuilder
from toolplug.responses.hosted import event_name
from toolplug.responses.input_items import Item, is_hosted_call
from toolplug.responses.stored import StoredResponse, StoredResponses, with_ids
from toolplug.signatures.values import as_object
from toolplug.stores.store import Store


class ResponseWriter:
    """Writes a response and remembers the revision, so that one stopped or deleted by another process stays so."""

    def __init__(
        self, stored: StoredResponses, tenant: str, draft: ResponseBuilder, sent: Sequence[Item], conversation: str
    ) -> None:
        self._stored = stored
        self._tenant = tenant
        self._draft = draft
        self._sent = with_ids(sent, draft.key)
        self._conversation = conversation
        self._revision = 0

    async def write(self) -> None:
        """Store the current response. Raises `StoreConflict` if another process has ended it, and `StoreError`."""
        try:
            self._revision = await self._stored.keep(self._tenant, self._kept(), expected=self._revision)
        except StoreConflict:
            mine = await self._stored.unfinished(self._tenant, self._draft.id)
            if mine is None:
                raise
            # A write of ours has been done though it failed: nobody else writes a response but to end it.
            self._revision = await self._stored.keep(self._tenant, self._kept(), expected=mine)

    async def write_cancelled(self) -> None:
        """Store the response as cancelled, also if the last write failed. Raises `StoreError`."""
        await self._stored.keep(self._tenant, self._kept())

    def _kept(self) -> StoredResponse:
        return StoredResponse(self._draft.object(), self._sent, self._conversation, self._draft.hidden)


class EventBuffer:
    """The events so far, by number. None is dropped, so that a listener may be arbitrarily slow."""

    def __init__(self, events: Iterable[Event] = (), *, is_over: bool = False) -> None:
        self.events: list[Event] = list(events)
        self._is_over = is_over
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
        self._say("response.incomplete", response=response)

    def end(self) -> None:
        """End the buffer: listeners stop after its last event."""
        self._is_over = True
        self._tell()

    async def play(self, after: int) -> AsyncGenerator[Event]:
        """Yield each event after that number: the existing ones, then the others as they come."""
        place = after + 1
        while True:
            news = self._news
            while place < len(self.events):
                yield self.events[place]
                place += 1
            if self._is_over:
                return
            await news.wait()

    def _say(self, kind: str, **fields: object) -> None:
        self.add({"type": kind, "sequence_number": len(self.events), **fields})

    def _tell(self) -> None:
        self._news.set()
        self._news = asyncio.Event()


LEASE_S = 60.0
RENEWED_S = 20.0

_LOG = logging.getLogger("toolplug.responses")


@asynccontextmanager
async def leased(store: Store, key: str) -> AsyncGenerator[None]:
    """Renew the lease while the context is open; that of a process that has died expires."""
    beating = asyncio.create_task(_beat(store, key), name="toolplug-response-lease")
    try:
        yield
    finally:
        beating.cancel()
        try:
            await store.commit(key, None)
        except StoreError as error:
            _LOG.error("the lease of a response is not given back, and ends by itself: %s", error)


async def take(store: Store, key: str) -> None:
    """Write the lease, which expires after `LEASE_S`. Raises `StoreError`."""
    await store.commit(key, b"", ttl_s=LEASE_S)


async def _beat(store: Store, key: str) -> None:
    while True:
        await asyncio.sleep(RENEWED_S)
        try:
            await take(store, key)
        except StoreError as error:
            _LOG.error("the lease of a response is not renewed: %s", error)


class _Running(NamedTuple):
    task: asyncio.Task[None]
    tape: EventBuffer | None


class Background:
    """The background responses of one host."""

    def __init__(self, store: Store, stored: StoredResponses) -> None:
        self._store = store
        self._stored = stored
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
            await take(self._store, _lease(key[1]))
            tape = EventBuffer([first]) if streamed else None
            if tape is not None:
                await self._stored.keep_events(*key, ())
            broken_off.pop_all()
        task = asyncio.create_task(self._make(key, events, tape), name="toolplug-response")
        self._running[key] = _Running(task, tape)
        task.add_done_callback(lambda _: self._running.pop(key, None))
        return response

    async def lives(self, response: str) -> bool:
        """Return whether a process is making the response. Raises `StoreError`."""
        return await self._store.read(_lease(response)) is not None

    async def listen(self, tenant: str, response: str, after: int) -> AsyncGenerator[Event]:
        """Yield the events after that number; if another process makes the response, after it has ended.

        Raises `ResponseRefused` if the events are not kept, and `StoreError`.
        """
        running = self._running.get((tenant, response))
        if running is not None and running.tape is not None:
            return running.tape.play(after)
        lives = True
        while True:
            told = await self._stored.events(tenant, response)
            if told is None or not (told or lives):
                message = "there are no events of this response: only those that are made with background and stream"
                raise ResponseRefused("invalid_request", f"stream: {message} have them", param="stream")
            if told:
                return EventBuffer(told, is_over=True).play(after)
            await self._stored.wait_for_events(tenant, response)
            lives = await self.lives(response)

    async def stop(self, tenant: str, response: str) -> bool:
        """Stop a response and wait for its end; return False if this process does not make it."""
        running = self._running.get((tenant, response))
        if running is None:
            return False
        running.task.cancel()
        await asyncio.wait([running.task])
        return True

    async def aclose(self) -> None:
        """Stop all responses of this process and wait for their ends."""
        tasks = [running.task for running in self._running.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _make(self, key: tuple[str, str], events: AsyncGenerator[Event], tape: EventBuffer | None) -> None:
        try:
            async with leased(self._store, _lease(key[1])):
                try:
                    async with aclosing(events):
                        async for event in events:
                            if tape is not None:
                                tape.add(event)
                finally:
                    if tape is not None:
                        await self._end(key, tape)
        except StoreError as error:
            _LOG.error("a response in the background ended: %s", error)

    async def _end(self, key: tuple[str, str], tape: EventBuffer) -> None:
        """Store the events of the response, with final events if it was stopped."""
        try:
            if as_object(tape.events[-1].get("response")).get("status") not in FINAL:
                tape.break_off((await self._stored.read(*key)).response)
            await self._stored.keep_events(*key, tape.events)
        except ResponseRefused:
            return
        finally:
            tape.end()


def _lease(response: str) -> str:
    return f"response-lease/{response}"
