"""The stores of the hosts: a shared file, or a server that each host reaches through a proxy of its own."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

import pytest
from _pytest.mark.structures import ParameterSet
from tests.byte_proxy import Proxy
from tests.postgres_server import PostgresServer, postgres
from tests.redis_server import RedisServer, redis
from tests.wire.deployments import NEEDS, SHARED, rotated

STORES = ("sqlite", "redis", "postgres")
APPENDING = ("--appendonly", "yes", "--appendfsync", "everysec")


@dataclass(frozen=True, kw_only=True)
class SharedStore:
    """The URL of each host, its proxies and the server; a file has neither."""

    urls: Sequence[str]
    proxies: Sequence[Proxy] = ()
    server: RedisServer | PostgresServer | None = None

    async def restart(self, after_s: float) -> None:
        """Kill the server and start it again after so many seconds."""
        assert self.server is not None
        await asyncio.to_thread(self.server.kill)
        await asyncio.sleep(after_s)
        await asyncio.to_thread(self.server.start)


def chosen() -> Sequence[ParameterSet]:
    """Return the stores of this run: `TOOLPLUG_NEMESES`, a list with commas, or `all`.

    Without it a file, and Redis or PostgreSQL by the hash of the commit.
    """
    names = os.environ.get("TOOLPLUG_NEMESES", f"sqlite,{rotated()}")
    found = STORES if names == "all" else tuple(names.split(","))
    needs = {name: (*NEEDS[name][1:], *(() if name == "sqlite" else ("faketime",))) for name in found}
    return [pytest.param(name, marks=pytest.mark.needs(*needs[name])) for name in found]


@asynccontextmanager
async def shared_store(name: str, hosts: int) -> AsyncIterator[SharedStore]:
    """The store of so many hosts."""
    if name == "sqlite":
        yield SharedStore(urls=[SHARED] * hosts)
        return
    async with AsyncExitStack() as life:
        server: RedisServer | PostgresServer
        if name == "redis":
            server = life.enter_context(redis(*APPENDING))
            url = f"redis://127.0.0.1:{server.port}"
        else:
            server = life.enter_context(postgres())
            url = server.url()
        proxies = [await life.enter_async_context(Proxy().to(server.port)) for _ in range(hosts)]
        urls = [url.replace(f"127.0.0.1:{server.port}", f"127.0.0.1:{proxy.port}") for proxy in proxies]
        yield SharedStore(urls=urls, proxies=proxies, server=server)
