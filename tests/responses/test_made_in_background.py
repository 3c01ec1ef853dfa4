"""How responses in the background are kept and told: by two processes of one store, and by one that fails."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Sequence

import pytest

from toolplug.catalog.catalog import EMPTY_CATALOG
from toolplug.errors import StoreUnavailable
from toolplug.execution.live import LiveCatalog
from toolplug.parts.responses.backend import Delta, Question
from toolplug.parts.responses.builder import Event
from toolplug.parts.responses.offer import ToolCaller
from toolplug.parts.responses.request import ResponseRequest
from toolplug.parts.responses.service import Responses
from toolplug.stores.memory import MemoryStore

pytestmark = pytest.mark.anyio

TENANT = "t1"
REQUEST = ResponseRequest(model="one", input="Go", background=True, stream=True)


class Failing(MemoryStore):
    """Takes no record whose key begins with `refused`, and takes what begins with `denied` without saying so."""

    refused = "nothing"
    denied = "nothing"

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
        if key.startswith(self.refused):
            raise StoreUnavailable("on purpose")
        revision = await super().commit(key, value, expected=expected, ttl_s=ttl_s, events=events, to=to)
        if key.startswith(self.denied):
            raise StoreUnavailable("on purpose, and too late")
        return revision


class Model:
    """Says Hello when it is let; knows whether it was asked."""

    default_model = "one"

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        self.let = asyncio.Event()

    async def ask(self, question: Question, *, stream: bool) -> AsyncGenerator[Delta]:
        self.asked.set()
        await self.let.wait()
        yield Delta(text="Hello")
        yield Delta(finish="stop")

    async def aclose(self) -> None:
        """It has no connection."""


async def asker(conversation: str) -> ToolCaller:
    return ToolCaller(LiveCatalog(EMPTY_CATALOG))


def served(store: Failing, model: Model) -> Responses:
    async def load() -> Model:
        return model

    return Responses(store, load)


@pytest.fixture
async def store() -> AsyncIterator[Failing]:
    async with Failing() as store:
        yield store


@pytest.fixture
def model() -> Model:
    return Model()


@pytest.fixture
async def responses(store: Failing, model: Model) -> AsyncIterator[Responses]:
    responses = served(store, model)
    yield responses
    await responses.aclose()


async def begin(responses: Responses) -> str:
    return str((await responses.begin(REQUEST, TENANT, asker))["id"])


async def heard(responses: Responses, response: str) -> list[Event]:
    return [event async for event in await responses.listen(TENANT, response)]


@pytest.mark.requirement("I6-2-background", "H-store-disk-full")
async def test_a_response_goes_on_while_its_progress_cannot_be_kept(
    store: Failing, model: Model, responses: Responses
) -> None:
    begun = await begin(responses)
    store.refused = "response/"
    await model.asked.wait()
    store.refused = "nothing"
    model.let.set()
    events = await heard(responses, begun)
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    assert [event["type"] for event in events if str(event["type"]).count(".") == 1] == [
        "response.created",
        "response.queued",
        "response.in_progress",
        "response.completed",
    ]
    kept = await responses.read(TENANT, begun)
    assert (kept.response["status"], kept.response["error"]) == ("completed", None)


@pytest.mark.requirement("I6-2-background")
async def test_a_write_that_is_done_though_it_failed_stops_no_response(
    store: Failing, model: Model, responses: Responses
) -> None:
    begun = await begin(responses)
    store.denied = "response/"
    await model.asked.wait()
    store.denied = "nothing"
    model.let.set()
    events = await heard(responses, begun)
    assert events[-1]["type"] == "response.completed"
    assert (await responses.read(TENANT, begun)).response["status"] == "completed"


@pytest.mark.requirement("I6-2-background")
async def test_a_cancel_leaves_an_end_that_is_written_at_the_same_moment(
    store: Failing, model: Model, responses: Responses
) -> None:
    other = served(store, model)
    begun = await begin(responses)
    await model.asked.wait()
    cancelled = asyncio.create_task(other.cancel(TENANT, begun))
    model.let.set()
    await heard(responses, begun)
    seen = (await cancelled)["status"]
    assert (await responses.read(TENANT, begun)).response["status"] == seen


@pytest.mark.requirement("I6-2-background", "H-store-disk-full")
async def test_a_response_whose_end_cannot_be_kept_has_failed_for_who_listens(
    store: Failing, model: Model, responses: Responses
) -> None:
    begun = await begin(responses)
    listening = asyncio.create_task(heard(responses, begun))
    await model.asked.wait()
    store.refused = "response/"
    model.let.set()
    events = await listening
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    assert [event["type"] for event in events].count("response.failed") == 1
    assert events[-1]["type"] == "response.failed"


@pytest.mark.requirement("I6-2-background", "H-store-disk-full")
@pytest.mark.parametrize("refused", ["response/", "response-lease/", "response-events/"])
async def test_what_cannot_be_begun_is_refused_and_asks_no_model(
    store: Failing, model: Model, responses: Responses, refused: str
) -> None:
    store.refused = refused
    with pytest.raises(StoreUnavailable):
        await responses.begin(REQUEST, TENANT, asker)
    kept = await store.keys("response/")
    assert [(await responses.read(TENANT, key.rpartition("/")[2])).response["status"] for key in kept] == (
        [] if refused == "response/" else ["cancelled"]
    )
    assert not model.asked.is_set()


@pytest.mark.requirement("I6-2-background", "H-store-disk-full")
async def test_events_that_cannot_be_kept_are_told_all_the_same(
    store: Failing, model: Model, responses: Responses, caplog: pytest.LogCaptureFixture
) -> None:
    begun = await begin(responses)
    listening = asyncio.create_task(heard(responses, begun))
    await model.asked.wait()
    store.refused = "response-events/"
    model.let.set()
    assert (await listening)[-1]["type"] == "response.completed"
    await responses.aclose()
    assert "a response in the background ended: on purpose" in caplog.messages


@pytest.mark.requirement("I6-2-background")
async def test_who_listens_in_another_process_waits_for_the_end(
    store: Failing, model: Model, responses: Responses
) -> None:
    other = served(store, model)
    begun = await begin(responses)
    here, there = (asyncio.create_task(heard(each, begun)) for each in (responses, other))
    await model.asked.wait()
    for _ in range(20):
        await asyncio.sleep(0)
    assert not there.done()
    model.let.set()
    assert await there == await here
