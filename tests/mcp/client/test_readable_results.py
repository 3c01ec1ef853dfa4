"""Results with a part that cannot be used: it is left out, a line says so, and the rest of the result is used."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import quote

import pytest
from tests.cpu_cost import UNBOUNDED, cost
from tests.mcp.client.conftest import Opened

from toolplug.parts.mcp.client.connection import BadAnswer, ServerConnection
from toolplug.parts.mcp.sdk.readable_results import readable_call

pytestmark = [pytest.mark.anyio, pytest.mark.mcp, pytest.mark.requirement("C-8-readable-results")]

Json = dict[str, Any]

TEXT: Json = {"type": "text", "text": "the rest"}
PICTURE: Json = {"type": "image", "data": b64encode(b"picture").decode(), "mimeType": "image/png"}
LINK: Json = {"type": "resource_link", "uri": "docs://one", "name": "one"}
PAGE: Json = {"type": "resource", "resource": {"uri": "docs://one", "text": "page"}}


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
async def server(hostile_server: Opened) -> AsyncIterator[ServerConnection]:
    """A server whose tool answers with its argument `result`."""
    async with hostile_server("as asked") as connection:
        yield connection


def left_out(what: str, at: str = "/content/0") -> Json:
    return {"type": "text", "text": f"[left out: {at}: {what}]"}


UNUSABLE: list[tuple[object, str]] = [
    (None, "a block that is no object"),
    (7, "a block that is no object"),
    ([TEXT], "a block that is no object"),
    ({"text": "no type"}, "a block without a type"),
    ({"type": "hologram", "data": "x"}, "a block of the type 'hologram'"),
    ({"type": ["text"], "text": "x"}, "a block without a type"),
    ({"type": "text", "text": None}, "a block of the type 'text' without a valid text"),
    ({"type": "text", "text": {"a": 1}}, "a block of the type 'text' without a valid text"),
    ({"type": "image", "data": PICTURE["data"]}, "a block of the type 'image' without a valid data or mimeType"),
    ({**PICTURE, "mimeType": None}, "a block of the type 'image' without a valid data or mimeType"),
    ({**PICTURE, "data": 5}, "a block of the type 'image' without a valid data or mimeType"),
    ({**PICTURE, "mimeType": "text/html"}, "a block of the type 'image' of the media type 'text/html'"),
    ({**PICTURE, "type": "audio"}, "a block of the type 'audio' of the media type 'image/png'"),
    ({**PICTURE, "data": "<script>"}, "a block of the type 'image' whose data is not base64"),
    ({"type": "resource_link", "name": "one"}, "a block of the type 'resource_link' without a valid uri or name"),
    ({**LINK, "uri": 5}, "a block of the type 'resource_link' without a valid uri or name"),
    ({"type": "resource"}, "a block of the type 'resource' without a valid resource"),
    ({"type": "resource", "resource": {"text": "x"}}, "a block of the type 'resource' without a valid resource"),
    ({"type": "resource", "resource": {"uri": "a:b"}}, "a block of the type 'resource' without a valid resource"),
    ({**LINK, "uri": "javascript:alert(1)"}, "a resource at 'javascript:alert(1)', which clients do not open"),
    ({**LINK, "uri": " Java\tScript:x"}, "a resource at 'Java\\tScript:x', which clients do not open"),
    ({**LINK, "uri": "file:///etc/passwd"}, "a resource at 'file:///etc/passwd', which clients do not open"),
    ({**LINK, "uri": "data:text/html,x"}, "a resource at 'data:text/html,x', which clients do not open"),
]


async def test_a_block_that_cannot_be_used_is_left_out_and_the_rest_is_used(server: ServerConnection) -> None:
    for block, why in UNUSABLE:
        for content, expected in (
            ([block, TEXT], [left_out(why), TEXT]),
            ([PICTURE, block], [PICTURE, left_out(why, "/content/1")]),
        ):
            answer = await server.call("echo", {"result": {"content": content}}, None)
            assert (list(answer.content), answer.is_error) == (expected, False), block


async def test_a_result_of_which_nothing_is_left_is_no_success(server: ServerConnection) -> None:
    for result in (
        *({"content": [block]} for block, _ in UNUSABLE),
        *({}, {"content": None}, {"toolResult": "x"}, {"structuredContent": None}, {"content": 5}),
    ):
        with pytest.raises(BadAnswer):
            await server.call("echo", {"result": result}, None)


@pytest.mark.parametrize("field", ["annotations", "_meta", "description"])
async def test_a_field_that_cannot_be_used_costs_the_block_nothing_else(server: ServerConnection, field: str) -> None:
    odd = {"priority": 5} if field == "annotations" else 5
    for block in (LINK,) if field == "description" else (TEXT, PICTURE, LINK, PAGE):
        answer = await server.call("echo", {"result": {"content": [{**block, field: odd}]}}, None)
        assert list(answer.content) == [left_out(f"the field '{field}', which has another type"), block]


async def test_odd_fields_of_a_result_cost_it_nothing_else(server: ServerConnection) -> None:
    for odd in ({"_meta": None}, {"_meta": [1]}, {"isError": None}, {"structuredContent": None}, {"_meta": "x"}):
        answer = await server.call("echo", {"result": {"content": [TEXT], **odd}}, None)
        assert (list(answer.content), answer.structured, answer.is_error, answer.meta) == ([TEXT], None, False, {})


@pytest.mark.parametrize(("said", "is_error"), [(1, True), ("true", True), ("perhaps", True), ("false", False)])
async def test_an_error_is_an_error_however_it_is_said(server: ServerConnection, said: object, is_error: bool) -> None:
    answer = await server.call("echo", {"result": {"content": [TEXT], "isError": said}}, None)
    assert answer.is_error is is_error


async def test_content_that_is_no_list_is_one_block(server: ServerConnection) -> None:
    for content in ("the rest", TEXT, ["the rest"]):
        answer = await server.call("echo", {"result": {"content": content}}, None)
        assert list(answer.content) == [TEXT]


async def test_structured_content_stays_without_any_block(server: ServerConnection) -> None:
    answer = await server.call("echo", {"result": {"structuredContent": {"a": 1}, "content": [{"type": "x"}]}}, None)
    assert (answer.structured, list(answer.content)) == ({"a": 1}, [left_out("a block of the type 'x'")])
    answer = await server.call("echo", {"result": {"structuredContent": {"a": 1}}}, None)
    assert (answer.structured, list(answer.content)) == ({"a": 1}, [])


async def test_base64_with_line_breaks_is_a_picture(server: ServerConnection) -> None:
    broken = {**PICTURE, "data": "\n".join(PICTURE["data"])}
    answer = await server.call("echo", {"result": {"content": [broken]}}, None)
    assert list(answer.content) == [PICTURE]


async def test_the_text_of_a_page_at_an_address_that_nobody_opens_stays(server: ServerConnection) -> None:
    page = {"type": "resource", "resource": {"uri": "file:///home/a.txt", "text": "the rest"}}
    answer = await server.call("echo", {"result": {"content": [page]}}, None)
    assert list(answer.content) == [
        left_out("a resource at 'file:///home/a.txt', which clients do not open"),
        TEXT,
    ]


async def test_more_than_a_thousand_blocks_are_counted(server: ServerConnection) -> None:
    answer = await server.call("echo", {"result": {"content": [TEXT] * 1_003}}, None)
    assert len(answer.content) == 1_001
    assert answer.content[-1] == left_out("3 blocks after the first 1000", "/content")


async def test_messages_of_a_prompt_are_read_one_by_one(hostile_server: Opened) -> None:
    async with hostile_server("offers as asked") as connection:

        async def prompt(result: object) -> Any:
            return await connection.request("prompts/get", {"name": "ask", "arguments": {"result": json.dumps(result)}})

        good = {"role": "user", "content": TEXT}
        for odd, why, at in (
            ({"role": "system", "content": TEXT}, "a message of neither user nor assistant", ""),
            ({"role": "user"}, "a block that is no object", "/content/0"),
            (
                {"role": "user", "content": {"type": "text"}},
                "a block of the type 'text' without a valid text",
                "/content/0",
            ),
            (None, "a message of neither user nor assistant", ""),
        ):
            found = await prompt({"messages": [odd, good], "description": "é" * 10_000})
            assert found["messages"] == [{"role": "user", "content": left_out(why, f"/messages/0{at}")}, good]
            assert found["description"] == "é" * 4_096
            with pytest.raises(BadAnswer):
                await prompt({"messages": [odd]})
        several = await prompt({"messages": [{"role": "assistant", "content": [TEXT, PICTURE]}], "_meta": None})
        assert [message["content"] for message in several["messages"]] == [TEXT, PICTURE]
        assert (await prompt({"messages": [], "description": None}))["messages"] == []
        with pytest.raises(BadAnswer):
            await prompt({"messages": "hello"})


async def test_contents_of_a_resource_are_read_one_by_one(hostile_server: Opened) -> None:
    async with hostile_server("offers as asked") as connection:

        async def read(result: object) -> Any:
            return await connection.request("resources/read", {"uri": f"odd:{quote(json.dumps(result))}"})

        good = {"uri": "docs://one", "text": "the rest"}
        for odd in (None, {}, {"uri": "docs://two"}, {"text": "x"}, {"uri": "docs://two", "text": None}):
            found = await read({"contents": [good, odd]})
            assert found["contents"][0] == good
            assert found["contents"][1]["text"].startswith("[left out: /contents/1: contents without")
            with pytest.raises(BadAnswer):
                await read({"contents": [odd]})
        assert (await read({"contents": [{**good, "mimeType": 5}, good], "_meta": []}))["contents"][-1] == good
        assert (await read({"contents": [{**good, "_meta": 5}]}))["contents"] == [good]


MANY: dict[str, Json] = {
    "base64 in lines": {"content": [{**PICTURE, "data": "AAAA\n" * 800_000}]},
    "no base64": {"content": [{**PICTURE, "data": "A A " * 1_000_000}, TEXT]},
    "a type that is a list": {"content": [{"type": [0] * 1_900_000}, TEXT]},
    "blocks": {"content": [TEXT] + [{"type": "x"}] * 250_000},
    "odd blocks": {"content": [{**TEXT, "annotations": {"priority": 5}, "x": "y" * 3_900} for _ in range(1_000)]},
    "odd fields": {"content": [{**TEXT, "annotations": 5, **{f"k{n}": 1 for n in range(250_000)}}]},
    "a long address": {"content": [{**LINK, "uri": " " * 1_000_000 + "\tx" * 1_000_000}, TEXT]},
}


@pytest.mark.parametrize("name", MANY)
def test_no_result_of_four_mebibytes_takes_long_to_read(name: str) -> None:
    assert cost(lambda: readable_call(MANY[name])) <= UNBOUNDED
