"""A served host, and the SDK's own client of it in both eras."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from httpx2 import AsyncClient
from mcp.client.client import Client
from mcp.client.streamable_http import streamable_http_client
from tests.client.fixtures import QUICK
from tests.http.conftest import KEYS, with_agents_of_keys
from tests.http.served import served
from tests.mcp.forking import Forked, forking

from toolplug import Host, open_host
from toolplug.client import Application
from toolplug.http import create_app

ERAS = {"2025-11-25": "legacy", "2026-07-28": "auto"}

Opened = Callable[..., AbstractAsyncContextManager[Client]]


def settings(**sections: object) -> dict[str, object]:
    """The speaking provider and the keys of the tests of HTTP, in memory."""
    whole = {
        "store": "memory://",
        "providers": {"speaking": {"enabled": True}},
        "auth": KEYS,
        **sections,
    }
    return with_agents_of_keys(whole)


@pytest.fixture
def speaking_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The speaking provider's distribution, as pip would leave it."""
    info = tmp_path / "site" / "toolplug_speaking-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: toolplug-speaking\nVersion: 1.0\n")
    points = "[toolplug.providers]\nspeaking = tests.mcp.speaking_provider:Speaking\n"
    (info / "entry_points.txt").write_text(points)
    monkeypatch.syspath_prepend(str(tmp_path / "site"))


@pytest.fixture
def configured() -> dict[str, object]:
    """What the host is opened with; a test may ask for another one by `parametrize`."""
    return settings()


@pytest.fixture
def host(speaking_package: None, configured: dict[str, object]) -> Host:
    return open_host(configured, environ={})


@pytest.fixture
def url(host: Host) -> Iterator[str]:
    """Where the host is served."""
    with served(host, create_app(host)) as port:
        yield f"http://127.0.0.1:{port}"


@pytest.fixture(scope="session")
def forked() -> Iterator[Forked]:
    """The command of a server of the SDK that starts in milliseconds.

    Name it as a parameter: what a test first asks for by `getfixturevalue` counts as left behind by that test.
    """
    with forking() as command:
        yield command


@pytest.fixture(params=sorted(ERAS))
def era(request: pytest.FixtureRequest) -> str:
    """Each version of the protocol that a test is run with."""
    return request.param


@pytest.fixture
def opened(url: str, era: str) -> Opened:
    """The SDK's client of this era, by path and key: `async with opened("/mcp") as client`."""

    @asynccontextmanager
    async def connected(path: str = "/mcp", key: str | None = "alice-key", **options: Any) -> AsyncIterator[Client]:
        headers = {} if key is None else {"X-API-Key": key}
        async with AsyncClient(headers=headers, timeout=30) as http:
            transport = streamable_http_client(f"{url}{path}", http_client=http)
            async with Client(transport, mode=ERAS[era], **options) as client:
                assert client.protocol_version == era
                yield client

    return connected


def application(url: str, **options: Any) -> Application:
    """An application that lends tools to a session of Alice's."""
    return Application(url, **{"plugin_type": "table", "api_key": "alice-key", "backoff": QUICK, **options})
