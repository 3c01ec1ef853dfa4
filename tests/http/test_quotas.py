"""Quotas of tenants and keys: one exhausts its own, the others do not notice."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest
from httpx2 import AsyncClient, Response
from starlette.responses import StreamingResponse
from starlette.routing import Route
from tests.http.conftest import client_of, settings
from tests.http.conversation import HOST, Conversation
from tests.http.mcp_sources import DEAD_SERVER

from toolplug import CallContext, FunctionProvider, Host, open_host, route, tool
from toolplug.http import create_app

pytestmark = [pytest.mark.anyio, pytest.mark.process, pytest.mark.requirement("C-5-quotas")]

SCOPES = ["tools:read", "tools:call", "sessions:write", "admin"]
KEYS = [
    {"key": "ann-key", "subject": "ann", "tenant": "t1", "scopes": SCOPES},
    {"key": "amy-key", "subject": "amy", "tenant": "t1", "scopes": SCOPES},
    {"key": "bob-key", "subject": "bob", "tenant": "t2", "scopes": SCOPES},
]
ANN, AMY, BOB = ({"X-API-Key": f"{name}-key"} for name in ("ann", "amy", "bob"))
Do = Callable[[AsyncClient, dict[str, str]], Awaitable[Response]]


class Shelf(FunctionProvider):
    """Keeps texts in the host's store, for a tool and for a route."""

    async def start(self, site):
        self.site = site

    @tool
    async def put(self, name: str, text: str, context: CallContext) -> str:
        """Keep a text."""
        await self.site.store(context.principal).commit(name, text.encode())
        return "kept"

    @tool
    async def drop(self, name: str, context: CallContext) -> str:
        """Drop a text."""
        await self.site.store(context.principal).commit(name, None)
        return "dropped"

    @route("POST", "/v1/shelf/{name}")
    async def put_text(self, request):
        records = self.site.store(request.state.principal)
        await records.commit(request.path_params["name"], await request.body(), ttl_s=3600)
        return {}

    @route("GET", "/v1/shelf-events")
    async def events(self, request):
        return StreamingResponse(_endless(), media_type="text/event-stream")

    def routes(self):
        return [Route("/v1/plain-events", _plain_events)]


async def _plain_events(request):
    return StreamingResponse(_endless(), headers={"Content-Type": "text/event-stream; charset=utf-8"})


async def _endless() -> AsyncIterator[str]:
    yield "data: 1\n\n"
    await asyncio.Event().wait()


@asynccontextmanager
async def served(
    package: object, store: str = "memory://", **sections: object
) -> AsyncIterator[tuple[Host, AsyncClient]]:
    given = settings(
        auth={"api_keys": KEYS},
        providers={"shelf": {"enabled": True}},
        egress={"allow": ["loopback"]},
        store=store,
        **sections,
    )
    async with open_host(given, environ={}) as host, client_of(create_app(host)) as client:
        yield host, client


@pytest.fixture(autouse=True)
def shelf(package: object) -> None:
    package("toolplug-shelf", {"shelf": "tests.http.test_quotas:Shelf"})  # type: ignore[operator]


def exceeded(answer: Response, quota: str) -> bool:
    error = answer.json()["error"]
    found = (answer.status_code, error["type"], error["code"], error["param"])
    assert found == (429, "too_many_requests", "quota_exceeded", quota), answer.text
    assert 1 <= int(answer.headers["Retry-After"]) <= 60
    return True


async def create(client: AsyncClient, who: dict[str, str]) -> Response:
    return await client.post("/api/sessions", headers=who)


async def add(client: AsyncClient, who: dict[str, str]) -> Response:
    have = (await client.get("/api/mcp-servers", headers=who)).json()["servers"]
    return await client.post("/api/mcp-servers", headers=who, json={"id": f"s{len(have)}", "url": DEAD_SERVER})


async def call(client: AsyncClient, who: dict[str, str]) -> Response:
    return await client.post("/v1/tool-calls", headers=who, json={"name": "drop", "arguments": {"name": "x"}})


@pytest.mark.parametrize(("quota", "do"), [("sessions", create), ("servers", add), ("calls_per_minute", call)])
async def test_a_tenant_has_as_much_as_its_quota_and_no_more(package: object, quota: str, do: Do) -> None:
    async with served(package, quotas={"tenant": {quota: 2}}) as (_, client):
        assert (await do(client, ANN)).status_code < 300
        assert (await do(client, AMY)).status_code < 300
        for who in (ANN, AMY):
            assert exceeded(await do(client, who), quota)
        for _ in range(2):
            assert (await do(client, BOB)).status_code < 300, "another tenant does not notice"
        assert exceeded(await do(client, BOB), quota)


@pytest.mark.parametrize(("quota", "do"), [("sessions", create), ("servers", add), ("calls_per_minute", call)])
async def test_a_key_has_as_much_as_its_quota_and_no_more(package: object, quota: str, do: Do) -> None:
    async with served(package, quotas={"tenant": {quota: 3}, "key": {quota: 2}}) as (_, client):
        for _ in range(2):
            assert (await do(client, ANN)).status_code < 300
        assert exceeded(await do(client, ANN), quota)
        assert (await do(client, AMY)).status_code < 300, "another key of the tenant has its own"
        assert exceeded(await do(client, AMY), quota), "the tenant's quota counts both"
        assert (await do(client, BOB)).status_code < 300


