"""Operations as tools: names, filters, arguments, schemas and hints."""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest

from toolplug.errors import ConfigError

pytestmark = [pytest.mark.anyio, pytest.mark.process]

TEXT = {"type": "string"}


def pets() -> dict[str, Any]:
    return {
        "/pets": {
            "get": {"operationId": "pets.list", "summary": "List pets.", "tags": ["pets"], "responses": {}},
            "post": {"operationId": "addPet", "tags": ["pets"], "description": "Adds one.", "deprecated": True},
        },
        "/pets/{id}": {
            "parameters": [{"name": "id", "in": "path", "required": True, "schema": {"type": "integer"}}],
            "get": {"tags": ["pets"]},
            "put": {"operationId": "putPet"},
            "delete": {"operationId": "deletePet"},
            "options": {"operationId": "optionsPet"},
        },
        "/admin/users": {"get": {"operationId": "users", "tags": ["admin"]}},
    }


async def test_each_operation_is_a_tool_with_a_name_a_description_and_hints(api: Any, serve: Any) -> None:
    api.operations(pets())
    async with serve() as tools:
        definitions = [tool.definition for tool in tools.host.registry.catalog.values()]
    assert [(each.name, each.description) for each in definitions] == [
        ("pets_list", "List pets."),
        ("addPet", "Adds one.\n\nDeprecated."),
        ("GET_pets_id", "GET /pets/{id}"),
        ("putPet", "PUT /pets/{id}"),
        ("deletePet", "DELETE /pets/{id}"),
        ("users", "GET /admin/users"),
    ]
    hints = [(each.hints.read_only, each.hints.idempotent, each.hints.destructive) for each in definitions]
    get, post, change = (True, True, False), (False, None, None), (False, True, True)
    assert hints == [get, post, get, change, change, get]


@pytest.mark.parametrize(
    ("settings", "names"),
    [
        ({"include": [{"tag": "pets"}]}, ["pets_list", "addPet", "GET_pets_id"]),
        ({"include": [{"tag": "pets", "method": "GET"}]}, ["pets_list", "GET_pets_id"]),
        ({"include": [{"operation": "*Pet"}], "exclude": [{"method": "DELETE"}]}, ["addPet", "putPet"]),
        ({"exclude": [{"path": "/pets*"}]}, ["users"]),
        ({"include": [{"path": "/pets/{id}"}]}, ["GET_pets_id", "putPet", "deletePet"]),
        (
            {"include": [{"method": "GET"}], "rename": {"pets.list": "pets", "GET /pets/{id}": "pet"}},
            ["pets", "pet", "users"],
        ),
    ],
)
async def test_filters_choose_and_rename_names(api: Any, serve: Any, settings: Any, names: list[str]) -> None:
    api.operations(pets())
    async with serve(**settings) as tools:
        assert tools.names() == names


async def test_every_setting_that_names_nothing_stops_the_start_with_the_nearest_name(api: Any, serve: Any) -> None:
    api.operations(pets())
    settings = {
        "rename": {"adPet": "x"},
        "trim": {"usrs": ["/name"]},
        "include": [{"operation": "putPat"}],
        "exclude": [{"tag": "pet"}],
        "credentials": {"key": {"value": "s"}},
    }
    with pytest.raises(ConfigError) as caught:
        async with serve(**settings):
            raise AssertionError("it must not start")
    for part in (
        "rename: it has no operation 'adPet'; did you mean 'addPet'?",
        "trim: it has no operation 'usrs'; did you mean 'users'?",
        "include[0]: no operation has this; did you mean 'putPet'?",
        "exclude[0]: no operation has this",
        "credentials.key: the document has no security scheme of this name",
    ):
        assert part in str(caught.value)


