"""Each operation of the store fails once, and each caller goes away at each moment: what follows works all the same."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from tests.faulty_store import FaultyStore, evenly
from tests.sessions.fixtures import (
    T1,
    Listener,
    Plugin,
    added,
    call,
    listed,
    names,
    opened,
    registration,
    turns,
)
from tests.virtual_time import pass_time

from toolplug.errors import SessionGone, StoreError
from toolplug.parts.sessions.service import Sessions

pytestmark = [pytest.mark.anyio, pytest.mark.requirement("I3-machine", "I3-1-cas")]


async def again(work: Callable[[], Awaitable[object]]) -> object:
    """What the work comes to; once more where the store failed."""
    try:
        return await work()
    except StoreError:
        return await work()


async def follow(client: Listener, revision: int) -> None:
    """Read until this revision was told, as whoever reads again where the store failed."""
    while client.heard[-1].data.get("revision", 0) < revision:  # type: ignore[operator]
        await again(client.hear)


async def life(sessions: Sessions) -> None:
    """One session from its beginning to its end, and everything that is asked of the store on the way."""
    created = await again(lambda: sessions.create(T1))
    session = created.session  # type: ignore[attr-defined]
    await again(lambda: session.register(registration("a")))
    client = Listener(await again(lambda: session.open_stream("client", None)))  # type: ignore[arg-type]
    await again(client.hear)
    plugin = Plugin(session, await again(lambda: session.open_stream("plugin", None)))  # type: ignore[arg-type]
    answering = asyncio.create_task(plugin.answer_all(lambda request: request["arguments"]))
    result = await call(session, "a", {"x": 1})
    assert result.structured == {"x": 1}
    await again(lambda: session.update(added("b"), "test"))
    await follow(client, 2)
    await pass_time(600)
    await again(session.heartbeat)
    session.close_stream(client.reader)
    resumed = Listener(await again(lambda: session.open_stream("client", client.last_id)))  # type: ignore[arg-type]
    await again(resumed.hear)
    await again(lambda: session.update(added("c"), "test"))
    await follow(resumed, 3)
    assert names(session) == list(listed(session)) == list(session.executor.catalog) == ["a", "b", "c"]
    session.close_stream(plugin.reader)
    await answering
    assert await again(lambda: sessions.find(session.code, "t1")) is session
    await again(lambda: sessions.end(session, T1))
    await resumed.hear_out()
    assert resumed.heard[-1].data["code"] == "session_ended"
    session.close_stream(resumed.reader)
    with pytest.raises(SessionGone):
        await again(lambda: sessions.find(session.code, "t1"))


class Once:
    """Lets one operation fail, the n-th."""

    def __init__(self, at: int) -> None:
        self.left = at

    def __call__(self, _: str) -> bool:
        self.left -= 1
        return self.left == 0


async def test_each_operation_of_the_store_may_fail_once(store: FaultyStore) -> None:
    at, failed = 0, True
    while failed:
        at += 1
        async with opened(store) as sessions:
            store.fails = once = Once(at)
            await life(sessions)
            store.fails = lambda _: False
        failed = once.left <= 0
    assert at > 20


@pytest.mark.parametrize("pace", [(0, 0), (2, 0), (0, 2)])
async def test_a_caller_may_go_away_at_any_turn(store: FaultyStore, pace: tuple[int, int]) -> None:
    async with opened(store) as sessions:
        session = (await sessions.create(T1)).session
        await session.register(registration("a"))
        store.pace = evenly(*pace)
        for count in range(12):
            work: list[Awaitable[object]] = [
                session.update(added(f"t{count}"), "left"),
                session.register(registration("a", f"r{count}")),
                session.open_stream("client", None),
                session.open_stream("client", "1"),
                call(session, "a"),
                sessions.create(T1),
                session.heartbeat(),
            ]
            tasks = [asyncio.ensure_future(each) for each in work]
            await turns(count)
            for task in tasks:
                task.cancel()
            for outcome in await asyncio.gather(*tasks, return_exceptions=True):
                if not isinstance(outcome, BaseException) and hasattr(outcome, "role"):
                    session.close_stream(outcome)  # type: ignore[arg-type]
        store.pace = {}
        await session.register(registration("a", "z"))
        assert names(session) == list(session.executor.catalog) == ["a", "z"]
        assert session.feed.readers == ()
        assert not session.relay.full
        reader = await session.open_stream("client", None)
        client = Listener(reader)
        await client.hear_until("connected")
        assert client.of("connected")[0]["revision"] == session.revision
        session.close_stream(reader)
