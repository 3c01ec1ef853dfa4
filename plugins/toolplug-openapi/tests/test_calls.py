"""Calls: answers and errors, credentials, redirects and addresses."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest
from tests.docs.model import model

from toolplug.errors import ConfigError
from toolplug.testing.provider_check import check_provider
from toolplug_openapi.provider import OpenApi

README = Path(__file__).parents[1] / "README.md"

pytestmark = [pytest.mark.anyio, pytest.mark.process]

TEXT = {"type": "string"}
SCHEMES = {
    "key": {"type": "apiKey", "in": "header", "name": "X-Key"},
    "query": {"type": "apiKey", "in": "query", "name": "key"},
    "cookie": {"type": "apiKey", "in": "cookie", "name": "sid"},
    "basic": {"type": "http", "scheme": "basic"},
    "bearer": {"type": "http", "scheme": "Bearer"},
    "oauth": {"type": "oauth2", "flows": {}},
    "digest": {"type": "http", "scheme": "digest"},
}


def look(path: str, **fields: object) -> dict[str, Any]:
    return {path: {"get": {"operationId": "look", **fields}}}


@pytest.mark.requirement("I2-9-all-use-it")
async def test_the_provider_keeps_the_contract(api: Any) -> None:
    api.operations(
        look(
            "/x",
            parameters=[{"name": "q", "in": "query", "required": True, "schema": TEXT, "description": "text to find"}],
        )
    )
    settings = {"document": f"{api.url}/openapi.json"}
    await check_provider(OpenApi, settings=settings, calls={"look": {"q": "a"}}, readme=README)


async def test_json_is_structured_and_text_is_text(api: Any, serve: Any) -> None:
    paths = {f"/{path}": {"get": {"operationId": path}} for path in ("json", "text", "nothing", "image")}
    api.operations(paths)
    async with serve() as tools:
        answer = await tools.call("json")
        assert answer.structured["items"][1] == {"id": 2, "secret": "t"}
        assert answer.output.startswith('{"path":"/json","items":[{"id":1')
        text = await tools.call("text")
        assert (text.output, text.structured) == ("plain words", None)
        assert (await tools.call("nothing")).output == "done: HTTP 204, without content"
        image = await tools.call("image")
        assert (image.status, image.output) == ("tool_error", "the API answered image/png of 4 bytes, which is no text")


async def test_an_answer_is_trimmed_to_the_parts_that_are_named(api: Any, serve: Any) -> None:
    schema = {"type": "object", "required": ["path"]}
    api.operations(look("/x", responses={"200": {"content": {"application/json": {"schema": schema}}}}))
    async with serve(trim={"look": ["/items/*/id"]}) as tools:
        assert tools.host.registry.catalog["look"].definition.output_schema is None
        assert (await tools.call("look")).structured == {"items": [{"id": 1}, {"id": 2}]}


@pytest.mark.parametrize(("type_of_path", "structured"), [("string", True), ("integer", False)])
async def test_the_schema_of_an_answer_is_declared_and_never_broken(
    api: Any, serve: Any, type_of_path: str, structured: bool
) -> None:
    schema = {"type": "object", "properties": {"path": {"type": type_of_path}}}
    api.operations(look("/x", responses={"200": {"content": {"application/json": {"schema": schema}}}}))
    async with serve() as tools:
        assert tools.host.registry.catalog["look"].definition.output_schema.value == schema
        answer = await tools.call("look")
    assert (answer.structured is not None, answer.output.startswith('{"path":')) == (structured, True)


@pytest.mark.parametrize(
    ("status", "output", "retry_after_s"),
    [
        (400, 'the API refused the request (HTTP 400 Bad Request): {"why":"because"}', None),
        (401, 'the API does not accept the credentials (HTTP 401 Unauthorized): {"why":"because"}', None),
        (403, 'the API does not allow this with these credentials (HTTP 403 Forbidden): {"why":"because"}', None),
        (404, 'the API does not have this (HTTP 404 Not Found): {"why":"because"}', None),
        (429, 'the API has had too many requests (HTTP 429 Too Many Requests); retry in 7 s: {"why":"because"}', 7),
        (503, 'the API failed (HTTP 503 Service Unavailable); retry in 7 s: {"why":"because"}', 7),
        (599, 'the API failed (HTTP 599): {"why":"because"}', None),
    ],
)
async def test_a_status_is_said_in_words(
    api: Any, serve: Any, status: int, output: str, retry_after_s: float | None
) -> None:
    api.operations(look(f"/status/{status}"))
    async with serve() as tools:
        answer = await tools.call("look")
    assert (answer.status, answer.output, answer.retry_after_s) == ("tool_error", output, retry_after_s)
    assert answer.metadata["http_status"] == status


async def test_an_api_that_is_gone_or_answers_too_much_is_an_error_in_words(api: Any, serve: Any) -> None:
    api.operations({"/huge": {"get": {"operationId": "huge"}}})
    async with serve() as tools:
        answer = await tools.call("huge")
        assert (answer.status, "larger than 4,194,304 bytes" in answer.output) == ("tool_error", True)
    async with serve(base_url="http://127.0.0.1:1") as tools:
        answer = await tools.call("huge")
        assert answer.output == "the API gave no answer that can be read: cannot connect to 127.0.0.1:1"


@pytest.mark.parametrize("value", ["..", ".", ""])
async def test_a_path_parameter_never_leads_to_another_path(api: Any, serve: Any, value: str) -> None:
    parameter = {"name": "id", "in": "path", "required": True, "schema": TEXT}
    api.operations(look("/users/{id}", parameters=[parameter]))
    async with serve() as tools:
        assert (await tools.call("look", {"id": value})).status == "tool_error"
        assert (await tools.call("look", {"id": "../admin"})).status == "success"
    assert [request.scope["raw_path"] for request in api.requests] == [b"/users/..%2Fadmin"]


async def test_a_header_carries_no_line_break(api: Any, serve: Any) -> None:
    api.operations(look("/x", parameters=[{"name": "X-Note", "in": "header", "schema": TEXT}]))
    async with serve() as tools:
        answer = await tools.call("look", {"X-Note": "a\r\nX-Key: forged"})
    assert (answer.status, api.requests) == ("tool_error", [])


@pytest.mark.parametrize(
    ("name", "credential", "sent"),
    [
        ("key", {"value": "s3cret"}, ("x-key", "s3cret")),
        ("basic", {"value": "s3cret", "username": "ann"}, ("authorization", "Basic YW5uOnMzY3JldA==")),
        ("bearer", {"value": "s3cret"}, ("authorization", "Bearer s3cret")),
        ("oauth", {"value": "s3cret"}, ("authorization", "Bearer s3cret")),
        ("cookie", {"value": "s3 cret"}, ("cookie", "sid=s3%20cret")),
        (
            "own",
            {"value": "s3cret", "scheme": {"type": "http", "scheme": "bearer"}},
            ("authorization", "Bearer s3cret"),
        ),
    ],
)
async def test_the_providers_own_credential_goes_where_the_scheme_says(
    api: Any, serve: Any, name: str, credential: Any, sent: tuple[str, str]
) -> None:
    api.operations(look("/x"), components={"securitySchemes": SCHEMES})
    async with serve(credentials={name: credential}) as tools:
        assert (await tools.call("look")).status == "success"
    assert api.last.headers[sent[0]] == sent[1]


async def test_a_key_in_the_query_is_in_no_log(api: Any, serve: Any, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    api.operations(look("/status/500"), components={"securitySchemes": SCHEMES})
    async with serve(credentials={"query": {"value": "s3&cret"}}) as tools:
        answer = await tools.call("look")
    assert api.sent == "GET /status/500?key=s3%26cret"
    assert "s3" not in caplog.text + answer.output


async def test_an_operation_is_sent_only_what_its_security_names(api: Any, serve: Any) -> None:
    paths = {
        f"/{name}": {"get": {"operationId": name, "security": security}}
        for name, security in {
            "none": [],
            "one": [{"key": []}],
            "other": [{"oauth": []}, {"bearer": []}],
            "both": [{"key": [], "bearer": []}],
            "missing": [{"basic": []}],
        }.items()
    }
    api.operations(paths, components={"securitySchemes": SCHEMES})
    credentials = {"key": {"value": "k"}, "bearer": {"value": "b"}}
    async with serve(credentials=credentials) as tools:
        for name in paths:
            await tools.call(name[1:])
    assert [(each.headers.get("x-key"), each.headers.get("authorization")) for each in api.requests] == [
        (None, None),
        ("k", None),
        (None, "Bearer b"),
        ("k", "Bearer b"),
        (None, None),
    ]


async def test_the_callers_own_credential_is_forwarded_and_never_replaced(api: Any, serve: Any) -> None:
    parameters = [{"name": "X-Key", "in": "header", "required": True, "schema": TEXT}]
    api.operations(look("/x", parameters=parameters), components={"securitySchemes": SCHEMES})
    async with serve(credentials={"key": {"forward": "pets"}}) as tools:
        assert tools.schema("look")["properties"] == {}
        assert (await tools.call("look", pets="mine")).status == "success"
        assert api.last.headers["x-key"] == "mine"
        missing = await tools.call("look", other="not-for-this")
        header = "X-Toolplug-Credential-pets"
        assert missing.output == (
            f'tool "look" is unavailable: it needs a credential of your own: send it as the header {header}'
        )
        assert missing.status == "unavailable"
        assert missing.metadata == {"code": "credential_needed", "credential": {"header": header}}
        assert "mine" not in (await tools.call("look", pets="mine\n")).output
    assert len(api.requests) == 1


async def test_with_user_auth_each_request_carries_the_credential_of_its_caller(api: Any, serve: Any) -> None:
    api.operations({**look("/x"), **look("/status/401", operationId="closed")})
    auth = {"from": "credential:pets", "header": "X-Key", "format": "key {}"}
    async with serve(user_auth=auth) as tools:
        assert (await tools.call("look", pets="mine")).status == "success"
        assert api.last.headers["x-key"] == "key mine"
        missing = await tools.call("look")
        assert (missing.status, missing.metadata["code"]) == ("unavailable", "credential_needed")
        refused = await tools.call("closed", pets="mine")
        assert "api refuses the credential of the header X-Toolplug-Credential-pets" in refused.output
    assert len(api.requests) == 2


async def test_cookies_of_one_call_are_not_sent_with_the_next(api: Any, serve: Any) -> None:
    api.operations(look("/cookie"))
    async with serve() as tools:
        await tools.call("look")
        await tools.call("look")
    assert "cookie" not in api.last.headers


async def test_get_is_redirected_within_its_origin_and_credentials_never_leave_it(api: Any, serve: Any) -> None:
    query = [{"name": "to", "in": "query", "schema": TEXT}]
    away = {"get": {"operationId": "look", "parameters": query}, "post": {"operationId": "change", "parameters": query}}
    api.operations({"/away": away}, components={"securitySchemes": SCHEMES})
    async with serve(credentials={"key": {"value": "k"}}, egress={"allow": ["loopback"]}) as tools:
        assert (await tools.call("look", {"to": "/x"})).structured["path"] == "/x"
        assert api.last.headers["x-key"] == "k"
        before = len(api.requests)
        elsewhere = api.url.replace("127.0.0.1", "localhost") + "/x"
        answer = await tools.call("look", {"to": elsewhere})
        assert answer.output == f"the API redirects to '{elsewhere}' (HTTP 307), which is not followed"
        assert len(api.requests) == before + 1
        assert (await tools.call("look", {"to": "http://[broken"})).status == "tool_error"
        assert (await tools.call("change", {"to": "/x"})).status == "tool_error"
        assert api.last.method == "POST"


@pytest.mark.parametrize(
    ("servers", "reason"),
    [
        ([{"url": "http://169.254.169.254/latest"}], "169.254.169.254/latest, which is not public"),
        ([{"url": "http://localhost:1/"}], "http://localhost:1, which is not public"),
        ([{"url": "file:///etc"}], "its server 'file:///etc' is no http or https URL; set base_url"),
        ([{"url": "https://{region}.example"}], "is no http or https URL; set base_url"),
        ([{"url": "https://user:pw@a.example"}], "is no http or https URL; set base_url"),
        ([{"url": "https://a.example:99999"}], "is no http or https URL; set base_url"),
        ([5], "its first server has no url"),
    ],
)
async def test_a_server_of_the_document_leads_nowhere_that_the_operator_did_not_allow(
    api: Any, serve: Any, servers: Any, reason: str
) -> None:
    api.operations(look("/x"), servers=servers)
    with pytest.raises(ConfigError) as caught:
        async with serve():
            raise AssertionError("it must not start")
    assert reason in str(caught.value)


async def test_a_name_that_resolves_to_a_private_address_is_not_connected_to(api: Any, serve: Any) -> None:
    port = api.url.rpartition(":")[2]
    api.operations(look("/x"), servers=[{"url": f"http://2130706433:{port}"}])
    async with serve() as tools:
        answer = await tools.call("look")
        assert "an address which is not public" in answer.output
    async with serve(egress={"allow": ["loopback"]}) as tools:
        assert (await tools.call("look")).status == "success"
    assert len(api.requests) == 1


async def test_credentials_go_to_no_server_that_only_the_document_names(api: Any, serve: Any) -> None:
    api.operations(look("/x"), servers=[{"url": "https://evil.example"}], components={"securitySchemes": SCHEMES})
    with pytest.raises(ConfigError, match=r"a server that you name: base_url: https://evil\.example"):
        async with serve(credentials={"key": {"value": "k"}}):
            raise AssertionError("it must not start")
    async with serve(credentials={"key": {"value": "k"}}, base_url=f"{api.url}/v2") as tools:
        assert (await tools.call("look")).structured["path"] == "/v2/x"


async def test_server_variables_and_relative_servers_are_resolved(api: Any, serve: Any) -> None:
    api.operations(look("/x"), servers=[{"url": "/api/{version}", "variables": {"version": {"default": "v3"}}}])
    async with serve() as tools:
        assert (await tools.call("look")).structured["path"] == "/api/v3/x"


async def test_a_document_of_a_file_needs_a_server(api: Any, serve: Any, tmp_path: Path) -> None:
    (tmp_path / "api.yaml").write_text("openapi: 3.1.0\npaths: {/x: {get: {operationId: look}}}\n")
    with pytest.raises(ConfigError, match=r"api.yaml: its server '/' is no http or https URL; set base_url"):
        async with serve(document="api.yaml"):
            raise AssertionError("it must not start")
    async with serve(document="api.yaml", base_url=api.url) as tools:
        assert (await tools.call("look")).status == "success"


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"credentials": {"key": {"value": "a", "forward": "b"}}}, "needs either value or forward, not both"),
        ({"credentials": {"key": {}}}, "needs either value or forward, not both"),
        ({"credentials": {"digest": {"value": "a"}}}, "only apiKey, basic, bearer, oauth2 and openIdConnect"),
        ({"base_url": "file:///etc"}, "should be a URL such as https://api.example/v1"),
        ({"base_url": "https://a.example/?key=1"}, "should have no query; secrets go to credentials"),
        ({"document": "file:///etc/passwd"}, "should be a path or an http or https URL"),
        ({"base_url": "https://a.example:99999"}, "should be a URL such as"),
        ({"base_url": "https://ann:pw@a.example"}, "providers.api.base_url: is not valid (the value is not shown)"),
        ({"document": "ftp://a.example/x"}, "should be a URL such as"),
        ({"document": "missing.json"}, "missing.json is no file"),
        ({"include": [{}]}, "needs operation, tag, method or path"),
        ({"rename": {"look": "no spaces"}}, "providers.api.rename.look"),
    ],
)
async def test_a_wrong_setting_stops_the_start_and_says_why(api: Any, serve: Any, settings: Any, problem: str) -> None:
    api.operations(look("/x"), components={"securitySchemes": SCHEMES})
    with pytest.raises(ConfigError) as caught:
        async with serve(**settings):
            raise AssertionError("it must not start")
    assert problem in str(caught.value)


async def test_every_way_in_over_http_passes_the_callers_credential_on(api: Any, in_process_host: Any) -> None:
    api.operations(look("/x"), components={"securitySchemes": SCHEMES})
    entry = {"type": "openapi", "enabled": True, "document": f"{api.url}/openapi.json"}
    config = {"providers": {"pets": {**entry, "credentials": {"bearer": {"forward": "pets"}}}}}
    with model() as environ:
        backend = {"base_url": environ["OPENAI_BASE_URL"], "api_key": "none", "model": "scripted"}
        await call_every_way(api, in_process_host, {**config, "responses": {"backend": backend}})
    assert [each.headers["authorization"] for each in api.requests] == ["Bearer mine"] * 4


async def call_every_way(api: Any, in_process_host: Any, config: Any) -> None:
    async with in_process_host(config) as served:
        client = served.client
        code = (await client.post("/api/sessions")).json()["code"]
        client.headers["X-Toolplug-Credential-Pets"] = "mine"
        await client.post("/v1/tool-calls", json={"name": "look"})
        await client.post(f"/api/sessions/{code}/tool-calls", json={"tool": "look"})
        message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "look", "arguments": {}}}
        initialize = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}}
        accept = {"Accept": "application/json, text/event-stream"}
        hello = await client.post(
            "/mcp", json={**message, "method": "initialize", "params": initialize}, headers=accept
        )
        known = {**accept, "Mcp-Session-Id": hello.headers["mcp-session-id"]}
        await client.post("/mcp", json={"jsonrpc": "2.0", "method": "notifications/initialized"}, headers=known)
        answer = await client.post("/mcp", json=message, headers=known)
        assert "mine" not in answer.text
        response = await client.post("/v1/responses", json={"input": "Look!"})
        assert (response.status_code, "mine" in response.text) == (200, False)
