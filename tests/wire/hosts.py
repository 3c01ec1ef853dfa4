"""Hosts as an operator runs them, behind one address: what the tests of this folder know is a base URL."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import ExitStack, asynccontextmanager, contextmanager
from itertools import cycle
from pathlib import Path

import httpx2
import yaml
from tests.cli.process import Serving, serving

SHARED = "sqlite:///./state.db?shared=true"
"""A store for several hosts on one machine."""
PLUGIN = {"pluginType": "table", "tools": [{"name": "add", "description": "Add.", "inputSchema": {"type": "object"}}]}


class RoundRobin(httpx2.AsyncBaseTransport):
    """Sends each request to the next host, as a load balancer without sticky sessions does."""

    def __init__(self, urls: Sequence[str]) -> None:
        self._hosts = cycle([httpx2.URL(url) for url in urls])
        self._inner = httpx2.AsyncHTTPTransport()

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        host = next(self._hosts)
        request.url = request.url.copy_with(host=host.host, port=host.port)
        request.headers["host"] = f"{host.host}:{host.port}"
        return await self._inner.handle_async_request(request)

    async def aclose(self) -> None:
        await self._inner.aclose()


@contextmanager
def running(folder: Path, store: str, count: int, **settings: object) -> Iterator[list[Serving]]:
    """So many hosts on one store, each a process of its own."""
    providers = {"hello": {"type": "hello", "enabled": True}}
    (folder / "providers.yaml").write_text(yaml.safe_dump({"store": store, "providers": providers, **settings}))
    with ExitStack() as life:
        hosts = [life.enter_context(serving(folder=folder)) for _ in range(count)]
        for host in hosts:
            host.wait_for("toolplug listening on ")
        yield hosts


@asynccontextmanager
async def balanced(urls: Sequence[str]) -> AsyncIterator[httpx2.AsyncClient]:
    """A client whose requests go to the hosts in turn."""
    transport = RoundRobin(urls)
    async with httpx2.AsyncClient(transport=transport, base_url="http://hosts", timeout=30) as client:
        yield client
