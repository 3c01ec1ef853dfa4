"""Rounds of questions that wait in the store for a client's answers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from tests.faulty_store import delay_keys

from toolplug import CallContext, Principal
from toolplug.catalog.call import UserAnswer
from toolplug.parts.mcp.client.connection import Question
from toolplug.parts.mcp.input_rounds import LIFE_S, MAX_OPEN, OpenRounds, Round, RoundAnswers
from toolplug.stores.memory import MemoryStore
from toolplug.testing.store_fixtures import ManualClock

pytestmark = [pytest.mark.anyio, pytest.mark.requirement("I14-5-passed-through")]

ALICE = CallContext(principal=Principal(subject="alice"), agent="researcher", session="abc")
ASKED = Round("target", {"seats": Question("How many?", {}), "day": Question("Which day?", {})}, "the server's", 3)
YES = UserAnswer("accept", {"seats": 2})


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def store(clock: ManualClock) -> AsyncIterator[MemoryStore]:
    async with MemoryStore(clock=clock) as store:
        yield store


async def kept(store: MemoryStore, context: CallContext = ALICE) -> str:
    state = await OpenRounds(store).keep(ASKED, "book", {"what": "boat"}, context)
    assert state is not None
    return state


async def taken(store: MemoryStore, state: str, context: CallContext = ALICE) -> RoundAnswers | None:
    return await OpenRounds(store).take(state, [None, YES, YES], "book", {"what": "boat"}, context)


async def test_answers_have_the_keys_of_the_server_and_are_taken_once(store: MemoryStore) -> None:
    state = await kept(store)
    assert "server" not in state
    assert await taken(store, state) == RoundAnswers("target", {"day": YES}, "the server's", 3)
    assert await taken(store, state) is None


@pytest.mark.parametrize(
    "other",
    [
        ALICE._replace(principal=Principal(subject="bob")),
        ALICE._replace(principal=Principal(subject="alice", tenant="other")),
        ALICE._replace(agent=None),
        ALICE._replace(session="xyz"),
    ],
)
async def test_another_caller_takes_nothing_and_spends_nothing(store: MemoryStore, other: CallContext) -> None:
    state = await kept(store)
    assert await taken(store, state, other) is None
    assert await taken(store, state) is not None


@pytest.mark.parametrize("state", ["", "round.", "round.x/y", "round.\u00e4", "0123456789ab"])
async def test_a_text_that_is_no_state_of_ours_takes_nothing(store: MemoryStore, state: str) -> None:
    assert await taken(store, state) is None


async def test_a_round_expires(store: MemoryStore, clock: ManualClock) -> None:
    state = await kept(store)
    clock.now += LIFE_S + 1
    assert await taken(store, state) is None


async def test_a_tenant_has_so_many_open_rounds_and_another_has_its_own(
    store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    rounds = OpenRounds(store)
    for _ in range(MAX_OPEN - 1):
        await kept(store)
    delay_keys(monkeypatch)
    at_once = await asyncio.gather(*(rounds.keep(ASKED, "book", {}, ALICE) for _ in range(5)))
    assert sorted(state is None for state in at_once) == [False, True, True, True, True]
    assert await rounds.keep(ASKED, "book", {}, ALICE._replace(principal=Principal(tenant="other"))) is not None
