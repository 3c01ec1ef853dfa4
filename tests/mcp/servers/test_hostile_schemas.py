"""Schemas of an MCP server that are dear to validate, for arguments and for structured results."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import pytest
from tests.cpu_cost import UNBOUNDED, longest_callback
from tests.mcp.servers.scripted import TIME, Harness, ScriptedConnection, run, tool

from toolplug.catalog.call import Report
from toolplug.parts.mcp.client.connection import McpAnswer
from toolplug.parts.mcp.client.plans import UNFIT

pytestmark = pytest.mark.anyio

OPTIONS = {"enum": [{"a": n} for n in range(600)]}
SCHEMA = {"type": "object", "properties": {"a": {"type": "array", "items": OPTIONS}}}
VALUE = {"a": [{"a": 599}] * 90_000}


@pytest.mark.requirement("C-3-validation-bounded")
async def test_arguments_that_are_too_large_to_validate_never_reach_the_server(harness: Harness) -> None:
    tools = await harness.tools(TIME, tool(inputSchema=SCHEMA), tool("plain"))
    with longest_callback() as longest:
        refused, answered = await asyncio.gather(run(tools.live, "now", VALUE), run(tools.live, "plain"))
    assert (refused.status, refused.output) == (
        "invalid_arguments",
        'invalid arguments for tool "now"\n/: too large to validate',
    )
    assert answered.status == "success"
    assert longest.units <= UNBOUNDED


@pytest.mark.requirement("C-3-validation-bounded")
async def test_a_structured_result_that_is_too_large_to_validate_is_left_out(harness: Harness) -> None:
    async def answer(
        connection: ScriptedConnection, name: str, arguments: Mapping[str, object], report: Report | None
    ) -> McpAnswer:
        return McpAnswer([{"type": "text", "text": "all of it"}], VALUE, False)

    tools = await harness.tools(TIME, tool(outputSchema=SCHEMA))
    harness.script.answer = answer
    with longest_callback() as longest:
        result = await run(tools.live, "now")
    assert (result.output, result.structured, result.metadata) == ("all of it", None, {"left_out": UNFIT})
    assert longest.units <= UNBOUNDED
