"""A small world: two servers, two processes on one store that fails, and somebody who changes the configuration.

Whoever plays with it calls its methods in any order; what must hold is checked on the way (`check`), by what is
written (`WatchedStore`), and at the end, when everything has healed (`rest`). Time is virtual: the same play ends the
same way.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson
from tests.discovery.fixtures import names, raw, service, turns
from tests.faulty_store import FaultyStore
from tests.virtual_time import EPOCH, VirtualLoop

from toolplug.errors import StoreError
from toolplug.parts.mcp.discovery.record import NEVER, KnownServer, ListingFailed, ServerName
from toolplug.parts.mcp.discovery.record_store import record_key
from toolplug.parts.mcp.discovery.service import Discovery
from toolplug.stores.memory import MemoryStore
from toolplug.stores.store import Store

NAMES = (ServerName("zero"), ServerName("one", "tenant"))
TIMEOUT_S = 10.0


@dataclass
class Machine:
    """One server as it is configured now (`version`, None: removed), and how it behaves."""

    version: int | None = 1
    last: int = 1
    life: int = 0
    lives: dict[str, int] = field(default_factory=lambda: {"h1": 0})
    mode: str = "works"
    numbers: int = 0


@dataclass
class Process:
    """One process: its way to the store, its service, and what it was told of each server."""

    store: WatchedStore
    discovery: Discovery
    told: dict[int, int] = field(default_factory=dict[int, int])
    running: dict[int, int] = field(default_factory=dict[int, int])
    had_tools: dict[int, int] = field(default_factory=dict[int, int])


class WatchedStore(FaultyStore):
    """A process writes over the record of the configuration that it was told of last with nothing of another."""

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self.told: Callable[[str], str | None] = lambda _: None
        self.wrong: list[str] = []

    async def commit(
        self,
        key: str,
        value: bytes | None,
        *,
        expected: int | None = None,
        ttl_s: float | None = None,
        events: Sequence[bytes] = (),
        to: str | None = None,
    ) -> int:
        told, record = self.told(key), await self.inner.read(key)
        if record is not None and value and _hash(record.value) == told != _hash(value):
            self.wrong.append(f"a result for {_hash(value)} was written over one for {told}")
        return await super().commit(key, value, expected=expected, ttl_s=ttl_s, events=events, to=to)


def _hash(value: bytes) -> str:
    return orjson.loads(value.partition(b"\n")[0])["config_hash"]


class Harness:
    """`make` makes a service; a seeded bug comes in there."""

    def __init__(self, make: Callable[[Store], Discovery] = service) -> None:
        self.runner = asyncio.Runner(loop_factory=VirtualLoop)
        loop = self.runner.get_loop()
        assert isinstance(loop, VirtualLoop)
        self.loop = loop
        self.make = make
        self.inner = MemoryStore(clock=lambda: EPOCH + loop.time())
        self.machines = [Machine(), Machine()]
        self.let_go = asyncio.Event()
        self.work: set[asyncio.Task[Any]] = set()
        self.wrong: list[str] = []
        self.processes: list[Process] = []
        self._run(self.inner.__aenter__())
        for _ in range(2):
            self.processes.append(self._run(self._process()))

    # What may happen.

    def hear(self, which: int, slot: int) -> None:
        """A process is told how a server is configured now."""
        self._run(self._hear(self.processes[which], slot))

    def change(self, which: int, slot: int) -> None:
        """Somebody edits a server, or adds it, in this process; the other one hears of it later."""
        machine = self.machines[slot]
        if machine.version is None:
            machine.life += 1
        machine.last += 1
        machine.version = machine.last
        machine.lives[f"h{machine.version}"] = machine.life
        self.hear(which, slot)

    def remove(self, which: int, slot: int) -> None:
        """Somebody deletes a server in this process."""
        self.machines[slot].version = None
        self.hear(which, slot)

    def behave(self, slot: int, mode: str) -> None:
        """From now on the server works, is slow, fails, hangs, or hangs and does not stop."""
        self.machines[slot].mode = mode

    def ask(self, which: int, slot: int) -> None:
        self._go(self._ask(self.processes[which], slot))

    def due(self, which: int, slot: int) -> None:
        process = self.processes[which]
        self._run(self._now(lambda: process.discovery.due(NAMES[slot])))

    def keep(self, which: int, slot: int) -> None:
        """A running server of the configuration that this process was told of lists its tools."""
        process = self.processes[which]
        version = process.told.get(slot)
        if version is not None:
            self._go(process.discovery.keep(NAMES[slot], f"h{version}", self._tools(slot, version)))

    def fail(self, which: int, operation: str) -> None:
        """The store fails for this process at an operation, or at each; or it works again."""
        store = self.processes[which].store
        store.down = operation == "all"
        store.fails = lambda each: each == operation

    def pace(self, which: int, operation: str, before: int, after: int) -> None:
        self.processes[which].store.pace[operation] = (before, after)

    def restart(self, which: int, *, killed: bool) -> None:
        """The process stops, or dies without a word, and starts again with the configuration as it is now."""
        self._run(self._restart(which, killed=killed))

    def wait(self, seconds: float) -> None:
        self._run(asyncio.sleep(seconds))

    def turns(self, count: int) -> None:
        self._run(turns(count))

    # What must hold.

    def check(self) -> None:
        """At any moment: tools are of the record's configuration or stale, and no failure has lost them."""
        assert not self.wrong, self.wrong
        for process in self.processes:
            assert not process.store.wrong, process.store.wrong
            for slot, name in enumerate(NAMES):
                record = process.discovery.record(name)
                told = process.told.get(slot)
                assert told is None or record.config_hash == f"h{told}", f"{record} is not of h{told}"
                assert names(record) in ([], ["t"])
                for tool in record.tools:
                    whose, config_hash, _ = tool.definition.description.split()
                    assert whose == name.id, "another server's tool"
                    assert record.stale or config_hash == record.config_hash, f"an old tool that is not stale: {record}"
                    if self.machines[slot].lives[config_hash] == self.machines[slot].life:
                        process.had_tools[slot] = self.machines[slot].life
                if not record.tools and told is not None:
                    assert process.had_tools.get(slot) != self.machines[slot].life, f"good tools were lost: {record}"

    def rest(self) -> None:
        """Everything heals: what is configured is found by everybody, and what was removed has left nothing."""
        self.let_go.set()
        for which, process in enumerate(self.processes):
            process.store.down, process.store.fails = False, lambda _: False
            process.store.pace.clear()
            for slot in range(len(NAMES)):
                self.behave(slot, "works")
                self.hear(which, slot)
        self.turns(50)
        self.check()
        self.wait(8_000)
        self.check()
        assert not self.work, "somebody waits who is not answered"
        for slot in range(len(NAMES)):
            self._check_end(slot)
        self.check()

    def close(self) -> None:
        """Everything stops; nothing is left."""
        self.let_go.set()
        try:
            for process in self.processes:
                self._run(process.discovery.__aexit__(None, None, None))
            self._run(self._cancel())
            left = asyncio.all_tasks(self.loop)
            assert not left, left
        finally:
            self.runner.close()

    def _check_end(self, slot: int) -> None:
        name, machine = NAMES[slot], self.machines[slot]
        kept = self._run(self.inner.read(record_key(name)))
        if machine.version is None:
            assert kept is None, "a forgotten server has a record"
            assert [process.discovery.record(name) for process in self.processes] == [NEVER, NEVER]
            return
        for process in self.processes:
            record = process.discovery.record(name)
            assert (record.status, record.stale, record.error) == ("success", False, None), f"never found: {record}"
        self._run(self.processes[0].discovery.wait_for_listing(name, None))
        self.wait(1.0)
        one, other = (process.discovery.record(name) for process in self.processes)
        assert one.tools[0].definition.description == other.tools[0].definition.description
        assert one.tools[0].definition.description.endswith(f" {machine.numbers}")

    # How it is done.

    async def _process(self) -> Process:
        store = WatchedStore(self.inner)
        process = Process(store, await self.make(store).__aenter__())
        keys = {record_key(name): slot for slot, name in enumerate(NAMES)}

        def told(key: str) -> str | None:
            version = process.told.get(keys.get(key, -1))
            return None if version is None else f"h{version}"

        store.told = told
        for slot in range(len(NAMES)):
            await self._hear(process, slot)
        return process

    async def _hear(self, process: Process, slot: int) -> None:
        machine = self.machines[slot]
        if machine.version is None:
            process.told.pop(slot, None)
            process.had_tools.pop(slot, None)
            self._go(self._forget(process, slot))
            return
        if process.had_tools.get(slot) != machine.life:
            process.had_tools.pop(slot, None)
        process.told[slot] = machine.version
        listing = self._listing(process, slot, machine.version)
        process.discovery.know(KnownServer(NAMES[slot], f"h{machine.version}", listing, TIMEOUT_S))

    async def _forget(self, process: Process, slot: int) -> None:
        try:
            await process.discovery.forget(NAMES[slot])
        except StoreError:
            return  # whoever asked is told, and asks again

    async def _ask(self, process: Process, slot: int) -> None:
        try:
            await process.discovery.wait_for_listing(NAMES[slot], 60.0)
        except StoreError:
            return

    async def _restart(self, which: int, *, killed: bool) -> None:
        process = self.processes[which]
        process.told.clear()
        process.store.down = killed
        await process.discovery.__aexit__(None, None, None)
        self.processes[which] = await self._process()

    def _listing(self, process: Process, slot: int, version: int) -> Callable[[bool], Awaitable[Sequence[object]]]:
        machine = self.machines[slot]

        async def listing(fresh: bool) -> Sequence[object]:
            process.running[slot] = process.running.get(slot, 0) + 1
            if process.running[slot] > 1:
                self.wrong.append("two listings of one server at once")
            try:
                await self._takes(machine.mode)
            finally:
                process.running[slot] -= 1
            if machine.mode == "fails":
                raise ListingFailed("no")
            return self._tools(slot, version)

        return listing

    async def _takes(self, mode: str) -> None:
        match mode:
            case "stubborn":
                while not self.let_go.is_set():
                    try:
                        await self.let_go.wait()
                    except asyncio.CancelledError:
                        continue
            case "hangs":
                await asyncio.sleep(10_000)
            case "slow":
                await asyncio.sleep(3.0)
            case _:
                await turns(3)

    def _tools(self, slot: int, version: int) -> list[object]:
        machine = self.machines[slot]
        machine.numbers += 1
        return [raw("t", f"{NAMES[slot].id} h{version} {machine.numbers}")]

    async def _now(self, act: Callable[[], None]) -> None:
        act()

    async def _cancel(self) -> None:
        for task in self.work:
            task.cancel()
        await asyncio.gather(*self.work, return_exceptions=True)
        await self.inner.aclose()
        await turns(5)

    def _go(self, work: Coroutine[Any, Any, Any]) -> None:
        self.work.add(self.loop.create_task(work))

    def _run(self, work: Coroutine[Any, Any, Any]) -> Any:
        result = self.runner.run(work)
        for task in [task for task in self.work if task.done()]:
            self.work.discard(task)
            if not task.cancelled() and task.exception() is not None:
                raise task.exception()  # type: ignore[misc]
        return result
