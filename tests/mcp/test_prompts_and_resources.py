"""Prompts, resources and completions of providers, as the SDK's own client sees them, in both eras."""

from __future__ import annotations

import base64
from collections.abc import Awaitable, Iterator
from typing import Any

import pytest
from httpx2 import AsyncClient
from mcp.shared.exceptions import MCPError
from mcp_types import PromptReference, ResourceTemplateReference
from tests.http.conftest import KEYS, with_agents_of_keys
from tests.http.served import served
from tests.mcp.conftest import Opened
from tests.mcp.offering_provider import Notes

from toolplug import Host, open_host
from toolplug.http import create_app

pytestmark = [pytest.mark.mcp, pytest.mark.anyio, pytest.mark.requirement("I14-5-prompts-resources")]


@pytest.fixture
def configured() -> dict[str, object]:
    whole = {
        "store": "memory://",
        "auth": KEYS,
        "limits": {"timeout": "300ms"},
        "toolsets": {"mine": {"prefix": "mine", "from": "provider:notes"}},
        "agents": {"writer": {"toolsets": ["mine"]}, "reader": {"toolsets": []}},
    }
    return with_agents_of_keys(whole)


@pytest.fixture
def host(configured: dict[str, object]) -> Host:
    return open_host(configured, environ={}, providers=[Notes])


@pytest.fixture
def url(host: Host) -> Iterator[str]:
    with served(host, create_app(host)) as port:
        yield f"http://127.0.0.1:{port}"


async def refusal(asked: Awaitable[object]) -> tuple[int, str]:
    """Code and message of the error that a request is answered with."""
    with pytest.raises(MCPError) as caught:
        await asked
    return caught.value.code, caught.value.message


def plain(model: Any) -> Any:
    return model.model_dump(by_alias=True, exclude_none=True, mode="json")


async def test_a_client_lists_and_gets_prompts(opened: Opened) -> None:
    async with opened() as client:
        listed = (await client.list_prompts()).prompts
        assert plain(listed[0]) == {
            "name": "review",
            "title": "Review a note",
            "description": "Ask for a review.",
            "arguments": [
                {"name": "text", "description": "the note", "required": True},
                {"name": "style", "required": False},
            ],
        }
        got = await client.get_prompt("greet", {"who": "Bo"})
        assert [plain(message) for message in got.messages] == [
            {"role": "user", "content": {"type": "text", "text": "Greet Bo for alice."}},
            {"role": "assistant", "content": {"type": "text", "text": "Hello!"}},
        ]
        assert got.description == "Greet somebody."
        reviewed = await client.get_prompt("review", {"text": "a note", "style": "long"})
        assert plain(reviewed.messages[0])["content"]["text"] == "Review, long: a note"


async def test_a_client_lists_and_reads_resources(opened: Opened) -> None:
    async with opened() as client:
        listed = [plain(item) for item in (await client.list_resources()).resources]
        assert listed[:2] == [
            {"uri": "notes://motto", "name": "motto", "description": "The motto."},
            {
                "uri": "notes://logo",
                "name": "logo",
                "title": "Logo",
                "description": "A picture.",
                "mimeType": "image/png",
                "size": 3,
            },
        ]
        templates = (await client.list_resource_templates()).resource_templates
        assert [item.uri_template for item in templates] == ["notes://by/{name}"]
        assert [plain(item) for item in (await client.read_resource("notes://motto")).contents] == [
            {"uri": "notes://motto", "mimeType": "text/plain", "text": "Write it down."}
        ]
        picture = plain((await client.read_resource("notes://logo")).contents[0])
        assert base64.b64decode(picture["blob"]) == b"\x01\x02\x03"
        assert [plain(item) for item in (await client.read_resource("notes://by/ann%20b")).contents] == [
            {"uri": "notes://by/ann%20b", "mimeType": "application/json", "text": '{"name":"ann b"}'}
        ]


