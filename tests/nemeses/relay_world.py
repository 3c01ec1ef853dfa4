"""The relay of three processes under kills and pauses: applications, their callers, and what must be true of each call.

Everything but the loop, the way to the store and the clients is real: leases, presence, sessions, relays.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from random import Random
from typing import Any

from tests.nemeses.frozen_loop import FreezableLoop
from tests.nemeses.replicas import Replica, ReplicaDied, SharedMemory, Way
from tests.sessions.fixtures import T1, call, registration, told
from tests.virtual_time import virtual_clock

from toolplug.catalog.call import ToolResult, ToolStatus
from toolplug.cluster.processes import Processes
from toolplug.errors import ApiError, StoreError
from toolplug.parts.sessions.peers.relay import SharedRelay
from toolplug.parts.sessions.relay import RelayedRequest
from toolplug.parts.sessions.service import Sessions
from toolplug.parts.sessions.session import Session

SESSIONS = 2
PATIENCE_S = 3.0
FOUND_S = 5.0
"""A look every two seconds finds what was not heard; a request that it makes may have to wait for a second one."""
RECOVERED_S = 12.0
"""After a pause: the lease, the next look, and what that writes."""
LATE_S = 1.0
NEVER_S = 60.0
TELLING = {"caller_gone", "store_unavailable"}
"""Codes of calls that end since something has happened to the process of the caller."""


@dataclass(kw_only=True, eq=False)
class Call:
    """One call: what its caller got, and what its application did. Times are those of the loop."""

    number: int
    at: Replica
    began: float
    within_s: float
    must_arrive: bool = True
    result: ToolResult | None = None
    ended: float | None = None
    sent: list[float] = field(default_factory=list[float])
    offered: list[str] = field(default_factory=list[str])
    accepted: list[str] = field(default_factory=list[str])

    def violations(self) -> Iterator[str]:
        """What is wrong with it after its end."""
        name = f"call {self.number}"
        if len(self.accepted) > 1:
            yield f"{name}: more than one answer was accepted: {self.accepted}"
        if self.at.dead.is_set():
            return
        if self.result is None or self.ended is None:
            yield f"{name} never ended"
            return
        output, code = self.result.output, self.result.metadata.get("code")
        if self.accepted and (self.result.status, output) != (ToolStatus.SUCCESS, self.accepted[0]):
            yield f"{name}: {self.accepted[0]!r} was accepted, and its caller got {self.result.status.value} {output!r}"
        if self.result.status is ToolStatus.SUCCESS and output not in self.offered:
            yield f"{name}: its caller got {output!r}, which nobody has answered"
        due = max(self.began + self.within_s, self.at.steady_since) + LATE_S
        if self.ended > due:
            yield f"{name} ended {self.ended - due:g} s late"
        disturbed = self.at.steady_since > self.began - RECOVERED_S
        if self.result.status not in (ToolStatus.SUCCESS, ToolStatus.TIMEOUT) and not (code in TELLING and disturbed):
            yield f"{name}: {self.result.status.value} {code} at a process that nothing has happened to"


class WatchedRelay(SharedRelay):
    """Tells the world whenever a request is sent."""

    world: RelayWorld

    def _send(self, request: RelayedRequest) -> None:
        super()._send(request)
        if request.attempt:
            self.world.sent_by(self._calls.caller)


@dataclass(frozen=True, kw_only=True)
class Parts:
    """What the world is made of; a seeded bug comes in here. `killed`: the part of the victims that is not paused."""

    way: type[Way] = Way
    processes: type[Processes] = Processes
    relay: type[WatchedRelay] = WatchedRelay
    killed: float = 0.5


class RelayWorld:
    """Some sessions at three processes; `violations` is what must not have happened."""

    def __init__(self, parts: Parts, seed: int) -> None:
        self.violations: list[str] = []
        self.calls: list[Call] = []
        self.harms = 0
        self._parts = parts
        self._random = Random(seed)
        self._started = 0
        self._calm = False
        self._replicas: list[Replica] = []
        self._ending: list[asyncio.Task[None]] = []

        class Watched(Sessions):
            def _adopt(_self, *given: Any, **named: Any) -> Session:  # noqa: N805
                session = super()._adopt(*given, **named)
                session.relay.__class__ = parts.relay
                session.relay.world = self  # type: ignore[attr-defined]
                return session

        self._sessions = Watched

    def run(self, calls: int) -> None:
        """Make so many calls."""
        with asyncio.Runner(loop_factory=FreezableLoop) as runner:
            runner.run(self._run(calls))

    def sent_by(self, process: str) -> None:
        """A process of this name sends a request."""
        if not self._store.has(f"~process/{process}"):
            self.violations.append(f"{process} has sent a request after its lease had lapsed")

    async def _run(self, calls: int) -> None:
        async with SharedMemory() as self._store:
            try:
                self._replicas = [await self._new_replica() for _ in range(3)]
                codes = [await self._replicas[0].ask(self._create()) for _ in range(SESSIONS)]
                applications = [_Application(self, code, self._random) for code in codes]
                lending = [asyncio.create_task(one.run()) for one in applications]
                harming = asyncio.create_task(self._harm())
                await self._call(applications, calls)
                self._calm = True
                await harming
                for task in lending:
                    task.cancel()
                await asyncio.gather(*lending, return_exceptions=True)
            finally:
                for replica in self._replicas:
                    replica.freezer.go_on()
                await asyncio.gather(*(replica.stop() for replica in self._replicas), *self._ending)
        for one in self.calls:
            self.violations += one.violations()

    async def _new_replica(self) -> Replica:
        self._started += 1
        way = self._parts.way(self._store, f"process{self._started}", self._random, trip_s=0.06, push_s=0.02)
        replica = Replica(way, self._sessions, self._parts.processes)
        await replica.start()
        return replica

    async def _create(self) -> str:
        session = (await self._replicas[0].sessions.create(T1)).session
        await session.register(registration("a"))
        return session.code

    async def _call(self, applications: list[_Application], count: int) -> None:
        calling: set[asyncio.Task[None]] = set()
        for number in range(count):
            await asyncio.sleep(self._random.expovariate(8))
            application = self._random.choice(applications)
            calling.add(asyncio.create_task(self._one(number, application)))
        _, never = await asyncio.wait(calling, timeout=NEVER_S)
        for task in never:
            task.cancel()

    async def _one(self, number: int, application: _Application) -> None:
        at = self.any()
        within_s = self._random.choice([0.5, 2.0, 6.0, 10.0])
        one = Call(number=number, at=at, began=virtual_clock(), within_s=within_s)

        async def run(session: Session) -> ToolResult:
            application.calls[number] = one
            self.calls.append(one)
            one.began = virtual_clock()
            return await call(session, "a", {"number": number}, within_s=within_s)

        with suppress(StoreError, ReplicaDied, TimeoutError):
            watching = asyncio.create_task(self._watch(one, application))
            try:
                one.result = await at.ask(self.found(at, application.code, run))
                one.ended = virtual_clock()
            finally:
                watching.cancel()

    async def _watch(self, one: Call, application: _Application) -> None:
        """A call that a steady process makes to a steadily connected application arrives there."""
        stream = application.stream
        if stream is None or not one.at.steady(RECOVERED_S):
            return
        await asyncio.sleep(FOUND_S)
        steady = one.at.steady(FOUND_S) and stream.steady(RECOVERED_S + FOUND_S) and application.stream is stream
        if steady and application.calls.get(one.number) is one and not one.sent:
            self.violations.append(f"call {one.number} has not arrived after {FOUND_S:g} s")

    async def found(self, at: Replica, code: str, act: Callable[[Session], Coroutine[Any, Any, Any]]) -> Any:
        """Act on a session, as a request to a process does."""
        return await act(await at.sessions.find(code, "t1"))

    async def _harm(self) -> None:
        """Kill a process and start another one, or pause one, again and again."""
        while not self._calm:
            await asyncio.sleep(self._random.uniform(0.5, 6))
            self.harms += 1
            victim = self.any()
            if self._random.random() >= self._parts.killed:
                await victim.pause(self._random.choice([self._random.uniform(0.5, 4), self._random.uniform(6, 15)]))
            else:
                self._replicas.remove(victim)
                self._ending.append(asyncio.create_task(victim.die()))
                await asyncio.sleep(self._random.uniform(0.1, 3))
                self._replicas.append(await self._new_replica())

    def any(self) -> Replica:
        """A process that runs, or is paused."""
        return self._random.choice(self._replicas)


class _Stream:
    """An open stream of an application."""

    def __init__(self, at: Replica) -> None:
        self.at = at
        self.since = virtual_clock()

    def steady(self, for_s: float) -> bool:
        """Return True if it has been open at a steady process for so long."""
        return self.at.steady(for_s) and virtual_clock() - self.since >= min(for_s, FOUND_S)


class _Application:
    """The application of one session: it connects wherever it can, and answers too early, too late, twice or never."""

    def __init__(self, world: RelayWorld, code: str, random: Random) -> None:
        self.code = code
        self.calls: dict[int, Call] = {}
        self.stream: _Stream | None = None
        self._world = world
        self._random = random
        self._answering: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """Connect, and again when a stream ends or when it pleases."""
        try:
            while True:
                at = self._world.any()
                with suppress(StoreError, ReplicaDied, TimeoutError):
                    await at.ask(self._world.found(at, self.code, lambda session, at=at: self._read(session, at)), 40)
                self.stream = None
                await asyncio.sleep(self._random.uniform(0.05, 0.5))
        finally:
            for task in self._answering:
                task.cancel()
            await asyncio.gather(*self._answering, return_exceptions=True)

    async def _read(self, session: Session, at: Replica) -> None:
        reader = await session.open_stream("plugin", None)
        try:
            async with asyncio.timeout(self._random.uniform(5, 40)):
                while chunk := await reader.next():
                    for event in told(chunk):
                        if event.event == "connected":
                            self.stream = _Stream(at)
                        elif event.event == "tool-request":
                            self._asked(event.data)
        except TimeoutError:
            pass
        finally:
            session.close_stream(reader)

    def _asked(self, request: dict[str, Any]) -> None:
        one = self.calls[request["arguments"]["number"]]
        one.sent.append(virtual_clock())
        left_s = max(one.began + one.within_s - virtual_clock(), 0.0)
        delays = self._random.choice(
            [
                [0.0],
                [0.1],
                [0.0, 0.0],
                [0.3, 0.31],
                [left_s * 0.8],
                [max(0.0, left_s - 0.02), left_s - 0.01],
                [left_s + 1],
                [],
            ]
        )
        for delay_s in delays:
            text = f"{one.number}/{len(one.offered)}"
            one.offered.append(text)
            task = asyncio.create_task(self._answer(one, request["id"], text, max(delay_s, 0.0)))
            self._answering.add(task)
            task.add_done_callback(self._answering.discard)

    async def _answer(self, one: Call, request_id: str, text: str, delay_s: float) -> None:
        """Answer at any process; if there is no reply, say the same again at another one."""
        await asyncio.sleep(delay_s)
        for _ in range(3):
            at = self._world.any()
            try:
                await at.ask(
                    self._world.found(at, self.code, lambda session: session.relay.take_answer(request_id, text)),
                    PATIENCE_S,
                )
            except ApiError:
                return
            except (StoreError, ReplicaDied, TimeoutError):
                await asyncio.sleep(0.1)
                continue
            one.accepted.append(text)
            return
