"""Hosted items of the known types: their shapes, `include`, citations, and items that a client sends back."""

from __future__ import annotations

from typing import Any

import pytest
from tests.responses.backend.script import Call, Turn, calls, says
from tests.responses.harness import MODEL, Harness

pytestmark = [pytest.mark.anyio, pytest.mark.process, pytest.mark.leaves("task", "thread")]

SEARCH = Call("web_search", '{"query": "otters"}', "call_1")
FILES = Call("file_search", '{"query": "otters"}', "call_1")
CODE = Call("run_code", '{"code": "1 + 1"}', "call_1")
URL = "https://otters.example/"


@pytest.fixture
def harness(shared_stage: Harness) -> Harness:
    return shared_stage


async def made(harness: Harness, **members: Any) -> dict[str, Any]:
    answer = await harness.post(**{"model": MODEL, "input": "Go", **members})
    assert answer.status_code == 200, answer.text
    return answer.json()


@pytest.mark.requirement("C-9-item-types")
async def test_a_web_search_says_what_was_searched(harness: Harness) -> None:
    harness.backend.plays(calls(SEARCH), says("Found."))
    item = (await made(harness))["output"][0]
    assert (item["type"], item["status"]) == ("web_search_call", "completed")
    assert (item["action"]["type"], item["action"]["query"], item["action"]["queries"]) == (
        "search",
        "otters",
        ["otters"],
    )


@pytest.mark.requirement("C-9-item-types")
async def test_code_is_shown_with_its_container(harness: Harness) -> None:
    harness.backend.plays(calls(CODE), says("2"))
    item = (await made(harness))["output"][0]
    assert (item["type"], item["code"], item["container_id"]) == ("code_interpreter_call", "1 + 1", "box_1")


@pytest.mark.requirement("I6-2-include")
@pytest.mark.parametrize(
    ("call", "include", "path", "value"),
    [
        (SEARCH, "web_search_call.action.sources", ("action", "sources"), [{"type": "url", "url": URL}]),
        (
            FILES,
            "file_search_call.results",
            ("results",),
            [{"file_id": "file_1", "filename": "otters.txt", "score": 0.9, "text": "Otters swim."}],
        ),
        (CODE, "code_interpreter_call.outputs", ("outputs",), [{"type": "logs", "logs": "2"}]),
    ],
)
async def test_what_a_call_found_is_shown_where_include_asks_for_it(
    harness: Harness, call: Call, include: str, path: tuple[str, ...], value: object
) -> None:
    harness.backend.plays(calls(call), says("Found."), calls(call), says("Found."))

    def found(response: dict[str, Any]) -> object:
        item = response["output"][0]
        for step in path[:-1]:
            item = item[step]
        return item.get(path[-1])

    bare = await made(harness)
    assert found(bare) is None
    assert found(await made(harness, include=[include])) == value
    got = await harness.http.get(f"/v1/responses/{bare['id']}", params={"include[]": include})
    assert found(got.json()) == value


@pytest.mark.requirement("I6-2-include", "I6-bad-requests")
async def test_an_unknown_include_is_refused(harness: Harness) -> None:
    answer = await harness.post(model=MODEL, input="Go", include=["everything"])
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "include[0]")


@pytest.mark.requirement("I6-2-annotations")
async def test_a_text_that_names_a_page_that_was_found_cites_it(harness: Harness) -> None:
    text = f"See {URL} for more, and again {URL}."
    harness.backend.plays(calls(SEARCH), says(text))
    (part,) = (await made(harness))["output"][-1]["content"]
    places = [(each["start_index"], each["end_index"]) for each in part["annotations"]]
    assert places == [(4, 4 + len(URL)), (text.rindex(URL), text.rindex(URL) + len(URL))]
    assert {each["type"] for each in part["annotations"]} == {"url_citation"}
    assert {(each["url"], each["title"]) for each in part["annotations"]} == {(URL, "All about otters")}


@pytest.mark.requirement("I6-2-annotations")
async def test_a_text_that_names_a_file_that_was_found_cites_it(harness: Harness) -> None:
    harness.backend.plays(calls(FILES), says("As otters.txt says."))
    (part,) = (await made(harness))["output"][-1]["content"]
    (cited,) = part["annotations"]
    assert cited == {"type": "file_citation", "file_id": "file_1", "filename": "otters.txt", "index": 3}


@pytest.mark.requirement("I6-2-annotations")
async def test_a_text_that_names_a_file_of_a_container_cites_it(harness: Harness) -> None:
    harness.backend.plays(calls(CODE), says("It is in plot.png."))
    (part,) = (await made(harness))["output"][-1]["content"]
    (cited,) = part["annotations"]
    assert cited == {
        "type": "container_file_citation",
        "container_id": "box_1",
        "file_id": "cfile_1",
        "filename": "plot.png",
        "start_index": 9,
        "end_index": 17,
    }


@pytest.mark.requirement("I6-2-annotations")
async def test_a_citation_is_an_event_of_the_stream(harness: Harness) -> None:
    harness.backend.plays(calls(SEARCH), Turn(text=f"See {URL}.", size=3))
    events = await harness.stream()
    (added,) = [event for event in events if event.type == "response.output_text.annotation.added"]
    assert added.annotation.type == "url_citation"  # type: ignore[attr-defined]


