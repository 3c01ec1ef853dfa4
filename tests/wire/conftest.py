"""The settings in which the tests of this folder run unchanged."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import httpx2
import pytest
from tests.cli.process import Serving
from tests.wire.hosts import SHARED, balanced, running


@pytest.fixture(scope="module", params=[("sqlite:///./state.db", 1), (SHARED, 3)], ids=["one", "three"])
def hosts(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Serving]]:
    store, count = request.param
    with running(tmp_path_factory.mktemp("hosts"), store, count, sessions={"max_updates_per_minute": 1000}) as hosts:
        yield hosts


@pytest.fixture
async def client(hosts: list[Serving]) -> AsyncIterator[httpx2.AsyncClient]:
    async with balanced([host.url for host in hosts]) as client:
        yield client
