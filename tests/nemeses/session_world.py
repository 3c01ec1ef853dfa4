"""Three processes that serve one session, its clients, and a nemesis that pauses processes and cuts them off."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from random import Random
from typing import Any

from tests.nemeses.frozen_loop import FreezableLoop
from tests.nemeses.history import History, Read
from tests.nemeses.recording import StreamReader, Writer, entry, numbers, writers
from tests.nemeses.replicas import Replica, ReplicaDied, SharedMemory, Way
from tests.sessions.fixtures import T1, modified, registration, told

from toolplug.cluster.processes import Processes
from toolplug.errors import ApiError, StoreError
from toolplug.parts.sessions.service import Sessions
from toolplug.parts.sessions.session import Session
from toolplug.parts.sessions.tools.negotiation import UpdateResult

WRITERS, READERS, STREAMS = 2, 2, 2
PATIENCE_S = 3.0


@dataclass(frozen=True, kw_only=True)
class Parts:
    """What the world is made of; a seeded bug comes in here."""

    memory: Callable[[], SharedMemory] = SharedMemory
    way: type[Way] = Way
    processes: type[Processes] = Processes


def history_of(parts: Parts, seed: int, seconds: float) -> History:
    """Let the clients and the nemesis do what they do, for so many seconds of virtual time."""
    with asyncio.Runner(loop_factory=FreezableLoop) as runner:
        return runner.run(_World(parts, Random(seed)).run(seconds))


class _World:
    def __init__(self, parts: Parts, random: Random) -> None:
        self._parts = parts
        self._random = random
        self._history = History()
        self._now: Callable[[], int] = count().__next__
        """Steps of the one loop, finer than its time."""

    async def run(self, seconds: float) -> History:
        async with self._parts.memory() as store:
            self._replicas = [
                Replica(
                    self._parts.way(store, f"process{number}", self._random, trip_s=0.05, push_s=0.3),
                    Sessions,
                    self._parts.processes,
                )
                for number in range(3)
            ]
            try:
                await self._all(seconds)
            finally:
                self._heal()
                await asyncio.gather(*(replica.stop() for replica in self._replicas))
        return self._history

    async def _all(self, seconds: float) -> None:
        await asyncio.gather(*(replica.start() for replica in self._replicas))
        self._code = await self._replicas[0].ask(self._create())
        clients = [
            *(self._write(index) for index in range(WRITERS)),
            *(self._read() for _ in range(READERS)),
            *(self._follow(f"stream {index}") for index in range(STREAMS)),
            self._harm(),
        ]
        await _for_so_long(clients, seconds)
        self._heal()
        await asyncio.sleep(10)
        await self._last_look()

    def _heal(self) -> None:
        for replica in self._replicas:
            replica.freezer.go_on()
            replica.way.cut = False

    async def _create(self) -> str:
        session = (await self._replicas[0].sessions.create(T1)).session
        await session.register(registration(*writers(WRITERS)))
        return session.code

    async def _at(self, replica: Replica, act: Callable[[Session], Coroutine[Any, Any, Any]]) -> Any:
        async def found() -> Any:
            return await act(await replica.sessions.find(self._code, "t1"))

        return await replica.ask(found(), PATIENCE_S)

    async def _write(self, index: int) -> None:
        writer = Writer(self._history, index, self._now)
        while True:
            await self._rest()
            tool, number = writer.next()

            async def update(session: Session, tool: str = tool, number: int = number) -> UpdateResult:
                return await session.update(modified(tool, str(number)), "next")

            try:
                updated = await self._at(self._any(), update)
            except ApiError:
                writer.refused()
            except asyncio.CancelledError:  # the run ends, and the update may still be applied
                writer.unknown()
                raise
            except (StoreError, TimeoutError, ReplicaDied):
                if not writer.unknown():
                    return
                await asyncio.sleep(PATIENCE_S)
            else:
                writer.acknowledged(updated.revision)
                with suppress(StoreError, TimeoutError):
                    await self._read_at(self._any())

    async def _read(self) -> None:
        while True:
            await self._rest()
            with suppress(StoreError, TimeoutError):
                await self._read_at(self._any())

    async def _read_at(self, replica: Replica) -> None:
        began = self._now()

        async def look(session: Session) -> tuple[int, dict[str, int]]:
            tools = session.state.tools.tools
            shown = [{"name": name, "description": tool.definition.description} for name, tool in tools.items()]
            return session.revision, numbers(shown)

        revision, seen = await self._at(replica, look)
        self._history.reads.append(
            Read(process=replica.way.id, began=began, ended=self._now(), revision=revision, numbers=seen)
        )

    async def _follow(self, name: str) -> None:
        following = StreamReader(self._history, name, self._now)

        async def read(session: Session) -> None:
            reader = await session.open_stream("client", following.last_id or None)
            try:
                async with asyncio.timeout(self._random.uniform(5, 30)):
                    while chunk := await reader.next():
                        for event in told(chunk):
                            following.take(str(event.id), event.event, event.data)
            finally:
                session.close_stream(reader)

        while True:
            following.opens()
            with suppress(StoreError, TimeoutError):
                replica = self._any()

                async def found(replica: Replica = replica) -> None:
                    await read(await replica.sessions.find(self._code, "t1"))

                await replica.ask(found())
            await self._rest()

    async def _harm(self) -> None:
        while True:
            await asyncio.sleep(self._random.uniform(0, 1))
            harm = self._random.choice([Replica.pause, Replica.cut])
            await harm(self._any(), self._random.uniform(2, 8))

    async def _last_look(self) -> None:
        """Read everything once more, at each process."""
        for replica in self._replicas:
            await self._read_at(replica)
            page = await self._at(replica, lambda session: session.log_page(None))
            after = None
            for event in page.events:
                if event.event == "tool-availability-update":
                    self._history.entries.append(entry(f"log of {replica.way.id}", str(event.id), after, event.data))
                    after = event.data["revision"]

    def _any(self) -> Replica:
        return self._random.choice(self._replicas)

    async def _rest(self) -> None:
        await asyncio.sleep(self._random.uniform(0, 0.2))


async def _for_so_long(clients: list[Coroutine[Any, Any, None]], seconds: float) -> None:
    tasks = [asyncio.create_task(client) for client in clients]
    done, _ = await asyncio.wait(tasks, timeout=seconds, return_when=asyncio.FIRST_EXCEPTION)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    for task in done:
        task.result()
