"""Processes of one test that serve the same sessions over one store, in virtual time."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager

import pytest
from tests.faulty_store import FaultyStore
from tests.sessions.fixtures import LIMITS, T1, opened, registration
from tests.virtual_time import virtual_clock

from toolplug.cluster.processes import Processes
from toolplug.errors import ApiError
from toolplug.parts.sessions.limits import SessionLimits
from toolplug.parts.sessions.service import Sessions
from toolplug.parts.sessions.session import Session
from toolplug.stores.memory import MemoryStore


class Process:
    """One process: what it sees of the store, its lease and its sessions."""

    def __init__(self, inner: MemoryStore, number: int) -> None:
        self.store = FaultyStore(inner)
        self.store.id = f"process{number}"
        self.store.shared = True
        self.processes = Processes(self.store, clock=virtual_clock)
        self.sessions: Sessions

    async def find(self, code: str) -> Session:
        return await self.sessions.find(code, "t1")

    def die(self) -> None:
        """Cut the process off from the store."""
        self.store.down = True


@asynccontextmanager
async def three_processes(limits: SessionLimits = LIMITS) -> AsyncIterator[Three]:
    """Three processes, of which each has taken its lease."""
    async with AsyncExitStack() as life:
        inner = await life.enter_async_context(MemoryStore(clock=virtual_clock))
        processes = [Process(inner, number) for number in range(3)]
        for process in processes:
            await life.enter_async_context(process.processes)
            sessions = opened(process.store, limits=limits, processes=process.processes)
            process.sessions = await life.enter_async_context(sessions)
        yield processes[0], processes[1], processes[2]


Three = tuple[Process, Process, Process]


async def new_session(process: Process) -> Session:
    """A session with the tool `a`."""
    session = (await process.sessions.create(T1)).session
    await session.register(registration("a"))
    return session


@contextmanager
def promptly() -> Iterator[None]:
    """No time passes in the block: what happens in it is heard, and not found by the look every two seconds."""
    before = virtual_clock()
    yield
    assert virtual_clock() == before


def refusal(error: pytest.ExceptionInfo[ApiError]) -> str:
    return error.value.code