async def test_parameters_and_body_are_one_object_and_clashes_are_told_apart(api: Any, serve: Any) -> None:
    body = {
        "type": "object",
        "required": ["id", "name"],
        "properties": {"id": TEXT, "name": TEXT, "created": {"type": "string", "readOnly": True}},
    }
    parameters = [
        {"name": "id", "in": "path", "required": True, "description": "which one", "schema": TEXT},
        {"name": "id", "in": "query", "schema": {"type": "array", "items": TEXT}},
        {"name": "filter[tag]", "in": "query", "schema": TEXT},
        {"name": "Accept", "in": "header", "schema": TEXT},
        {"name": "X-Note", "in": "header", "schema": TEXT},
    ]
    operation = {
        "operationId": "put",
        "parameters": parameters,
        "requestBody": {"required": True, "content": {"application/json": {"schema": body}}},
    }
    api.operations({"/things/{id}": {"put": operation}})
    async with serve() as tools:
        assert tools.schema("put") == {
            "type": "object",
            "properties": {
                "id": {"type": "string", "description": "which one"},
                "id_query": {"type": "array", "items": TEXT},
                "filter_tag": TEXT,
                "X-Note": TEXT,
                "id_body": TEXT,
                "name": TEXT,
            },
            "additionalProperties": False,
            "required": ["id", "id_body", "name"],
        }
        arguments = {
            "id": "a/b",
            "id_query": ["1", "2"],
            "filter_tag": "&x",
            "X-Note": "n",
            "id_body": "c",
            "name": "é",
        }
        result = await tools.call("put", arguments)
    assert result.status == "success"
    assert api.sent == "PUT /things/a%2Fb?id=1&id=2&filter[tag]=%26x"
    assert api.last.headers["x-note"] == "n"
    assert (api.last.headers["content-type"], api.bodies) == ("application/json", ['{"id":"c","name":"é"}'.encode()])


@pytest.mark.parametrize(
    ("parameter", "value", "sent"),
    [
        ({"in": "query"}, ["a", "b c"], "q=a&q=b%20c"),
        ({"in": "query", "explode": False}, ["a", "b"], "q=a,b"),
        ({"in": "query", "style": "spaceDelimited", "explode": False}, ["a", "b"], "q=a%20b"),
        ({"in": "query", "style": "pipeDelimited", "explode": False}, ["a", "b"], "q=a%7Cb"),
        ({"in": "query", "style": "deepObject"}, {"a": 1, "b": ["x", "y"]}, "q[a]=1&q[b][0]=x&q[b][1]=y"),
        ({"in": "query"}, {"a": 1, "b": True}, "a=1&b=true"),
        ({"in": "query", "explode": False}, {"a": 1, "b": 2}, "q=a,1,b,2"),
        ({"in": "query", "explode": False}, [], ""),
        ({"in": "query"}, None, ""),
        ({"in": "query"}, "", "q="),
        ({"in": "query", "content": {"application/json": {}}}, {"a": [1]}, "q=%7B%22a%22%3A%20%5B1%5D%7D"),
    ],
)
async def test_query_parameters_have_their_styles(
    api: Any, serve: Any, parameter: Any, value: object, sent: str
) -> None:
    api.operations({"/x": {"get": {"operationId": "look", "parameters": [{"name": "q", **parameter}]}}})
    async with serve() as tools:
        assert (await tools.call("look", {"q": value})).status == "success"
    assert api.sent == (f"GET /x?{sent}" if sent else "GET /x")


@pytest.mark.parametrize(
    ("style", "explode", "value", "sent"),
    [
        ("simple", False, ["a", "b"], "a,b"),
        ("simple", True, {"a": 1, "b": 2}, "a=1,b=2"),
        ("label", False, 5, ".5"),
        ("label", True, ["a", "b"], ".a.b"),
        ("matrix", False, ["a", "b"], ";p=a,b"),
        ("matrix", True, ["a", "b"], ";p=a;p=b"),
        ("matrix", True, {"a": 1}, ";a=1"),
    ],
)
async def test_path_parameters_have_their_styles(
    api: Any, serve: Any, style: str, explode: bool, value: object, sent: str
) -> None:
    parameter = {"name": "p", "in": "path", "required": True, "style": style, "explode": explode}
    api.operations({"/x/{p}/y": {"get": {"operationId": "look", "parameters": [parameter]}}})
    async with serve() as tools:
        assert (await tools.call("look", {"p": value})).status == "success"
    assert api.sent == f"GET /x/{sent}/y"


