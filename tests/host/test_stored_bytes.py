"""The count of stored bytes when the write of an owner fails, which comes after that of the record."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import NamedTuple

import pytest
from tests.faulty_store import FaultyStore

from toolplug.catalog.call import Principal
from toolplug.errors import StoredBytesExceeded, StoreError
from toolplug.execution.accounting import audit_origin
from toolplug.host.quotas.settings import Quotas
from toolplug.host.quotas.stored_bytes import CountingStore
from toolplug.stores.memory import MemoryStore

pytestmark = [pytest.mark.anyio, pytest.mark.requirement("C-5-quotas")]

QUOTAS = Quotas.model_validate({"tenant": {"stored_bytes": 10}})


class Origin(NamedTuple):
    principal: Principal = Principal("ann", "t1")
    peer: str = ""
    credential: str = ""


@pytest.fixture
async def inner() -> AsyncIterator[MemoryStore]:
    async with MemoryStore() as store:
        yield store


def counting(inner: MemoryStore, *, failing: int = 0) -> tuple[CountingStore, FaultyStore]:
    """A counting store, asked by ann of t1, and the one below it, of which the commit of this number fails."""
    audit_origin.set(Origin())  # of the test's own task
    faulty, commits = FaultyStore(inner), 0

    def fails(operation: str) -> bool:
        nonlocal commits
        commits += operation == "commit"
        return operation == "commit" and commits == failing

    faulty.fails = fails
    return CountingStore(faulty, lambda: QUOTAS), faulty


async def fits(store: CountingStore, size: int) -> bool:
    try:
        await store.commit("provider/probe", b"x" * size)
    except StoredBytesExceeded:
        return False
    await store.commit("provider/probe", None)
    return True


async def owners(store: MemoryStore) -> list[str]:
    return list(await store.keys("stored-by/"))


async def test_a_record_whose_owner_is_not_written_counts_after_a_restart(inner: MemoryStore) -> None:
    store, _ = counting(inner, failing=2)
    async with store:
        assert await store.commit("provider/a", b"x" * 6) == 1, "it is written"
        assert (await fits(store, 5), await fits(store, 4)) == (False, True)
    async with counting(inner)[0] as again:
        assert (await fits(again, 5), await fits(again, 4)) == (False, True)


async def test_a_deleted_record_whose_owner_is_left_counts_no_more_after_a_restart(inner: MemoryStore) -> None:
    store, _ = counting(inner, failing=4)
    async with store:
        await store.commit("provider/a", b"x" * 6)
        await store.commit("provider/a", None)
    async with counting(inner)[0] as again:
        assert await fits(again, 10)
        assert await owners(inner) == []


async def test_a_renewal_that_does_not_reach_the_owner_is_made_up_for(inner: MemoryStore) -> None:
    store, faulty = counting(inner)
    async with store:
        await store.commit("provider/a", b"x" * 6, ttl_s=60)
        extends = iter((False, True))
        faulty.fails = lambda operation: operation == "extend" and next(extends)
        assert await store.extend("provider/a", ttl_s=600)
        await store.commit("provider/b", b"x")
    (owner,) = [record for key in await owners(inner) if (record := await inner.read(key)) and b"/a" in record.value]
    assert owner.expires_at is not None
    assert owner.expires_at > inner.now() + 500


async def test_nothing_is_written_while_an_owner_cannot_be(inner: MemoryStore) -> None:
    store, faulty = counting(inner, failing=2)
    async with store:
        await store.commit("provider/a", b"x" * 6)
        faulty.fails = lambda operation: operation == "commit"
        with pytest.raises(StoreError):
            await store.commit("provider/b", b"x")
        faulty.fails = lambda _: False
        assert await fits(store, 4)
