"""Forms, files and nested queries as APIs take them, and answers of every media type."""

from __future__ import annotations

import re
from typing import Any

import pytest
from starlette.responses import Response

pytestmark = [pytest.mark.anyio, pytest.mark.process, pytest.mark.requirement("I2-9-openapi-parts")]

DEEP = {"style": "deepObject", "explode": True}


@pytest.mark.parametrize(
    ("value", "sent"),
    [
        ({"documentId": {"$eq": "d1"}}, "q[documentId][%24eq]=d1"),
        (["a", "b"], "q[0]=a&q[1]=b"),
        ({"a": {"b": {"c": {"d": 1}}}}, "q[a][b][c][d]=1"),
        ({"id": {"$in": [1, 2]}}, "q[id][%24in][0]=1&q[id][%24in][1]=2"),
        ({"$or": [{"a": 1}, {"b": 2}]}, "q[%24or][0][a]=1&q[%24or][1][b]=2"),
        ([{"a": 1, "b": 2}], "q[0][a]=1&q[0][b]=2"),
        ({"a": True, "b": None, "c": 1.5}, "q[a]=true&q[b]=null&q[c]=1.5"),
        ({"a b": "c&d"}, "q[a%20b]=c%26d"),
        ({"a": {}, "b": []}, ""),
        ([[1], [2, 3]], "q[0][0]=1&q[1][0]=2&q[1][1]=3"),
        ("plain", "q=plain"),
    ],
)
async def test_a_deep_object_nests_in_brackets(api: Any, serve: Any, value: object, sent: str) -> None:
    api.operations({"/x": {"get": {"operationId": "look", "parameters": [{"name": "q", "in": "query", **DEEP}]}}})
    async with serve() as tools:
        assert (await tools.call("look", {"q": value})).status == "success"
    assert api.sent == (f"GET /x?{sent}" if sent else "GET /x")


@pytest.mark.parametrize(
    ("encoding", "value", "sent"),
    [
        (DEEP, {"k": "v"}, "f[k]=v"),
        (DEEP, [{"price": "p1"}, {"price": "p2", "n": 3}], "f[0][price]=p1&f[1][price]=p2&f[1][n]=3"),
        (DEEP, {"a": {"b": ["x"]}}, "f[a][b][0]=x"),
        (None, {"k": "v"}, "f=%7B%22k%22%3A%20%22v%22%7D"),
        (None, [1, 2], "f=1&f=2"),
        ({"style": "form", "explode": True}, {"a": 1, "b": 2}, "a=1&b=2"),
        ({"style": "form", "explode": False}, [1, 2], "f=1,2"),
        ({"style": "spaceDelimited", "explode": False}, ["a", "b"], "f=a%20b"),
        ({"style": "pipeDelimited", "explode": False}, ["a", "b"], "f=a%7Cb"),
        ({"contentType": "application/json"}, [1, {"a": 2}], "f=%5B1%2C%20%7B%22a%22%3A%202%7D%5D"),
        ({"style": "nonsense"}, [1, 2], "f=1&f=2"),
        ("nonsense", "a b", "f=a%20b"),
    ],
)
async def test_a_form_is_sent_as_its_encoding_says(
    api: Any, serve: Any, encoding: object, value: object, sent: str
) -> None:
    content = {"schema": {"type": "object", "properties": {"f": {}}}, "encoding": {"f": encoding} if encoding else {}}
    body = {"requestBody": {"content": {"application/x-www-form-urlencoded": content}}}
    api.operations({"/x": {"post": {"operationId": "send", **body}}})
    async with serve() as tools:
        assert (await tools.call("send", {"f": value})).status == "success"
    assert api.bodies == [sent.encode()]


@pytest.mark.parametrize(
    "value",
    ["x" * 65_536, ["x"] * 1_000, [""] * 1_100, {"a": [[]] * 1_100}, {f"k{number}": 1 for number in range(1_000)}],
    ids=["a long text", "many texts", "many empty texts", "many lists", "many names"],
)
async def test_an_address_that_no_server_takes_is_not_written(api: Any, serve: Any, value: object) -> None:
    parameter = {"name": "q", "in": "query", **DEEP}
    api.operations({"/x": {"get": {"operationId": "look", "parameters": [parameter]}}})
    async with serve() as tools:
        result = await tools.call("look", {"q": value})
        assert result.status == "tool_error"
        assert "larger than a request's address and headers may be, 65,536 characters" in result.output
        assert (await tools.call("look", {"q": ["x"] * 400})).status == "success"


