"""The application as a whole: when it answers, where it stands, and what it is when nothing fits."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import AsyncExitStack, closing
from pathlib import Path

import pytest
from fastapi import FastAPI
from httpx2 import AsyncClient
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Mount, Route
from starlette.testclient import TestClient
from starlette.types import ASGIApp, Receive, Scope, Send
from tests.faulty_store import FaultyStore
from tests.http.conftest import ALICE, ROOT, client_of, settings
from tests.http.conversation import Conversation
from tests.http.sample_provider import LANGUAGE
from tests.sessions.fixtures import turns

from toolplug import Host, open_host
from toolplug.errors import StoreUnavailable
from toolplug.host.file.configuration import read_configuration
from toolplug.host.file.store_entry import ConfiguredStore
from toolplug.http import create_app
from toolplug.stores.memory import MemoryStore

pytestmark = pytest.mark.anyio

EVERY_ROUTE = [
    ("GET", "/"),
    ("GET", "/readyz"),
    ("GET", "/metrics"),
    ("GET", "/v1/openapi.json"),
    ("GET", "/v1/tools"),
    ("POST", "/v1/tool-calls"),
    ("GET", "/v1/providers"),
    ("POST", "/v1/reload"),
    ("GET", "/v1/samples"),
    ("GET", "/nowhere"),
]


@pytest.mark.requirement("C-5-not-entered", "C-5-healthz")
async def test_until_the_host_is_entered_every_route_but_healthz_is_503(sample_package: None) -> None:
    host = open_host(settings(), environ={})
    async with client_of(create_app(host)) as client:
        for method, path in EVERY_ROUTE:
            answer = await client.request(method, path, headers=ALICE)
            assert (answer.status_code, answer.json()["error"]["code"]) == (503, "not_started"), path
        assert (await client.get("/healthz")).json() == {"status": "ok"}
        async with host:
            assert (await client.get("/v1/tools", headers=ALICE)).status_code == 200
        assert (await client.get("/v1/tools", headers=ALICE)).status_code == 503


@pytest.mark.requirement("I2-6-start-twice", "C-12-open-host-lazy")
async def test_the_same_application_works_each_time_its_host_is_entered(sample_package: None) -> None:
    host = open_host(settings(), environ={})
    async with client_of(create_app(host)) as client:
        for _ in range(2):
            async with host:
                called = await client.post("/v1/tool-calls", headers=ALICE, json={"name": "whoami"})
                assert called.json()["status"] == "success"
                shown = (await client.get("/metrics")).text
                line = 'executions_total{provider="sample",status="success",tool_name="whoami"} 1.0'
                assert line in shown, "each start counts anew, and once"


@pytest.mark.requirement("I2-6-start-twice", "C-5-no-lifespan")
def test_an_application_that_starts_twice_in_two_loops_serves_both_times(sample_package: None) -> None:
    host = open_host(settings(), environ={})
    app = FastAPI(lifespan=host.lifespan)
    app.mount("/tools", create_app(host))
    for _ in range(2):
        with TestClient(app, client=("127.0.0.1", 1), base_url="http://localhost") as client:
            assert client.get("/tools/v1/tools", headers=ALICE).status_code == 200
            assert client.get("/tools/v1/samples", headers=ALICE).json()["tenant"] == "t1"


@pytest.mark.requirement("C-5-mounted", "C-5-metric-api-path", "I2-6-catch-all")
@pytest.mark.parametrize("kind", ["starlette", "fastapi"])
async def test_it_works_mounted_under_a_prefix_beside_a_catch_all_route(host: Host, kind: str) -> None:
    async def everything_else(request: Request) -> PlainTextResponse:
        return PlainTextResponse("somebody else's")

    inner = create_app(host)
    if kind == "starlette":
        app: Starlette = Starlette(
            routes=[Mount("/deep/tools", inner), Route("/{rest:path}", everything_else, methods=["GET", "POST"])]
        )
    else:
        app = FastAPI()
        app.mount("/deep/tools", inner)
        app.add_route("/{rest:path}", everything_else, methods=["GET", "POST"])
    async with client_of(app) as client:
        assert (await client.get("/v1/tools")).text == "somebody else's"
        assert (await client.get("/deep/tools/v1/tools")).status_code == 401
        assert (await client.get("/deep/tools/v1/samples", headers=ALICE)).json()["tenant"] == "t1"
        assert (await client.get("/deep/tools/nothing")).json()["error"]["code"] == "route_not_found"
        called = await client.post("/deep/tools/v1/tool-calls", headers=ALICE, json={"name": "whoami"})
        assert called.json()["structured"]["current"] == "t1"
        page = (await client.get("/deep/tools/")).text
        assert 'href="/deep/tools/v1/openapi.json"' in page
        described = (await client.get("/deep/tools/v1/openapi.json")).json()
        assert described["servers"] == [{"url": "/deep/tools"}]
        shown = (await client.get("/deep/tools/metrics")).text
        assert 'requests_total{method="GET",path="/v1/samples",provider="sample",status="200"} 1.0' in shown


@pytest.mark.requirement("C-5-route-not-found")
@pytest.mark.parametrize("credentials", [{}, ALICE, ROOT, {"Authorization": "Bearer wrong"}])
async def test_an_unknown_path_is_one_answer_with_and_without_credentials(
    client: AsyncClient, credentials: dict[str, str]
) -> None:
    nearly = ["/v1/response", "/api/catalogs", "/api/mcp-servers/"]
    tricks = ["//v1/tools", "/v1//tools", "/v1/tools/", "/v1/tools/../tools", "/V1/tools", "/v1/providers//enable"]
    for path in [*nearly, *tricks, "/v1", "/v1/providers/sample", "/metrics/"]:
        for method in ("GET", "POST"):
            answered = await Conversation(
                method, path, headers=[(b"host", b"localhost"), *_raw(credentials)]
            ).held_with(client._transport.app)  # type: ignore[attr-defined]
            assert answered.status == 404, path
            assert b'"code":"route_not_found"' in answered.body


def _raw(headers: dict[str, str]) -> list[tuple[bytes, bytes]]:
    return [(name.lower().encode(), value.encode()) for name, value in headers.items()]


async def test_a_method_that_a_path_lacks_is_405_and_says_what_it_takes(client: AsyncClient) -> None:
    answer = await client.delete("/v1/tools")
    assert (answer.status_code, answer.headers["allow"]) == (405, "GET")
    assert answer.json()["error"]["code"] == "method_not_allowed"


async def test_head_is_get_without_a_body(client: AsyncClient) -> None:
    whole = await client.get("/v1/tools", headers=ALICE)
    head = await client.head("/v1/tools", headers=ALICE)
    assert (head.status_code, head.content) == (200, b"")
    assert head.headers["content-length"] == str(len(whole.content))


@pytest.mark.requirement("C-5-readyz")
async def test_readyz_says_why_calls_cannot_be_served(sample_package: None) -> None:
    host = open_host(settings(), environ={})
    async with AsyncExitStack() as life, client_of(create_app(host)) as client:
        await life.enter_async_context(host)
        assert (await client.get("/readyz")).json() == {"status": "ready", "reasons": []}
        await host.store.__aexit__(None, None, None)
        down = await client.get("/readyz")
        assert (down.status_code, down.json()["status"]) == (503, "not_ready")
        assert len(down.json()["reasons"]) == 1
        await host.store.__aenter__()


@pytest.mark.slow
@pytest.mark.requirement("C-5-readyz", "H-store-503", "H-store-busy")
async def test_a_store_that_can_only_be_read_is_not_ready(
    sample_package: None, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "state.db"
    async with (
        open_host(settings(store=f"sqlite:///{file}"), environ={}) as host,
        client_of(create_app(host)) as client,
    ):
        with closing(sqlite3.connect(file)) as other:
            other.execute("BEGIN IMMEDIATE")
            refused = await client.post("/api/sessions", headers=ALICE)
            assert refused.json()["error"]["code"] == "store_unavailable"
            down = await client.get("/readyz")
            assert (down.status_code, down.json()["status"]) == (503, "not_ready")
            assert down.json()["reasons"] == ["store"], "nothing of where it is or what it said"
            assert (await client.get("/readyz")).status_code == 503
        told = [record.getMessage() for record in caplog.records if record.getMessage().startswith("not ready")]
        assert len(told) == 1, "once, however often it is asked"
        assert "database is locked" in told[0]
        assert (await client.get("/readyz")).json() == {"status": "ready", "reasons": []}


@pytest.mark.requirement("C-5-readyz-once")
async def test_probes_and_scrapes_that_come_at_once_ask_the_store_once(
    sample_package: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with AsyncExitStack() as life:
        store = FaultyStore(await life.enter_async_context(MemoryStore()))
        monkeypatch.setattr(ConfiguredStore, "open", lambda _: store)
        host = await life.enter_async_context(open_host(settings(), environ={}))
        client = await life.enter_async_context(client_of(create_app(host)))
        asked: list[str] = []
        store_is_full = False

        def fails(operation: str) -> bool:
            asked.append(operation)
            return store_is_full

        store.fails = fails
        for is_full, status in ((False, 200), (True, 503)):
            store_is_full = is_full
            with store.holding("commit"):
                probes = [asyncio.create_task(client.get("/readyz")) for _ in range(50)]
                await turns(500)
                probes[0].cancel()
            answers = await asyncio.gather(*probes[1:])
            assert {answer.status_code for answer in answers} == {status}
        store_is_full = False
        assert (await client.get("/readyz")).status_code == 200, "a later probe asks again"
        assert asked.count("commit") == 3
        asked.clear()
        with store.holding("keys"):
            scrapes = [asyncio.create_task(client.get("/metrics", headers=ALICE)) for _ in range(50)]
            await turns(500)
        assert {scrape.status_code for scrape in await asyncio.gather(*scrapes)} == {200}
        assert asked.count("keys") == 1


@pytest.mark.requirement("C-5-index")
async def test_the_page_of_links_is_open_and_holds_no_data(client: AsyncClient) -> None:
    page = await client.get("/")
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    assert "default-src 'none'" in page.headers["content-security-policy"]
    assert "sample" not in page.text
    assert "http://" not in page.text.replace("<!doctype html>", "")
    for path in ("/v1/openapi.json", "/metrics", "/readyz", "/healthz"):
        assert f'href="{path}"' in page.text
        assert (await client.get(path)).status_code == 200


@pytest.mark.requirement("C-5-app")
async def test_a_lifespan_is_agreed_to_and_a_websocket_refused(host: Host) -> None:
    app = create_app(host)
    sent: list[str] = []
    asked = iter(["lifespan.startup", "lifespan.shutdown"])

    async def receive() -> dict[str, object]:
        return {"type": next(asked)}

    async def send(message: object) -> None:
        sent.append(message["type"])  # type: ignore[index]

    await app({"type": "lifespan"}, receive, send)
    await app({"type": "websocket"}, receive, send)
    assert sent == ["lifespan.startup.complete", "lifespan.shutdown.complete", "websocket.close"]
    assert host.entered


@pytest.mark.requirement("I2-6-pure-asgi")
async def test_context_variables_set_around_the_application_reach_tools_and_handlers(host: Host) -> None:
    inner = create_app(host)

    async def around(scope: Scope, receive: Receive, send: Send) -> None:
        LANGUAGE.set("cy")
        await inner(scope, receive, send)

    async with client_of(around) as client:
        called = await client.post("/v1/tool-calls", headers=ALICE, json={"name": "language"})
        assert called.json()["output"] == "cy"
        assert (await client.get("/v1/language", headers=ALICE)).json() == "cy"


@pytest.mark.requirement("H-trust-no-forwarding", "H-trust-no-leak")
async def test_a_tool_is_told_who_calls_and_not_by_which_credential(client: AsyncClient) -> None:
    called = await client.post("/v1/tool-calls", headers=ALICE, json={"name": "context"})
    assert "alice" in called.json()["output"]
    assert "alice-key" not in called.text


@pytest.mark.requirement("H-store-503", "H-trust-no-leak")
async def test_a_failure_of_our_own_is_a_500_that_tells_nothing(
    sample_package: None, caplog: pytest.LogCaptureFixture
) -> None:
    for error, status, code in (
        (StoreUnavailable("the disk"), 503, "store_unavailable"),
        (ValueError("the secret"), 500, "internal"),
    ):
        host = BrokenHost(settings(), {}, read_configuration)
        host.error = error
        async with host, client_of(create_app(host)) as client:
            answer = await client.get("/readyz")
            assert (answer.status_code, answer.json()["error"]["code"]) == (status, code)
            assert "secret" not in answer.text + "".join(record.message for record in caplog.records)


class BrokenHost(Host):
    """A host that cannot even say whether it is ready."""

    error: Exception

    async def ready(self) -> tuple[str, ...]:
        raise self.error


async def test_no_browser_takes_an_answer_for_something_else_and_no_cache_keeps_a_refusal(client: AsyncClient) -> None:
    for path, credentials, status in [
        ("/healthz", {}, 200),
        ("/v1/tools", ALICE, 200),
        ("/v1/tools", {}, 401),
        ("/v1/explain?tool=x", ALICE, 403),
        ("/v1/samples", {}, 401),
        ("/nowhere", {}, 404),
        ("/api/sessions/ABCDEFGH/metadata", ALICE, 404),
        ("/api/sessions/short/metadata", ALICE, 400),
    ]:
        answer = await client.get(path, headers=credentials)
        assert (answer.status_code, answer.headers["x-content-type-options"]) == (status, "nosniff"), path
        assert (answer.headers.get("cache-control") == "no-store") is (status in {401, 403, 404}), path


@pytest.mark.parametrize("path", ["/v1/tools", "/v1/samples", "/api/sessions", "/healthz"])
async def test_a_mount_that_ends_every_path_with_a_slash_is_forgiven(host: Host, path: str) -> None:
    app, headers = create_app(host), [(b"host", b"localhost"), *_raw(ALICE)]
    litestar = Conversation("GET", f"{path}/", headers=headers)
    litestar.scope["raw_path"] = f"/tools{path}".encode()
    assert (await litestar.held_with(app)).status == 200
    sent = await Conversation("GET", f"{path}/", headers=headers).held_with(app)
    assert sent.status == 404, "a slash that the client sent is another path"
    under_a_slash = Conversation("GET", f"/tools{path}", headers=headers)
    under_a_slash.scope["root_path"] = "/tools/"
    assert (await under_a_slash.held_with(app)).status == 200


class Unsaid:
    """A framework that mounts the application below a prefix and does not say it, as Litestar does."""

    def __init__(self, app: ASGIApp, prefix: str, takes_off: bool) -> None:
        self.app = app
        self.prefix = prefix
        self.takes_off = takes_off

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = f"{scope['path'].removeprefix(self.prefix).rstrip('/')}/" if self.takes_off else scope["path"]
        await self.app({**scope, "path": path, "root_path": ""}, receive, send)


@pytest.mark.requirement("I32-unsaid-prefix")
@pytest.mark.parametrize("takes_off", [True, False])
@pytest.mark.parametrize("prefix", ["/tools", "/v1"])
async def test_a_prefix_that_the_framework_does_not_say_is_in_every_address(
    host: Host, prefix: str, takes_off: bool
) -> None:
    app = Unsaid(create_app(host, prefix=prefix), prefix, takes_off)
    async with client_of(app) as client:
        created = (await client.post(f"{prefix}/api/sessions", headers=ALICE)).json()
        place = f"http://localhost{prefix}/api/sessions/{created['code']}"
        assert (created["mcpUrl"], created["streamUrl"]) == (f"{place}/mcp", f"{place}/stream")
        assert (await client.delete(place, headers=ALICE)).status_code == 204
        described = (await client.get(f"{prefix}/v1/openapi.json")).json()
        assert described["servers"] == [{"url": prefix}]
        tools = (await client.get(f"{prefix}/openapi.json", headers=ALICE)).json()
        assert tools["servers"] == [{"url": f"http://localhost{prefix}"}]
        assert (await client.get(f"{prefix}/v1/tools", headers=ALICE)).status_code == 200
        assert (await client.get(f"{prefix}/v1/samples/a", headers=ALICE)).json() == {"name": "a"}
        assert f'href="{prefix}/v1/tools"' in (await client.get(f"{prefix}/")).text
        assert f'href="{prefix}/v1/tools"' in (await client.get(prefix)).text


@pytest.mark.requirement("I32-unsaid-prefix")
async def test_a_prefix_that_the_framework_says_too_counts_once(host: Host) -> None:
    app = Starlette(routes=[Mount("/deep/tools", create_app(host, prefix="/tools"))])
    async with client_of(app) as client:
        assert (await client.get("/deep/tools/v1/openapi.json")).json()["servers"] == [{"url": "/deep/tools"}]
    for wrong in ("tools", "/tools/", "/a//b", "/{x}", "/"):
        with pytest.raises(ValueError, match="should be a path"):
            create_app(host, prefix=wrong)


@pytest.mark.requirement("I32-unsaid-prefix")
async def test_the_path_of_the_public_url_is_before_every_link(sample_package: None) -> None:
    http = {"public_url": "https://example.org/tools", "allowed_hosts": ["example.org"]}
    async with open_host(settings(http=http), environ={}) as host, client_of(create_app(host)) as client:
        assert 'href="/tools/v1/tools"' in (await client.get("/")).text
        assert (await client.get("/v1/openapi.json")).json()["servers"] == [{"url": "https://example.org/tools"}]
        created = (await client.post("/api/sessions", headers=ALICE)).json()
        assert created["mcpUrl"] == f"https://example.org/tools/api/sessions/{created['code']}/mcp"
