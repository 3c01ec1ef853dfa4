"""One server a process of the tests, and a schema of its own for each test."""

from __future__ import annotations

from collections.abc import Callable, Generator
from functools import partial
from itertools import count

import pytest
from tests.postgres_server import PostgresServer, postgres

from toolplug.stores.store import Store
from toolplug_postgres.server import parse_url
from toolplug_postgres.store import PostgresStore

_SCHEMAS = count(1)


@pytest.fixture(scope="session")
def server() -> Generator[PostgresServer]:
    """A running server, which no test stops."""
    with postgres() as server:
        yield server


@pytest.fixture
def url(server: PostgresServer) -> str:
    """The URL of a schema that no other test has."""
    return server.url(schema=f"test_{next(_SCHEMAS)}")


@pytest.fixture
def open_store(url: str) -> Callable[..., Store]:
    """Makes stores in the test's schema."""
    return partial(PostgresStore, parse_url(url))
