"""Each field, item, content part and tool that `openai` has types for is answered, or refused for a known reason.

`make judge` does it with the newest release, which the client matrix has.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import httpx2
import pytest
from tests.clients.environments import PROGRAMS, environment
from tests.http.conftest import ALICE
from tests.responses.backend.script import says
from tests.responses.harness import MODEL, Harness

pytestmark = [pytest.mark.anyio, pytest.mark.requirement("I32-newest-types"), pytest.mark.leaves("process")]

USER = {"role": "user", "content": "Hello"}
REFUSED: dict[tuple[str, str], tuple[int, str]] = {
    ("fields", "conversation"): (400, "conversation"),
    ("fields", "prompt"): (400, "prompt"),
    ("fields", "previous_response_id"): (404, "previous_response_id"),
    ("items", "item_reference"): (404, "input[0].id"),
    ("items", "custom_tool_call"): (400, "input"),
    ("items", "function_call_output"): (400, "input[0].call_id"),
    ("items", "custom_tool_call_output"): (400, "input[0].call_id"),
    ("items", "mcp_approval_response"): (400, "input[0].approval_request_id"),
    ("chat fields", "functions"): (400, "functions"),
    ("chat fields", "function_call"): (400, "function_call"),
}
"""What a host refuses though it knows it: what it does not have, and half of a call, which has the other half here."""


@pytest.fixture
def harness(shared_stage: Harness) -> Harness:
    return shared_stage


def types_of(python: str | Path) -> dict[str, Any]:
    """An example of everything that the `openai` of this Python has types for."""
    command = [python, PROGRAMS / "list_openai_types.py"]
    listed = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    return json.loads(listed.stdout)


def bodies(types: dict[str, Any]) -> Sequence[tuple[str, str, dict[str, Any]]]:
    """The requests: of which kind, for what, and the body, which has `messages` for a chat completion."""
    hello, asked = {"messages": [USER]}, types["chat fields"]
    return [
        *(("chat fields", name, {**hello, name: value}) for name, value in asked.items() if name != "messages"),
        *(("messages", str(message["role"]), {"messages": [message, USER]}) for message in types["messages"]),
        *(
            ("chat parts", str(part["type"]), {"messages": [{**USER, "content": [part]}]})
            for part in types["chat parts"]
        ),
        *(("chat tools", str(tool["type"]), {**hello, "tools": [tool]}) for tool in types["chat tools"]),
        *(("fields", name, {"input": "Hello", name: value}) for name, value in types["fields"].items()),
        *(("items", str(item.get("type")), {"input": [item, USER]}) for item in types["items"]),
        *(("parts", str(part["type"]), {"input": [{**USER, "content": [part]}]}) for part in types["parts"]),
        *(("tools", str(tool["type"]), {"input": "Hello", "tools": [tool]}) for tool in types["tools"]),
    ]


async def refusals(harness: Harness, types: dict[str, Any]) -> dict[tuple[str, str], tuple[int, str]]:
    """What is not answered, with the status and the place that is named."""
    harness.backend.plays_for_ever(says("Hi"))
    seen: dict[tuple[str, str], tuple[int, str]] = {}
    async with httpx2.AsyncClient(base_url=harness.url, headers=ALICE) as http:
        for kind, name, body in bodies(types):
            path = "/v1/chat/completions" if "messages" in body else "/v1/responses"
            answer = await http.post(path, json={"model": MODEL, **body})
            if answer.status_code != 200:
                seen[kind, name] = (answer.status_code, answer.json()["error"]["param"])
    return seen


@pytest.mark.process
async def test_nothing_of_the_installed_types_is_refused_for_being_unknown(harness: Harness) -> None:
    types = types_of(sys.executable)
    assert len(bodies(types)) > 130
    assert await refusals(harness, types) == REFUSED


@pytest.mark.judge
async def test_nothing_of_the_newest_types_is_refused_for_being_unknown(harness: Harness) -> None:
    assert await refusals(harness, types_of(environment("openai") / "bin" / "python")) == REFUSED
