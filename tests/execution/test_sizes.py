"""Results at their limit and over it."""

from __future__ import annotations

from typing import Any, NoReturn

import pytest
from tests.execution.harness import Harness

from toolplug.catalog.call import ToolResult, ToolStatus
from toolplug.errors import ToolError

pytestmark = pytest.mark.anyio

LIMIT = 100


def returning(value: object) -> Any:
    async def tool(call: object, context: object) -> object:
        return value

    return tool


@pytest.mark.requirement("C-3-result-cut", "H-limit-result")
@pytest.mark.parametrize("text", ["x" * LIMIT, "ä" * (LIMIT // 2), "日" * (LIMIT // 3), "🦦" * (LIMIT // 4)])
async def test_a_result_at_its_limit_passes_whole(harness: Harness, text: str) -> None:
    assert (await harness.call(returning(text), max_result_bytes=LIMIT)).output == text


@pytest.mark.requirement("C-3-result-cut", "H-limit-result")
@pytest.mark.parametrize(
    ("text", "head", "missing", "size"),
    [
        ("x" * 101, "x" * 100, 1, 101),
        ("ä" * 51, "ä" * 50, 2, 102),
        ("日" * 34, "日" * 33, 3, 102),
        ("x" + "🦦" * 25, "x" + "🦦" * 24, 4, 101),
    ],
)
async def test_a_result_over_its_limit_is_cut_at_a_character_and_says_how_much_is_missing(
    harness: Harness, text: str, head: str, missing: int, size: int
) -> None:
    result = await harness.call(returning(text), max_result_bytes=LIMIT)

    assert result.output == f"{head}\n[cut: {missing} of {size} bytes are missing]"
    assert result.metadata == {"truncated": {"bytes": size, "kept": size - missing}}
    assert result.status is ToolStatus.SUCCESS


@pytest.mark.requirement("H-limit-result")
async def test_one_mebibyte_passes_and_one_byte_more_is_cut(harness: Harness) -> None:
    whole = await harness.call(returning("x" * 2**20))
    cut = await harness.call(returning("x" * (2**20 + 1)))

    assert (len(whole.output), whole.metadata) == (2**20, {})
    assert cut.metadata == {"truncated": {"bytes": 2**20 + 1, "kept": 2**20}}


@pytest.mark.slow
@pytest.mark.requirement("H-provider-returns-30mb")
@pytest.mark.parametrize("value", ["x" * 30_000_000, "ä" * 15_000_000, [{"a": None, "b": "x" * 90}] * 300_000])
async def test_thirty_megabytes_are_cut(harness: Harness, value: object) -> None:
    result = await harness.call(returning(value))

    assert len(result.output.encode()) < 2**20 + 100
    assert result.structured is None


@pytest.mark.requirement("C-3-result-cut")
async def test_a_structure_that_is_cut_as_text_is_not_given_whole_beside_it(harness: Harness) -> None:
    by_value = await harness.call(returning(["x" * 200]), max_result_bytes=LIMIT)
    by_result = await harness.call(returning(ToolResult(structured=["x" * 200])), max_result_bytes=LIMIT)

    assert by_value == by_result
    assert by_value.structured is None


@pytest.mark.requirement("C-3-result-cut")
async def test_what_stands_beside_the_text_is_left_out_when_it_is_over_the_limit_itself(harness: Harness) -> None:
    own = ToolResult(output="short", structured=["x" * 200], parts=({"text": "y" * 200},))

    result = await harness.call(returning(own), max_result_bytes=LIMIT)

    assert (result.structured, result.parts) == (None, ())
    assert result.output == ("short\n[left out: 204 bytes of structured content]\n[left out: 213 bytes of parts]")


@pytest.mark.requirement("C-3-result-cut")
@pytest.mark.parametrize("turn", [False, True], ids=["at once", "after a turn"])
async def test_the_text_of_a_tool_error_is_cut_too(harness: Harness, turn: bool) -> None:
    async def tool(call: object, context: object) -> NoReturn:
        raise ToolError("x" * 101)

    result = await harness.call(tool, max_result_bytes=LIMIT)

    assert result.output == f"{'x' * 100}\n[cut: 1 of 101 bytes are missing]"