async def test_headers_cookies_forms_and_text_are_sent(api: Any, serve: Any) -> None:
    parameters = [{"name": "X-Ids", "in": "header", "schema": {}}, {"name": "seen", "in": "cookie", "schema": TEXT}]
    form = {"schema": {"type": "object", "properties": {"a": TEXT, "b": {"type": "array"}}}}
    api.operations(
        {
            "/form": {
                "post": {
                    "operationId": "form",
                    "parameters": parameters,
                    "requestBody": {"content": {"application/x-www-form-urlencoded": form}},
                }
            },
            "/plain": {
                "post": {"operationId": "say", "requestBody": {"required": True, "content": {"text/plain": {}}}}
            },
        }
    )
    async with serve() as tools:
        await tools.call("form", {"X-Ids": [1, 2], "seen": "a b", "a": "x&y", "b": [1, 2]})
        assert (api.last.headers["x-ids"], api.last.headers["cookie"]) == ("1,2", "seen=a%20b")
        assert api.bodies[-1] == b"a=x%26y&b=1&b=2"
        await tools.call("say", {"body": "hello"})
        assert (api.last.headers["content-type"], api.bodies[-1]) == ("text/plain", b"hello")


@pytest.mark.parametrize(
    ("required", "schema", "arguments", "sent"),
    [
        (False, {"type": "object", "properties": {"a": TEXT}}, {}, b""),
        (True, {"type": "object", "properties": {"a": TEXT}}, {}, b"{}"),
        (False, {"type": "object", "properties": {"a": TEXT}, "required": ["a"]}, {"body": {"a": "x"}}, b'{"a":"x"}'),
        (True, {"type": "array", "items": TEXT}, {"body": ["x"]}, b'["x"]'),
        (True, {"type": "object", "additionalProperties": TEXT}, {"body": {"any": "x"}}, b'{"any":"x"}'),
        (True, {"oneOf": [TEXT, {"type": "integer"}]}, {"body": 5}, b"5"),
    ],
)
async def test_a_body_that_is_no_plain_object_is_one_argument(
    api: Any, serve: Any, required: bool, schema: Any, arguments: Any, sent: bytes
) -> None:
    body = {"required": required, "content": {"application/json": {"schema": schema}}}
    api.operations({"/x": {"post": {"operationId": "post", "requestBody": body}}})
    async with serve() as tools:
        assert (await tools.call("post", arguments)).status == "success"
    assert api.bodies == [sent]


async def test_schemas_of_3_0_and_references_become_json_schema(api: Any, serve: Any) -> None:
    node = {
        "type": "object",
        "nullable": True,
        "properties": {
            "kind": {"type": "string", "enum": ["a"], "nullable": True, "example": "a"},
            "size": {"type": "integer", "minimum": 0, "exclusiveMinimum": True},
            "next": {"$ref": "#/components/schemas/Node", "description": "ignored in 3.0"},
            "any": {"nullable": True, "allOf": [{"$ref": "#/components/schemas/Node"}]},
        },
    }
    parameter = {"name": "filter", "in": "query", "schema": {"$ref": "#/components/schemas/Node"}}
    api.operations({"/x": {"get": {"operationId": "look", "parameters": [{"$ref": "#/components/parameters/f"}]}}})
    api.document |= {"openapi": "3.0.3", "components": {"schemas": {"Node": node}, "parameters": {"f": parameter}}}
    async with serve() as tools:
        schema = tools.schema("look")
        assert schema["properties"] == {"filter": {"$ref": "#/$defs/Node"}}
        assert schema["$defs"]["Node"] == {
            "type": ["object", "null"],
            "properties": {
                "kind": {"type": ["string", "null"], "enum": ["a", None]},
                "size": {"type": "integer", "exclusiveMinimum": 0},
                "next": {"$ref": "#/$defs/Node"},
                "any": {"anyOf": [{"allOf": [{"$ref": "#/$defs/Node"}]}, {"type": "null"}]},
            },
        }
        assert (await tools.call("look", {"filter": {"next": {"size": 0}}})).status == "invalid_arguments"
        assert (await tools.call("look", {"filter": {"next": {"size": 1}}})).status == "success"


