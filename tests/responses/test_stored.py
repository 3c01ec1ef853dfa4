"""Stored responses: going on, getting, listing, deleting, and whose they are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import openai
import pytest
from tests.http.conftest import BOB
from tests.responses.backend.script import Call, Turn, calls, says
from tests.responses.backend.scripted import ScriptedBackend
from tests.responses.harness import MODEL, Harness, opened_harness
from tests.responses.serving import serving

pytestmark = [pytest.mark.anyio, pytest.mark.process]

ADD = Call("add", '{"a": 1, "b": 2}', "call_add")


@pytest.mark.requirement("I6-2-previous")
async def test_a_conversation_goes_on_with_all_that_was_said_and_done(harness: Harness) -> None:
    harness.backend.plays(Turn(reasoning="Hm.", calls=(ADD,)), says("3"), says("Alice."), says("Bye."))
    first = await harness.create("I am Alice. 1 + 2?", instructions="Be brief.")
    second = await harness.create("Who am I?", previous_response_id=first.id)
    assert second.previous_response_id == first.id
    assert second.instructions is None
    messages = harness.backend.asked[2].messages
    assert [message["role"] for message in messages] == ["user", "assistant", "tool", "assistant", "user"]
    assert [message["content"] for message in messages] == ["I am Alice. 1 + 2?", None, "3", "3", "Who am I?"]
    await harness.create("Bye", previous_response_id=second.id)
    assert [message["content"] for message in harness.backend.asked[3].messages][-3:] == ["Who am I?", "Alice.", "Bye"]


@pytest.mark.requirement("I6-2-previous")
async def test_a_conversation_may_go_on_twice_from_one_place(harness: Harness) -> None:
    harness.backend.plays(says("Hello"), says("Left"), says("Right"))
    first = await harness.create("Hi")
    await harness.create("Left?", previous_response_id=first.id)
    await harness.create("Right?", previous_response_id=first.id)
    assert [message["content"] for message in harness.backend.asked[2].messages] == ["Hi", "Hello", "Right?"]


@pytest.mark.requirement("I6-2-stored")
async def test_a_stored_response_is_got_as_it_was_answered(harness: Harness) -> None:
    harness.backend.plays(calls(ADD), says("3"))
    answer = await harness.post(model=MODEL, input="1 + 2?", tools=[{"type": "look_up", "depth": 2}])
    got = await harness.http.get(f"/v1/responses/{answer.json()['id']}")
    assert got.json() == answer.json()
    assert answer.json()["store"] is True


@pytest.mark.requirement("I6-2-stored")
async def test_a_streamed_response_is_stored_too(harness: Harness) -> None:
    harness.backend.plays(says("Hello"))
    final = (await harness.stream())[-1]
    assert final.type == "response.completed"
    assert (await harness.client.responses.retrieve(final.response.id)).to_dict() == final.response.to_dict()


@pytest.mark.requirement("I6-2-stored")
async def test_a_response_that_is_not_stored_cannot_be_found(harness: Harness) -> None:
    harness.backend.plays(says("Hello"))
    answer = await harness.create(store=False)
    with pytest.raises(openai.NotFoundError):
        await harness.client.responses.retrieve(answer.id)
    refused = await harness.post(model=MODEL, input="Go on", previous_response_id=answer.id)
    error = refused.json()["error"]
    assert (refused.status_code, error["code"]) == (404, "previous_response_not_found")
    assert error["param"] == "previous_response_id"
    assert len(harness.backend.asked) == 1


@pytest.mark.requirement("I6-2-stored")
async def test_a_deleted_response_is_gone(harness: Harness) -> None:
    harness.backend.plays(says("Hello"))
    answer = await harness.create()
    assert (await harness.http.delete(f"/v1/responses/{answer.id}")).json() == {
        "id": answer.id,
        "object": "response",
        "deleted": True,
    }
    for ask in (harness.client.responses.retrieve, harness.client.responses.delete, harness.client.responses.cancel):
        with pytest.raises(openai.NotFoundError):
            await ask(answer.id)
    with pytest.raises(openai.NotFoundError):
        await harness.client.responses.input_items.list(answer.id)


@pytest.mark.requirement("I6-2-previous", "I6-2-stored")
async def test_deleting_a_response_does_not_break_what_went_on_from_it(harness: Harness) -> None:
    harness.backend.plays(says("Hello"), says("Again"), says("Last"))
    first = await harness.create("Hi")
    second = await harness.create("More", previous_response_id=first.id)
    await harness.client.responses.delete(first.id)
    assert (await harness.create("Most", previous_response_id=second.id)).output_text == "Last"
    assert [message["content"] for message in harness.backend.asked[2].messages][-3:] == ["More", "Again", "Most"]


@pytest.mark.requirement("I6-2-stored")
async def test_input_items_are_listed_newest_first_unless_asked_otherwise(harness: Harness) -> None:
    harness.backend.plays(says("Hello"))
    answer = await harness.create([{"role": "user", "content": str(number)} for number in range(5)])
    listed = await harness.client.responses.input_items.list(answer.id)
    assert [item.content[0].text for item in listed.data if item.type == "message"] == ["4", "3", "2", "1", "0"]  # type: ignore[union-attr]
    forward = await harness.client.responses.input_items.list(answer.id, order="asc", limit=2)
    seen = [item.content[0].text async for item in forward if item.type == "message"]  # type: ignore[union-attr]
    assert seen == ["0", "1", "2", "3", "4"]
    assert len({item.id for item in listed.data}) == 5


@pytest.mark.requirement("I6-2-stored")
async def test_the_items_of_a_request_that_went_on_are_all_that_the_model_was_given(harness: Harness) -> None:
    harness.backend.plays(says("Hello"), says("Again"))
    first = await harness.create("Hi")
    second = await harness.create("More", previous_response_id=first.id)
    listed = await harness.client.responses.input_items.list(second.id, order="asc")
    texts = [item.content[0].text for item in listed.data if item.type == "message"]  # type: ignore[union-attr]
    assert texts in (["More"], ["Hi", "Hello", "More"])


@pytest.mark.requirement("I6-2-stored", "I6-bad-requests")
@pytest.mark.parametrize("query", ["limit=0", "limit=101", "limit=x", "order=up", "after=msg_nowhere"])
async def test_a_wrong_page_is_refused(harness: Harness, query: str) -> None:
    harness.backend.plays(says("Hello"))
    answer = await harness.create()
    listed = await harness.http.get(f"/v1/responses/{answer.id}/input_items?{query}")
    assert listed.status_code == 400
    assert listed.json()["error"]["param"] == query.split("=", maxsplit=1)[0]


@pytest.mark.requirement("I6-2-tenant")
async def test_a_response_of_another_tenant_is_like_none(harness: Harness) -> None:
    harness.backend.plays(says("Hello"))
    mine = (await harness.create()).id
    nobodys = "resp_" + "0" * (len(mine) - 5)
    for method, path in (
        ("GET", "/v1/responses/{}"),
        ("DELETE", "/v1/responses/{}"),
        ("GET", "/v1/responses/{}/input_items"),
        ("POST", "/v1/responses/{}/cancel"),
    ):
        told: list[Any] = []
        for each in (mine, nobodys):
            answer = await harness.http.request(method, path.format(each), headers=BOB)
            error = {**answer.json()["error"], "request_id": None}
            told.append((answer.status_code, str(error).replace(each, "…")))
        assert told[0] == told[1]
        assert told[0][0] == 404
    body = {"model": MODEL, "input": "Go on", "previous_response_id": mine}
    assert (await harness.http.post("/v1/responses", json=body, headers=BOB)).status_code == 404
    assert (await harness.client.responses.retrieve(mine)).id == mine


@pytest.mark.requirement("I6-2-durable")
async def test_stored_responses_outlive_the_host(desk_package: None, tmp_path: Path) -> None:
    sections = {"store": f"sqlite:///{tmp_path / 'state.db'}"}
    backend = ScriptedBackend()
    backend.plays(says("Hello"), says("Again"))
    async with serving(backend) as url:
        reached = {"base_url": f"{url}/v1"}
        async with opened_harness(backend, reached, "before", sections) as before:
            answer = await before.create("Hi")
        async with opened_harness(backend, reached, "after", sections) as after:
            assert (await after.client.responses.retrieve(answer.id)).output_text == "Hello"
            await after.create("More", previous_response_id=answer.id)
    assert [message["content"] for message in backend.asked[1].messages] == ["Hi", "Hello", "More"]


@pytest.mark.requirement("C-5-agent-limited")
async def test_to_a_credential_of_agents_the_responses_of_other_subjects_are_none(harness: Harness) -> None:
    harness.backend.plays(says("Hello"), says("Mine"), says("More"), says("Free"))
    others = (await harness.client_of("root-key").responses.create(model=MODEL, input="Hi")).id
    limited = {"Authorization": "Bearer one-agent-key"}
    mine = (await harness.client_of("one-agent-key").responses.create(model=MODEL, input="Hi")).id
    for method, path in (
        ("GET", "/v1/responses/{}"),
        ("GET", "/v1/responses/{}/input_items"),
        ("POST", "/v1/responses/{}/cancel"),
        ("DELETE", "/v1/responses/{}"),
    ):
        answer = await harness.http.request(method, path.format(others), headers=limited)
        assert (answer.status_code, answer.json()["error"]["code"]) == (404, "response_not_found"), (method, path)
    read = await harness.http.get(f"/v1/responses/{mine}", headers=limited)
    message = (await harness.http.get(f"/v1/responses/{others}", headers={"Authorization": "Bearer root-key"})).json()
    for member, code in (
        ({"previous_response_id": others}, "previous_response_not_found"),
        ({"input": [{"type": "item_reference", "id": message["output"][0]["id"]}]}, "item_not_found"),
    ):
        body = {"model": MODEL, "input": "Go on", **member}
        answer = await harness.http.post("/v1/responses", json=body, headers=limited)
        assert (answer.status_code, answer.json()["error"]["code"]) == (404, code)
    assert read.status_code == 200
    going_on = {"model": MODEL, "input": "Go on", "previous_response_id": mine}
    assert (await harness.http.post("/v1/responses", json=going_on, headers=limited)).status_code == 200
    shared = await harness.http.get(f"/v1/responses/{mine}", headers={"Authorization": "Bearer root-key"})
    assert shared.status_code == 200, "a credential without agents sees those of its tenant"


@pytest.mark.requirement("I38-scope")
async def test_a_response_is_found_by_who_brings_the_same_credentials(harness: Harness) -> None:
    def bring(who: str) -> dict[str, str]:
        return {"X-Toolplug-Credential-search": who} if who else {}

    harness.backend.plays(says("Hello, Ada"), says("Ada again"), says("who?"))
    made = await harness.create("I am Ada", extra_headers=bring("of-ada"))
    place = f"/v1/responses/{made.id}"
    assert (await harness.http.get(place, headers=bring("of-ada"))).status_code == 200
    going_on = {"model": MODEL, "input": "Who am I?", "previous_response_id": made.id}
    referred = {"model": MODEL, "input": [{"type": "item_reference", "id": made.output[0].id}]}
    for other in ("of-ben", ""):
        headers = bring(other)
        assert (await harness.http.get(place, headers=headers)).status_code == 404
        assert (await harness.http.get(f"{place}/input_items", headers=headers)).status_code == 404
        assert (await harness.http.delete(place, headers=headers)).status_code == 404
        for body in (going_on, referred):
            assert (await harness.http.post("/v1/responses", json=body, headers=headers)).status_code == 404
    again = await harness.create("Who am I?", previous_response_id=made.id, extra_headers=bring("of-ada"))
    assert again.output_text == "Ada again"
    assert (await harness.http.delete(place, headers=bring("of-ada"))).status_code == 200
    await harness.create("Who am I?")