async def test_a_large_form_is_sent_whole(api: Any, serve: Any) -> None:
    body = {"requestBody": {"content": {"application/x-www-form-urlencoded": {"schema": {"type": "object"}}}}}
    api.operations({"/x": {"post": {"operationId": "send", **body}}})
    async with serve() as tools:
        assert (await tools.call("send", {"body": {"f": ["x"] * 100_000}})).status == "success"
    assert api.bodies == [b"&".join([b"f=x"] * 100_000)]


async def test_a_form_of_open_properties_is_encoded_too(api: Any, serve: Any) -> None:
    schema = {"type": "object", "additionalProperties": {"type": "object"}}
    content = {"schema": schema, "encoding": {"metadata": DEEP}}
    body = {"requestBody": {"required": True, "content": {"application/x-www-form-urlencoded": content}}}
    api.operations({"/x": {"post": {"operationId": "send", **body}}})
    async with serve() as tools:
        assert (await tools.call("send", {"body": {"metadata": {"k": "v"}}})).status == "success"
    assert api.bodies == [b"metadata[k]=v"]


@pytest.mark.parametrize(
    ("content", "media_type"),
    [
        (["text/json"], "text/json"),
        (["*/*"], "application/json"),
        (["application/*+json", "application/json"], "application/json"),
        (["application/*"], "application/json"),
        (["application/vnd.api+json"], "application/vnd.api+json"),
        (["application/merge-patch+json", "application/json; charset=utf-8"], "application/json; charset=utf-8"),
        (["application/x-www-form-urlencoded", "application/json"], "application/json"),
        (["text/plain", "multipart/form-data", "application/x-www-form-urlencoded", "*/*"], "application/json"),
        (["application/xml", "application/scim+json"], "application/scim+json"),
        (["image/*", "text/json"], "text/json"),
        (["APPLICATION/JSON"], "APPLICATION/JSON"),
    ],
)
async def test_json_is_sent_where_a_body_may_be_json_and_never_as_a_range(
    api: Any, serve: Any, content: list[str], media_type: str
) -> None:
    schema = {"type": "object", "properties": {"a": {"type": "string"}}}
    body = {"requestBody": {"content": {each: {"schema": schema} for each in content}}}
    api.operations({"/x": {"post": {"operationId": "send", **body}}})
    async with serve() as tools:
        assert (await tools.call("send", {"a": "1"})).status == "success"
    assert (api.last.headers["content-type"], api.bodies) == (media_type, [b'{"a":"1"}'])


@pytest.mark.parametrize(
    ("media_type", "value", "sent_as", "sent"),
    [
        ("application/xml", "<a/>", "application/xml", b"<a/>"),
        ("text/csv", "a,b", "text/csv", b"a,b"),
        ("application/octet-stream", "data:image/png;base64,iVBORw==", "image/png", b"\x89PNG"),
        ("application/octet-stream", "words", "application/octet-stream", b"words"),
        ("image/*", "data:image/gif;base64,R0lG", "image/gif", b"GIF"),
        ("image/png", "data:image/png;base64,iVBORw==", "image/png", b"\x89PNG"),
        ("text/*", "words", "text/plain", b"words"),
        ("text/plain", "data: is a word", "text/plain", b"data: is a word"),
        ("application/graphql", "{ a }", "application/graphql", b"{ a }"),
        ("application/yaml", "a: 1", "application/yaml", b"a: 1"),
        ("application/octet-stream", "data:text/plain,a%20b", "text/plain", b"a b"),
    ],
)
async def test_any_other_body_is_a_text_or_a_file(
    api: Any, serve: Any, media_type: str, value: str, sent_as: str, sent: bytes
) -> None:
    content = {media_type: {"schema": {"type": "object", "properties": {"a": {}}}}}
    body = {"requestBody": {"required": True, "content": content}}
    api.operations({"/x": {"post": {"operationId": "send", **body}}})
    async with serve() as tools:
        assert tools.schema("send")["properties"]["body"]["type"] == "string"
        assert (await tools.call("send", {"body": value})).status == "success"
    assert (api.last.headers["content-type"], api.bodies) == (sent_as, [sent])


