"""Documents that cannot be used are refused in bounded time, and say where, why and what to do."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.cpu_cost import growth

from toolplug.errors import ConfigError
from toolplug_openapi.document import MAX_JSON_BYTES, MAX_YAML_BYTES, Document, DocumentRefused
from toolplug_openapi.operations import operations_of
from toolplug_openapi.reading import SMALL_BYTES, read_document
from toolplug_openapi.settings import Settings
from toolplug_openapi.sign_in import MAX_SCOPES, find_sign_in

pytestmark = pytest.mark.anyio

YAML = """\
openapi: 3.0.3
x-shared: &shared {summary: Shared., tags: [no, 2026-11-01]}
paths:
  /x:
    get:
      <<: *shared
      operationId: look
      summary: Own.
      responses:
        200: {description: "yes"}
        404: {description: ~}
      deprecated: true
"""


def test_yaml_is_read_as_yaml_1_2_with_text_keys_aliases_and_merges() -> None:
    document = Document(YAML.encode(), "api.yaml")
    assert document.root["paths"] == {
        "/x": {
            "get": {
                "summary": "Own.",
                "tags": ["no", "2026-11-01"],
                "operationId": "look",
                "responses": {"200": {"description": "yes"}, "404": {"description": None}},
                "deprecated": True,
            }
        }
    }


def bomb(levels: int) -> str:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, levels)]
    return "\n".join(lines)


def merge_bomb() -> str:
    lines = ["a0: &a0 {" + ", ".join(f"k{n}: v" for n in range(100)) + "}"]
    lines += [f"a{n}: &a{n} {{<<: [{', '.join([f'*a{n - 1}'] * 10)}], own{n}: v}}" for n in range(1, 12)]
    return "\n".join(lines)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"<!doctype html><p>Not found</p>", "is no OpenAPI document"),
        (b"[]", "holds no mapping"),
        (b"{}", "no key 'openapi'; OpenAPI 3.0 and 3.1 are read"),
        (b'{"swagger": "2.0"}', "no key 'openapi'; OpenAPI 3.0 and 3.1 are read; convert it to 3.0 first"),
        (b'{"openapi": "4.0.0", "paths": {}}', "openapi: '4.0.0'; OpenAPI 3.0 and 3.1"),
        (b'{"openapi": 3.1, "paths": {}}', "openapi: 3.1; OpenAPI 3.0 and 3.1"),
        (b'{"openapi": "3.1.0"}', "no mapping 'paths'"),
        (b'{"openapi": "3.1.0", "paths": {}, "paths": {}}', "duplicate key 'paths'; keep one of them"),
        (b'{"openapi": NaN}', "NaN is no JSON"),
        (b'{"openapi": ', "cannot be read: Expecting value"),
        (b"openapi: 3.1.0\nopenapi: 3.1.0", "line 2: duplicate key 'openapi'"),
        (b"a: [b", "is neither JSON nor YAML in line 2"),
        (b"a: 1\n---\nb: 2", "a second document begins in line 2"),
        (b"? [a]\n: b", "a key must be text"),
        (b"a: *b", "the alias *b names nothing"),
        (b"a: &a [*a]", "names nothing, or a part that contains it"),
        (b"\xff\xfe", "is not UTF-8 text (byte 0)"),
        (b'{"a":' * 100_000, "cannot be read"),
        (b"[" * 100_000, "nests too deep"),
        (b"- " * 100_000, "nests too deep"),
        (bomb(10).encode(), "with its aliases written out it has more than 1,000,000 keys and values"),
        (merge_bomb().encode(), "with its aliases written out it has more than 1,000,000 keys and values"),
        (b"{" + b" " * MAX_JSON_BYTES, "at most 16,777,216 are read of JSON"),
        (b"a: " + b"x" * MAX_YAML_BYTES, "at most 4,194,304 are read of YAML (convert it to JSON"),
    ],
)
def test_what_is_no_document_is_refused(data: bytes, reason: str) -> None:
    with pytest.raises(DocumentRefused) as caught:
        Document(data, "api.json")
    assert str(caught.value).startswith("api.json ")
    assert reason in str(caught.value) or (reason == "cannot be read" and "nests too deep" in str(caught.value))


@pytest.mark.process
@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("/status/404", "cannot be fetched: HTTP 404"),
        (
            "/moved.json?to=http://169.254.169.254/latest",
            "redirects to 'http://169.254.169.254/latest', which is not followed",
        ),
        ("/moved.json?to=file:///etc/passwd", "redirects to 'file:///etc/passwd', which is not followed"),
        ("/text", "is no OpenAPI document"),
    ],
)
async def test_a_document_that_is_elsewhere_is_not_looked_for(api: Any, serve: Any, path: str, reason: str) -> None:
    with pytest.raises(ConfigError) as caught:
        async with serve(document=api.url + path):
            raise AssertionError("it must not start")
    assert reason in str(caught.value)
    assert path.partition("?")[0] in str(caught.value)


@pytest.mark.process
async def test_a_redirect_within_the_origin_is_followed(api: Any, serve: Any) -> None:
    api.operations({"/x": {"get": {"operationId": "look"}}})
    async with serve(document=f"{api.url}/moved.json?to=/openapi.json") as tools:
        assert tools.names() == ["look"]


@pytest.mark.process
async def test_a_document_without_any_usable_operation_stops_the_start(api: Any, serve: Any) -> None:
    api.operations({"/x": {"get": {"operationId": "look", "security": 5}}})
    with pytest.raises(ConfigError, match="no operation can become a tool; 'look' is skipped: its security"):
        async with serve():
            raise AssertionError("it must not start")


@pytest.mark.process
async def test_a_thousand_operations_start_and_too_many_are_refused(api: Any, serve: Any) -> None:
    node = {"type": "object", "properties": {f"p{n}": {"type": "string"} for n in range(20)}}
    node["properties"]["next"] = {"$ref": "#/components/schemas/Node"}
    parameter = {"name": "filter", "in": "query", "schema": {"$ref": "#/components/schemas/Node"}}

    def paths(count: int) -> dict[str, Any]:
        return {f"/r{n}": {"get": {"operationId": f"op{n}", "parameters": [parameter]}} for n in range(count)}

    api.operations(paths(1000), components={"schemas": {"Node": node}})
    async with serve() as tools:
        assert len(tools.names()) == 1000
    api.operations(paths(2001), components={"schemas": {"Node": node}})
    with pytest.raises(ConfigError, match="2,001 operations, at most 2,000 can be tools; choose with include"):
        async with serve():
            raise AssertionError("it must not start")
    async with serve(include=[{"path": "/r1?"}]) as tools:
        assert len(tools.names()) == 10


@pytest.mark.process
async def test_references_that_expand_without_end_become_any_value(api: Any, serve: Any) -> None:
    schemas: dict[str, Any] = {f"S{n}": {"allOf": [{"$ref": f"#/components/schemas/S{n + 1}"}] * 10} for n in range(30)}
    schemas["S30"] = {"type": "string"}
    schemas["Loop"] = {"allOf": [{"$ref": "#/components/schemas/Loop"}]}

    def uses(name: str) -> dict[str, Any]:
        parameter = {"name": "q", "in": "query", "schema": {"$ref": f"#/components/schemas/{name}"}}
        return {"get": {"operationId": name, "parameters": [parameter]}}

    paths = {"/a": uses("S0"), "/b": uses("Loop"), "/c": uses("S30")}
    api.operations(paths, components={"schemas": schemas})
    async with serve() as tools:
        assert tools.names() == ["S0", "Loop", "S30"]
        defs = tools.schema("S0")["$defs"]
        assert (defs["S0"]["allOf"], tools.schema("S30")["$defs"]) == (
            [{"$ref": "#/$defs/S1"}] * 10,
            {"S30": {"type": "string"}},
        )


@pytest.mark.process
async def test_a_document_is_read_from_a_file_next_to_the_configuration(api: Any, serve: Any, tmp_path: Path) -> None:
    (tmp_path / "api.json").write_text(json.dumps(api.operations({"/x": {"get": {"operationId": "look"}}})))
    async with serve(document="./api.json", base_url=api.url) as tools:
        assert (await tools.call("look")).status == "success"


def test_a_duplicate_key_is_found_in_one_pass() -> None:
    def read(count: int) -> None:
        pairs = ", ".join(f'"k{number}": 1' for number in [*range(count), count - 1])
        with pytest.raises(DocumentRefused, match=f"duplicate key 'k{count - 1}'; keep one of them"):
            Document(f"{{{pairs}}}".encode(), "api.json")

    assert growth(read, 4_000, 32_000) < 24  # a pass for each key makes it 64


@pytest.mark.slow
def test_the_work_grows_as_the_operations_do() -> None:
    node = {"type": "object", "properties": {"next": {"$ref": "#/components/schemas/Node"}}}
    parameter = {"name": "filter", "in": "query", "schema": {"$ref": "#/components/schemas/Node"}}

    def read(count: int) -> None:
        paths = {f"/r{n}": {"get": {"operationId": f"op{n}", "parameters": [parameter]}} for n in range(count)}
        document = {"openapi": "3.1.0", "info": {"title": "t", "version": "1"}, "paths": paths}
        text = json.dumps(document | {"components": {"schemas": {"Node": node}}})
        settings = Settings.model_validate({"document": "api.json", "base_url": "https://api.example"})
        assert len(read_document(text.encode(), settings).operations) == count

    assert growth(read, 60, 300) < 14  # a pass for each operation makes it 25


def large(paths: dict[str, Any], *, filler: str = "x" * SMALL_BYTES) -> str:
    return json.dumps({"openapi": "3.1.0", "info": {"title": "t", "version": filler}, "paths": paths})


@pytest.mark.process
@pytest.mark.requirement("I2-9-openapi-process")
async def test_a_large_document_gives_the_same_tools_as_a_small_one(api: Any, serve: Any) -> None:
    body = {
        "type": "object",
        "properties": {"file": {"type": "string", "format": "binary"}, "note": {"type": "string"}},
    }
    schema = {"type": "object", "properties": {"path": {"type": "string"}}}
    operation = {
        "summary": "Söme words.",
        "operationId": "send",
        "parameters": [{"name": "id", "in": "path", "required": True, "schema": {"type": "integer"}}],
        "requestBody": {"content": {"multipart/form-data": {"schema": body}}},
        "responses": {"200": {"content": {"application/json": {"schema": schema}}}},
        "security": [{"key": []}],
    }
    paths = {"/x/{id}": {"post": operation}, "/s": {"get": {"servers": [{"url": "https://a.example"}]}}}
    found: list[Any] = []
    for filler in ("", "x" * SMALL_BYTES):
        api.document = large(paths, filler=filler)
        async with serve(include=[{"path": "/*"}], rename={"send": "sent"}) as tools:
            listed = [tools.host.registry.catalog[name].definition for name in tools.names()]
            schemas = [(each.parameters.value, each.output_schema and each.output_schema.value) for each in listed]
            definitions = [(each.name, each.description, each.hints) for each in listed]
            assert (await tools.call("sent", {"id": 5, "file": "words"})).status == "success"
        found.append((definitions, schemas, api.sent, "words" in api.bodies[-1].decode()))
    assert found[0] == found[1]
    assert [name for name, *_ in found[0][0]] == ["sent", "GET_s"]


@pytest.mark.process
@pytest.mark.parametrize(
    ("document", "reason"),
    [
        (
            large({"/x": {"get": {"operationId": 5, "security": 5}}}),
            "no operation can become a tool; 'GET /x' is skipped",
        ),
        ('{"openapi": "3.1.0", "paths": ' + "[]," * SMALL_BYTES, "cannot be read: Expecting property name"),
        ('{"openapi": "3.1.0", "a": [' + "{}," * 1_000_000 + "1]}", "has more than 2,000,000 values"),
        ("a: " + "[" * SMALL_BYTES, "nests too deep"),
    ],
    ids=["no operation", "no JSON", "values", "deep"],
)
async def test_what_is_wrong_with_a_large_document_is_said(api: Any, serve: Any, document: str, reason: str) -> None:
    api.document = document
    with pytest.raises(ConfigError) as caught:
        async with serve():
            raise AssertionError("it must not start")
    assert reason in str(caught.value)


@pytest.mark.process
@pytest.mark.requirement("I2-9-openapi-process")
async def test_credentials_are_not_given_to_the_process_that_reads(api: Any, serve: Any) -> None:
    scheme = {"type": "apiKey", "in": "header", "name": "X-Key"}
    settings = Settings.model_validate(
        {"document": "api.json", "credentials": {"key": {"value": "s3cret", "scheme": scheme}}}
    )
    assert "s3cret" not in settings.without_secrets().model_dump_json()
    api.document = large({"/x": {"get": {"operationId": "look"}}})
    async with serve(base_url=api.url, credentials={"key": {"value": "s3cret", "scheme": scheme}}) as tools:
        assert (await tools.call("look")).status == "success"
    assert api.last.headers["x-key"] == "s3cret"


@pytest.mark.requirement("I38-document-endpoints")
def test_of_too_many_scopes_the_first_are_asked_for_and_the_others_are_counted() -> None:
    flow = {"authorizationUrl": "/authorize", "tokenUrl": "/token"}
    schemes = {"signed_in": {"type": "oauth2", "flows": {"authorizationCode": flow}}}
    needs = [{"signed_in": [f"scope-{number}" for number in range(150)]}]
    operation = {"operationId": "look", "security": needs, "responses": {}}
    root = {"openapi": "3.1.0", "paths": {"/a": {"get": operation}}, "components": {"securitySchemes": schemes}}
    document = Document(json.dumps(root).encode(), "api.json")
    found, warnings = find_sign_in(document, operations_of(document)[0], "https://api.example/openapi.json")
    assert found is not None
    assert found.scopes == tuple(f"scope-{number}" for number in range(MAX_SCOPES))
    assert found.token == "https://api.example/token"
    (said,) = warnings
    assert "the first 100 of the 150 scopes" in said
    assert "user_auth.oauth.scopes" in said