async def test_a_client_completes_arguments(opened: Opened) -> None:
    async with opened() as client:
        names = await client.complete(PromptReference(name="greet"), {"name": "who", "value": "an"})
        assert names.completion.values == ["Ann", "Anton"]
        styles = await client.complete(PromptReference(name="review"), {"name": "style", "value": ""})
        assert (styles.completion.values, styles.completion.total) == (["short", "long"], 2)
        uri = ResourceTemplateReference(uri="notes://by/{name}")
        assert (await client.complete(uri, {"name": "name", "value": "n"})).completion.values == ["n1", "n2"]
        broken = await client.complete(PromptReference(name="broken"), {"name": "x", "value": ""})
        assert broken.completion.values == []
        assert await refusal(client.complete(PromptReference(name="none"), {"name": "x", "value": ""})) == (
            -32602,
            'no prompt "none"',
        )


async def test_a_prompt_that_fails_is_one_error_in_words(opened: Opened) -> None:
    async with opened() as client:
        assert await refusal(client.get_prompt("broken")) == (-32603, 'internal error: prompt "broken" failed')
        assert await refusal(client.get_prompt("nonsense")) == (-32603, 'internal error: prompt "nonsense" failed')
        assert await refusal(client.get_prompt("hanging")) == (-32603, 'prompt "hanging" timed out after 0.3 s')
        assert await refusal(client.get_prompt("refusing")) == (-32603, "there are no notes yet")
        assert await refusal(client.get_prompt("huge")) == (-32603, 'prompt "huge" has more than 1048576 bytes')
        assert await refusal(client.get_prompt("review")) == (
            -32602,
            'invalid arguments for prompt "review"\n/: "text" is required',
        )
        assert await refusal(client.read_resource("notes://broken")) == (
            -32603,
            'internal error: resource "notes://broken" failed',
        )


async def test_an_unknown_resource_is_not_found_as_each_era_says_it(opened: Opened, era: str) -> None:
    async with opened() as client:
        with pytest.raises(MCPError) as caught:
            await client.read_resource("notes://nowhere/else")
    code = -32002 if era == "2025-11-25" else -32602
    assert (caught.value.code, caught.value.message) == (code, 'no resource "notes://nowhere/else"')
    assert caught.value.error.data == {"uri": "notes://nowhere/else"}


async def test_an_agent_sees_the_prompts_and_resources_of_its_toolsets_only(opened: Opened) -> None:
    async with opened("/mcp?agent=writer") as client:
        prompts = (await client.list_prompts()).prompts
        assert [(item.name, (item.meta or {}).get("toolplug/name")) for item in prompts][:2] == [
            ("mine__review", "mine.review"),
            ("mine__greet", "mine.greet"),
        ]
        for name in ("mine.greet", "mine__greet"):
            assert plain((await client.get_prompt(name, {"who": "Bo"})).messages[1])["content"]["text"] == "Hello!"
        assert await refusal(client.get_prompt("greet", {"who": "Bo"})) == (-32602, 'no prompt "greet"')
        assert (await client.read_resource("notes://motto")).contents
    async with opened("/mcp?agent=reader") as client:
        assert (await client.list_prompts()).prompts == []
        assert (await client.list_resources()).resources == []
        assert (await client.list_resource_templates()).resource_templates == []
        assert await refusal(client.get_prompt("mine.greet", {"who": "Bo"})) == (-32602, 'no prompt "mine.greet"')
        hidden, unknown = [await refusal(client.read_resource(uri)) for uri in ("notes://motto", "notes://other")]
        assert hidden == (unknown[0], unknown[1].replace("other", "motto"))


async def test_calls_are_counted_by_what_is_asked(opened: Opened, url: str) -> None:
    async with opened() as client:
        await client.get_prompt("greet", {"who": "Bo"})
        await refusal(client.get_prompt("broken"))
        await client.read_resource("notes://motto")
    async with AsyncClient(base_url=url) as scraper:
        lines = (await scraper.get("/metrics")).text.splitlines()
    methods = ("prompts/get", "resources/read")
    counted = [line for line in lines if "executions_total{" in line and any(name in line for name in methods)]
    assert sorted(counted) == [
        'antwort_builtin_tool_executions_total{provider="notes",status="panic",tool_name="prompts/get"} 1.0',
        'antwort_builtin_tool_executions_total{provider="notes",status="success",tool_name="prompts/get"} 1.0',
        'antwort_builtin_tool_executions_total{provider="notes",status="success",tool_name="resources/read"} 1.0',
    ]
