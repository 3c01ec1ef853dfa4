"""Tools of an MCP server are `mcp_call` items, after one `mcp_list_tools` item for each server."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.responses.backend.script import Call, calls, says
from tests.responses.conftest import Staging
from tests.responses.harness import MODEL, Harness

pytestmark = [pytest.mark.anyio, pytest.mark.mcp]

ADD = Call("zoo__add", '{"a": 1, "b": 2}', "call_add")
KEEPER: Any = {"toolplug_agent": "keeper"}


@pytest.fixture
async def harness(staging: Staging) -> Harness:
    """A host whose agent has the tools of another host, over MCP."""
    zoo = await staging()
    server = {"url": f"{zoo.url}/mcp", "headers": {"Authorization": "Bearer alice-key"}, "tools": {"whoami": "ask"}}
    opened = await staging(
        mcp_servers={"zoo": server},
        toolsets={"zoo": {"prefix": "zoo", "from": "mcp:zoo", "scope": "session"}},
        agents={"keeper": {"toolsets": ["zoo"]}},
    )
    while not (await opened.http.get("/v1/tools?agent=keeper")).json()["tools"]:
        await asyncio.sleep(0)
    return opened


async def made(harness: Harness, **members: Any) -> dict[str, Any]:
    answer = await harness.post(model=MODEL, input="Go", metadata=KEEPER, **members)
    assert answer.status_code == 200, answer.text
    return answer.json()


@pytest.mark.requirement("I6-3-mcp-items", "C-9-item-types")
async def test_a_call_of_a_servers_tool_is_an_mcp_call(harness: Harness) -> None:
    harness.backend.plays(calls(ADD), says("3"))
    listed, call, message = (await made(harness))["output"]
    assert (listed["type"], listed["server_label"]) == ("mcp_list_tools", "zoo")
    assert {"add", "wait"} <= {tool["name"] for tool in listed["tools"]}
    assert (call["type"], call["server_label"], call["name"]) == ("mcp_call", "zoo", "add")
    assert (call["arguments"], call["output"], call["status"]) == ('{"a": 1, "b": 2}', "3", "completed")
    assert [item["type"] for item in (listed, call) if None in item.values()] == []
    assert message["type"] == "message"


@pytest.mark.requirement("I6-3-mcp-items", "I6-1-errors-back")
async def test_a_call_that_fails_is_an_mcp_call_with_an_error(harness: Harness) -> None:
    harness.backend.plays(calls(Call("zoo__fail", '{"reason": "no luck"}')), says("Oh."))
    call = (await made(harness))["output"][1]
    assert (call["type"], call["status"]) == ("mcp_call", "failed")
    assert "no luck" in str(call["error"])


@pytest.mark.requirement("I6-3-mcp-items", "C-9-items")
async def test_the_events_of_an_mcp_call_are_its_own(harness: Harness) -> None:
    harness.backend.plays(calls(ADD), says("3"))
    await harness.stream(metadata=KEEPER)
    kinds = [event["type"] for event in harness.judged.streams[-1].events]
    assert [kind for kind in kinds if ".mcp_" in kind] == [
        "response.mcp_list_tools.in_progress",
        "response.mcp_list_tools.completed",
        "response.mcp_call.in_progress",
        "response.mcp_call_arguments.delta",
        "response.mcp_call_arguments.done",
        "response.mcp_call.completed",
    ]


@pytest.mark.requirement("I6-3-mcp-items")
async def test_a_server_is_listed_once_in_a_conversation(harness: Harness) -> None:
    harness.backend.plays(calls(ADD), says("3"), says("Bye."))
    first = await made(harness)
    second = await made(harness, previous_response_id=first["id"])
    assert [item["type"] for item in second["output"]] == ["message"]


@pytest.mark.requirement("C-9-approval-item")
async def test_a_tool_of_a_server_that_must_be_approved_is_asked_for_with_its_server(harness: Harness) -> None:
    harness.backend.plays(calls(Call("zoo__whoami")))
    request = (await made(harness, tools=[{"type": "mcp", "server_label": "zoo"}]))["output"][-1]
    assert (request["type"], request["server_label"], request["name"]) == ("mcp_approval_request", "zoo", "whoami")
