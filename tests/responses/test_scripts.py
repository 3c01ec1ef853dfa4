"""Scripts of code mode that wait for a person, in responses and chat completions."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest
from tests.http.conftest import KEYS
from tests.responses.backend.script import Call, calls, says
from tests.responses.conftest import Staging
from tests.responses.harness import MODEL, Harness

pytestmark = [pytest.mark.anyio, pytest.mark.process, pytest.mark.requirement("I37-responses")]

DECIDER = {"key": "decider-key", "subject": "alice", "tenant": "t1", "scopes": ["tools:call", "approvals:write"]}
ROOT = {"Authorization": "Bearer decider-key"}
CODE = """
try:
    first = await ask_first(what="one")
except RuntimeError as error:
    first = str(error)
[first, await ask_first(what="two")]
"""
SCRIPT = Call("run_code", json.dumps({"code": CODE}), "call_script")
ADD = Call("add", '{"a": 1, "b": 2}', "call_add")
DECLARED = {"type": "mcp", "server_label": "code"}


@pytest.fixture
async def harness(staging: Staging) -> Harness:
    # The fake provider `search` has a `run_code` of its own.
    code = {"code": {"enabled": True, "type": "code_mode"}, "search": {"enabled": False}}
    return await staging(auth={"api_keys": [*KEYS["api_keys"], DECIDER]}, more_providers=code)


async def post(harness: Harness, given: Any, key: str = "decider-key", **members: Any) -> dict[str, Any]:
    body = {"model": MODEL, "tools": [DECLARED], "input": given, **members}
    answer = await harness.http.post("/v1/responses", json=body, headers={"Authorization": f"Bearer {key}"})
    assert answer.status_code == 200, answer.text
    return answer.json()


def decision(request: Mapping[str, Any], approve: bool, reason: str | None = None) -> dict[str, Any]:
    said = {} if reason is None else {"reason": reason}
    return {"type": "mcp_approval_response", "approval_request_id": request["id"], "approve": approve, **said}


def told(harness: Harness) -> list[str]:
    """The results that the last request to the backend carries."""
    return [message["content"] for message in harness.backend.asked[-1].messages if message["role"] == "tool"]


async def test_a_script_asks_by_its_call_and_goes_on_as_often_as_it_must(harness: Harness) -> None:
    harness.backend.plays(calls(ADD, SCRIPT), says("Done."))
    first = await post(harness, "Do it.")
    add, request = first["output"]
    assert (add["type"], request["type"]) == ("mcp_call", "mcp_approval_request")
    assert (request["name"], request["server_label"], json.loads(request["arguments"])) == (
        "run_code",
        "code",
        {"code": CODE},
    )
    assert request["waiting_call"] == {"tool": "ask_first", "arguments": {"what": "one"}, "line": 3}
    second = await post(harness, [decision(request, approve=True)], previous_response_id=first["id"])
    (again,) = second["output"]
    assert again["waiting_call"] == {"tool": "ask_first", "arguments": {"what": "two"}, "line": 6}
    assert harness.board.log == ["add 1 2", "did one"]
    third = await post(harness, [decision(again, approve=True)], previous_response_id=second["id"])
    assert [item["type"] for item in third["output"]] == ["mcp_call", "message"]
    assert third["output"][0]["approval_request_id"] == again["id"]
    assert told(harness) == ["3", '{"result":["one is done","two is done"]}']
    assert harness.board.log == ["add 1 2", "did one", "did two"]


async def test_a_denied_call_is_an_exception_in_the_script_with_the_reason(harness: Harness) -> None:
    harness.backend.plays(calls(SCRIPT), says("Done."))
    first = await post(harness, "Do it.")
    second = await post(
        harness, [decision(first["output"][0], approve=False, reason="not today")], previous_response_id=first["id"]
    )
    (request,) = second["output"]
    assert (request["type"], request["waiting_call"]["arguments"]) == ("mcp_approval_request", {"what": "two"})
    await post(harness, [decision(request, approve=True)], previous_response_id=second["id"])
    (said,) = told(harness)
    denied, done = json.loads(said)["result"]
    assert denied.startswith("denied: ")
    assert denied.endswith("it was denied by alice: not today")
    assert (done, harness.board.log) == ("two is done", ["did two"])


async def test_a_history_without_ids_of_responses_decides_each_question_once(harness: Harness) -> None:
    harness.backend.plays(calls(SCRIPT), says("Done."))
    history: list[Any] = [{"type": "message", "role": "user", "content": "Do it."}]
    for _ in range(2):
        (request,) = (await post(harness, history, store=False))["output"]
        history += [request, decision(request, approve=True)]
    done = await post(harness, history, store=False)
    assert [item["type"] for item in done["output"]] == ["mcp_call", "message"]
    assert harness.board.log == ["did one", "did two"]


async def test_who_may_not_decide_is_asked_again_and_may_end_the_script_s_call(harness: Harness) -> None:
    harness.backend.plays(calls(SCRIPT), says("Then not."))
    first = await post(harness, "Do it.", "alice-key")
    second = await post(
        harness, [decision(first["output"][0], approve=True)], "alice-key", previous_response_id=first["id"]
    )
    (again,) = second["output"]
    assert {**again, "id": ""} == {**first["output"][0], "id": ""}
    third = await post(harness, [decision(again, approve=False)], "alice-key", previous_response_id=second["id"])
    assert [item["type"] for item in third["output"]] == ["mcp_call", "message"]
    assert (told(harness), harness.board.log) == (["the call was not approved"], [])


@pytest.mark.parametrize("stream", [False, True])
async def test_a_stream_shows_the_script_when_it_is_known_that_it_waits(harness: Harness, stream: bool) -> None:
    harness.backend.plays(calls(SCRIPT), says("It waits."))
    events = await harness.stream("Do it.", tools=[{"type": "mcp", "server_label": "code"}] if stream else [])
    added = [event.item.type for event in events if event.type == "response.output_item.added"]
    assert added == (["mcp_approval_request"] if stream else ["mcp_call", "message"])


async def test_a_script_waits_and_goes_on_over_chat_completions(harness: Harness) -> None:
    harness.backend.plays(
        calls(SCRIPT), says("One waits."), calls(SCRIPT), says("Two waits."), calls(SCRIPT), says("Done.")
    )
    messages: list[dict[str, str]] = []
    for _ in range(3):
        messages.append({"role": "user", "content": "Do it."})
        answer = await harness.http.post("/v1/chat/completions", json={"model": MODEL, "messages": messages})
        assert answer.status_code == 200, answer.text
        message = answer.json()["choices"][0]["message"]
        messages.append({"role": "assistant", "content": message["content"]})
        waiting = (await harness.http.get("/v1/approvals", headers=ROOT)).json()["approvals"]
        for each in waiting:
            if each["state"] == "waiting":
                assert f"id {each['id']}" in told(harness)[-1]
                await harness.http.post(f"/v1/approvals/{each['id']}", json={"decision": "approve"}, headers=ROOT)
    assert message["content"] == "Done."
    assert told(harness)[-1] == '{"result":["one is done","two is done"]}'
    assert harness.board.log == ["did one", "did two"]
