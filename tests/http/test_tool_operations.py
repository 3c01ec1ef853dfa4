"""`GET /openapi.json` and `POST /v1/tools/{name}`: exactly the caller's tools, and calls of them, for importers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import Any

import jsonschema_rs
import pytest
from httpx2 import AsyncClient, Response
from pydantic import BaseModel
from tests.host.conftest import Package
from tests.http.conftest import ALICE, BOB, KEYS, ROOT, as_holder, client_of, settings
from tests.http.conversation import Conversation
from tests.http.test_tools_document import check

from toolplug import (
    CallContext,
    FunctionProvider,
    Host,
    ToolCall,
    ToolDefinition,
    ToolError,
    ToolResult,
    ToolStatus,
    ToolUnavailable,
    open_host,
    tool,
)
from toolplug.http import create_app

pytestmark = pytest.mark.anyio

Json = dict[str, Any]

RUNS: list[str] = []
"""The tools that have run, in order."""
GO = asyncio.Event()


class Item(BaseModel):
    """One position of an order."""

    name: str
    inner: list[Item] = []


class Closed(FunctionProvider):
    """A tool whose schema allows one field and no others."""

    def tools(self) -> list[ToolDefinition]:
        size: Json = {"size": {"type": "integer"}}
        output: Json = {"type": "object", "properties": size, "additionalProperties": False}
        return [ToolDefinition(name="closed_picture", parameters={"type": "object"}, output_schema=output)]

    async def execute(self, call: ToolCall, context: CallContext) -> ToolResult:
        if call.arguments.get("as") == "text":
            return ToolResult(output="closed")
        image = {"type": "image", "data": "AAAA", "mimeType": "image/png"}
        return ToolResult(structured={"size": 1}, parts=(image,))


class Odd(FunctionProvider):
    """Answers of every kind."""

    @tool
    async def order(self, item: Item) -> dict[str, object]:
        """Order an item and what is in it."""
        return {"ordered": item.name, "inner": len(item.inner)}

    @tool
    async def number(self, n: int) -> int:
        """Return the number."""
        return n

    @tool
    async def say(self, text: str = "nothing") -> str:
        """Say it again."""
        RUNS.append(text)
        return text

    @tool
    async def stream(self) -> str:
        """Have the name of another route."""
        return "a tool"

    @tool
    async def danger(self) -> str:
        """Delete everything."""
        RUNS.append("danger")
        return "deleted"

    @tool
    async def picture(self, how: str) -> ToolResult:
        """Draw."""
        image = {"type": "image", "data": "AAAA", "mimeType": "image/png"}
        text = {"type": "text", "text": "drawn"}
        structured = {"plain": None, "object": {"size": 1}, "own": {"parts": 2}}[how]
        return ToolResult(output="drawn", structured=structured, parts=(text, image))

    @tool
    async def ends(self, how: str) -> ToolResult:
        """End as it is told."""
        RUNS.append(how)
        if how == "lost":
            raise ToolUnavailable("its server is down", code="server_down")
        if how == "down":
            raise ToolUnavailable("its server is down", code="server_down", retry_after_s=1.5)
        if how == "error":
            raise ToolError("the shop is closed", retry_after_s=3.0, metadata={"code": "closed", "secret": "s3cret"})
        if how.startswith("code "):
            raise ToolUnavailable("it is not open", code=how.removeprefix("code "))
        if how == "panic":
            raise RuntimeError("s3cret")
        if how == "limited":
            return ToolResult(output="busy", status=ToolStatus.LIMITED, retry_after_s=2.2)
        await GO.wait()
        return ToolResult()


PROVIDERS = {
    "closed": {"enabled": True},
    "sample": {"enabled": True, "tools": {"echo": {"tenants": ["t2"]}}},
    "odd": {"enabled": True, "tools": {"danger": "ask"}, "limits": {"timeout": "300ms"}},
}
AGENTS = {"toolsets": {"web": {"prefix": "web", "from": "provider:sample"}}, "agents": {"clerk": {"toolsets": ["web"]}}}


@pytest.fixture
async def host(sample_package: None, package: Package) -> AsyncIterator[Host]:
    RUNS.clear()
    here = "tests.http.test_tool_operations"
    package("toolplug-odd", {"odd": f"{here}:Odd", "closed": f"{here}:Closed"})
    keys = [*KEYS["api_keys"], {"key": "clerk-key", "subject": "clerk", "tenant": "t1", "agents": ["clerk"]}]
    whole = settings(providers=PROVIDERS, auth={"api_keys": keys}, **AGENTS)
    async with open_host(whole, environ={}) as opened:
        yield opened


@pytest.fixture
async def client(host: Host) -> AsyncIterator[AsyncClient]:
    async with client_of(create_app(host)) as opened:
        yield opened


async def document_of(client: AsyncClient, path: str = "/openapi.json", headers: Mapping[str, str] = ALICE) -> Json:
    answer = await client.get(path, headers=headers)
    assert (answer.status_code, answer.headers["content-type"]) == (200, "application/json")
    document = answer.json()
    check(document)
    return document


async def call(
    client: AsyncClient, name: str, arguments: object = None, headers: Mapping[str, str] = ALICE
) -> Response:
    return await client.post(f"/v1/tools/{name}", headers=headers, json={} if arguments is None else arguments)


@pytest.mark.requirement("I32-tools-document")
@pytest.mark.parametrize("path", ["/openapi.json", "/v1/tools/openapi.json"])
async def test_the_document_has_the_tools_of_its_caller_and_nothing_else(client: AsyncClient, path: str) -> None:
    for headers in (ALICE, BOB):
        document = await document_of(client, path, headers)
        listed = (await client.get("/v1/tools", headers=headers)).json()["tools"]
        assert [f"/v1/tools/{each['function']['name']}" for each in listed] == list(document["paths"])
        assert all(set(item) == {"post"} for item in document["paths"].values())
        assert document["servers"] == [{"url": "http://localhost"}]
    assert "/v1/tools/echo" in document["paths"], "of the tenant t2"
    assert "/v1/tools/echo" not in (await document_of(client, path))["paths"]


@pytest.mark.requirement("I32-tools-document")
async def test_the_document_needs_a_key_with_the_scope_of_the_list(client: AsyncClient) -> None:
    for path in ("/openapi.json", "/v1/tools/openapi.json", "/v1/tools/agent=clerk/openapi.json"):
        assert (await client.get(path)).status_code == 401
        assert (await client.get(path, headers=as_holder("caller-key"))).json()["error"]["code"] == "insufficient_scope"
        assert (await client.get(path, headers=as_holder("reader-key"))).status_code == 200
    assert (await client.get("/v1/openapi.json")).status_code == 200


@pytest.mark.requirement("I32-tools-document")
async def test_a_host_without_auth_names_no_credentials(sample_package: None) -> None:
    async with open_host(settings(auth=None), environ={}) as host, client_of(create_app(host)) as client:
        document = await document_of(client, headers={})
        assert "security" not in document
        assert "securitySchemes" not in document["components"]
        assert (await call(client, "echo", {"text": "hi"}, {})).json() == {"output": "hi"}


@pytest.mark.requirement("I32-tools-document")
async def test_who_has_the_document_gets_304_until_the_tools_or_the_address_change(client: AsyncClient) -> None:
    first = await client.get("/openapi.json", headers=ALICE)
    had = {**ALICE, "If-None-Match": first.headers["etag"]}
    again = await client.get("/openapi.json", headers=had)
    assert (again.status_code, again.content) == (304, b"")
    for answer in (first, again):
        kept = {name: answer.headers.get(name) for name in ("etag", "cache-control", "vary")}
        vary = "authorization, x-api-key"
        assert kept == {"etag": first.headers["etag"], "cache-control": "private, no-cache", "vary": vary}
    assert (await client.get("/openapi.json", headers={**had, "Host": "localhost:81"})).status_code == 200
    assert (await client.get("/openapi.json?agent=clerk", headers=had)).status_code == 200
    await client.post("/v1/providers/sample/disable", headers=ROOT)
    changed = await client.get("/openapi.json", headers=had)
    assert (changed.status_code, "/v1/tools/whoami" in changed.json()["paths"]) == (200, False)


@pytest.mark.requirement("I32-tools-document-whose")
async def test_agent_and_session_stay_in_the_address_that_calls_go_to(client: AsyncClient) -> None:
    code = (await client.post("/api/sessions", headers=ALICE)).json()["code"]
    for query, root in (
        ("agent=clerk", "agent=clerk"),
        (f"session={code}", f"session={code}"),
        (f"session={code}&agent=clerk", f"agent=clerk,session={code}"),
    ):
        document = await document_of(client, f"/openapi.json?{query}")
        [server] = document["servers"]
        assert server["url"] == f"http://localhost/v1/tools/{root}"
        assert (await document_of(client, f"{server['url']}/openapi.json")) == document
        name = "/v1/tools/web__whoami" if "clerk" in root else "/v1/tools/whoami"
        called = await client.post(f"{server['url']}{name}", headers=ALICE)
        assert (called.status_code, called.json()["subject"]) == (200, "alice")
        assert (await client.post(f"{name}?{query}", headers=ALICE)).status_code == 200
    for path in (f"/v1/tools/session={code}/v1/tools/context", f"/v1/tools/context?session={code}"):
        assert f"session={code!r}" in (await client.post(path, headers=ALICE)).json()["output"]
    assert next(iter((await document_of(client, "/openapi.json?agent=clerk"))["paths"])).startswith("/v1/tools/web__")
    only = await document_of(client, headers=as_holder("clerk-key"))
    assert all(path.startswith("/v1/tools/web__") for path in only["paths"])


@pytest.mark.requirement("I32-tools-document-whose")
@pytest.mark.parametrize(
    ("path", "status", "code"),
    [
        ("/v1/tools/tenant=t2/openapi.json", 400, "invalid_request"),
        ("/v1/tools/agent=clerk,agent=clerk/openapi.json", 400, "invalid_request"),
        ("/v1/tools/agent=clerk,/openapi.json", 400, "invalid_request"),
        ("/v1/tools/agent=clerk/openapi.json?agent=clerk", 400, "invalid_request"),
        ("/v1/tools/session=ABCDEFGH/openapi.json", 404, "session_not_found"),
        ("/v1/tools/session=wrong/openapi.json", 400, "invalid_session_code"),
    ],
)
async def test_a_path_that_names_no_tools_is_refused(client: AsyncClient, path: str, status: int, code: str) -> None:
    answer = await client.get(path, headers=ALICE)
    assert (answer.status_code, answer.json()["error"]["code"]) == (status, code)


@pytest.mark.requirement("I32-tools-document")
async def test_the_public_url_is_where_calls_go(sample_package: None) -> None:
    whole = settings(http={"public_url": "https://tools.example.org/plug", "allowed_hosts": ["tools.example.org"]})
    async with open_host(whole, environ={}) as host, client_of(create_app(host)) as client:
        assert (await document_of(client))["servers"] == [{"url": "https://tools.example.org/plug"}]


@pytest.mark.requirement("I32-tool-operations")
async def test_the_answer_is_the_value_where_it_is_an_object_else_its_text(client: AsyncClient) -> None:
    nested = {"item": {"name": "box", "inner": [{"name": "pen", "inner": []}]}}
    for name, arguments, expected in (
        ("order", nested, {"ordered": "box", "inner": 1}),
        ("number", {"n": 7}, {"output": "7"}),
        ("say", {"text": "hi"}, {"output": "hi"}),
        ("stream", {}, {"output": "a tool"}),
        ("big_numbers", {}, {"n": 2**70}),
    ):
        answer = await call(client, name, arguments)
        assert (answer.status_code, answer.json()) == (200, expected)
    for headers in (ALICE, {**ALICE, "Content-Type": "application/json"}):
        assert (await client.post("/v1/tools/say", headers=headers)).json() == {"output": "nothing"}
    image = {"type": "image", "data": "AAAA", "mimeType": "image/png"}
    assert (await call(client, "picture", {"how": "plain"})).json() == {"output": "drawn", "parts": [image]}
    assert (await call(client, "picture", {"how": "object"})).json() == {"size": 1, "parts": [image]}
    assert (await call(client, "picture", {"how": "own"})).json() == {"parts": 2}


@pytest.mark.requirement("I32-tool-operations")
async def test_parts_and_texts_are_in_the_schema_of_the_answer_also_where_the_tools_own_allows_no_more(
    client: AsyncClient,
) -> None:
    document = await document_of(client)
    success = document["paths"]["/v1/tools/closed_picture"]["post"]["responses"]["200"]
    schema = success["content"]["application/json"]["schema"]
    answer = (await call(client, "closed_picture")).json()
    assert answer == {"size": 1, "parts": [{"type": "image", "data": "AAAA", "mimeType": "image/png"}]}
    assert jsonschema_rs.is_valid(schema, answer)
    assert not jsonschema_rs.is_valid(schema, {**answer, "more": 1})
    text = (await call(client, "closed_picture", {"as": "text"})).json()
    assert text == {"output": "closed"}
    assert jsonschema_rs.is_valid(schema, text)


@pytest.mark.requirement("I32-tool-operations")
@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b'{"text": 1}', '/text: must be of type "string"'),
        (b"[]", "not an object"),
        (b"{", "not JSON"),
        (b'{"text": "a", "text": "b"}', "duplicate key"),
        (b'{"text": "a", "else": "' + b"x" * 70_000 + b'"}', "else"),
        (b'{"text": "' + b"x" * 70_000, "not JSON"),
    ],
)
async def test_wrong_arguments_are_422_and_nothing_runs(client: AsyncClient, body: bytes, words: str) -> None:
    answer = await client.post("/v1/tools/say", headers=ALICE, content=body)
    assert (answer.status_code, answer.json()["status"]) == (422, "invalid_arguments")
    assert words in answer.json()["error"]
    assert RUNS == []


@pytest.mark.requirement("I32-tool-operations")
async def test_a_large_object_is_taken(client: AsyncClient) -> None:
    text = "x" * 70_000
    assert (await call(client, "say", {"text": text})).json() == {"output": text}


@pytest.mark.requirement("I32-tool-operations")
@pytest.mark.parametrize(
    ("how", "status", "body", "retry_after"),
    [
        ("lost", 422, {"status": "unavailable", "code": "server_down"}, None),
        ("down", 503, {"status": "unavailable", "code": "server_down", "retry_after_s": 1.5}, "2"),
        ("error", 422, {"status": "tool_error", "code": "closed", "retry_after_s": 3.0}, None),
        ("panic", 422, {"status": "panic"}, None),
        ("waits", 422, {"status": "timeout"}, None),
        ("limited", 429, {"status": "limited", "retry_after_s": 2.2}, "3"),
    ],
)
async def test_what_may_have_run_is_422_so_that_nobody_repeats_it(
    client: AsyncClient, how: str, status: int, body: Json, retry_after: str | None
) -> None:
    answer = await call(client, "ends", {"how": how})
    found = answer.json()
    words = found.pop("error")
    assert (answer.status_code, found, answer.headers.get("retry-after")) == (status, body, retry_after)
    assert words
    assert "s3cret" not in answer.text


@pytest.mark.requirement("I32-tool-operations")
@pytest.mark.parametrize(
    "code", ["loop", "not_entered", "part_off", "quarantined", "source_closed", "toolset_not_opened"]
)
async def test_what_was_never_looked_for_is_503_also_without_a_time(client: AsyncClient, code: str) -> None:
    answer = await call(client, "ends", {"how": f"code {code}"})
    assert (answer.status_code, answer.json()["code"], "retry-after" in answer.headers) == (503, code, False)


@pytest.mark.requirement("I32-tool-operations")
async def test_a_call_that_goes_round_in_circles_is_503(client: AsyncClient) -> None:
    answer = await call(client, "say", headers={**ALICE, "Toolplug-Via": "a, b, c, d, e"})
    assert (answer.status_code, answer.json()["code"], RUNS) == (503, "loop", [])


@pytest.mark.requirement("I32-tool-operations")
async def test_an_unknown_or_hidden_tool_is_404(client: AsyncClient) -> None:
    for name in ("nothing", "echo", "web.nothing"):
        answer = await call(client, name, {"text": "x"})
        assert (answer.status_code, answer.json()["status"]) == (404, "unknown_tool")
    assert (await client.get("/v1/tools/say", headers=ALICE)).headers["allow"] == "POST"
    assert (await client.head("/v1/tools/stream", headers=ALICE)).status_code == 200


@pytest.mark.requirement("I32-tool-operations", "I32-no-administration")
async def test_an_ask_tool_is_403_with_its_approval_and_runs_once_a_person_has_approved(client: AsyncClient) -> None:
    refused = await call(client, "danger")
    body = refused.json()
    ticket = body["approval"]["id"]
    assert (refused.status_code, body["status"]) == (403, "denied")
    assert "a person must approve" in body["error"]
    paths = (await document_of(client))["paths"]
    assert not any("approv" in path for path in paths)
    own = await client.post(f"/v1/approvals/{ticket}", headers=ALICE, json={"decision": "approve"})
    assert own.status_code == 403
    assert (await call(client, "approvals", {"id": ticket})).status_code == 404
    judge = {"Authorization": "Bearer root-key"}
    decided = await client.post(f"/v1/approvals/{ticket}?tenant=t1", headers=judge, json={"decision": "approve"})
    assert decided.status_code == 200
    assert (await call(client, "danger")).json() == {"output": "deleted"}
    assert (await call(client, "danger")).status_code == 403
    assert RUNS == ["danger"]


@pytest.mark.requirement("I32-tool-operations")
async def test_a_key_of_idempotency_gives_the_first_answer_again(client: AsyncClient) -> None:
    keyed = {**ALICE, "Idempotency-Key": "k1"}
    first = await call(client, "say", {"text": "hi"}, keyed)
    again = await call(client, "say", {"text": "hi"}, keyed)
    assert (again.json(), again.headers["idempotent-replayed"], RUNS) == (first.json(), "true", ["hi"])
    other = await call(client, "say", {"text": "ho"}, keyed)
    assert (other.status_code, other.json()["error"]["code"]) == (422, "idempotency_key_reused")
    failing = {**ALICE, "Idempotency-Key": "k2"}
    for replayed in (None, "true"):
        answer = await call(client, "ends", {"how": "error"}, failing)
        assert (answer.status_code, answer.headers.get("idempotent-replayed")) == (422, replayed)
    assert RUNS == ["hi", "error"]


@pytest.mark.requirement("I32-tool-operations")
async def test_errors_of_the_request_have_the_shape_of_every_error(client: AsyncClient) -> None:
    scopeless = await call(client, "say", {}, as_holder("reader-key"))
    assert (scopeless.status_code, scopeless.json()["error"]["code"]) == (403, "insufficient_scope")
    assert (await call(client, "say", {}, {})).status_code == 401
    form = await client.post("/v1/tools/say", headers={**ALICE, "Content-Type": "text/plain"}, content=b"x")
    assert (form.status_code, form.json()["error"]["code"]) == (415, "unsupported_media_type")
    long = await client.post("/v1/tools/say", headers=ALICE, content=b'"' + b"x" * 2**20 + b'"')
    assert long.status_code == 413


@pytest.mark.requirement("I32-tool-operations")
async def test_a_call_is_cancelled_when_its_client_hangs_up_and_is_counted_by_template(
    host: Host, client: AsyncClient
) -> None:
    counters = host.registry.accounting.counters("sample", "waits")
    headers = [(b"host", b"localhost"), (b"x-api-key", b"alice-key")]
    talk = Conversation("POST", "/v1/tools/waits", headers=headers)
    running = asyncio.create_task(talk.held_with(create_app(host)))
    while counters.in_flight == 0:
        await asyncio.sleep(0)
    talk.hung_up.set()
    await running
    assert (talk.sent, counters.ended) == ([], {"cancelled": 1})
    assert (await call(client, "say")).status_code == 200
    page = (await client.get("/metrics")).text
    assert 'path="/v1/tools/{name}"' in page
