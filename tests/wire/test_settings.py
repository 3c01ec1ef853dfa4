"""Settings over HTTP: what one process has answered is so in all, whichever the next request reaches."""

from __future__ import annotations

import asyncio
import signal
import time
from pathlib import Path

import httpx2
import pytest
from tests.wire.answers import listed
from tests.wire.callers import PATIENCE_S, client_of
from tests.wire.deployments import SHARED, running

pytestmark = [pytest.mark.anyio, pytest.mark.requirement("I17-6-wire", "I17-2-exact-settings")]

REQUESTS = range(6)
"""So many that each process gets one, most likely."""


async def statuses(client: httpx2.AsyncClient) -> set[str]:
    body = {"name": "hello", "arguments": {}}
    return {(await client.post("/v1/tool-calls", json=body)).json()["status"] for _ in REQUESTS}


async def counts(client: httpx2.AsyncClient) -> set[int]:
    """How many tools the agent has, by each process; one more reads what was too long."""
    return {len(await listed(client, "clerk")) for _ in REQUESTS}


@pytest.mark.wire
async def test_a_provider_is_switched_in_all_processes(admin: httpx2.AsyncClient) -> None:
    for _ in range(2):
        assert (await admin.post("/v1/providers/hello/disable")).status_code == 200
        assert await statuses(admin) == {"unknown_tool"}
        assert (await admin.post("/v1/providers/hello/enable")).status_code == 200
        assert await statuses(admin) == {"success"}


@pytest.mark.wire
async def test_an_agent_is_allowed_and_refused_by_all_processes(admin: httpx2.AsyncClient) -> None:
    bound = await admin.put("/api/toolset-bindings/mine", json={"prefix": "mine", "from": "provider:hello"})
    assert bound.is_success, bound.text
    for _ in range(2):
        assert (await admin.put("/api/agents/clerk/toolsets", json={"toolsets": ["mine"]})).is_success
        assert await counts(admin) == {1}
        assert (await admin.put("/api/agents/clerk/toolsets", json={"toolsets": []})).is_success
        assert await counts(admin) == {0}


@pytest.mark.wire
async def test_a_reload_answers_for_each_process(admin: httpx2.AsyncClient) -> None:
    done = (await admin.post("/v1/reload")).json()
    processes = done.get("processes", [])
    assert all((item["kept"], item["problems"]) == (done["kept"], []) for item in processes)
    listed = (await admin.get("/v1/providers")).json().get("processes", [])
    assert sorted(item["process"] for item in listed) == sorted(item["process"] for item in processes)
    assert len({item["configuration"] for item in listed}) == bool(listed)


@pytest.mark.judge
async def test_a_host_that_is_stopped_delays_a_change_until_its_lease_ends(tmp_path: Path) -> None:
    providers = {"hello": {"enabled": True}}
    with running(tmp_path, SHARED, 3, providers=providers) as (host, other, stopped):
        async with client_of(host.url) as here, client_of(other.url) as there, client_of(stopped.url) as late:
            stopped.send(signal.SIGSTOP)
            before = time.monotonic()
            assert (await here.post("/v1/providers/hello/disable")).status_code == 200
            assert time.monotonic() - before > 2
            assert await statuses(there) == {"unknown_tool"}
            stopped.send(signal.SIGCONT)
            async with asyncio.timeout(PATIENCE_S):
                while await statuses(late) != {"unknown_tool"}:
                    pass
