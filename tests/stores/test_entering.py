"""A host that starts waits for a store that is not there yet, and says so; in virtual time."""

from __future__ import annotations

import asyncio
import errno
from typing import Self

import pytest
from tests.virtual_time import VIRTUAL

from toolplug.errors import StoreRefused, StoreUnavailable
from toolplug.stores.memory import MemoryStore
from toolplug.stores.open import ENTER_S, enter_with_retries

pytestmark = [pytest.mark.anyio, pytest.mark.requirement("H-time-loop")]


@pytest.fixture
def anyio_backend() -> object:
    return VIRTUAL


class LateStore(MemoryStore):
    """A store that can be opened after some seconds; before, each attempt takes two and raises the error."""

    def __init__(self, after_s: float, error: Exception) -> None:
        super().__init__()
        self.after_s = after_s
        self.error = error
        self.attempts = 0

    async def __aenter__(self) -> Self:
        self.attempts += 1
        if asyncio.get_running_loop().time() < self.after_s:
            await asyncio.sleep(2)
            raise self.error
        return await super().__aenter__()


async def test_a_store_that_comes_within_30_s_is_opened(caplog: pytest.LogCaptureFixture) -> None:
    store = LateStore(25.0, StoreUnavailable("the Redis server does not answer within 2 s"))
    await enter_with_retries(store)
    await store.commit("key", b"value")
    await store.aclose()
    lines = [record.getMessage() for record in caplog.records]
    assert len(lines) == store.attempts - 1 == 6
    assert lines[0] == (
        "the store cannot be opened yet: the Redis server does not answer within 2 s; trying again, for 28 s more"
    )


async def test_a_store_that_does_not_come_is_the_error_after_30_s() -> None:
    store = LateStore(1000.0, StoreUnavailable("the Redis server does not answer within 2 s"))
    with pytest.raises(StoreUnavailable, match="does not answer within 2 s"):
        await enter_with_retries(store)
    assert ENTER_S <= asyncio.get_running_loop().time() <= ENTER_S + 2


def unwritable() -> StoreUnavailable:
    """The error for a file that cannot be opened."""
    error = StoreUnavailable("state.db cannot be opened (Permission denied)")
    error.__cause__ = PermissionError(errno.EACCES, "Permission denied")
    return error


@pytest.mark.parametrize("error", [StoreRefused("a wrong password"), unwritable()])
async def test_what_time_does_not_change_is_tried_once(error: Exception) -> None:
    store = LateStore(1000.0, error)
    with pytest.raises(type(error)):
        await enter_with_retries(store)
    assert store.attempts == 1