async def test_a_multipart_form_has_a_part_for_each_field_and_file(api: Any, serve: Any) -> None:
    binary = {"type": "string", "format": "binary"}
    properties = {
        "purpose": {"type": "string"},
        "file": {**binary, "description": "What to store."},
        "more": {"type": "array", "items": binary},
        "options": {"type": "object"},
        'odd"name': {"type": "string"},
    }
    content = {
        "schema": {"type": "object", "properties": properties},
        "encoding": {"file": {"contentType": "image/png"}},
    }
    body = {"requestBody": {"content": {"multipart/form-data": content}}}
    api.operations({"/x": {"post": {"operationId": "send", **body}}})
    arguments = {
        "purpose": "search",
        "file": "data:image/png;base64,iVBORw==",
        "more": ["one", "two"],
        "options": {"a": 1},
        "odd_name": "\r\n--",
    }
    async with serve() as tools:
        said = tools.schema("send")["properties"]["file"]["description"]
        assert said == "What to store. (its text, or a data: URL such as data:image/png;base64,…)"
        assert (await tools.call("send", arguments)).status == "success"
        broken = await tools.call("send", {"file": "data:image/png;base64,%%%"})
    boundary = api.last.headers["content-type"].removeprefix("multipart/form-data; boundary=")
    assert re.fullmatch("[0-9a-f]{32}", boundary)
    parts = [part.strip(b"\r\n").split(b"\r\n\r\n", 1) for part in api.bodies[0].split(f"--{boundary}".encode())[1:-1]]
    text = b"Content-Type: text/plain"
    assert [(head.removeprefix(b"Content-Disposition: form-data; "), content) for head, content in parts] == [
        (b'name="purpose"', b"search"),
        (b'name="file"; filename="file.png"\r\nContent-Type: image/png', b"\x89PNG"),
        (b'name="more"; filename="more.txt"\r\n' + text, b"one"),
        (b'name="more"; filename="more.txt"\r\n' + text, b"two"),
        (b'name="options"\r\nContent-Type: application/json', b'{"a": 1}'),
        (b'name="odd%22name"', b"\r\n--"),
    ]
    assert (broken.status, broken.output) == (
        "tool_error",
        "'file' begins as a data: URL, but what follows is no base64",
    )


@pytest.mark.parametrize(
    ("media_type", "content", "output"),
    [
        ("application/x-ndjson", b'{"a":1}\n{"a":2}\n', '{"a":1}\n{"a":2}\n'),
        ("application/jsonl", b"1\n2", "1\n2"),
        ("application/x-yaml", b"a: 1", "a: 1"),
        ("application/csv", b"a,b", "a,b"),
        ("application/javascript", b"x()", "x()"),
        ("application/json-seq", b'\x1e{"a":1}\n', '\x1e{"a":1}\n'),
        ("application/json; charset=iso-8859-1", '{"a":"é"}'.encode("latin-1"), '{"a":"é"}'),
        ("application/json", '{"a":"é"}'.encode("latin-1"), '{"a":"é"}'),
        ("application/json", '\ufeff{"a":1}'.encode(), '{"a":1}'),
        ("application/json", '{"a":1}'.encode("utf-16"), '{"a":1}'),
        ("text/json", b"[1]", "[1]"),
        ("application/problem+json", b"{}", "{}"),
        ("application/json", b'{"a":NaN}', '{"a":NaN}'),
        ("application/json", b"[-Infinity]", "[-Infinity]"),
        ("application/xhtml+xml", b"<p>x</p>", "<p>x</p>"),
        ("image/svg+xml", b"<svg/>", "<svg/>"),
        ("text/plain; charset=iso-8859-1", "é".encode("latin-1"), "é"),
        ("text/plain; charset=nonsense", "é".encode(), "é"),
        ("application/octet-stream", b"words", "words"),
        ("application/x-unheard-of", b"words", "words"),
        ("", b"words", "words"),
    ],
)
async def test_an_answer_that_is_text_is_given_as_text(
    api: Any, serve: Any, media_type: str, content: bytes, output: str
) -> None:
    api.answer = Response(content, headers={"content-type": media_type} if media_type else {})
    api.operations({"/answer": {"get": {"operationId": "look"}}})
    async with serve() as tools:
        answer = await tools.call("look")
    assert (answer.status, answer.output) == ("success", output)


@pytest.mark.parametrize(
    ("media_type", "content", "reason"),
    [
        ("application/pdf", b"%PDF-1.7", "application/pdf of 8 bytes, which is no text"),
        ("application/octet-stream", b"\0\1", "application/octet-stream of 2 bytes, which is no text"),
        ("application/x-thing", b"\xff\xfe\x00", "application/x-thing of 3 bytes, which is no text"),
        ("application/json", b"{", "this is JSON, but it is not"),
        ("application/json", b"[" * 100_000, "this is JSON, but it is not"),
        ("application/json", b"[" + b"{}," * 200_000 + b"1]", "JSON of more than 250,000 values; ask for less"),
    ],
)
async def test_an_answer_that_is_none_is_an_error_in_words(
    api: Any, serve: Any, media_type: str, content: bytes, reason: str
) -> None:
    api.answer = Response(content, headers={"content-type": media_type})
    api.operations({"/answer": {"get": {"operationId": "look"}}})
    async with serve() as tools:
        answer = await tools.call("look")
    assert (answer.status, reason in answer.output) == ("tool_error", True), answer.output
