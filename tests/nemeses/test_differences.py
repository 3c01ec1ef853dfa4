"""Hosts on one store that are not alike: other configurations, other clocks."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from httpx2 import AsyncClient
from tests.nemeses.fleet import fleet
from tests.nemeses.servers import shared_store
from tests.wire.application import application
from tests.wire.callers import client_of
from tests.wire.deployments import SHARED

pytestmark = [pytest.mark.judge, pytest.mark.anyio, pytest.mark.requirement("I17-6-differences")]

SHOWN_S = 30.0
"""For this long at most the answers of a host have the date from before a step: a process reads its clock's offset at
most two seconds later, and its server makes a new date each second, or more rarely on a busy machine."""


async def test_each_host_serves_its_own_configuration_and_the_sessions_of_all(tmp_path: Path) -> None:
    more = [{}, {"providers": {"hello": {"enabled": False}}}]
    async with (
        fleet(tmp_path, SHARED, 1, hosts=2, more=more) as hosts,
        client_of(hosts.hosts[0].url) as here,
        client_of(hosts.hosts[1].url) as there,
        application(here, echo) as app,
    ):
        greeting = {"name": "hello", "arguments": {"name": "Ada"}}
        assert (await here.post("/v1/tool-calls", json=greeting)).json()["status"] == "success"
        assert (await there.post("/v1/tool-calls", json=greeting)).json()["status"] == "unknown_tool"
        for client in (here, there):
            app.client = client
            assert (await app.call(n=1)).json()["structured"] == {"n": 1}
            assert (await app.metadata())["pluginStatus"] == "attached"


@pytest.mark.needs("redis-server", "faketime")
async def test_a_host_whose_clock_jumps_serves_the_same_sessions(tmp_path: Path) -> None:
    async with shared_store("redis", 2) as store:
        more = [{"store": url} for url in store.urls]
        async with (
            fleet(tmp_path, store.urls[0], 1, hosts=2, more=more, own_clocks=True) as hosts,
            client_of(hosts.hosts[0].url) as here,
            client_of(hosts.hosts[1].url) as there,
            application(there, echo, ttlSeconds=600) as first,
        ):
            clock = hosts.hosts[1].clock
            assert clock is not None
            for offset_s in (3600, -3600, 0):
                clock.step(offset_s)
                async with asyncio.timeout(SHOWN_S):
                    while abs(await ahead_s(there, here) - offset_s) >= 60:
                        await asyncio.sleep(0.1)
                async with (
                    application(here, echo, ttlSeconds=600) as second,
                    application(there, echo, ttlSeconds=600) as third,
                ):
                    for app, client in product((first, second, third), (here, there) * 2):
                        app.client = client
                        assert (await app.call(n=1)).json()["structured"] == {"n": 1}
                        assert (await app.metadata())["pluginStatus"] == "attached"
                        assert (await app.post("heartbeat", {})).status_code == 200


async def ahead_s(one: AsyncClient, other: AsyncClient) -> float:
    """Return how far the clock of one host is ahead of that of the other."""
    dates = [(await client.get("/healthz")).headers["date"] for client in (one, other)]
    of_one, of_other = map(parsedate_to_datetime, dates)
    return (of_one - of_other).total_seconds()


def echo(request: Mapping[str, Any]) -> object:
    """Return the arguments of a call."""
    return request["arguments"]
