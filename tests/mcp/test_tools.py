"""Listing and calling a caller's tools with the SDK's own client, in both eras."""

from __future__ import annotations

import asyncio

import pytest
from httpx2 import AsyncClient
from mcp.shared.exceptions import MCPError
from mcp_types import INVALID_PARAMS, ImageContent, TextContent
from tests.mcp.conftest import Opened, application, settings

pytestmark = [pytest.mark.anyio, pytest.mark.mcp, pytest.mark.requirement("C-5-mcp")]

WAIT_S = 20


def text_of(result: object) -> str:
    [content] = result.content  # type: ignore[attr-defined]
    assert isinstance(content, TextContent)
    return content.text


async def test_the_list_is_in_the_catalogs_order_and_says_what_each_tool_promises(opened: Opened) -> None:
    async with opened() as client:
        listed = await client.list_tools()
        again = await client.list_tools()
    names = [tool.name for tool in listed.tools]
    assert names[:4] == ["say", "move", "draw", "numbers"]
    assert again.tools == listed.tools
    assert listed.next_cursor is None
    say, move = listed.tools[:2]
    assert say.annotations is not None
    assert (say.annotations.read_only_hint, say.annotations.idempotent_hint) == (True, True)
    assert say.input_schema["properties"]["text"]["maxLength"] == 1000
    assert move.output_schema is not None
    assert move.output_schema["properties"]["x"]["type"] == "integer"


@pytest.mark.parametrize("era", ["2026-07-28"], indirect=True)
async def test_a_list_may_be_kept_for_some_seconds_by_its_caller_only(opened: Opened) -> None:
    async with opened() as client:
        listed = await client.list_tools()
    assert (listed.ttl_ms, listed.cache_scope) == (3_000, "private")


SAVING = settings(providers={"speaking": {"enabled": True}, "toolsets": {"enabled": True}})


@pytest.mark.parametrize("era", ["2026-07-28"], indirect=True)
@pytest.mark.parametrize("configured", [SAVING])
@pytest.mark.requirement("C-5-own-change-uncached")
async def test_a_list_that_its_callers_own_call_can_change_is_not_kept(opened: Opened) -> None:
    async with opened() as client:
        before = await client.list_tools()
        offered = (await client.list_prompts(), await client.list_resources(), await client.list_resource_templates())
        await client.call_tool("build-toolset", {"name": "mine", "tools": [{"namespacedName": "say"}]})
        await client.call_tool("equip-toolset", {"name": "mine"})
        after = await client.list_tools()
    assert [listed.ttl_ms for listed in (before, *offered)] == [0] * 4
    assert "draw" in {tool.name for tool in before.tools} - {tool.name for tool in after.tools}


@pytest.mark.parametrize("era", ["2026-07-28"], indirect=True)
@pytest.mark.requirement("C-5-own-change-uncached")
async def test_a_list_at_the_endpoint_of_a_session_is_not_kept(opened: Opened, url: str) -> None:
    async with application(url) as app, opened(f"/api/sessions/{app.code}/mcp") as client:
        assert (await client.list_tools()).ttl_ms == 0


CUTTING = settings(providers={"speaking": {"enabled": True, "limits": {"max_result_bytes": 3}}})


@pytest.mark.parametrize("configured", [CUTTING])
@pytest.mark.requirement("C-5-mcp")
async def test_a_value_that_is_cut_to_text_is_an_error_that_the_model_reads(opened: Opened) -> None:
    async with opened() as client:
        await client.list_tools()  # from here on the client raises for a result without a value of its schema
        moved = await client.call_tool("move", {"x": 3})
        numbers = await client.call_tool("numbers", {})
    for result, text in ((moved, '{"x'), (numbers, "[1,")):
        ran, cut = result.content
        assert isinstance(ran, TextContent)
        assert isinstance(cut, TextContent)
        assert (result.is_error, result.structured_content) == (True, None)
        assert ran.text == "The tool ran, once; it gave no value of its output schema but this text:"
        assert cut.text.startswith(f"{text}\n[cut: ")


@pytest.mark.requirement("I32-mcp-quiet-meta")
async def test_a_good_result_is_text_and_structured_and_what_is_no_object_is_put_in_one(opened: Opened) -> None:
    async with opened() as client:
        schemas = {tool.name: tool.output_schema for tool in (await client.list_tools()).tools}
        said = await client.call_tool("say", {"text": "hello"})
        moved = await client.call_tool("move", {"x": 3})
        numbers = await client.call_tool("numbers", {})
    assert (text_of(said), said.is_error, said.structured_content) == ("hello", False, None)
    own = {key for result in (said, moved, numbers) for key in result.meta or {} if key.startswith("toolplug/")}
    assert own == set(), "a success has nothing to add"
    assert moved.structured_content == {"x": 3, "y": 0}
    assert text_of(moved) == '{"x":3,"y":0}'
    assert (text_of(numbers), numbers.structured_content) == ("[1,2]", {"result": [1, 2]})
    assert schemas["numbers"] == {
        "type": "object",
        "properties": {"result": {"type": "array", "items": {"type": "integer"}}},
        "required": ["result"],
    }
    assert (schemas["say"], schemas["draw"]) == (None, None)


