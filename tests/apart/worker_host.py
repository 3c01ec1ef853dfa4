"""A host that is served in the process of a test, and workers that dial in to it, as processes."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncGenerator, Generator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from pathlib import Path
from ssl import create_default_context
from typing import cast

import uvicorn
from httpx2 import AsyncClient

from toolplug import Host, open_host
from toolplug.apart.workers.provider import DialledProvider
from toolplug.cli.serving.edge import Edge, EdgeConfig
from toolplug.http import create_app

HERE = Path(__file__).parent
KEY = "worker-key-of-the-tests"
CALLER = "caller-key-of-the-tests"
ADMIN = "admin-key-of-the-tests"
AUTH = {
    "api_keys": [
        {"key": KEY, "subject": "gpu", "scopes": ["worker"]},
        {"key": CALLER, "subject": "ada", "tenant": "acme", "scopes": ["tools:call", "tools:read", "things:read"]},
        {"key": ADMIN, "subject": "root", "scopes": ["admin", "operator"]},
    ]
}


def entry(name: str = "Everything", file: str = "everything", **more: object) -> dict[str, object]:
    return {"type": f"./{file}.py:{name}", "enabled": True, "run": {"worker": True}, **more}


class Server(uvicorn.Server):
    """A server that leaves the signals to the tests."""

    @contextmanager
    def capture_signals(self) -> Generator[None]:
        """Install no handlers."""
        yield


class Served:
    """A host with its address, and its workers."""

    def __init__(self, host: Host, url: str, client: AsyncClient, folder: Path, server: Server) -> None:
        self.host = host
        self.url = url
        self.client = client
        self.folder = folder
        self.server = server
        self.workers: list[Process] = []

    @property
    def provider(self) -> DialledProvider:
        return cast("DialledProvider", self.host.registry.running()["made"].provider)

    async def start_worker(
        self, *more: str, key: str | None = KEY, name: str = "made", folder: Path = HERE, **variables: str
    ) -> Process:
        """Start a worker; its folder is that of the files of the tests, where no state is kept."""
        environment = {**os.environ, "PYTHONPATH": str(HERE.parents[1]), **variables}
        if key is not None:
            environment["TOOLPLUG_KEY"] = key
        words = ["-m", "toolplug", "worker", name, "--host", self.url, "--folder", str(folder), *more]
        started = await asyncio.create_subprocess_exec(
            sys.executable, *words, env=environment, stdout=PIPE, stderr=PIPE
        )
        self.workers.append(started)
        return started

    async def dialled(self, count: int = 1, within_s: float = 60.0) -> None:
        """Wait until so many workers serve."""
        async with asyncio.timeout(within_s):
            while len(self.provider.workers) != count:
                await asyncio.sleep(0.02)

    async def call(self, name: str, /, **arguments: object) -> dict[str, object]:
        body = {"name": name, "arguments": arguments}
        return (await self.client.post("/v1/tool-calls", json=body)).json()


@asynccontextmanager
async def served(
    folder: Path,
    made: Mapping[str, object] | None = None,
    *,
    auth: bool = True,
    certificate: Path | None = None,
    **sections: object,
) -> AsyncGenerator[Served]:
    """Serve a host with an entry `made`, by HTTPS with a file that has a key and its certificate."""
    given = {"store": "memory://", "providers": {"made": dict(made or entry())}, **sections}
    async with AsyncExitStack() as life:
        host = await life.enter_async_context(open_host({**given, **({"auth": AUTH} if auth else {})}, environ={}))
        config = EdgeConfig(create_app(host), Edge(lambda: host.settings.http))
        config.timeout_graceful_shutdown = 5
        config.ssl_certfile = config.ssl_keyfile = certificate
        server = Server(config)
        listening = socket.create_server(("127.0.0.1", 0))
        serving = asyncio.create_task(server.serve([listening]))
        url = f"http{'s' if certificate else ''}://127.0.0.1:{listening.getsockname()[1]}"
        headers = {"Authorization": f"Bearer {CALLER}"} if auth else {}
        verify = create_default_context(cafile=certificate) if certificate else True
        client = await life.enter_async_context(AsyncClient(base_url=url, headers=headers, timeout=60, verify=verify))
        one = Served(host, url, client, folder, server)
        try:
            while not server.started:
                await asyncio.sleep(0.01)
            yield one
        finally:
            for worker in one.workers:
                with suppress(ProcessLookupError):
                    worker.send_signal(signal.SIGCONT)
                    worker.kill()
                await worker.communicate()
            server.should_exit = True
            await serving