async def test_what_is_given_back_can_be_had_again(package: object, tmp_path: Path) -> None:
    store, quotas = f"sqlite:///{tmp_path}/state.db", {"key": {"sessions": 1, "servers": 1}}
    async with served(package, store, quotas=quotas) as (_, client):
        session = (await create(client, ANN)).json()["code"]
        assert (await add(client, ANN)).status_code == 202
    async with served(package, store, quotas=quotas) as (_, client):
        assert exceeded(await create(client, ANN), "sessions"), "a restart forgets nothing"
        assert exceeded(await add(client, ANN), "servers")
        await client.delete(f"/api/sessions/{session}", headers=ANN)
        await client.delete("/api/mcp-servers/s0", headers=ANN)
        assert (await create(client, ANN)).status_code == 201
        assert (await add(client, ANN)).status_code == 202


async def test_sessions_that_are_created_at_once_do_not_pass_the_quota_together(package: object) -> None:
    async with served(package, quotas={"tenant": {"sessions": 3}}) as (_, client):
        answers = await asyncio.gather(*(create(client, ANN) for _ in range(10)))
        assert sorted(answer.status_code for answer in answers) == [201] * 3 + [429] * 7


async def test_calls_over_mcp_and_with_a_session_count_like_others(package: object) -> None:
    async with served(package, quotas={"key": {"calls_per_minute": 2}}) as (_, client):
        session = (await create(client, ANN)).json()["code"]
        params = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
        begun = await client.post(
            "/mcp", headers=ANN, json={"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params}
        )
        known = {**ANN, "Mcp-Session-Id": begun.headers["Mcp-Session-Id"]}
        message = {
            "jsonrpc": "2.0",
            "id": 2,
            "method": "tools/call",
            "params": {"name": "drop", "arguments": {"name": "x"}},
        }
        assert (await client.post("/mcp", headers=known, json=message)).status_code == 200
        path, body = f"/api/sessions/{session}/tool-calls", {"tool": "drop", "arguments": {"name": "x"}}
        assert (await client.post(path, headers=ANN, json=body)).status_code == 200
        assert exceeded(await client.post("/mcp", headers=known, json=message), "calls_per_minute")
        assert exceeded(await client.post(path, headers=ANN, json=body), "calls_per_minute")
        listing = {"jsonrpc": "2.0", "id": 3, "method": "tools/list"}
        assert (await client.post("/mcp", headers=known, json=listing)).status_code == 200, "a listing is no call"


@pytest.mark.parametrize(
    ("sections", "param"),
    [
        ({"quotas": {"tenant": {"streams": 2}}}, "streams"),
        ({"quotas": {"key": {"streams": 2}}}, "streams"),
        ({"http": {"edge": {"streams_per_key": 2}}}, "streams_per_key"),
    ],
)
@pytest.mark.requirement("C-5-streams-per-key")
async def test_as_many_streams_are_open_as_the_quota_says(
    package: object, sections: dict[str, object], param: str
) -> None:
    async with served(package, **sections) as (host, client), AsyncExitStack() as life:
        app = create_app(host)
        sessions = {name: (await create(client, who)).json()["code"] for name, who in (("ann", ANN), ("bob", BOB))}

        async def opened(name: str) -> Conversation:
            path, headers = f"/api/sessions/{sessions[name]}/stream", [*HOST, (b"x-api-key", f"{name}-key".encode())]
            talk = Conversation(path=path, headers=headers)
            task = asyncio.create_task(talk.held_with(app))
            life.push_async_callback(hang_up, talk, task)
            while not talk.sent:
                await asyncio.sleep(0)
            return talk

        async def hang_up(talk: Conversation, task: asyncio.Task[Conversation]) -> None:
            talk.hung_up.set()
            await task

        first, second = await opened("ann"), await opened("ann")
        assert (first.status, second.status) == (200, 200)
        path = f"/api/sessions/{sessions['ann']}/stream"
        assert exceeded(await client.get(path, headers=ANN), param)
        assert (await opened("bob")).status == 200
        first.hung_up.set()
        while (await client.head(path, headers=ANN)).status_code != 200 or (again := await opened("ann")).status == 429:
            await asyncio.sleep(0)
        assert again.status == 200, "the place of one that was closed is free"


async def put(client: AsyncClient, who: dict[str, str], name: str, size: int) -> Response:
    return await client.post(f"/v1/shelf/{name}", headers=who, content=b"x" * size)


@pytest.mark.parametrize("level", ["tenant", "key"])
async def test_what_is_stored_counts_for_whoever_wrote_it(package: object, level: str) -> None:
    async with served(package, quotas={level: {"stored_bytes": 1000}}) as (_, client):
        assert (await put(client, ANN, "a", 400)).status_code == 200
        assert (await put(client, ANN, "b", 600)).status_code == 200, "as much as the quota"
        assert exceeded(await put(client, ANN, "c", 1), "stored_bytes")
        assert exceeded(await create(client, ANN), "stored_bytes")
        refused = await client.post(
            "/v1/tool-calls", headers=ANN, json={"name": "put", "arguments": {"name": "d", "text": "x"}}
        )
        assert (refused.json()["status"], "1000 bytes in the store" in refused.json()["output"]) == ("tool_error", True)
        assert (await put(client, BOB, "a", 1000)).status_code == 200, "another tenant does not notice"
        assert (await put(client, AMY, "y", 1)).status_code == (429 if level == "tenant" else 200)
        assert (await put(client, ANN, "a", 300)).status_code == 200, "a record that is there may change"
        assert (await put(client, ANN, "c", 100)).status_code == 200
        assert exceeded(await put(client, ANN, "d", 1), "stored_bytes")
        await client.post("/v1/tool-calls", headers=ANN, json={"name": "drop", "arguments": {"name": "b"}})
        assert (await put(client, ANN, "d", 600)).status_code == 200, "what was deleted counts no more"


async def test_what_is_stored_counts_on_after_a_restart(package: object, tmp_path: Path) -> None:
    store, quotas = f"sqlite:///{tmp_path}/state.db", {"tenant": {"stored_bytes": 1000}}
    async with served(package, store, quotas=quotas) as (_, client):
        assert (await put(client, ANN, "a", 999)).status_code == 200
    async with served(package, store, quotas=quotas) as (_, client):
        assert exceeded(await put(client, ANN, "b", 2), "stored_bytes")
        assert (await put(client, ANN, "b", 1)).status_code == 200


async def test_an_application_that_brings_its_tools_is_not_stopped_by_the_bytes_of_its_tenant(package: object) -> None:
    async with served(package, quotas={"tenant": {"stored_bytes": 2000}}) as (_, client):
        created = (await create(client, ANN)).json()
        assert (await put(client, ANN, "a", 2000)).status_code == 429
        plugin = {"Authorization": f"Bearer {created['pluginToken']}"}
        tools = [{"name": "t", "description": "x" * 3000, "inputSchema": {"type": "object"}}]
        body = {"pluginType": "x", "tools": tools, "capabilities": [], "environment": {}}
        path = f"/api/sessions/{created['code']}/register-tools"
        assert (await client.post(path, headers=plugin, json=body)).status_code == 201, "its record was there"
        assert exceeded(await put(client, ANN, "b", 1), "stored_bytes"), "and counts"


async def test_quotas_follow_a_reload(package: object, sample_package: None, config: Callable[[str], Path]) -> None:
    text = """
        store: memory://
        auth: {{api_keys: [{{key: ann-key, subject: ann, scopes: [operator, "sessions:write"]}}]}}
        providers: {{}}
        quotas: {{tenant: {{sessions: {most}}}}}
    """
    async with open_host(config(text.format(most=1)), environ={}) as host, client_of(create_app(host)) as client:
        assert (await create(client, ANN)).status_code == 201
        assert exceeded(await create(client, ANN), "sessions")
        config(text.format(most=2))
        assert (await client.post("/v1/reload", headers=ANN)).status_code == 200
        assert (await create(client, ANN)).status_code == 201
        assert exceeded(await create(client, ANN), "sessions")


@pytest.mark.parametrize("path", ["/v1/shelf-events", "/v1/plain-events"])
@pytest.mark.requirement("C-5-streams-per-key")
async def test_the_event_streams_of_a_plugin_count_with_those_of_the_host(package: object, path: str) -> None:
    async with served(package, quotas={"key": {"streams": 1}}) as (host, client):
        talk = Conversation(path=path, headers=[*HOST, (b"x-api-key", b"ann-key")])
        task = asyncio.create_task(talk.held_with(create_app(host)))
        while not talk.sent:
            await asyncio.sleep(0)
        assert talk.status == 200
        assert exceeded(await client.get(path, headers=ANN), "streams")
        code = (await create(client, ANN)).json()["code"]
        assert exceeded(await client.get(f"/api/sessions/{code}/stream", headers=ANN), "streams")
        talk.hung_up.set()
        await task
        again = Conversation(path=path, headers=[*HOST, (b"x-api-key", b"ann-key")])
        again.hung_up.set()
        assert (await again.held_with(create_app(host))).status == 200


@pytest.mark.parametrize("path", ["/v1/shelf-events", "/v1/plain-events", "/v1/tools/stream"])
async def test_a_request_for_the_head_of_a_stream_alone_is_over_when_it_is_there(package: object, path: str) -> None:
    headers = [(b"host", b"localhost"), *((name.lower().encode(), value.encode()) for name, value in ANN.items())]
    async with served(package, quotas={"key": {"streams": 1}}) as (host, _):
        app = create_app(host)
        for _ in range(2):
            answer = await asyncio.wait_for(Conversation("HEAD", path, headers=headers).held_with(app), 30)
            assert (answer.status, answer.body) == (200, b"")
            assert [message.get("more_body", False) for message in answer.sent[1:]] == [False]
