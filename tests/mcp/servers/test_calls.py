"""A call of a server's tool, from the executor to the server and back."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import pytest
from tests.mcp.servers.scripted import TIME, Harness, ScriptedConnection, record, run, said, settled, tool
from tests.virtual_time import VIRTUAL

from toolplug import ToolResult
from toolplug.catalog.call import Report
from toolplug.execution.accounting import MAX_LABELS, OTHER
from toolplug.parts.mcp.client.connection import BadAnswer, ConnectionFailed, McpAnswer, ServerRefused
from toolplug.parts.mcp.client.plans import MAX_META, UNFIT
from toolplug.parts.mcp.content import content_of
from toolplug.testing.executor_laws import check_executor

pytestmark = pytest.mark.anyio


class Answers:
    """Answers every call alike."""

    def __init__(self, answer: McpAnswer | Exception) -> None:
        self._answer = answer

    async def __call__(
        self, connection: ScriptedConnection, name: str, arguments: Mapping[str, object], report: Report | None
    ) -> McpAnswer:
        if isinstance(self._answer, Exception):
            raise self._answer
        return self._answer


@pytest.mark.requirement("I5-1-shared")
async def test_a_server_is_started_by_the_first_call_and_kept_for_the_next(harness: Harness) -> None:
    tools = await harness.tools()
    assert list(tools.live.catalog) == ["now"]
    assert harness.script.tried == 0
    assert [(await run(tools.live)).output for _ in range(2)] == ["now of 1", "now of 1"]
    assert harness.script.tried == 1


@pytest.mark.requirement("I5-1-shared")
async def test_calls_that_come_while_the_server_starts_wait_for_one_connection(harness: Harness) -> None:
    tools = await harness.tools()
    harness.script.holds = asyncio.Event()
    calls = [asyncio.create_task(run(tools.live)) for _ in range(5)]
    await settled()
    harness.script.holds.set()
    assert {(await call).output for call in calls} == {"now of 1"}


@pytest.mark.requirement("DISC-no-start")
async def test_listing_and_asking_what_can_be_called_start_nothing(harness: Harness) -> None:
    tools = await harness.tools()
    session = tools.per_session()
    for executor in (tools.live, tools.lone, session):
        assert list(executor.catalog) == ["now"]
        assert executor.can_execute("now")
        assert (await run(executor, "then")).status == "unknown_tool"
    assert harness.script.tried == 0
    await session.aclose()


@pytest.mark.requirement("I5-1-executor", "LAW-1")
async def test_the_executors_of_a_server_keep_the_laws_of_executors(harness: Harness) -> None:
    tools = await harness.tools()
    session = tools.per_session()
    for executor in (tools.live, tools.lone, session):
        await check_executor(executor, calls={"now": {}})
    await session.aclose()


@pytest.mark.requirement("I5-1-parts")
async def test_text_becomes_the_output_and_everything_else_a_part(harness: Harness) -> None:
    tools = await harness.tools()
    image = {"type": "image", "data": "AA==", "mimeType": "image/png"}
    blocks = [{"type": "text", "text": "one"}, image, {"type": "text", "text": "two"}]
    harness.script.answer = Answers(McpAnswer(blocks, {"n": 1}, False))
    result = await run(tools.live)
    assert result == ToolResult("c", "now", "one\ntwo", structured={"n": 1}, parts=(image,))
    assert content_of(result, lambda _: True, None)["content"] == blocks


async def test_structured_content_alone_is_the_output_too(harness: Harness) -> None:
    tools = await harness.tools()
    harness.script.answer = Answers(McpAnswer([], {"n": 1}, False))
    assert await run(tools.live) == ToolResult("c", "now", '{"n":1}', structured={"n": 1})


@pytest.mark.requirement("I5-1-parts")
async def test_structured_content_that_does_not_fit_its_schema_is_left_out_and_the_text_stays(harness: Harness) -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    tools = await harness.tools(TIME, tool(outputSchema=schema))
    harness.script.answer = Answers(McpAnswer([{"type": "text", "text": "one"}], {"n": "one"}, False))
    assert await run(tools.live) == ToolResult("c", "now", "one", metadata={"left_out": UNFIT})


@pytest.mark.parametrize(
    ("answer", "output", "metadata"),
    [
        (said("no such zone", is_error=True), "no such zone", {}),
        (ServerRefused(-32602, "Unknown tool: now"), "Unknown tool: now", {"code": "server_refused"}),
        (ServerRefused(-32603, ""), "its server refused the call with code -32603", {"code": "server_refused"}),
        (BadAnswer("content is no list"), "its server gave no answer that can be read", {"code": "bad_answer"}),
    ],
)
async def test_what_a_server_refuses_is_an_error_of_its_tool(
    harness: Harness, answer: McpAnswer | Exception, output: str, metadata: Mapping[str, object]
) -> None:
    tools = await harness.tools()
    harness.script.answer = Answers(answer)
    assert await run(tools.live) == ToolResult("c", "now", output, "tool_error", metadata=metadata)
    assert harness.script.running == 1


@pytest.mark.requirement("C-3-unavailable", "C-7-full-name")
async def test_a_server_that_is_down_is_told_of_under_the_name_that_was_called(harness: Harness) -> None:
    tools = await harness.tools()
    harness.script.fails = ConnectionFailed("no such program: /secret/path")
    result = await run(tools.live.view(lambda catalog: catalog.prefixed("clock")), "clock.now")
    assert (result.name, result.status, result.metadata) == ("clock.now", "unavailable", {"code": "server_down"})
    assert result.output == "tool \"clock.now\" is unavailable: its server 'time' is down"


async def test_arguments_that_do_not_fit_reach_no_server(harness: Harness) -> None:
    schema = {"type": "object", "properties": {"zone": {"type": "string"}}, "required": ["zone"]}
    tools = await harness.tools(TIME, tool(inputSchema=schema))
    assert (await run(tools.live)).status == "invalid_arguments"
    assert harness.script.tried == 0
    await run(tools.live, arguments={"zone": "UTC"})
    assert harness.script.connections[0].calls == [("now", {"zone": "UTC"})]


@pytest.mark.requirement("I5-1-progress")
async def test_progress_reaches_whoever_listens_and_is_asked_for_by_nobody_else(harness: Harness) -> None:
    tools = await harness.tools()
    asked: list[bool] = []

    async def answer(
        connection: ScriptedConnection, name: str, arguments: Mapping[str, object], report: Report | None
    ) -> McpAnswer:
        asked.append(report is not None)
        if report is not None:
            report(1.0, 2.0, "half")
        return said("done")

    harness.script.answer = answer
    heard: list[tuple[object, ...]] = []
    await run(tools.live)
    await run(tools.live, report=lambda *progress: heard.append(progress))
    assert (asked, heard) == ([False, True], [(1.0, 2.0, "half")])


@pytest.mark.requirement("I5-1-progress")
async def test_a_caller_that_goes_away_cancels_the_request_and_keeps_the_connection(harness: Harness) -> None:
    tools = await harness.tools()
    await run(tools.live)
    harness.script.answering = asyncio.Event()
    call = asyncio.create_task(run(tools.live))
    await settled()
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    await settled()
    harness.script.answering.set()
    assert harness.script.connections[0].cancelled == 1
    assert (await run(tools.live)).output == "now of 1"


@pytest.mark.parametrize("anyio_backend", [VIRTUAL])
@pytest.mark.requirement("I5-1-progress")
async def test_a_deadline_cancels_the_request(harness: Harness) -> None:
    tools = await harness.tools()
    await run(tools.live)
    harness.script.answering = asyncio.Event()
    result = await run(tools.live, deadline=asyncio.get_running_loop().time() + 1.0)
    await settled()
    assert (result.status, harness.script.connections[0].cancelled) == ("timeout", 1)


@pytest.mark.requirement("I5-1-executor")
async def test_calls_are_counted_under_the_server(harness: Harness) -> None:
    tools = await harness.tools()
    await run(tools.live)
    counters = harness.accounting.counters("mcp:time", "now")
    assert (counters.ended, counters.in_flight) == ({"success": 1}, 0)


async def test_a_server_that_calls_its_tools_otherwise_all_the_time_gets_no_metrics_without_end(
    harness: Harness,
) -> None:
    tools = await harness.tools(TIME, *[tool(f"tool_{n}") for n in range(MAX_LABELS)])
    tools.show(await record(tool("one_more"), tool("another")))
    assert (
        len([counters for counters in harness.accounting.all_counters() if counters.provider == "mcp:time"])
        == MAX_LABELS + 1
    )
    await run(tools.live, "one_more")
    await run(tools.live, "another")
    assert harness.accounting.counters("mcp:time", OTHER).ended == {"success": 2}


@pytest.mark.requirement("C-8-annotations")
async def test_what_a_server_says_beside_a_result_is_passed_on(harness: Harness) -> None:
    meta = {"fastmcp": {"wrap_result": True}}
    forged = {"toolplug/status": "forged", "io.modelcontextprotocol/serverInfo": {"name": "another"}}
    harness.script.answer = Answers(said("8")._replace(structured={"result": 8}, meta={**meta, **forged}))
    result = await run((await harness.tools()).live)
    assert (result.output, result.metadata) == ("8", {"_meta": meta})
    shown = content_of(result, lambda _: True, None)
    assert shown["_meta"] == {"fastmcp": {"wrap_result": True}}
    assert shown["structuredContent"] == {"result": 8}
    harness.script.answer = Answers(said("8")._replace(meta={"a": "x" * MAX_META}))
    assert (await run((await harness.tools()).live)).metadata == {}
