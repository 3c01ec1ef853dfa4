"""Lists of a request against a large catalog: entries are looked up, so that the cost is a sum and not a product."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.cpu_cost import UNBOUNDED, longest_callback
from tests.responses.library.raw_model import RawModel, whole

from toolplug import FunctionProvider, FunctionRegistry, tool
from toolplug.responses import Loop, ResponseRequest, ToolCaller

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

TOOLS, ENTRIES = 1000, 1000


def _tool(number: int) -> Any:
    async def run(self: object) -> str:
        """Do it."""
        return ""

    run.__name__ = f"tool_{number}"
    return tool(run)


@pytest.fixture(scope="module")
async def registry() -> AsyncIterator[FunctionRegistry]:
    many = type("Many", (FunctionProvider,), {f"tool_{number}": _tool(number) for number in range(TOOLS)})
    async with FunctionRegistry({"many": many()}) as registry:
        yield registry


def _entry(number: int) -> dict[str, object]:
    return {"type": "mcp", "server_label": "many", "name": f"tool_{number}"}


ALL = {"type": "mcp", "server_label": "many"}
REQUESTS: dict[str, dict[str, object]] = {
    "allowed_tools, one entry again and again": {"allowed_tools": [ALL] * ENTRIES},
    "allowed_tools, each tool": {"allowed_tools": [_entry(number) for number in range(ENTRIES)]},
    "allowed_tools, unknown ones": {"allowed_tools": [{"type": "mcp", "server_label": str(n)} for n in range(ENTRIES)]},
    "allowed_tools, names": {"allowed_tools": [f"tool_{number}" for number in range(ENTRIES)]},
    "tool_choice, one entry again and again": {"tool_choice": {"type": "allowed_tools", "tools": [ALL] * ENTRIES}},
    "tool_choice, each tool": {"tool_choice": {"type": "allowed_tools", "tools": [_entry(n) for n in range(ENTRIES)]}},
    "tools, one server again and again": {"tools": [ALL] * ENTRIES},
    "tools, a filter each": {"tools": [{**ALL, "allowed_tools": [f"tool_{number}"]} for number in range(ENTRIES)]},
    "tools, a long filter": {"tools": [{**ALL, "allowed_tools": [f"tool_{number}" for number in range(TOOLS)]}] * 10},
}


@pytest.mark.requirement("C-9-bounded-lists")
@pytest.mark.parametrize("fields", REQUESTS.values(), ids=REQUESTS)
async def test_a_long_list_against_a_large_catalog_does_not_hold_up_the_loop(
    registry: FunctionRegistry, fields: dict[str, Any]
) -> None:
    model = RawModel(whole({"content": "hi"}))
    loop = Loop(model, ToolCaller(registry), ResponseRequest(input="Hi", stream=True, **fields))
    with longest_callback() as longest:
        async for _ in loop.events():
            pass
    assert loop.draft.status == "completed"
    assert longest.units < UNBOUNDED


@pytest.mark.requirement("C-9-bounded-lists")
async def test_filters_of_servers_mean_the_same_as_one_by_one(registry: FunctionRegistry) -> None:
    async def names(**fields: Any) -> list[str]:
        model = RawModel(whole({"content": "hi"}))
        async for _ in Loop(model, ToolCaller(registry), ResponseRequest(input="Hi", **fields)).events():
            pass
        tools: Any = model.asked[0].get("tools", [])
        return [each["function"]["name"] for each in tools]

    one, two = _entry(1), _entry(2)
    assert await names(allowed_tools=[two, one, two]) == ["tool_1", "tool_2"]
    assert await names(tools=[{**ALL, "allowed_tools": ["tool_3"]}, {**ALL, "allowed_tools": ["tool_4"]}]) == [
        "tool_3",
        "tool_4",
    ]
    assert len(await names(tools=[{**ALL, "allowed_tools": ["tool_3"]}, ALL])) == TOOLS
    assert await names(tools=[{**ALL, "allowed_tools": {"read_only": True}}]) == []