@pytest.mark.requirement("I6-2-annotations")
async def test_a_text_that_names_nothing_that_was_found_cites_nothing(harness: Harness) -> None:
    harness.backend.plays(calls(SEARCH), says("I do not know."))
    (part,) = (await made(harness))["output"][-1]["content"]
    assert part["annotations"] == []


@pytest.mark.requirement("I6-2-round-trip")
@pytest.mark.parametrize(
    "call",
    [
        SEARCH,
        FILES,
        CODE,
        Call("tide", '{"place": "Cork"}', "call_1"),
        Call("look_up", '{"word": "otter"}', "call_1"),
        Call("add", '{"a": 1, "b": 2}', "call_1"),
        Call("fail", '{"reason": "no"}', "call_1"),
    ],
)
async def test_items_that_are_sent_back_mean_what_they_meant(harness: Harness, call: Call) -> None:
    harness.backend.plays(Turn(reasoning="Hm.", text="Let me see.", calls=(call,)), says("Done."), says("Bye."))
    first = await made(harness, store=False)
    history = [{"role": "user", "content": "Go"}, *first["output"], {"role": "user", "content": "Bye"}]
    await harness.post(model=MODEL, input=history)
    during = harness.backend.asked[1].messages
    after = harness.backend.asked[2].messages
    assert after[: len(during)] == during
    assert [message["content"] for message in after[len(during) :]] == ["Done.", "Bye"]


@pytest.mark.requirement("I6-2-round-trip", "I6-2-previous")
async def test_items_that_are_sent_back_and_items_that_are_kept_mean_the_same(harness: Harness) -> None:
    harness.backend.plays(calls(SEARCH), says("Found."), says("Bye."), says("Bye."))
    first = await made(harness)
    await harness.post(model=MODEL, input="Bye", previous_response_id=first["id"])
    await harness.post(
        model=MODEL, input=[{"role": "user", "content": "Go"}, *first["output"], {"role": "user", "content": "Bye"}]
    )
    assert harness.backend.asked[2].messages == harness.backend.asked[3].messages


@pytest.mark.requirement("I6-2-round-trip", "I6-2-stored")
@pytest.mark.parametrize("named", [{"type": "item_reference"}, {"type": None}, {}])
async def test_an_item_may_be_named_instead_of_sent_back(harness: Harness, named: dict[str, Any]) -> None:
    harness.backend.plays(says("Hello"), says("Bye."))
    first = await made(harness)
    reference = {**named, "id": first["output"][0]["id"]}
    await harness.post(model=MODEL, input=[reference, {"type": None, "role": "user", "content": "Bye"}])
    assert harness.backend.asked[1].messages == [
        {"role": "assistant", "content": "Hello"},
        {"role": "user", "content": "Bye"},
    ]


@pytest.mark.requirement("I6-2-round-trip", "I6-2-stored")
@pytest.mark.parametrize("call", [Call("add", '{"a": 1, "b": 2}', "call_1"), SEARCH])
async def test_a_hosted_call_that_is_sent_back_without_its_output_means_the_stored_one(
    harness: Harness, call: Call
) -> None:
    harness.backend.plays(calls(call), says("Found."), says("Bye."))
    first = await made(harness)
    bare = {name: value for name, value in first["output"][0].items() if name not in {"output", "call_id", "status"}}
    goodbye = {"role": "user", "content": "Bye"}
    await made(
        harness, input=[{"role": "user", "content": "Go"}, {**bare, "output": None}, first["output"][1], goodbye]
    )
    during, after = (asked.messages for asked in harness.backend.asked[1:])
    assert after[: len(during)] == during


@pytest.mark.requirement("C-9-items", "I6-2-stored")
async def test_every_item_of_a_stored_response_may_be_named(harness: Harness) -> None:
    ask = Call("ask_first", '{"what": "it"}', "call_ask")
    harness.backend.plays(Turn(reasoning="Hm.", text="So.", calls=(SEARCH, ask)), says("Bye."), says("Bye."))
    sent = [{"id": "msg_of_the_client", "type": "message", "role": "user", "content": "Go"}]
    first = await made(harness, input=sent, metadata={"toolplug_approvals": "items"})
    assert [item["type"] for item in first["output"]] == [
        "reasoning",
        "message",
        "web_search_call",
        "mcp_approval_request",
    ]
    listed = (await harness.http.get(f"/v1/responses/{first['id']}/input_items")).json()["data"]
    references = [{"type": "item_reference", "id": item["id"]} for item in [*listed, *first["output"]]]
    goodbye = {"role": "user", "content": "Bye"}
    await made(harness, input=[*references, goodbye])
    await made(harness, input=[goodbye], previous_response_id=first["id"])
    referred, continued = (asked.messages for asked in harness.backend.asked[1:])
    assert referred == continued
    assert [message["role"] for message in referred] == ["user", "assistant", "tool", "tool", "user"]


@pytest.mark.requirement("I6-2-stored", "I6-bad-requests")
async def test_an_item_that_is_not_there_cannot_be_named(harness: Harness) -> None:
    answer = await harness.post(model=MODEL, input=[{"type": "item_reference", "id": "msg_nowhere"}])
    error = answer.json()["error"]
    assert (answer.status_code, error["code"], error["param"]) == (404, "item_not_found", "input[0].id")
