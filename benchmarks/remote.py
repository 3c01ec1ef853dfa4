"""A call of a tool at another host, beside the same call by a client of that host: CPU time of both processes."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from itertools import repeat
from time import process_time

import httpx2

from benchmarks.applications.toolplug_host import KEY
from benchmarks.frame import Batch, Row
from benchmarks.process import Served, started
from toolplug import Principal, ToolCall, open_host

CALLER = Principal(subject="olga", tenant="t1", scopes=frozenset({"tools:call"}))
ARGUMENTS = {"name": "World"}


def _both(served: Served, once: Callable[[], Awaitable[object]]) -> Batch:
    async def batch(n: int) -> float:
        before = process_time() + served.cpu_s()
        for _ in repeat(None, n):
            await once()
        return process_time() + served.cpu_s() - before

    return batch


@asynccontextmanager
async def through_a_link() -> AsyncGenerator[Batch]:
    """A toolset of the other host, called in process."""
    with started("benchmarks.server", "toolplug_host") as served:
        far = {"prefix": "far", "from": f"host:http://127.0.0.1:{served.port}", "api_key": KEY}
        settings = {"store": "memory://", "toolsets": {"far": far}, "agents": {"caller": {"toolsets": ["far"]}}}
        async with open_host(settings, environ={}) as host:
            executor = host.executor_for(CALLER, agent="caller")
            call = ToolCall(id="c1", name="far.hello", arguments=ARGUMENTS)
            result = await executor.execute(call)
            assert result.status == "success", result.output
            yield _both(served, lambda: executor.execute(call))


@asynccontextmanager
async def by_a_client() -> AsyncGenerator[Batch]:
    """`POST /v1/tool-calls` by the HTTP client that the plugin is built on."""
    with started("benchmarks.server", "toolplug_host") as served:
        headers = {"Authorization": f"Bearer {KEY}"}
        body = {"id": "c1", "name": "hello", "arguments": ARGUMENTS}
        async with httpx2.AsyncClient(base_url=f"http://127.0.0.1:{served.port}", headers=headers) as client:

            async def once() -> None:
                answer = await client.post("/v1/tool-calls", json=body)
                assert answer.json()["status"] == "success"

            await once()
            yield _both(served, once)


ROWS = (
    Row(
        name="call through a linked host",
        ours=through_a_link,
        other=by_a_client,
        against="POST /v1/tool-calls at it",
        hold=2.0,
        aim=1.5,
        pairs=101,
        batch_s=0.05,
    ),
)
