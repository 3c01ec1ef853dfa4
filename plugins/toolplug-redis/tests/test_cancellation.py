"""A cancelled command never hands its reply to another one."""

from __future__ import annotations

import asyncio
import random
from dataclasses import replace

import pytest

from toolplug.stores.store import Record
from toolplug_redis.store import RedisStore

pytestmark = [pytest.mark.anyio, pytest.mark.judge, pytest.mark.requirement("I17-3-redis-cancel")]

KEYS = 50


async def test_each_reply_is_that_of_its_question(node, proxy) -> None:
    proxy.longest_delay_s = 0.004
    async with proxy.to(node.port), RedisStore(replace(node.address, port=proxy.port)) as store:
        await ask_and_cancel(store)


async def ask_and_cancel(store: RedisStore) -> None:
    """Ask for records, each of which holds its key, and cancel more than half of the questions at random moments."""
    numbers = random.Random(17)
    names = [f"key/{number}" for number in range(KEYS)]
    begun = {name: await store.commit(name, name.encode(), events=[name.encode()]) for name in names}
    answered = 0

    async def ask(name: str) -> None:
        nonlocal answered
        match numbers.randrange(4):
            case 0:
                record = await store.read(name)
                assert isinstance(record, Record)
                assert record.value == name.encode()
            case 1:
                assert (await store.events(name, None)).entries[-1].data == name.encode()
            case 2:
                assert await store.revisions([name, f"{name}/none"]) == {name: begun[name], f"{name}/none": 0}
            case _:
                assert await store.extend(name, events=[name.encode()])
        answered += 1

    async def cancelled(asking: asyncio.Task[None], after_s: float) -> None:
        await asyncio.sleep(after_s)
        asking.cancel()

    for _ in range(8):
        asked = [asyncio.create_task(ask(numbers.choice(names))) for _ in range(100)]
        cuts = [
            asyncio.create_task(cancelled(task, numbers.uniform(0, 0.01))) for task in asked if numbers.random() < 0.6
        ]
        outcomes = await asyncio.gather(*asked, return_exceptions=True)
        await asyncio.gather(*cuts)
        wrong = [each for each in outcomes if isinstance(each, Exception)]
        assert wrong == []
    assert 100 < answered < 800
    assert await store.revisions(names) == begun
