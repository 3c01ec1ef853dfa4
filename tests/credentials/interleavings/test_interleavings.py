"""Two hosts over one store at random, with failures and kills: no rule of tokens is broken, seeded bugs are found."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from importlib import import_module
from random import Random

import pytest
from tests.credentials.interleavings.credentials_world import CredentialsWorld, Parts
from tests.credentials.interleavings.hosts import (
    EXCHANGING,
    GRAPH,
    SERVERS,
    SIGNING_IN,
    SimulatedHost,
)
from tests.credentials.interleavings.issuer import ISSUER, Issuer, User, make_jwt
from tests.credentials.interleavings.seeded_bugs import SEEDED
from tests.virtual_time import VIRTUAL, virtual_clock

from toolplug.catalog.call import CallContext, Credentials, Principal
from toolplug.errors import ToolUnavailable
from toolplug.parts.credentials import exchange, oauth
from toolplug.parts.credentials.records import UserConnection, UserTokens, user_key
from toolplug.stores.memory import MemoryStore

pytestmark = [pytest.mark.anyio, pytest.mark.requirement("I38-interleavings")]

ROUNDS = 40
"""Interleavings of one world."""
SHARES = 4
MANY = int(os.environ.get("TOOLPLUG_INTERLEAVINGS", "25000"))
"""A minute of a processor, which finds a fault of every two-hundredth world (95 %); `make judge-many` makes 100,000."""
MOST = 150
"""Worlds in which a bug must show; the rarest shows in every twentieth."""
ADA = User("ada", "t1", "app")


@pytest.fixture
def anyio_backend() -> object:
    """Let the tests run in virtual time."""
    return VIRTUAL


@pytest.fixture(autouse=True)
def _without_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give each module at once: a virtual loop waits for no thread that imports it."""

    async def loaded(name: str, *, after: str = "") -> object:
        return import_module(name)

    monkeypatch.setattr(oauth, "import_in_thread", loaded)
    monkeypatch.setattr(exchange, "import_in_thread", loaded)


@pytest.mark.slow
def test_tokens_are_of_their_caller_in_hundreds_of_interleavings() -> None:
    run(range(15))


