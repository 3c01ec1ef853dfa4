"""The plugin `redis`: stores by the schemes `redis` and, over TLS, `rediss`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from toolplug import hookimpl
from toolplug.stores import StoreOpener
from toolplug_redis.address import read_address
from toolplug_redis.store import RedisStore


@hookimpl
def stores() -> Mapping[str, StoreOpener]:
    """Return the function that opens a store, for both schemes."""
    return {"redis": open_redis, "rediss": open_redis}


def open_redis(url: str, *, folder: Path) -> RedisStore:
    """Return the store that a URL names, as `read_address` describes it. Raises `StoreMisused`."""
    return RedisStore(read_address(url, folder=folder))
