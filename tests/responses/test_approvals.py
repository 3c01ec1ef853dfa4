"""A tool that must be approved: the response ends with the request, and goes on with the decision."""

from __future__ import annotations

from typing import Any

import pytest
from tests.http.conftest import KEYS
from tests.responses.backend.script import Call, calls, says
from tests.responses.conftest import Staging
from tests.responses.harness import MODEL, Harness

pytestmark = [pytest.mark.anyio, pytest.mark.process]

ASK = Call("ask_first", '{"what": "it"}', "call_ask")
AGAIN = Call("ask_first", ASK.arguments, "call_again")
DECLARED = {"type": "mcp", "server_label": "desk"}
DECIDER = {"key": "decider-key", "subject": "alice", "tenant": "t1", "scopes": ["tools:call", "approvals:write"]}


@pytest.fixture
async def harness(staging: Staging) -> Harness:
    return await staging(auth={"api_keys": [*KEYS["api_keys"], DECIDER]})


async def post(harness: Harness, key: str = "decider-key", **members: Any) -> dict[str, Any]:
    body = {"model": MODEL, "tools": [DECLARED], **members}
    answer = await harness.http.post("/v1/responses", json=body, headers={"Authorization": f"Bearer {key}"})
    assert answer.status_code == 200, answer.text
    return answer.json()


def decision(request: dict[str, Any], approve: bool) -> dict[str, Any]:
    return {"type": "mcp_approval_response", "approval_request_id": request["id"], "approve": approve}


def told(harness: Harness) -> list[str]:
    """The results that the last request to the backend carries."""
    return [message["content"] for message in harness.backend.asked[-1].messages if message["role"] == "tool"]


@pytest.mark.requirement("C-9-approval-item")
async def test_a_call_that_must_be_approved_ends_the_response_with_a_request(harness: Harness) -> None:
    harness.backend.plays(calls(ASK))
    answer = await post(harness, input="Do it.")
    (request,) = answer["output"]
    assert answer["status"] == "completed"
    assert (request["type"], request["name"], request["arguments"]) == (
        "mcp_approval_request",
        "ask_first",
        '{"what": "it"}',
    )
    assert harness.board.log == []


@pytest.mark.requirement("C-9-approval-item")
async def test_an_approved_call_runs_once_and_the_model_goes_on(harness: Harness) -> None:
    harness.backend.plays(calls(ASK), says("It is done."), says("Bye."))
    first = await post(harness, input="Do it.")
    second = await post(harness, input=[decision(first["output"][0], approve=True)], previous_response_id=first["id"])
    assert harness.board.log == ["did it"]
    assert told(harness) == ["it is done"]
    assert second["output"][-1]["content"][0]["text"] == "It is done."
    await post(harness, input="Bye", previous_response_id=second["id"])
    assert harness.board.log == ["did it"]


@pytest.mark.requirement("C-9-approval-item")
async def test_a_refused_call_does_not_run_and_the_model_is_told(harness: Harness) -> None:
    harness.backend.plays(calls(ASK), says("Then not."))
    first = await post(harness, input="Do it.")
    second = await post(harness, input=[decision(first["output"][0], approve=False)], previous_response_id=first["id"])
    assert harness.board.log == []
    assert second["output"][-1]["content"][0]["text"] == "Then not."
    (refusal,) = told(harness)
    assert refusal == "the call was not approved"


@pytest.mark.requirement("C-9-approval-item")
async def test_who_may_not_decide_is_asked_again(harness: Harness) -> None:
    harness.backend.plays(calls(ASK))
    first = await post(harness, "alice-key", input="Do it.")
    request = first["output"][0]
    second = await post(harness, "alice-key", input=[decision(request, approve=True)], previous_response_id=first["id"])
    (again,) = second["output"]
    assert {**again, "id": ""} == {**request, "id": ""}
    assert harness.board.log == []


@pytest.mark.requirement("C-9-approval-item")
async def test_another_may_decide_over_http(harness: Harness) -> None:
    harness.backend.plays(calls(ASK), says("It is done."))
    first = await post(harness, "alice-key", input="Do it.")
    root = {"Authorization": "Bearer decider-key"}
    (waiting,) = (await harness.http.get("/v1/approvals", headers=root)).json()["approvals"]
    decided = await harness.http.post(f"/v1/approvals/{waiting['id']}", json={"decision": "approve"}, headers=root)
    assert decided.status_code == 200
    await post(
        harness,
        "alice-key",
        input=[decision(first["output"][0], approve=True)],
        previous_response_id=first["id"],
    )
    assert harness.board.log == ["did it"]


@pytest.mark.requirement("I35-grants")
async def test_the_item_shows_the_arguments_that_a_person_has_put_in_place_and_the_model_hears_of_it(
    harness: Harness,
) -> None:
    harness.backend.plays(calls(ASK), says("It is done."))
    first = await post(harness, "alice-key", input="Do it.")
    root = {"Authorization": "Bearer decider-key"}
    (waiting,) = (await harness.http.get("/v1/approvals", headers=root)).json()["approvals"]
    body = {"decision": "approve", "arguments": {"what": "less"}}
    await harness.http.post(f"/v1/approvals/{waiting['id']}", json=body, headers=root)
    given = [decision(first["output"][0], approve=True)]
    second = await post(harness, "alice-key", input=given, previous_response_id=first["id"])
    (item, _) = second["output"]
    assert (item["arguments"], item["ran"], item["output"].split("\n")[0]) == (
        ASK.arguments,
        '{"what":"less"}',
        "less is done",
    )
    (said,) = told(harness)
    assert said.startswith("less is done")
    assert "a person has changed the arguments" in said
    assert harness.board.log == ["did less"]


