"""The hook `rank_tools`: a plugin that ranks deferred tools instead of the host's own search."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest
from tests.search.many_provider import definition

from toolplug import CallContext, FunctionProvider, FunctionRegistry, ToolCall, ToolDefinition
from toolplug.catalog.definition import Offered

pytestmark = [pytest.mark.anyio, pytest.mark.requirement("I34-rank-tools")]

Answer = Callable[[str, Sequence[ToolDefinition]], Any]


class Ranked(FunctionProvider):
    """A hundred tools, and a ranking of them."""

    def __init__(self, answer: Answer) -> None:
        self.answer = answer

    def tools(self) -> list[ToolDefinition]:
        """The tools."""
        return [definition(number) for number in range(100)]

    async def execute(self, call: ToolCall, context: CallContext) -> str:
        """The name."""
        return call.name

    def rank_tools(self, query: str, tools: Sequence[ToolDefinition]) -> Awaitable[Sequence[str]]:
        """What the test says."""
        return self.answer(query, tools)


async def searched(answer: Answer) -> Any:
    """What a search for a branch to merge finds."""
    async with FunctionRegistry({"many": Ranked(answer)}) as registry:
        tools = registry.view(lambda catalog: registry.search.add_search_tools(catalog.offered(Offered("search"))))
        result = await tools.execute(ToolCall("1", "search_tools", {"query": "merge branch 37", "limit": 2}))
    return result.structured


def names(found: Any) -> list[str]:
    """The names of the tools."""
    return [tool["name"] for tool in found["tools"]]


async def test_the_ranking_of_a_plugin_is_the_answer() -> None:
    seen: list[int] = []

    async def answer(query: str, tools: Sequence[ToolDefinition]) -> list[str]:
        seen.append(len(tools))
        return ["no_such_tool", tools[5].name, tools[5].name, tools[4].name, tools[3].name]

    found = await searched(answer)
    assert (names(found), found["of"], seen) == ([definition(5).name, definition(4).name], 100, [100])


async def test_no_names_mean_that_no_tool_fits() -> None:
    found = await searched(lambda query, tools: [])
    assert (found["tools"], "No tool fits" in found["hint"]) == ([], True)


@pytest.mark.parametrize(
    "answer", [lambda query, tools: None, lambda query, tools: "merge", lambda query, tools: 1 / 0]
)
async def test_the_own_search_answers_where_a_plugin_does_not(answer: Answer) -> None:
    assert names(await searched(answer))[0] == "merge_branch_37"
