"""A sign that a response is being made, for as long as somebody makes it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from toolplug.errors import StoreError
from toolplug.stores.store import Store

LEASE_S = 60.0
RENEWED_S = 20.0

_LOG = logging.getLogger("toolplug.responses")


@asynccontextmanager
async def leased(store: Store, key: str) -> AsyncGenerator[None]:
    """Give the sign inside this scope; one that is not renewed, as its process has died, ends by itself."""
    beating = asyncio.create_task(_beat(store, key), name="toolplug-response-lease")
    try:
        yield
    finally:
        beating.cancel()
        try:
            await store.commit(key, None)
        except StoreError as error:
            _LOG.error("the lease of a response is not given back, and ends by itself: %s", error)


async def take(store: Store, key: str) -> None:
    """Give the sign now. Raises `StoreError`."""
    await store.commit(key, b"", ttl_s=LEASE_S)


async def is_taken(store: Store, key: str) -> bool:
    """Does somebody give the sign. Raises `StoreError`."""
    return await store.read(key) is not None


async def _beat(store: Store, key: str) -> None:
    while True:
        await asyncio.sleep(RENEWED_S)
        try:
            await take(store, key)
        except StoreError as error:
            _LOG.error("the lease of a response is not renewed: %s", error)
