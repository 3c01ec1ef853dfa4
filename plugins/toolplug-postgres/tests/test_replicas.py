"""Three hosts with one PostgreSQL database behind a load balancer: the wire tests of sessions, unchanged."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from inspect import signature

import httpx2
import pytest
from tests.cli.process import Serving
from tests.wire import test_sessions
from tests.wire.hosts import balanced, running

from .servers import PostgresServer

pytestmark = [
    pytest.mark.judge,
    pytest.mark.anyio,
    pytest.mark.needs("pg_createcluster"),
    pytest.mark.requirement("C-12-postgres-served"),
]

# The other ones start hosts of their own.
globals().update(
    {
        name: test
        for name, test in vars(test_sessions).items()
        if name.startswith("test_") and {*signature(test).parameters} == {"client"}
    }
)


@pytest.fixture(scope="module")
def hosts(server: PostgresServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Serving]]:
    """Three hosts on one schema."""
    limits = {"max_updates_per_minute": 1000}
    with running(tmp_path_factory.mktemp("hosts"), server.url(schema="wire"), 3, sessions=limits) as hosts:
        yield hosts


@pytest.fixture
async def client(hosts: list[Serving]) -> AsyncIterator[httpx2.AsyncClient]:
    """A client whose requests go to the hosts in turn."""
    async with balanced([host.url for host in hosts]) as client:
        yield client
