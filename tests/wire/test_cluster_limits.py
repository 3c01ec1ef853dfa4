"""Limits with `scope: cluster` over two hosts on one store."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from tests.wire.callers import client_of
from tests.wire.deployments import SHARED, running

pytestmark = [pytest.mark.process, pytest.mark.anyio, pytest.mark.requirement("I17-4-hosts")]

CALL = {"name": "hello", "arguments": {"name": "Ada"}}


async def test_hosts_admit_as_many_calls_together_as_their_limit_says(tmp_path: Path) -> None:
    providers = {"hello": {"enabled": True, "limits": {"rate": "40/hour", "scope": "cluster"}}}
    with running(tmp_path, SHARED, 2, providers=providers) as hosts:
        async with client_of(hosts[0].url) as first, client_of(hosts[1].url) as second:
            calls = [client.post("/v1/tool-calls", json=CALL) for _ in range(45) for client in (first, second)]
            statuses = [answer.json()["status"] for answer in await asyncio.gather(*calls)]
            explained = (await first.get("/v1/explain", params={"tool": "hello"})).json()
    # Each host may have a loan of five of which it has used one.
    assert 32 <= statuses.count("success") <= 40
    assert statuses.count("success") + statuses.count("limited") == 90
    (gate,) = [gate for gate in explained["gates"] if gate["gate"] == "rate"]
    assert "all processes" in gate["detail"]
