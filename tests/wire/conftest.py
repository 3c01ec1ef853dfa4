"""Each deployment of a run, started once, and callers of it: every test has tenants and sessions of its own."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import httpx2
import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from tests.cli.process import serving
from tests.kept_port import kept_port
from tests.wire import provider
from tests.wire.callers import USUAL, Caller, Deployment, callers, client_of, jwt_section, new_name
from tests.wire.deployments import chosen, deployed
from tests.wire.model import MODEL, model

API_KEYS = [
    {"key": "wire-key", "subject": "wire", "tenant": "wire", "scopes": ["tools:read", "tools:call"]},
    {"key": "agent-key", "subject": "agent", "tenant": "wire", "agents": ["greeter"]},
]


@pytest.fixture(scope="session")
def far(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Another host, without keys, whose tools are served over MCP."""
    folder = tmp_path_factory.mktemp("far")
    (folder / "providers.yaml").write_text("providers: {hello: {enabled: true}}\nstore: memory://\n")
    with kept_port() as port, serving("--port", str(port), folder=folder):
        yield f"http://127.0.0.1:{port}"  # the other hosts start meanwhile


@pytest.fixture(scope="session", params=chosen())
def deployment(
    request: pytest.FixtureRequest, far: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Deployment]:
    """The hosts of a deployment, with the tools and settings that the tests expect."""
    folder = tmp_path_factory.mktemp(request.param)
    shutil.copy(Path(provider.__file__), folder / "wire.py")
    signing_key = ec.generate_private_key(ec.SECP256R1())
    policies = {"first": "ask", "never": "deny", "unseen": "disable"}
    with kept_port() as port, model() as backend:
        sections = {
            "auth": {"api_keys": API_KEYS, "jwt": jwt_section(signing_key)},
            "http": {"allowed_origins": ["https://page.example"], "trusted_proxies": ["127.0.0.1/32"]},
            "limits": {"artifacts": True},
            "egress": {"allow": ["loopback"]},
            "providers": {
                "hello": {"enabled": True},
                "wire": {"type": "./wire.py:WireTools", "enabled": True, "tools": policies},
                "toolsets": {"enabled": True},
                "spare": {"type": "./wire.py:Spare", "enabled": True},
                "off": {"type": "hello"},
            },
            "mcp_servers": {"infile": {"url": f"{far}/mcp"}},
            "toolsets": {
                "greetings": {"prefix": "greet", "from": "provider:hello", "scope": "shared"},
                "wires": {"prefix": "wire", "from": "provider:wire", "scope": "shared"},
            },
            "agents": {"greeter": {"toolsets": ["greetings"]}, "default": {"toolsets": []}},
            "sessions": {"max_updates_per_minute": 1000, "grace": "2s", "max_tools": 20},
            "responses": {"backend": {"base_url": backend, "api_key": "none", "model": MODEL}},
        }
        with deployed(request.param, folder, sections, port) as url:
            yield Deployment(request.param, url, signing_key, far)


@pytest.fixture
async def caller(deployment: Deployment) -> AsyncIterator[Caller]:
    """Makes callers, by default alice of a tenant of her own."""
    async with callers(deployment) as made:
        yield made


@pytest.fixture
def tenant() -> str:
    """A tenant of the test's own."""
    return new_name("tenant")


@pytest.fixture
async def client(caller: Caller, tenant: str) -> httpx2.AsyncClient:
    """Alice, who has the usual scopes."""
    return await caller(tenant)


@pytest.fixture
async def admin(caller: Caller, tenant: str) -> httpx2.AsyncClient:
    """The administrator of the test's tenant, who runs the hosts as well."""
    return await caller(tenant, scope=f"{USUAL} admin operator", subject="root")


@pytest.fixture
async def judge(caller: Caller, tenant: str) -> httpx2.AsyncClient:
    """A person of the test's tenant with a key of their own, who decides on calls."""
    return await caller(tenant, subject="judge")


@pytest.fixture
async def stranger(caller: Caller) -> httpx2.AsyncClient:
    """Alice of another tenant."""
    return await caller()


@pytest.fixture
async def nobody(deployment: Deployment) -> AsyncIterator[httpx2.AsyncClient]:
    """A caller without a key, at an address of its own."""
    async with client_of(deployment.url) as client:
        yield client
