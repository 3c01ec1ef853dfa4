"""The order of text and other blocks of a server's result, on its way to a client of `/mcp`."""

from __future__ import annotations

from typing import Any

import pytest

from toolplug.catalog.call import ToolResult, text_of_result
from toolplug.parts.mcp.client.connection import McpAnswer
from toolplug.parts.mcp.client.plans import result_of
from toolplug.parts.mcp.content import content_of

IMAGE = {"type": "image", "data": "AAAA", "mimeType": "image/png"}
MARKED = {"type": "image", "data": "BBBB", "mimeType": "image/png", "_meta": {"theirs": 1}}


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


@pytest.mark.requirement("I-26-block-order")
@pytest.mark.parametrize(
    "blocks",
    [
        [text("a"), IMAGE, text("b")],
        [IMAGE, text("a")],
        [MARKED, text("a\nb"), IMAGE, IMAGE, text("c"), MARKED],
        [text("a"), IMAGE],
        [IMAGE],
        [text("")],
    ],
)
def test_blocks_keep_the_order_that_the_server_gave_them(blocks: list[dict[str, Any]]) -> None:
    result = result_of(McpAnswer(blocks, None, False), None)
    assert result.output == "\n".join(block["text"] for block in blocks if block["type"] == "text")
    assert content_of(result, lambda _: True, None)["content"] == blocks


def test_a_part_of_a_text_that_was_changed_does_not_break_a_line() -> None:
    result = result_of(McpAnswer([text("secret"), IMAGE, text("b")], None, False), None)._replace(output="[removed]")
    assert content_of(result, lambda _: True, None)["content"] == [text("[removed]"), IMAGE]


@pytest.mark.requirement("I32-mcp-text-once")
@pytest.mark.parametrize(
    ("result", "blocks", "told"),
    [
        (ToolResult(output="a", parts=(text("a"),)), [text("a")], "a"),
        (ToolResult(output="a", parts=(text("a"), IMAGE)), [text("a"), IMAGE], "a\n[image image/png]"),
        (ToolResult(output="a", parts=(text("b"),)), [text("a"), text("b")], "a\nb"),
        (ToolResult(parts=(text("b"),)), [text("b")], "b"),
        (
            ToolResult(output="a\nb", parts=(text("a"), IMAGE, text("b"))),
            [text("a\nb"), IMAGE],
            "a\nb\n[image image/png]",
        ),
        (ToolResult(output="a\nb", parts=(text("a"),)), [text("a\nb"), text("a")], "a\nb\na"),
    ],
)
def test_a_text_that_is_output_and_part_is_sent_once(
    result: ToolResult, blocks: list[dict[str, Any]], told: str
) -> None:
    assert content_of(result, lambda _: True, None)["content"] == blocks
    assert text_of_result(result) == told