@pytest.mark.requirement("C-9-approval-item", "C-9-items")
async def test_calls_beside_one_that_must_be_approved_run(harness: Harness) -> None:
    harness.backend.plays(calls(Call("add", '{"a": 1, "b": 2}', "call_add"), ASK), says("3, and it is done."))
    first = await post(harness, input="Do it.")
    assert [item["type"] for item in first["output"]] == ["mcp_call", "mcp_approval_request"]
    await post(harness, input=[decision(first["output"][1], approve=True)], previous_response_id=first["id"])
    assert told(harness) == ["3", "it is done"]
    assert harness.board.log == ["add 1 2", "did it"]


@pytest.mark.requirement("I6-bad-requests")
async def test_a_decision_about_nothing_is_refused(harness: Harness) -> None:
    body = {"model": MODEL, "input": [decision({"id": "mcpr_nothing"}, approve=True)]}
    answer = await harness.http.post("/v1/responses", json=body, headers={"Authorization": "Bearer decider-key"})
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == "input[0].approval_request_id"


@pytest.mark.requirement("C-9-approval-item", "C-3-policy-ask-caller")
async def test_under_ask_caller_any_caller_decides_its_own_call(staging: Staging) -> None:
    harness = await staging(asking={"ask": "caller"})
    harness.backend.plays(calls(ASK), says("It is done."))
    first = await post(harness, "alice-key", input="Do it.")
    answer = [decision(first["output"][0], approve=True)]
    await post(harness, "alice-key", input=answer, previous_response_id=first["id"])
    assert told(harness) == ["it is done"]


@pytest.mark.requirement("C-5-own-call")
@pytest.mark.parametrize("with_auth", [True, False])
async def test_a_made_up_request_decides_no_call_that_was_made_elsewhere(staging: Staging, with_auth: bool) -> None:
    """The person at a client is asked about the calls of its responses; other calls are decided by another key."""
    auth = {"api_keys": [*KEYS["api_keys"], DECIDER]} if with_auth else None
    harness = await staging(auth=auth)
    headers = {"Authorization": "Bearer decider-key"}
    body = {"name": "ask_first", "arguments": {"what": "it"}}
    refused = (await harness.http.post("/v1/tool-calls", json=body, headers=headers)).json()
    ticket = refused["metadata"]["approval"]["id"]
    harness.backend.plays(says("Then not."))
    request = {"id": f"mcpr_{ticket}", "type": "mcp_approval_request", "server_label": "desk", "name": "ask_first"}
    request["arguments"] = ASK.arguments
    for approve in (True, False):
        await post(harness, input=[request, decision(request, approve)])
    (waiting,) = [
        item
        for item in (await harness.http.get("/v1/approvals", headers=headers)).json()["approvals"]
        if item["id"] == ticket
    ]
    assert (waiting["state"], harness.board.log) == ("waiting", [])


@pytest.mark.requirement("I32-undeclared-approval")
@pytest.mark.parametrize("stream", [False, True])
async def test_a_client_that_declared_no_server_hears_of_the_approval_from_the_model(
    harness: Harness, stream: bool
) -> None:
    """A client that does not know the item fails on it, or shows an empty answer."""
    harness.backend.plays(calls(ASK), calls(AGAIN), says("Someone must approve it."))
    other: Any = [{"type": "mcp", "server_label": "search"}]
    if stream:
        answer = (await harness.stream("Do it.", tools=other))[-1].response.to_dict()  # type: ignore[union-attr]
    else:
        answer = await post(harness, input="Do it.", tools=other)
    assert [item["type"] for item in answer["output"]] == ["mcp_call", "mcp_call", "message"]
    (waiting,) = answer["toolplug"]["approvals"]
    assert (waiting["tool"], waiting["server_label"]) == ("ask_first", "desk")
    assert [text.split(";")[0] for text in told(harness)] == [f"a person must approve: id {waiting['id']}"] * 2
    root = {"Authorization": "Bearer decider-key"}
    listed = (await harness.http.get("/v1/approvals", headers=root)).json()["approvals"]
    assert [each["id"] for each in listed] == [waiting["id"]]
    assert harness.board.log == []


@pytest.mark.requirement("I32-undeclared-approval")
async def test_what_a_person_has_approved_is_then_done(harness: Harness) -> None:
    harness.backend.plays(calls(ASK), says("Someone must approve it."), calls(ASK), says("It is done."))
    first = await post(harness, "alice-key", input="Do it.", tools=[])
    (waiting,) = first["toolplug"]["approvals"]
    root = {"Authorization": "Bearer decider-key"}
    decided = await harness.http.post(f"/v1/approvals/{waiting['id']}", json={"decision": "approve"}, headers=root)
    assert decided.status_code == 200
    second = await post(harness, "alice-key", input="Approved.", tools=[], previous_response_id=first["id"])
    assert harness.board.log == ["did it"]
    assert "toolplug" not in second


@pytest.mark.requirement("I32-undeclared-approval")
async def test_a_client_that_handles_it_undeclared_says_so(harness: Harness) -> None:
    harness.backend.plays(calls(ASK), says("It is done."))
    first = await post(harness, input="Do it.", tools=[], metadata={"toolplug_approvals": "items"})
    (request,) = first["output"]
    assert (request["type"], "toolplug" in first) == ("mcp_approval_request", False)
    answer = [decision(request, approve=True)]
    await post(harness, input=answer, tools=[], previous_response_id=first["id"])
    assert harness.board.log == ["did it"]
    body = {"model": MODEL, "input": "Do it.", "metadata": {"toolplug_approvals": "item"}}
    refused = await harness.http.post("/v1/responses", json=body, headers={"Authorization": "Bearer decider-key"})
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "metadata.toolplug_approvals")
