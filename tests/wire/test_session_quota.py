"""The quota of sessions over two hosts on one store."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path

import pytest
from tests.wire.callers import client_of
from tests.wire.deployments import SHARED, running

pytestmark = [pytest.mark.process, pytest.mark.anyio, pytest.mark.requirement("I17-2-session-quota")]


async def test_hosts_create_as_many_sessions_together_as_the_quota_says(tmp_path: Path) -> None:
    with running(tmp_path, SHARED, 2, quotas={"tenant": {"sessions": 20}}) as hosts:
        async with client_of(hosts[0].url) as first, client_of(hosts[1].url) as second:
            burst = [client.post("/api/sessions") for _ in range(40) for client in (first, second)]
            statuses = Counter(answer.status_code for answer in await asyncio.gather(*burst))
    assert statuses == {201: 20, 429: 60}
