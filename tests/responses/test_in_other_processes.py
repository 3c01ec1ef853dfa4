"""Background responses of one process, asked for at another one that shares its store."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import AsyncExitStack

import pytest
from tests.faulty_store import FaultyStore
from tests.virtual_time import VIRTUAL, pass_time, virtual_clock

from toolplug.catalog.catalog import EMPTY_CATALOG
from toolplug.cluster.processes import Processes
from toolplug.errors import ResponseRefused
from toolplug.execution.live import LiveCatalog
from toolplug.parts.responses.backend import Delta, Question
from toolplug.parts.responses.builder import Event
from toolplug.parts.responses.offer import ToolCaller
from toolplug.parts.responses.request import ResponseRequest
from toolplug.parts.responses.service import Responses
from toolplug.stores.memory import MemoryStore

pytestmark = [pytest.mark.anyio, pytest.mark.requirement("I17-2-background")]

TENANT = "t1"
REQUEST = ResponseRequest(model="one", input="Go", background=True, stream=True)


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, object]]:
    return VIRTUAL


class Model:
    """Says so many words, one every `pause_s`, and then waits until it is let."""

    default_model = "one"

    def __init__(self) -> None:
        self.words, self.pause_s = 2, 0.0
        self.let = asyncio.Event()
        self.stopped = False

    async def ask(self, question: Question, *, stream: bool) -> AsyncGenerator[Delta]:
        try:
            for _ in range(self.words):
                await asyncio.sleep(self.pause_s)
                yield Delta(text="word ")
            await self.let.wait()
        except (asyncio.CancelledError, GeneratorExit):
            self.stopped = True
            raise
        yield Delta(finish="stop")

    async def aclose(self) -> None:
        """It has no connection."""


async def asker(conversation: str) -> ToolCaller:
    return ToolCaller(LiveCatalog(EMPTY_CATALOG))


class Process:
    """One process: what it sees of the store, its lease and its responses."""

    def __init__(self, inner: MemoryStore, name: str, model: Model) -> None:
        async def load() -> Model:
            return model

        self.store = FaultyStore(inner)
        self.store.id, self.store.shared = name, True
        self.processes = Processes(self.store, clock=virtual_clock)
        self.responses = Responses(self.store, load, self.processes)

    async def begin(self) -> str:
        begun = str((await self.responses.begin(REQUEST, TENANT, asker))["id"])
        await pass_time(0.01)
        return begun

    async def heard(self, response: str, after: int = -1) -> list[Event]:
        return [event async for event in await self.responses.listen(TENANT, response, after)]

    async def status(self, response: str) -> str:
        return (await self.responses.read(TENANT, response)).response["status"]


Two = tuple[Process, Process]


@pytest.fixture
def model() -> Model:
    return Model()


@pytest.fixture
async def two(model: Model) -> AsyncIterator[Two]:
    async with AsyncExitStack() as life:
        inner = await life.enter_async_context(MemoryStore(clock=virtual_clock))
        processes = [Process(inner, name, model) for name in ("here", "there")]
        for process in processes:
            await life.enter_async_context(process.processes)
            life.push_async_callback(process.responses.aclose)
        yield processes[0], processes[1]


def types(events: list[Event]) -> list[object]:
    return [event["type"] for event in events]


async def test_the_events_are_told_elsewhere_while_they_are_made(two: Two, model: Model) -> None:
    here, there = two
    begun = await here.begin()
    heard: list[Event] = []

    async def hear() -> None:
        async for event in await there.responses.listen(TENANT, begun, 1):
            heard.append(event)

    listening = asyncio.create_task(hear())
    await pass_time(0.3)
    assert types(heard)[-1] == "response.output_text.delta"
    assert not listening.done()
    model.let.set()
    await listening
    every = await here.heard(begun)
    assert types(every)[-1] == "response.completed"
    assert heard == every[2:]
    assert await there.heard(begun, 4) == every[5:]


async def test_no_event_is_missing_of_a_response_with_more_than_a_log_keeps(two: Two, model: Model) -> None:
    here, there = two
    model.words, model.pause_s = 400, 0.11
    begun = await here.begin()
    early = asyncio.create_task(there.heard(begun))
    await pass_time(40)
    late: list[Event] = []

    async def hear() -> None:
        async for event in await there.responses.listen(TENANT, begun):
            late.append(event)

    listening = asyncio.create_task(hear())
    await pass_time(10)
    assert len(late) > 400
    model.let.set()
    await listening
    assert await early == late == await here.heard(begun)


async def test_a_response_is_cancelled_at_another_process(two: Two, model: Model) -> None:
    here, there = two
    begun = await here.begin()
    listening = [asyncio.create_task(process.heard(begun)) for process in two]
    await pass_time(0.5)
    before = virtual_clock()
    assert (await there.responses.cancel(TENANT, begun))["status"] == "cancelled"
    told, elsewhere = await asyncio.gather(*listening)
    assert model.stopped
    assert virtual_clock() == before
    assert told == elsewhere
    assert types(told)[-1] == "response.incomplete"
    kept = (await there.responses.read(TENANT, begun)).response
    assert (kept["status"], len(kept["output"])) == ("cancelled", 1)


async def test_a_cancellation_that_was_not_heard_is_found_by_looking(two: Two, model: Model) -> None:
    here, there = two
    begun = await here.begin()
    with here.store.holding("watch"):
        await there.responses.cancel(TENANT, begun)
        await pass_time(2.5)
        assert model.stopped


async def test_a_response_that_is_deleted_at_another_process_does_not_come_back(two: Two, model: Model) -> None:
    here, there = two
    begun = await here.begin()
    listening = asyncio.create_task(there.heard(begun))
    await pass_time(0.5)
    await there.responses.delete(TENANT, begun)
    await pass_time(0.1)
    assert model.stopped
    assert types(await listening)[-1] == "response.output_text.delta"
    for process in two:
        with pytest.raises(ResponseRefused, match="no such response"):
            await process.status(begun)


async def test_a_response_whose_process_has_died_has_failed(two: Two) -> None:
    here, there = two
    begun = await here.begin()
    listening = asyncio.create_task(there.heard(begun))
    await pass_time(1)
    here.store.down = True
    await pass_time(5)
    assert await there.status(begun) == "in_progress"
    await pass_time(9)
    kept = (await there.responses.read(TENANT, begun)).response
    assert (kept["status"], kept["error"]) == (
        "failed",
        {"code": "server_error", "message": "the process that made the response has ended"},
    )
    told = await listening
    assert types(told)[-2:] == ["response.output_text.delta", "response.failed"]
    assert await there.heard(begun) == told
    # One that has seen more than was shared before the process died is told of the end too.
    for after in (len(told), len(told) + 5):
        (last,) = await there.heard(begun, after)
        assert last == {**told[-1], "sequence_number": after + 1}


async def test_responses_go_on_when_no_process_could_reach_the_store_for_a_while(two: Two, model: Model) -> None:
    here, there = two
    begun = await here.begin()
    for process in two:
        process.store.down = True
    await pass_time(9)
    for process in (there, here):
        process.store.down = False
        await pass_time(1.5)
        assert await there.status(begun) == "in_progress"
    model.let.set()
    await pass_time(1)
    assert await there.status(begun) == "completed"