async def test_what_documents_of_3_1_often_get_wrong_is_understood(api: Any, serve: Any) -> None:
    tree = {
        "$recursiveAnchor": True,
        "type": "object",
        "properties": {
            "children": {"type": "array", "items": {"$recursiveRef": "#"}},
            "seed": {"type": "integer", "minimum": -(2**63), "maximum": 9_223_372_036_854_776_000},
            "part": {"type": "number", "minimum": 0, "exclusiveMinimum": True},
        },
    }
    parameter = {"name": "tree", "in": "query", "schema": {"$ref": "#/components/schemas/Tree"}}
    api.operations({"/x": {"get": {"operationId": "look", "parameters": [parameter]}}})
    api.document["components"] = {"schemas": {"Tree": tree}}
    async with serve() as tools:
        assert tools.schema("look")["$defs"]["Tree"]["properties"] == {
            "children": {"type": "array", "items": {"$ref": "#/$defs/Tree"}},
            "seed": {"type": "integer", "minimum": -(2**63), "maximum": 9_223_372_036_854_776_000},
            "part": {"type": "number", "exclusiveMinimum": 0},
        }
        assert (await tools.call("look", {"tree": {"children": [{"part": 0}]}})).status == "invalid_arguments"


def broken() -> dict[str, Any]:
    """Operations that cannot become tools, by a part of the reason."""
    ok = {"name": "q", "in": "query", "schema": TEXT}
    return {
        "'http://169.254.169.254/x' leads out": ("/d", {"parameters": [{"$ref": "http://169.254.169.254/x"}]}),
        "'#/components/none' leads nowhere": ("/e", {"parameters": [{"$ref": "#/components/none"}]}),
        "in a circle": ("/f", {"parameters": [{"$ref": "#/components/parameters/circle"}]}),
        "multipart/mixed; a body is JSON, a form": ("/i", {"requestBody": {"content": {"multipart/mixed": {}}}}),
        "'q' is in 'body', not in path": ("/k", {"parameters": [{"name": "q", "in": "body"}]}),
        "'X-Ü' has no name that a header": ("/r", {"parameters": [{**ok, "name": "X-Ü", "in": "header"}]}),
        "its body is application/json;\n": ("/s", {"requestBody": {"content": {"application/json;\n": {}}}}),
        "its path has characters that nobody can see": ("/\ud800", {}),
        "has no name that a request can carry": ("/q", {"parameters": [{**ok, "name": "\ud800"}]}),
        "its security is no list of objects": ("/u", {"security": ["key"]}),
    }


async def test_a_broken_operation_costs_only_itself_and_is_named(
    api: Any, serve: Any, caplog: pytest.LogCaptureFixture
) -> None:
    paths: dict[str, Any] = {"/a": {"get": {"operationId": "good"}}}
    for path, operation in broken().values():
        paths[path] = {"post": operation}
    circle = {"circle": {"$ref": "#/components/parameters/circle"}}
    api.document = json.dumps(api.operations(paths, components={"parameters": circle}))
    async with serve() as tools:
        names = tools.names()
        assert (await tools.call("good")).status == "success"
    said = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    for reason, (path, _) in broken().items():
        assert any(reason in text for text in said), (reason, path, said)
    assert names == ["good"]


def odd() -> dict[str, tuple[str, dict[str, Any], dict[str, Any]]]:
    """Operations with an odd part, which costs nothing else: path, operation, and the properties of the tool."""
    ok = {"name": "q", "in": "query", "schema": TEXT}
    deep: dict[str, Any] = {}
    for _ in range(80):
        deep = {"type": "array", "items": deep}
    return {
        "a template without a parameter": ("/a/{id}", {}, {"id": TEXT}),
        "a parameter without a template": ("/b", {"parameters": [{**ok, "name": "more", "in": "path"}]}, {}),
        "a reference to a file": ("/c", {"parameters": [{**ok, "schema": {"$ref": "file:///etc/passwd"}}]}, {"q": {}}),
        "a parameter that is elsewhere": ("/d", {"parameters": [ok, {"$ref": "http://a.example/x"}]}, {"q": TEXT}),
        "a parameter that is nowhere": ("/e", {"parameters": [ok, {"$ref": "#/components/none"}]}, {"q": TEXT}),
        "a schema that is none": ("/h", {"parameters": [{**ok, "schema": 5}]}, {"q": {}}),
        "a style of another place": ("/j", {"parameters": [{**ok, "style": "matrix"}]}, {"q": TEXT}),
        "a place of Swagger 2.0": ("/k", {"parameters": [ok, {"name": "x", "in": "body"}]}, {"q": TEXT}),
        "a body without content": ("/i", {"requestBody": {"content": {}}}, {}),
        "no slash": ("no-slash", {}, {}),
        "an operationId that another one has": ("/l", {"operationId": "good"}, {}),
        "an operationId that gives the name of another tool": ("/m", {"operationId": "good "}, {}),
        "a server of its own": ("/n", {"servers": [{"url": "https://elsewhere.example"}]}, {}),
        "a lone surrogate": ("/o", {"parameters": [{**ok, "schema": {"enum": ["\ud800"]}}]}, {"q": {}}),
        "a character that nobody can see": ("/p", {"parameters": [{**ok, "schema": {"enum": ["a\u200b"]}}]}, {"q": {}}),
        "fields of other types": (
            "/t",
            {"summary": None, "description": 5, "deprecated": "no", "parameters": None, "responses": None},
            {},
        ),
        "a space in a name": ("/v", {"parameters": [{**ok, "name": "two words"}]}, {"two_words": TEXT}),
        "a space in the path": ("/w x/{a b}", {"parameters": [{**ok, "name": "a b", "in": "path"}]}, {"a_b": TEXT}),
        "a reference that grows": ("/x", {"parameters": [{**ok, "schema": {"$dynamicRef": "#a"}}]}, {"q": {}}),
        "a header that none can be": ("/y", {"parameters": [ok, {"name": "X-Ü", "in": "header"}]}, {"q": TEXT}),
        "a name without an ASCII letter": ("/z", {"operationId": "列表"}, {}),
    }


