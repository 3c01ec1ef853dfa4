"""What a call needs does not grow with the catalog."""

from __future__ import annotations

import tracemalloc
from collections.abc import Sequence

import pytest

from toolplug import CallContext, FunctionProvider, FunctionRegistry, ToolCall, ToolDefinition

LARGE = 2_000


class Many(FunctionProvider):
    """So many tools that return nothing."""

    def __init__(self, count: int) -> None:
        super().__init__()
        self.count = count

    def tools(self) -> Sequence[ToolDefinition]:
        return [ToolDefinition(name=f"tool_{index}") for index in range(self.count)]

    async def execute(self, call: ToolCall, context: CallContext) -> str:
        return ""


async def peak_of_one_call(count: int) -> int:
    """The most bytes that are held at once for one call, above what is held before it.

    The least of several: a thread that another test has left may hold something meanwhile.
    """
    call, context = ToolCall("c1", f"tool_{count - 1}"), CallContext()
    peaks: list[int] = []
    async with FunctionRegistry({"many": Many(count)}) as registry:
        for _ in range(3):
            await registry.execute(call, context)
        tracemalloc.start()
        try:
            for _ in range(5):
                tracemalloc.reset_peak()
                before, _ = tracemalloc.get_traced_memory()
                result = await registry.execute(call, context)
                _, peak = tracemalloc.get_traced_memory()
                peaks.append(peak - before)
                assert result.status == "success"
        finally:
            tracemalloc.stop()
    return min(peaks)


@pytest.mark.anyio
@pytest.mark.requirement("I2-num-no-allocation")
async def test_a_call_allocates_nothing_for_the_other_tools_of_the_catalog() -> None:
    alone, among_many = await peak_of_one_call(1), await peak_of_one_call(LARGE)
    assert among_many - alone < LARGE, "not even a byte for each tool"
