"""A host that is killed while its calls wait."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

import pytest
from tests.wire.application import application
from tests.wire.callers import client_of
from tests.wire.deployments import SHARED, running

pytestmark = [pytest.mark.process, pytest.mark.anyio, pytest.mark.requirement("I17-2-process-ends")]


async def test_a_killed_host_takes_no_session_along(tmp_path: Path) -> None:
    with running(tmp_path, SHARED, 2) as (killed, kept):
        async with client_of(killed.url) as first, client_of(kept.url) as second, application(first) as app:
            app.client = second  # for all that begins from now on
            calling = asyncio.create_task(app.call(n=1))
            request = await app.heard("tool-request")
            killed.send(signal.SIGKILL)
            assert (await app.heard("tool-request", 2))["id"] == request["id"]
            assert (await app.post("tool-results", {"id": request["id"], "result": "alive"})).status_code == 200
            assert (await calling).json()["output"] == "alive"
            assert (await app.metadata())["pluginStatus"] == "attached"
