"""Two people in two browsers at two real servers behind a real OpenID provider, over two replicas on Redis.

Each call acts as its user, also after its token was renewed; a disconnect revokes; and no token is in anything that the
hosts write or say: their store, logs, traces, metrics, journal, errors, console and streams.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, Iterator
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml
from httpx2 import AsyncClient
from playwright.async_api import Browser, Page, expect
from tests.browser.conftest import chromium
from tests.browser.late_pages import new_profile
from tests.cli.process import Serving, serving
from tests.credentials.people_issuer import CLIENT, OPERATOR, People, people, serving_fastmcp, serving_sdk
from tests.credentials.test_exchange import ISSUER, PUBLIC, Exchange, token_of
from tests.http.served import serving_apart
from tests.kept_port import kept_port
from tests.redis_server import redis
from tests.wire.deployments import START_S
from tests.wire.proxy import round_robin

__all__ = ["chromium"]

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.judge,
    pytest.mark.leaves("thread"),  # of the event loop, which looks up the address of the host
    pytest.mark.needs("chromium", "redis-server", "nginx"),
    pytest.mark.requirement("I38-people"),
]

PATIENCE_S = 60.0
LIFE_S = 8
"""Of an access token, which is renewed in the middle of it."""
KEY = "bm90LWEtc2VjcmV0LW9ubHktZm9yLXRlc3RzLTAwMDE"
TRACED = {"OTEL_TRACES_EXPORTER": "console", "OTEL_METRICS_EXPORTER": "none", "OTEL_BSP_SCHEDULE_DELAY": "200"}
SERVERS = ("jira", "wiki")
USERS = ("ada", "ben")
OURS = "secret-of-the-host-9e20"
ACTING = (Path(__file__).parent / "acting.py").read_text()


@dataclass
class Deployment:
    """Two hosts behind a proxy; `answers` is all that they have said over HTTP."""

    issuer: People
    exchange: Exchange
    url: str
    hosts: list[Serving]
    log: Path
    traces: list[Path]
    answers: list[str] = field(default_factory=list[str])

    async def send(self, method: str, path: str, who: str, *, at: int | None = None, **more: Any) -> Any:
        """Send a request as a user, to one of the hosts or to the proxy."""
        base = self.url if at is None else self.hosts[at].url
        headers = {"authorization": f"Bearer {who}" if "." in who else f"Bearer {who}-key"}
        async with AsyncClient(base_url=base, timeout=PATIENCE_S) as client:
            answer = await client.request(method, path, headers=headers, **more)
        self.answers.append(f"{answer.headers} {answer.text}")
        return answer

    async def read_stream(self, path: str, who: str, at: int) -> None:
        """Read what a stream says at first."""
        headers = {"authorization": f"Bearer {who}-key"}
        async with (
            AsyncClient(base_url=self.hosts[at].url, timeout=PATIENCE_S) as client,
            client.stream("GET", path, headers=headers) as answer,
        ):
            self.answers.append(await anext(answer.aiter_text()))

    async def call(self, name: str, who: str, at: int | None = None) -> dict[str, Any]:
        """Call a tool as a user."""
        body: dict[str, Any] = {"name": name, "arguments": {}}
        return (await self.send("POST", "/v1/tool-calls", who, at=at, json=body)).json()


@pytest.fixture
def deployment(tmp_path: Path) -> Iterator[Deployment]:
    with ExitStack() as life:
        ports = [life.enter_context(kept_port()) for _ in range(4)]
        urls = {name: f"http://127.0.0.1:{port}/mcp" for name, port in zip(SERVERS, ports, strict=False)}
        proxy = f"http://127.0.0.1:{ports[3]}"
        ours = {
            "client_id": "toolplug",
            "client_secret": OURS,
            "redirect_uris": [f"{proxy}/connect/callback"],
            "grant_types": ["authorization_code", "refresh_token"],
        }
        issuer = life.enter_context(people(ports[2], jwt=[urls["wiki"]], life_s=LIFE_S, clients=[ours]))
        life.enter_context(serving_sdk(issuer.url, ports[0]))
        life.enter_context(serving_fastmcp(issuer.url, ports[1]))
        exchange = Exchange()
        endpoint = f"http://127.0.0.1:{life.enter_context(serving_apart(exchange.app))}/token"
        server = life.enter_context(redis("--appendonly", "yes", "--aof-use-rdb-preamble", "no"))
        (tmp_path / "acting.py").write_text(ACTING)
        config = {"store": f"redis://127.0.0.1:{server.port}", **settings(issuer, urls, proxy, endpoint)}
        (tmp_path / "providers.yaml").write_text(yaml.safe_dump(config, sort_keys=False))
        hosts: list[Serving] = []
        traces = [tmp_path / f"traces-{number}.txt" for number in range(2)]
        for printed in traces:  # one after the other, as they share the file of the journal
            hosts.append(life.enter_context(serving(folder=tmp_path, environ=TRACED, printed=printed)))
            hosts[-1].wait_for("toolplug listening on ", patience_s=START_S)
        life.enter_context(round_robin([host.url for host in hosts], tmp_path, ports[3]))
        yield Deployment(issuer, exchange, proxy, hosts, server.folder, traces)
        for host in hosts:
            host.process.terminate()
        for host in hosts:
            assert host.end() == 0, host.lines[-20:]


def settings(issuer: People, urls: dict[str, str], proxy: str, endpoint: str) -> dict[str, Any]:
    """The sections of providers.yaml: one server at which the host registers itself, one where it has a secret."""
    client: dict[str, Any] = {"jira": "registration", "wiki": {"id": "toolplug", "secret": OURS}}
    exchange = {"endpoint": endpoint, "client_id": "us", "client_secret": OURS}
    keys = [{"key": f"{who}-key", "subject": who} for who in USERS]
    return {
        "key": KEY,
        "http": {"public_url": proxy, "allowed_hosts": ["127.0.0.1"]},
        "egress": {"allow": ["loopback"]},
        "auth": {
            "api_keys": [*keys, {"key": "boss-key", "subject": "boss", "scopes": ["admin", "operator"]}],
            "jwt": {"algorithms": ["ES256"], "public_key": PUBLIC, "issuer": ISSUER, "audience": "toolplug"},
        },
        "mcp_servers": {
            name: {
                "url": urls[name],
                "prefix": name,
                "headers": {"Authorization": f"Bearer {issuer.operator_token(urls[name])}"},
                "user_auth": {"oauth": {"scopes": ["read"], "client": client[name]}},
            }
            for name in SERVERS
        },
        "providers": {
            "acting": {
                "type": "./acting.py:Acting",
                "enabled": True,
                "user_auth": {"exchange": exchange},
            },
            "console": {"enabled": True},
            "journal": {"enabled": True, "arguments": True},
            "otel": {"enabled": True},
        },
    }


@asynccontextmanager
async def browsing(chromium: Browser) -> AsyncGenerator[Page]:
    """A browser profile of its own."""
    context = await new_profile(chromium)
    yield await context.new_page()
    await context.close()


async def sign_in(page: Page, deployment: Deployment, who: str, server: str) -> None:
    """Follow the link of a call: press, sign in at the issuer if it does not know the browser, consent, come back."""
    needed = await deployment.call(f"{server}.whoami", who)
    assert (needed["status"], needed["metadata"]["code"]) == ("unavailable", "sign_in_needed"), needed
    await page.goto(needed["metadata"]["sign_in"]["url"])
    await expect(page.locator("dl")).to_contain_text(who)
    await page.get_by_role("button", name="Continue").click()
    name, consent = page.get_by_placeholder("Enter any login"), page.get_by_role("button", name="Continue")
    await expect(name.or_(consent)).to_be_visible()
    if await name.is_visible():
        await name.fill(who)
        await page.get_by_placeholder("and password").fill("any")
        await page.get_by_role("button", name="Sign-in").click()
    await consent.click()
    await expect(page.get_by_role("heading", name="Connected", exact=True)).to_be_visible()
    deployment.answers.append(await page.content())


async def until_listed(deployment: Deployment) -> None:
    """Wait until both hosts know the tools of both servers."""
    async with asyncio.timeout(PATIENCE_S):
        for at in range(2):
            for name in SERVERS:
                while f"{name}__whoami" not in (await deployment.send("GET", "/v1/tools", "ada", at=at)).text:
                    await asyncio.sleep(0.1)


async def outputs(deployment: Deployment, who: str) -> set[str]:
    """What all tools say at both hosts to a user."""
    calls = [deployment.call(f"{server}.whoami", who, at) for server in SERVERS for at in range(2)]
    return {each["output"] for each in await asyncio.gather(*calls)}


async def test_two_people_act_as_themselves_and_no_token_is_seen(chromium: Browser, deployment: Deployment) -> None:
    await until_listed(deployment)
    async with browsing(chromium) as hers, browsing(chromium) as his:
        for server in SERVERS:
            await sign_in(hers, deployment, "ada", server)
            await sign_in(his, deployment, "ben", server)
    jwt = token_of("eve", 3600)
    for _ in range(3):
        assert [await outputs(deployment, who) for who in USERS] == [{"ada"}, {"ben"}]
        acting = await deployment.call("headers", jwt)
        assert acting["status"] == "success", acting
        await asyncio.sleep(LIFE_S / 2)  # so that the next call renews
    given = deployment.issuer.of("given")
    renewed = [each for each in given if each["grant"] == "refresh_token"]
    assert {each["subject"] for each in renewed} == {*USERS}
    assert deployment.issuer.of("error") == []

    ended = await deployment.send("DELETE", "/v1/connections/jira", "ada")
    assert ended.json() == {"server": "jira", "connected": False, "revoked": True}
    async with asyncio.timeout(PATIENCE_S):
        for at in range(2):
            while (await deployment.call("jira.whoami", "ada", at))["metadata"].get("code") != "sign_in_needed":
                await asyncio.sleep(0.1)
    assert (await deployment.call("wiki.whoami", "ada"))["output"] == "ada"
    assert await outputs(deployment, "ben") == {"ben"}

    await look_around(deployment)
    secrets = deployment.issuer.secrets() | {jwt, OURS, CLIENT["client_secret"], OPERATOR["client_secret"]}
    exchanged = {f"eve-{number + 1}" for number in range(len(deployment.exchange.forms))}
    assert len(secrets) > 20
    # The tool of the provider has answered with its token, which is the test's own: its journal and answers have it.
    places = {**written(deployment), "answers": "\n".join(deployment.answers)}
    assert [name for name, text in places.items() for secret in secrets if secret in text] == []
    assert all(not re.search(rf"\b{each}\b", places["store"]) for each in exchanged)
    assert "credentials/token/" in places["store"]
    assert all("whoami" in places[f"traces {number}"] for number in range(2))


async def look_around(deployment: Deployment) -> None:
    """Read what hosts say of what has happened: metrics, the journal, the console, errors and a stream."""
    paths = (
        "/metrics",
        "/v1/journal",
        "/console",
        "/v1/configuration",
        "/api/mcp-servers",
        "/api/catalog",
        "/v1/connections",
    )
    for at in range(2):
        for path in paths:
            await deployment.send("GET", path, "boss", at=at)
        await deployment.send("GET", "/v1/connections?caller=ben", "boss", at=at)
        await deployment.send("GET", "/connect/callback?state=none&code=none", "boss", at=at)
        await deployment.send("POST", "/v1/tool-calls", "boss", at=at, json={"name": "headers", "arguments": {}})
        await deployment.read_stream("/console/calls", "boss", at)


def written(deployment: Deployment) -> dict[str, str]:
    """What the hosts have written: all that ever was in the store, and their logs."""
    found = {f"log {n}": "\n".join(host.lines) for n, host in enumerate(deployment.hosts)}
    found |= {f"traces {n}": each.read_text("utf-8") for n, each in enumerate(deployment.traces)}
    files = [path for path in deployment.log.rglob("*") if path.is_file()]
    found["store"] = "\n".join(path.read_bytes().decode("latin-1") for path in files)
    return found