async def test_a_result_of_several_parts_has_them_after_its_text_and_foreign_ones_as_text(opened: Opened) -> None:
    async with opened() as client:
        drawn = await client.call_tool("draw", {})
    assert drawn.content == [
        TextContent(text="a picture"),
        ImageContent(data="AAAA", mime_type="image/png"),
        TextContent(text='{"type":"dance","steps":3}'),
    ]


async def test_every_failure_of_a_call_is_a_result_that_the_model_can_read(opened: Opened) -> None:
    async with opened() as client:
        failed = await client.call_tool("fails", {})
        panicked = await client.call_tool("panics", {})
        wrong = await client.call_tool("say", {"text": 5})
    assert (text_of(failed), failed.is_error) == ("not today", True)
    assert failed.meta is not None
    assert failed.meta["toolplug/status"] == "tool_error"
    assert failed.meta["toolplug/metadata"] == {"reason": "weather"}
    assert failed.meta["toolplug/retry_after_s"] == 2.5
    assert text_of(panicked) == 'internal error: builtin tool "panics" panicked'
    assert text_of(wrong).startswith('invalid arguments for tool "say"\n/text')
    assert (panicked.is_error, wrong.is_error) == (True, True)


LIMITED = settings(
    providers={"speaking": {"enabled": True, "tools": {"waits": {"limits": {"timeout": "50ms"}}, "draw": "deny"}}}
)


@pytest.mark.parametrize("configured", [LIMITED])
async def test_a_call_past_its_deadline_and_one_that_is_denied_are_errors(opened: Opened) -> None:
    async with opened() as client:
        late = await client.call_tool("waits", {})
        denied = await client.call_tool("draw", {})
    assert (late.is_error, text_of(late)) == (True, 'tool "waits" timed out after 0.05 s')
    assert denied.is_error
    assert text_of(denied).startswith('tool "draw" is not allowed: ')
    assert denied.meta is not None
    assert denied.meta["toolplug/status"] == "denied"


ASKING = settings(providers={"speaking": {"enabled": True, "tools": {"say": "ask"}}})


@pytest.mark.parametrize("configured", [ASKING])
async def test_a_call_that_a_person_has_approved_names_the_approval(opened: Opened, url: str) -> None:
    async with opened(key="root-key") as client:
        denied = await client.call_tool("say", {"text": "hello"})
        assert denied.meta is not None
        approval = denied.meta["toolplug/metadata"]["approval"]["id"]
        async with AsyncClient(base_url=url, headers={"X-API-Key": "judge-key"}, timeout=WAIT_S) as http:
            decided = await http.post(f"/v1/approvals/{approval}", json={"decision": "approve"})
        assert decided.status_code == 200
        said = await client.call_tool("say", {"text": "hello"}, meta={"toolplug/approval": approval})
    assert (text_of(said), said.is_error) == ("hello", False)


async def test_an_unknown_tool_is_an_error_of_the_protocol(opened: Opened) -> None:
    async with opened() as client:
        with pytest.raises(MCPError) as raised:
            await client.call_tool("nobody.knows", {})
    assert raised.value.code == INVALID_PARAMS
    assert raised.value.message == "Toolset not found for nobody.knows"


async def test_progress_is_told_while_a_call_runs_and_never_falls(opened: Opened) -> None:
    told: list[tuple[float, float | None, str | None]] = []

    async def hear(progress: float, total: float | None, message: str | None) -> None:
        told.append((progress, total, message))

    async with opened() as client:
        counted = await client.call_tool("counts", {"upto": 3}, progress_callback=hear)
    assert text_of(counted) == "3"
    assert told == [(1, 3, "number 1"), (2, 3, "number 2"), (3, 3, "number 3")]


async def test_a_cancelled_call_is_cancelled_at_its_provider(opened: Opened) -> None:
    async with opened() as client:
        waiting = asyncio.create_task(client.call_tool("waits", {}))
        assert text_of(await client.call_tool("seen_waiting", {})) == "waits"
        waiting.cancel()
        async with asyncio.timeout(WAIT_S):
            assert text_of(await client.call_tool("seen_cancelled", {})) == "cancelled"
        with pytest.raises(asyncio.CancelledError):
            await waiting


async def test_calls_of_one_client_run_side_by_side(opened: Opened) -> None:
    async with opened() as client:
        said = await asyncio.gather(*(client.call_tool("say", {"text": str(number)}) for number in range(20)))
    assert [text_of(result) for result in said] == [str(number) for number in range(20)]
