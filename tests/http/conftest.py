"""A host with the sample provider, and clients of its application."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from httpx2 import ASGITransport, AsyncClient
from starlette.types import ASGIApp
from tests.host.conftest import config, package
from tests.http.sample_provider import Sample

from toolplug import Host, open_host
from toolplug.http import create_app
from toolplug.providers.registry import FunctionRegistry

__all__ = ["config", "package"]

Settings = Mapping[str, object]

KEYS = {
    "api_keys": [
        {"key": "alice-key", "subject": "alice", "tenant": "t1"},
        {"key": "bob-key", "subject": "bob", "tenant": "t2"},
        {"key": "reader-key", "subject": "reader", "scopes": ["tools:read"]},
        {"key": "caller-key", "subject": "caller", "scopes": ["tools:call"]},
        {"key": "judge-key", "subject": "judge", "scopes": ["approvals:write"]},
        {"key": "nothing-key", "subject": "nothing", "scopes": []},
        {"key": "root-key", "subject": "root", "scopes": ["admin", "operator"]},
        {"key": "one-agent-key", "subject": "one", "agents": ["researcher"]},
        {"key": "two-agents-key", "subject": "two", "agents": ["researcher", "writer"]},
    ]
}
SAMPLES_KEY = {"key": "samples-key", "subject": "keeper", "scopes": ["samples:write"]}
"""Has the scope of a route of the sample provider."""
ALICE = {"Authorization": "Bearer alice-key"}
BOB = {"Authorization": "Bearer bob-key"}
ROOT = {"X-API-Key": "root-key"}


def as_holder(key: str) -> dict[str, str]:
    """The header of an API key."""
    return {"X-API-Key": key}


def settings(**sections: object) -> dict[str, object]:
    """The sample provider and the keys above, in memory; a section that is given replaces its own, None drops it."""
    keys = KEYS["api_keys"] if "providers" in sections else [*KEYS["api_keys"], SAMPLES_KEY]
    whole: dict[str, object] = {
        "store": "memory://",
        "providers": {"sample": {"enabled": True, "public_routes": True}},
        "auth": {"api_keys": keys},
        **sections,
    }
    return with_agents_of_keys({name: value for name, value in whole.items() if value is not None})


def with_agents_of_keys(whole: dict[str, Any]) -> dict[str, Any]:
    """Settings with each agent that a key names: without toolsets, unless they say something of it."""
    auth = whole.get("auth")
    keys = auth.get("api_keys", ()) if isinstance(auth, dict) else ()
    named = [agent for key in keys for agent in key.get("agents") or ()]
    agents = {**{agent: {} for agent in named}, **whole.get("agents", {})}
    return {**whole, "agents": agents} if agents else whole


def client_of(app: ASGIApp, *, peer: str = "127.0.0.1", base_url: str = "http://localhost") -> AsyncClient:
    """A client that calls the application itself; what escapes from it is raised here."""
    return AsyncClient(transport=ASGITransport(app, client=(peer, 4711)), base_url=base_url)


@pytest.fixture
def sample_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The sample provider's distribution, as pip would leave it."""
    info = tmp_path / "site" / "toolplug_sample-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: toolplug-sample\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[toolplug.providers]\nsample = tests.http.sample_provider:Sample\n")
    monkeypatch.syspath_prepend(str(tmp_path / "site"))


@pytest.fixture
async def host(sample_package: None) -> AsyncIterator[Host]:
    """An entered host with API keys."""
    async with open_host(settings(), environ={}) as opened:
        yield opened


@pytest.fixture
async def client(host: Host) -> AsyncIterator[AsyncClient]:
    """A client of that host, without credentials."""
    async with client_of(create_app(host)) as opened:
        yield opened


@pytest.fixture
async def sample() -> AsyncIterator[tuple[FunctionRegistry, Sample]]:
    """The sample provider in a registry without a host."""
    provider = Sample()
    async with FunctionRegistry({"sample": provider}) as registry:
        yield registry, provider
