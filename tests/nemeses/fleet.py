"""Hosts as processes of this machine, on one store, each of which can be killed, paused and started again."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from random import Random

import httpx2
import yaml
from tests.cli.process import Serving, serving
from tests.kept_port import kept_port
from tests.nemeses.clocks import Clock

ANY = "hosts"
ANSWER_S = 4.0
"""How long a client waits for an answer; then it does not know what became of its request."""


class Host:
    """One host on a port of its own, with the clock of the machine or its own."""

    def __init__(
        self, folder: Path, port: int, *, configuration: str = "providers.yaml", clock: Clock | None = None
    ) -> None:
        self.url = f"http://127.0.0.1:{port}"
        self.clock = clock
        self.process: Serving | None = None
        self._folder = folder
        self._arguments = ("--port", str(port), "--config", configuration)
        self._life = ExitStack()

    def begin(self) -> None:
        """Start the process, without waiting until it serves."""
        environ = {} if self.clock is None else self.clock.environ
        self.process = self._life.enter_context(serving(*self._arguments, folder=self._folder, environ=environ))

    async def serves(self) -> None:
        """Wait until it serves."""
        process = self.process
        assert process is not None
        await asyncio.to_thread(process.wait_for, "toolplug listening on ")

    async def start(self) -> None:
        """Start the process and wait until it serves."""
        self.begin()
        await self.serves()

    def kill(self) -> None:
        """Kill the process, as a crash does."""
        self._life.close()
        self.process = None

    def send(self, number: signal.Signals) -> None:
        """Send a signal."""
        assert self.process is not None
        self.process.send(number)


class Fleet:
    """Some hosts, and clients whose requests go to any of them."""

    def __init__(self, hosts: Sequence[Host], random: Random) -> None:
        self.hosts = hosts
        self.random = random

    def any(self) -> Host:
        """One of them."""
        return self.random.choice(self.hosts)

    def client(self) -> httpx2.AsyncClient:
        """A client that has a new connection for each request, as one behind a load balancer may have."""
        return httpx2.AsyncClient(transport=_Anywhere(self), base_url=f"http://{ANY}", timeout=ANSWER_S)


class _Anywhere(httpx2.AsyncBaseTransport):
    """Sends each request to any host, unless it names one."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._inner = httpx2.AsyncHTTPTransport(limits=httpx2.Limits(max_keepalive_connections=0))

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        if request.url.host == ANY:
            url = httpx2.URL(self._fleet.any().url)
            request.url = request.url.copy_with(host=url.host, port=url.port)
            request.headers["host"] = f"{url.host}:{url.port}"
        return await self._inner.handle_async_request(request)

    async def aclose(self) -> None:
        await self._inner.aclose()


@asynccontextmanager
async def fleet(
    folder: Path,
    store: str,
    seed: int,
    *,
    hosts: int = 3,
    more: Sequence[Mapping[str, object]] = (),
    own_clocks: bool = False,
) -> AsyncIterator[Fleet]:
    """So many hosts with one configuration, or one for each item of `more`, which is added to it."""
    settings = {
        "store": store,
        "sessions": {"max_updates_per_minute": 100_000, "grace": "60s"},
        "providers": {"hello": {"enabled": True}},
    }
    with ExitStack() as ports:
        found: list[Host] = []
        for number in range(hosts):
            name = f"host{number}.yaml"
            own = more[number] if more else {}
            (folder / name).write_text(yaml.safe_dump({**settings, **own}))
            clock = Clock(folder / f"host{number}.clock") if own_clocks else None
            found.append(Host(folder, ports.enter_context(kept_port()), configuration=name, clock=clock))
        try:
            for host in found:
                host.begin()
            await asyncio.gather(*(host.serves() for host in found))
            yield Fleet(found, Random(seed))
        finally:
            for host in found:
                host.kill()
