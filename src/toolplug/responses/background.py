"""Responses in the background: made by tasks of this process, whoever listens or does not.

task    takes every event; a lease in the store tells other processes that it lives
tape    of a response that is streamed: its events, played to those who listen here
record  the same when it has ended, for those who come later or ask another process
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Mapping
from contextlib import AsyncExitStack, aclosing
from typing import NamedTuple

from toolplug.errors import ResponseRefused, StoreError
from toolplug.providers.json_object import as_object
from toolplug.responses.draft import FINAL, Event
from toolplug.responses.lease import is_taken, leased, take
from toolplug.responses.stored import StoredResponses
from toolplug.responses.tape import Tape
from toolplug.stores.store import Store

_LOG = logging.getLogger("toolplug.responses")


class _Running(NamedTuple):
    task: asyncio.Task[None]
    tape: Tape | None


class Background:
    """The responses that one host makes in the background."""

    def __init__(self, store: Store, stored: StoredResponses) -> None:
        self._store = store
        self._stored = stored
        self._running: dict[tuple[str, str], _Running] = {}

    async def begin(self, tenant: str, events: AsyncGenerator[Event], *, streamed: bool) -> Mapping[str, object]:
        """Have a response made, and give what there is of it; `streamed`: its events are kept for listeners.

        Raises what the events do before the first of them, and `StoreError`.
        """
        async with AsyncExitStack() as broken_off:
            broken_off.push_async_callback(events.aclose)
            first = await anext(events)
            response = as_object(first["response"])
            key = (tenant, str(response["id"]))
            await take(self._store, _lease(key[1]))
            tape = Tape([first]) if streamed else None
            if tape is not None:
                await self._stored.keep_events(*key, ())
            broken_off.pop_all()
        task = asyncio.create_task(self._make(key, events, tape), name="toolplug-response")
        self._running[key] = _Running(task, tape)
        task.add_done_callback(lambda _: self._running.pop(key, None))
        return response

    async def lives(self, response: str) -> bool:
        """Is the response being made, here or elsewhere. Raises `StoreError`."""
        return await is_taken(self._store, _lease(response))

    async def listen(self, tenant: str, response: str, after: int) -> AsyncGenerator[Event]:
        """The events after that number; where another process makes the response, they come when it has ended.

        Raises `ResponseRefused` where they are not kept, and `StoreError`.
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
                return Tape(told, is_over=True).play(after)
            await self._stored.wait_for_events(tenant, response)
            lives = await self.lives(response)

    async def stop(self, tenant: str, response: str) -> bool:
        """Stop making a response, and wait until it has stopped; False where this process does not make it."""
        running = self._running.get((tenant, response))
        if running is None:
            return False
        running.task.cancel()
        await asyncio.wait([running.task])
        return True

    async def aclose(self) -> None:
        """Stop all."""
        tasks = [running.task for running in self._running.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _make(self, key: tuple[str, str], events: AsyncGenerator[Event], tape: Tape | None) -> None:
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

    async def _end(self, key: tuple[str, str], tape: Tape) -> None:
        """Keep what was told, the end included where it was stopped."""
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