@pytest.mark.requirement("I2-9-openapi-parts")
async def test_an_odd_part_costs_an_operation_that_reads_nothing_else(
    api: Any, serve: Any, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    paths: dict[str, Any] = {"/a": {"get": {"operationId": "good"}}}
    paths |= {path: {"get": operation} for path, operation, _ in odd().values()}
    api.document = json.dumps(api.operations(paths))
    async with serve() as tools:
        found = [tools.schema(name)["properties"] for name in tools.names()]
    assert dict(zip(odd(), found[1:], strict=True)) == {name: properties for name, (_, _, properties) in odd().items()}
    assert not [record for record in caplog.records if record.levelno == logging.WARNING]
    assert any("of 'GET /c' was removed: the $ref 'file:///etc/passwd' leads out" in text for text in caplog.messages)


async def test_a_schema_is_any_value_from_where_it_is_too_large_or_nests_too_deep(api: Any, serve: Any) -> None:
    deep: dict[str, Any] = {}
    for _ in range(80):
        deep = {"type": "array", "items": deep}
    wide = {"type": "object", "properties": {f"p{number}": {"type": "string"} for number in range(5000)}}
    parameters = [{"name": name, "in": "query", "schema": {"$ref": f"#/components/schemas/{name}"}} for name in "ab"]
    schemas = {"a": {"properties": {"x": TEXT, "wide": {"$ref": "#/components/schemas/wide"}}}, "b": deep, "wide": wide}
    api.operations({"/x": {"get": {"operationId": "look", "parameters": parameters}}}, components={"schemas": schemas})
    async with serve() as tools:
        schema = tools.schema("look")
        assert schema["$defs"]["a"]["properties"] == {"x": TEXT, "wide": {"$ref": "#/$defs/wide"}}
        assert (schema["$defs"]["wide"], schema["$defs"]["b"]["type"]) == ({}, "array")


async def test_paths_are_told_apart_by_a_fragment_and_may_have_a_query(api: Any, serve: Any) -> None:
    post = {"parameters": [{"name": "q", "in": "query", "schema": TEXT}]}
    paths = {
        "/oauth2/token#refresh": {"post": {**post, "operationId": "refresh"}},
        "/oauth2/token": {"post": {**post, "operationId": "token"}},
        "/jobs?action=list": {"get": {**post, "operationId": "jobs"}},
    }
    api.operations(paths)
    async with serve() as tools:
        assert tools.names() == ["refresh", "token", "jobs"]
        sent: list[str] = []
        for name in tools.names():
            assert (await tools.call(name, {"q": "a"})).status == "success"
            sent.append(api.sent)
    assert sent == ["POST /oauth2/token?q=a", "POST /oauth2/token?q=a", "GET /jobs?action=list&q=a"]


async def test_words_of_the_document_lose_characters_that_nobody_can_see(api: Any, serve: Any) -> None:
    api.operations({"/x": {"get": {"operationId": "look", "summary": "Lo\u200bok.\u202e"}}})
    async with serve() as tools:
        assert tools.host.registry.catalog["look"].definition.description == "Look."
