"""Whose tools: the agent and the session that a request names, and lists that change while it runs."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.responses.backend.script import Call, Gate, Held, calls, says
from tests.responses.conftest import Staging
from tests.responses.harness import MODEL, Harness

from toolplug.client import Application

pytestmark = [pytest.mark.anyio, pytest.mark.process]

TOOLSETS = {
    "toolsets": {"sums": {"prefix": "sums", "from": "provider:desk", "scope": "shared"}},
    "agents": {"researcher": {"toolsets": ["sums"]}, "writer": {"toolsets": []}},
}
ADD = Call("sums__add", '{"a": 1, "b": 2}')


async def post(harness: Harness, key: str = "alice-key", headers: dict[str, str] | None = None, **members: Any) -> Any:
    body = {"model": MODEL, "input": "Go", **members}
    return await harness.http.post(
        "/v1/responses", json=body, headers={"Authorization": f"Bearer {key}", **(headers or {})}
    )


@pytest.mark.requirement("I6-3-agent")
@pytest.mark.parametrize(
    "named", [{"metadata": {"toolplug_agent": "researcher"}}, {"headers": {"X-Toolplug-Agent": "researcher"}}]
)
async def test_an_agent_has_its_own_tools_and_no_others(staging: Staging, named: dict[str, Any]) -> None:
    harness = await staging(**TOOLSETS)
    harness.backend.plays(calls(ADD, Call("sums__whoami", "{}", "call_2"), Call("add", "{}", "call_3")), says("3"))
    output = (await post(harness, **named)).json()["output"]
    assert {name.split("__")[0] for name in harness.backend.asked[0].tool_names} == {"sums"}
    assert output[0]["output"] == "3"
    assert '"agent":"researcher"' in output[1]["output"]
    assert (output[2]["status"], output[2]["output"]) == ("failed", 'no builtin provider handles tool "add"')


@pytest.mark.requirement("I6-3-agent")
async def test_an_agent_without_toolsets_answers_without_tools(staging: Staging) -> None:
    harness = await staging(**TOOLSETS)
    harness.backend.plays(says("Hello"), says("Hello"))
    for agent in ("writer", "nobody"):
        assert (await post(harness, metadata={"toolplug_agent": agent})).json()["status"] == "completed"
    assert [asked.tool_names for asked in harness.backend.asked] == [[], []]


@pytest.mark.requirement("I6-3-agent")
async def test_a_key_of_agents_may_act_as_those_alone(staging: Staging) -> None:
    harness = await staging(**TOOLSETS)
    harness.backend.plays(calls(ADD), says("3"))
    assert (await post(harness, "one-agent-key")).json()["output"][0]["output"] == "3"
    unnamed = await post(harness, "two-agents-key")
    assert (unnamed.status_code, unnamed.json()["error"]["code"]) == (400, "agent_required")
    other = await post(harness, "one-agent-key", metadata={"toolplug_agent": "writer"})
    assert (other.status_code, other.json()["error"]["code"]) == (403, "agent_not_allowed")


@pytest.mark.requirement("I6-3-agent", "I6-bad-requests")
async def test_a_header_that_contradicts_the_metadata_is_refused(staging: Staging) -> None:
    harness = await staging(**TOOLSETS)
    answer = await post(harness, headers={"X-Toolplug-Agent": "writer"}, metadata={"toolplug_agent": "researcher"})
    assert answer.status_code == 400
    assert harness.backend.asked == []


@pytest.mark.requirement("I6-3-session")
async def test_the_tools_of_a_session_are_called_where_its_application_is(harness: Harness) -> None:
    app = Application(harness.url, plugin_type="zoo", api_key="alice-key")

    @app.tool
    async def feed(animal: str) -> str:
        """Feed an animal."""
        return f"the {animal} is fed"

    async with app:
        harness.backend.plays(calls(Call("feed", '{"animal": "otter"}')), says("Fed."), says("Hello"))
        item = (await post(harness, metadata={"toolplug_session": app.code})).json()["output"][0]
        assert (item["status"], item["output"]) == ("completed", "the otter is fed")
        assert harness.backend.asked[0].tool_names[-2:] == ["feed", "call_tool"]  # the list stays: tools may come
        await post(harness)
        assert "feed" not in harness.backend.asked[2].tool_names


@pytest.mark.requirement("I6-3-session")
@pytest.mark.parametrize(
    ("code", "status", "error"),
    [("ABC12345", 400, "invalid_session_code"), ("ABCDEFGH", 404, "session_not_found")],
)
async def test_a_session_that_is_none_is_refused(harness: Harness, code: str, status: int, error: str) -> None:
    answer = await post(harness, headers={"X-Toolplug-Session": code})
    assert (answer.status_code, answer.json()["error"]["code"]) == (status, error)
    assert harness.backend.asked == []


@pytest.mark.requirement("I6-3-changed-list")
async def test_a_tool_that_comes_during_a_response_is_told_in_the_answer_of_the_next_turn(harness: Harness) -> None:
    app = Application(harness.url, plugin_type="zoo", api_key="alice-key")

    @app.tool
    async def open_cage() -> str:
        """Open the cage."""
        app.add(feed)
        await app.settled()
        return "open"

    async def feed() -> str:
        """Feed the animal."""
        return "fed"

    async with app:
        harness.backend.plays(calls(Call("open_cage")), calls(Call("feed", "{}", "call_2")), says("Fed."))
        output = (await post(harness, metadata={"toolplug_session": app.code})).json()["output"]
    assert "feed" not in harness.backend.asked[0].tool_names
    assert harness.backend.asked[1].tool_names == harness.backend.asked[0].tool_names
    told = harness.backend.asked[1].body["messages"][-1]["content"]
    assert told.startswith("open\n\n<tool_changes>\nAdded, call it with call_tool: ")
    assert '"name":"feed"' in told
    assert [item.get("output") for item in output] == ["open", "fed", None]


@pytest.mark.requirement("I6-3-changed-list")
async def test_a_provider_that_is_disabled_during_a_response_is_gone_at_the_next_turn(staging: Staging) -> None:
    harness, gate = await staging(), Gate()
    harness.backend.plays(Held(turn=calls(Call("tide", '{"place": "Cork"}')), gate=gate), says("No."))
    asking = asyncio.create_task(post(harness))
    await gate.reached.wait()
    root = {"Authorization": "Bearer root-key"}
    assert (await harness.http.post("/v1/providers/search/disable", headers=root)).status_code == 200
    gate.go.set()
    failed = (await asking).json()["output"][0]
    assert (failed["status"], failed["output"]) == ("failed", 'no builtin provider handles tool "tide"')
    assert "tide" in harness.backend.asked[0].tool_names
    assert "tide" not in harness.backend.asked[1].tool_names


@pytest.mark.requirement("I6-2-tenant")
async def test_tools_know_whose_request_it_is(harness: Harness) -> None:
    harness.backend.plays(calls(Call("whoami")), says("You."))
    item = (await post(harness, "bob-key")).json()["output"][0]
    assert item["output"] == '{"subject":"bob","tenant":"t2","agent":null,"session":null}'


async def test_tools_read_the_trace_context_of_the_request(harness: Harness) -> None:
    harness.backend.plays(calls(Call("whoami")), says("You."))
    parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
    item = (await post(harness, headers={"traceparent": parent, "tracestate": "a=1"})).json()["output"][0]
    assert item["output"].endswith(f',"traceparent":"{parent}","tracestate":"a=1"}}')