@pytest.mark.judge
@pytest.mark.long(60)
@pytest.mark.parametrize("share", range(SHARES))
def test_and_in_many_thousands(share: int) -> None:
    worlds = range(1_000 + share, 1_000 + MANY // ROUNDS, SHARES)
    outcomes, deaths = run(worlds)
    assert deaths > len(worlds)
    assert {"as itself", "exchanged", "sign_in_needed", "issuer_down", "disconnected"} <= outcomes


def run(seeds: range) -> tuple[set[str], int]:
    outcomes: set[str] = set()
    deaths = 0
    for seed in seeds:
        world = CredentialsWorld(seed)
        world.run(ROUNDS)
        assert world.violations == [], seed
        outcomes |= world.outcomes.keys()
        deaths += world.deaths
    return outcomes, deaths


@pytest.mark.judge
@pytest.mark.parametrize("bug", SEEDED)
def test_the_simulation_finds(bug: str) -> None:
    parts, sign = SEEDED[bug]
    assert any(sign in violation for seed in range(MOST) for violation in violations(seed, parts)), "not found"


def violations(seed: int, parts: Parts) -> list[str]:
    world = CredentialsWorld(seed, parts)
    world.run(ROUNDS)
    return world.violations


@pytest.mark.slow
@pytest.mark.parametrize("hosts", [1, 2])
async def test_a_thousand_first_calls_are_one_exchange(hosts: int) -> None:
    numbers, reports = Random(1), list[str]()
    issuer = Issuer(numbers, reports.append, failing=0.0)
    async with MemoryStore(clock=virtual_clock) as store:
        made = [SimulatedHost(store, issuer, numbers) for _ in range(hosts)]
        who, ends_at = Principal("ada", "t1", credential="app"), virtual_clock() + 600

        async def first(host: SimulatedHost) -> str:
            sent = Credentials()
            sent.request = {b"authorization": b"Bearer " + make_jwt(ADA, ends_at).encode()}
            return await host.service.credential(GRAPH, EXCHANGING, CallContext(who, credentials=sent), "", "")

        tokens = await asyncio.gather(*(first(made[n % hosts]) for n in range(1_000)))
    assert reports == []
    assert len(issuer.exchanges) == len({*tokens}) == 1


async def test_an_exchange_whose_user_disconnects_meanwhile_is_not_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    async def answer_late(issuer: Issuer, fault: str) -> None:
        await asyncio.sleep(1)

    monkeypatch.setattr(Issuer, "_lose", answer_late)
    numbers, reports = Random(4), list[str]()
    issuer = Issuer(numbers, reports.append, failing=0.0)
    async with MemoryStore(clock=virtual_clock) as store:
        host = SimulatedHost(store, issuer, numbers)
        who, sent = Principal("ada", "t1", credential="app"), Credentials()
        sent.request = {b"authorization": b"Bearer " + make_jwt(ADA, virtual_clock() + 600).encode()}
        with_jwt, without = CallContext(who, credentials=sent), CallContext(who)

        call = asyncio.create_task(host.service.credential(GRAPH, EXCHANGING, with_jwt, "", ""))
        while not issuer.exchanges:
            await asyncio.sleep(0.01)
        assert not await host.service.oauth.records.has_exchanged(user_key(GRAPH, who))
        assert await host.service.disconnect(GRAPH, EXCHANGING, who) == (True, False)
        assert await call == "exchanged-1", "it had begun before"
        assert await store.keys("credentials/") == []
        with pytest.raises(ToolUnavailable):
            await host.service.credential(GRAPH, EXCHANGING, without, "", "")
        assert await host.service.credential(GRAPH, EXCHANGING, with_jwt, "", "") == "exchanged-2"
        assert await host.service.credential(GRAPH, EXCHANGING, without, "", "") == "exchanged-2"
    assert reports == []


@dataclass(frozen=True)
class SignedIn:
    """Ada at two hosts, with a token of so many seconds."""

    hosts: list[SimulatedHost]
    issuer: Issuer
    reports: list[str]

    async def call(self, at: int, refused: str = "") -> str:
        """Return the token of a call at one of them."""
        context = CallContext(Principal("ada", "t1"))
        return await self.hosts[at].service.credential(SERVERS["jira"], SIGNING_IN, context, "", refused)


@asynccontextmanager
async def signed_in(life_s: float) -> AsyncGenerator[SignedIn]:
    numbers, reports = Random(2), list[str]()
    issuer = Issuer(numbers, reports.append, failing=0.0)
    async with MemoryStore(clock=virtual_clock) as store:
        hosts = [SimulatedHost(store, issuer, numbers) for _ in range(2)]
        owner, who = SERVERS["jira"], Principal("ada", "t1")
        issuer.sign_in(User("ada", "t1"), "jira")
        family = issuer.families[0]
        family.life_s, family.refreshes = life_s, True
        access, refresh = issuer.give(family)
        known = UserConnection(
            tenant="t1",
            subject="ada",
            kind="mcp",
            key="jira",
            issuer="i",
            connected_at=virtual_clock(),
            expires_at=family.expires_at,
        )
        tokens = UserTokens(access=access, refresh=refresh, token_endpoint=f"{ISSUER}/token")
        await hosts[0].service.oauth.records.write(user_key(owner, who), owner, known, tokens, expected=0)
        yield SignedIn(hosts, issuer, reports)
    assert reports == []


@pytest.mark.slow
async def test_a_thousand_calls_at_two_hosts_renew_an_expired_token_once() -> None:
    async with signed_in(60.0) as ada:
        await asyncio.sleep(61)
        assert len({*await asyncio.gather(*(ada.call(n % 2) for n in range(1_000)))}) == 1
        assert ada.issuer.refreshes == 1


async def test_a_call_that_is_given_up_while_its_token_is_renewed_costs_no_sign_in(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def answer_late(issuer: Issuer, fault: str) -> None:
        await asyncio.sleep(1)

    monkeypatch.setattr(Issuer, "_lose", answer_late)
    async with signed_in(60.0) as ada:
        await asyncio.sleep(61)
        call = asyncio.create_task(ada.call(0))
        while not ada.issuer.refreshes:
            await asyncio.sleep(0.01)
        call.cancel()
        await asyncio.wait([call])
        assert await ada.call(0) == await ada.call(1)
        assert ada.issuer.refreshes == 1
        await ada.hosts[0].service.oauth.aclose()  # gives the lease back


async def test_a_token_of_seconds_is_renewed_in_the_middle_of_its_life() -> None:
    async with signed_in(20.0) as ada:
        first = await ada.call(0)
        await asyncio.sleep(5)
        assert await ada.call(0) == first
        await asyncio.sleep(6)
        assert await ada.call(0) == await ada.call(1) != first
        assert ada.issuer.refreshes == 1


async def test_a_token_that_was_refused_at_its_end_costs_no_sign_in() -> None:
    async with signed_in(20.0) as ada:
        await asyncio.sleep(11)
        second = await ada.call(0)  # was just renewed
        await asyncio.sleep(21)
        assert await ada.call(0, refused=second) != second


async def test_a_record_that_was_copied_to_another_user_is_not_opened() -> None:
    numbers = Random(3)
    async with MemoryStore(clock=virtual_clock) as store:
        records = SimulatedHost(store, Issuer(numbers, print, 0.0), numbers).service.oauth.records
        owner = SERVERS["jira"]
        ada, ben = (user_key(owner, Principal(name, "t1")) for name in ("ada", "ben"))
        known = UserConnection(tenant="t1", subject="ada", kind="mcp", key="jira", issuer="i", connected_at=1)
        await records.write(ada, owner, known, UserTokens(access="hers"), expected=0)
        record = await store.read(f"credentials/token/{ada}")
        assert record is not None
        await store.commit(f"credentials/token/{ben}", record.value)
        hers, his = await records.read(ada, owner), await records.read(ben, owner)
        assert hers is not None
        assert hers.tokens == UserTokens(access="hers")
        assert his is not None
        assert his.tokens is None
