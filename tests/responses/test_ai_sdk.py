"""An independent client: the AI SDK with its Open Responses provider, in a process of its own."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from tests.node.installed import installed, node
from tests.responses.backend.script import Call, Refused, Turn, Usage, calls, says
from tests.responses.harness import Harness

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.judge,
    pytest.mark.timeout(1200),
    pytest.mark.requirement("I6-5-ai-sdk", "C-9-judges"),
]

SCRIPT = (Path(__file__).parent / "judges" / "ai_sdk.mjs").read_text("utf-8")
BOTH = pytest.mark.parametrize("stream", [False, True])


async def seen(harness: Harness, *, key: str = "alice-key", **job: Any) -> dict[str, Any]:
    """What the client saw."""
    place = await asyncio.to_thread(installed, "open_responses")
    job = {"url": f"{harness.url}/v1/responses", "apiKey": key, "prompt": "Go", **job}
    command = (str(node()), "--input-type=module", "-e", SCRIPT, "--", json.dumps(job))
    process = await asyncio.create_subprocess_exec(*command, cwd=place, stdout=asyncio.subprocess.PIPE)
    printed, _ = await process.communicate()
    assert process.returncode == 0
    return json.loads(printed)


@BOTH
async def test_it_gets_text_reasoning_and_usage(harness: Harness, stream: bool) -> None:
    harness.backend.plays(Turn(reasoning="Hm.", text="Hello, otter!", usage=Usage(7, 3, cached=2, reasoning=1)))
    told = await seen(harness, stream=stream)
    assert (told["text"], told["finish"]) == ("Hello, otter!", "stop")
    assert (told["usage"]["inputTokens"], told["usage"]["outputTokens"]) == (7, 3)
    if stream:  # it does not read `response.reasoning.delta`, only other names for it
        assert [part for part in told["parts"] if part.startswith("reasoning")] == ["reasoning-start", "reasoning-end"]
    else:
        assert told["reasoning"] == "Hm."


@BOTH
async def test_it_is_not_disturbed_by_hosted_calls(harness: Harness, stream: bool) -> None:
    harness.backend.plays(
        calls(Call("web_search", '{"query": "otters"}', "c1"), Call("tide", '{"place": "Cork"}', "c2")), says("Done.")
    )
    told = await seen(harness, stream=stream)
    assert (told["text"], told["steps"]) == ("Done.", 1)


@BOTH
async def test_its_own_tool_runs_on_its_side(harness: Harness, stream: bool) -> None:
    harness.backend.plays(calls(Call("add", '{"a": 1, "b": 2}', "call_1")), says("It is 3."))
    told = await seen(harness, stream=stream, tool=True)
    assert (told["text"], told["steps"]) == ("It is 3.", 2)
    assert harness.board.log == []
    assert [message["content"] for message in harness.backend.asked[1].messages if message["role"] == "tool"] == ["3"]


async def test_it_understands_a_refusal(harness: Harness) -> None:
    told = await seen(harness, key="wrong")
    assert (told["error"], told["status"]) == ("AI_APICallError", 401)
    assert harness.backend.asked == []


async def test_it_learns_that_a_stream_has_failed(harness: Harness) -> None:
    harness.backend.plays(Refused(status=400, message="no such model"))
    assert (await seen(harness, stream=True))["finish"] == "error"
