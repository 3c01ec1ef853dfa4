"""Clients that send back only their own calls: what the host did comes back, once, where it happened."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection
from copy import deepcopy
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.responses.library.healing_conversation import (
    ALICE,
    Hosts,
    Items,
    answers_to,
    mail_to,
    opened_hosts,
    shown,
    weather_in,
)
from tests.virtual_time import VIRTUAL, VirtualLoop, pass_time

from toolplug import Principal
from toolplug.errors import ResponseRefused, StoreUnavailable
from toolplug.parts.responses.items.transcript import messages as as_messages
from toolplug.parts.responses.limits import MAX_HEALED_BYTES, MAX_HEALED_RESPONSES
from toolplug.parts.responses.request import checked_items
from toolplug.responses import CallPart, Delta
from toolplug.stores.store import DelegatingStore, Record

pytestmark = [pytest.mark.anyio, pytest.mark.requirement("I32-healing")]

GO = {"role": "user", "content": "Mail Ann, and tell me the weather in Cork."}
BOTH = [[weather_in("Cork", 0), mail_to("ann", 1)]]
THEN = [[mail_to("ann")], [weather_in("Cork")]]


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, object]]:
    return VIRTUAL


def own(output: Items) -> Items:
    return [item for item in output if item["type"] not in ("mcp_call", "web_search_call", "mcp_approval_request")]


def written_again(item: dict[str, Any]) -> dict[str, Any]:
    """A call as JavaScript and many frameworks write it, who keep its arguments as an object."""
    if item["type"] != "function_call":
        return item
    return {**item, "arguments": json.dumps(json.loads(item["arguments"]), indent=1).replace("1.0", "1")}


def haystack(output: Items) -> Items:
    """The id of the item, that of the call, and arguments that were read and written again."""
    kept = ("type", "id", "call_id", "name", "arguments", "role", "content")
    return [{name: item[name] for name in kept if name in item} for item in map(written_again, own(output))]


def agno(output: Items) -> Items:
    """Only calls, and what was said as a plain message."""
    calls = [item for item in output if item["type"] == "function_call"]
    return [{name: item[name] for name in ("type", "id", "call_id", "name", "arguments")} for item in calls]


def strands(output: Items) -> Items:
    """The id of the call alone."""
    calls = [item for item in map(written_again, output) if item["type"] == "function_call"]
    return [{name: item[name] for name in ("type", "call_id", "name", "arguments")} for item in calls]


def codex(output: Items) -> Items:
    """Items as they came, without those that are no business of its own."""
    return [{name: value for name, value in item.items() if name != "status"} for item in own(output)]


def pi(output: Items) -> Items:
    """Codex's way, with messages that have ids of its own."""
    return [{**item, "id": "msg_0"} if item["type"] == "message" else item for item in own(output)]


def item_ids(output: Items) -> Items:
    """The id of the item in the place of that of the call."""
    return [{**item, "call_id": item.get("id")} if item["type"] == "function_call" else item for item in own(output)]


def everything(output: Items) -> Items:
    return output


def without_ids(output: Items) -> Items:
    return [{name: value for name, value in item.items() if name != "id"} for item in output]


def without_outputs(output: Items) -> Items:
    """pydantic-ai sends the host's calls by their ids."""
    return [{**item, "output": None} if item["type"] == "mcp_call" else item for item in output]


SHAPES = [
    haystack, agno, strands, codex, pi, item_ids, own, everything, without_ids, without_outputs
]  # fmt: skip


async def converse(hosts: Hosts, shape: Callable[[Items], Items], **members: Any) -> list[dict[str, Any]]:
    """A conversation of a client that keeps its own history, in this shape."""
    history: Items = [GO]
    responses: list[dict[str, Any]] = []
    for _ in range(4):
        response = await hosts.create(history, **members)
        responses.append(response)
        kept = shape(deepcopy(response["output"]))
        history = [*history, *kept, *answers_to(kept)]
        if not answers_to(kept):
            break
    return responses


@pytest.mark.parametrize("stored", [True, False])
@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("steps", [BOTH, THEN], ids=["both at once", "one after the other"])
@pytest.mark.parametrize("shape", SHAPES)
async def test_a_mail_is_sent_once(shape: Callable[[Items], Items], steps: Any, stream: bool, stored: bool) -> None:
    async with opened_hosts() as hosts:
        hosts.model.wants(steps)
        responses = await converse(hosts, shape, store=stored, stream=stream)
        assert (len(responses), hosts.mail.sent) == (2, ["ann"])
        calls = [("weather", {"city": "Cork", "days": 1}), ("send_mail", {"to": "ann"})]
        assert shown(hosts.model.messages) == (calls if steps is BOTH else calls[::-1])
        contents = [message["content"] for message in hosts.model.messages if message["role"] == "tool"]
        assert contents == (["sun", "sent to ann"] if steps is BOTH else ["sent to ann", "sun"])


async def test_without_it_a_mail_is_sent_twice() -> None:
    async with opened_hosts() as hosts:
        hosts.heal_s = 0
        hosts.model.wants(BOTH)
        await converse(hosts, strands)
        assert hosts.mail.sent == ["ann", "ann"]
        assert await hosts.store.keys("response-healing/") == []


async def once(hosts: Hosts, **members: Any) -> tuple[dict[str, Any], Items]:
    """A first response with both calls, and what a client sends next."""
    hosts.model.wants(BOTH)
    response = await hosts.create([GO], **members)
    kept = strands(response["output"])
    return response, [GO, *kept, *answers_to(kept)]


def names_in(messages: list[Any]) -> list[str]:
    """The names of the calls that a model is shown."""
    return [call["function"]["name"] for message in messages for call in message.get("tool_calls", ())]


async def is_told(hosts: Hosts, items: Items, **members: Any) -> bool:
    """Whether the model is told of the mail."""
    hosts.model.plays([[Delta(text="Done.", finish="stop")]])
    await hosts.create(items, **members)
    return "send_mail" in names_in(hosts.model.messages)


@pytest.mark.parametrize("caller", [Principal("bob", "t1"), Principal("alice", "t2"), Principal("", "t1")])
@pytest.mark.parametrize("stored", [True, False])
async def test_no_other_caller_is_told(caller: Principal, stored: bool) -> None:
    async with opened_hosts() as hosts:
        _, items = await once(hosts, store=stored)
        assert not await is_told(hosts, items, caller=caller)
        assert await is_told(hosts, items)


@pytest.mark.parametrize("stored", [True, False])
async def test_what_was_deleted_is_forgotten(stored: bool) -> None:
    async with opened_hosts() as hosts:
        response, items = await once(hosts, store=stored)
        with pytest.raises(ResponseRefused):
            await hosts.processes[0].of(Principal("bob", "t2")).delete("t2", response["id"])
        assert await is_told(hosts, items)
        await hosts.processes[0].of(ALICE).delete("t1", response["id"])
        assert not await is_told(hosts, items)
        with pytest.raises(ResponseRefused):
            await hosts.processes[0].of(ALICE).delete("t1", response["id"])


async def test_the_store_has_nothing_that_it_could_read_of_a_response_that_was_not_stored() -> None:
    async with opened_hosts() as hosts:
        response, items = await once(hosts, store=False)
        keys = await hosts.store.keys("")
        [sealed] = [key for key in keys if key.startswith("response-healing/")]
        assert await is_told(hosts, items, store=False)
        kept = [await hosts.store.read(key) for key in keys]
        written = b"".join(record.value for record in kept if record is not None) + "".join(keys).encode()
        for known in ("ann", "send_mail", "alice", "Cork", response["id"].removeprefix("resp_")):
            assert known.encode() not in written
        whole = await hosts.store.read(sealed)
        assert whole is not None
        await hosts.store.commit(sealed, whole.value[:-1] + bytes([whole.value[-1] ^ 1]))
        assert not await is_told(hosts, items, store=False)


async def test_it_is_kept_for_its_time_or_as_long_as_the_response() -> None:
    async with opened_hosts() as hosts:
        _, unstored = await once(hosts, store=False)
        _, stored = await once(hosts)
        await pass_time(3599)
        assert await is_told(hosts, unstored)
        await pass_time(1)
        assert not await is_told(hosts, unstored)
        assert await is_told(hosts, stored)


def changed(items: Items, **members: Any) -> Items:
    return [{**item, **members} if item.get("type") == "function_call" else item for item in items]


@pytest.mark.parametrize(
    "spoil",
    [
        pytest.param(lambda items, _: changed(items, arguments='{"city": "Galway", "days": 1}'), id="arguments"),
        pytest.param(lambda items, _: changed(items, arguments='{"city": "Cork", "days": true}'), id="a truth"),
        pytest.param(lambda items, _: changed(items, arguments="Cork"), id="no JSON"),
        pytest.param(lambda items, _: changed(items, name="forecast"), id="name"),
        pytest.param(lambda items, other: changed(items, id=other), id="two responses"),
        pytest.param(lambda items, _: changed(items, id="fc_" + "0" * 32 + "000t1"), id="a response that is not there"),
        pytest.param(
            lambda items, _: [
                *items,
                {**items[1], "id": None, "call_id": items[1]["call_id"] + "x"},
                {**items[2], "call_id": items[2]["call_id"] + "x"},
            ],
            id="a call that was not made",
        ),
        pytest.param(lambda items, _: [*items[:2], items[1], *items[2:]], id="the call twice"),
    ],
)
async def test_nothing_is_added_where_it_is_ambiguous(spoil: Callable[[Items, str], Items]) -> None:
    async with opened_hosts() as hosts:
        other, _ = await once(hosts)
        _, items = await once(hosts)
        assert await is_told(hosts, items)
        assert not await is_told(hosts, spoil(items, other["output"][0]["id"]))


async def test_what_is_continued_on_the_server_is_not_told_again() -> None:
    async with opened_hosts() as hosts:
        first, items = await once(hosts)
        for sent in (items[2:], items[1:]):
            assert await is_told(hosts, sent, previous_response_id=first["id"])
            assert names_in(hosts.model.messages) == ["weather", "send_mail"]
        hosts.model.plays([[Delta(text="Done.", finish="stop")]])
        healed = await hosts.create(items)
        assert await is_told(hosts, [{"role": "user", "content": "More"}], previous_response_id=healed["id"])
        assert names_in(hosts.model.messages) == ["weather", "send_mail"]


async def test_what_a_store_cannot_read_now_is_not_added(caplog: pytest.LogCaptureFixture) -> None:
    class Broken(Watched):
        async def revisions(self, keys: Collection[str]) -> dict[str, int]:
            raise StoreUnavailable("away")

    async with opened_hosts() as hosts:
        _, items = await once(hosts, store=False)
        hosts.store = Broken(hosts.store)
        assert not await is_told(hosts, items, store=False)
    assert "a history stays as it was sent" in caplog.text


class Watched(DelegatingStore):
    """Counts what is read."""

    reads = 0

    async def read(self, key: str) -> Record | None:
        self.reads += key.startswith("response-healing/")
        return await super().read(key)

    async def revisions(self, keys: Collection[str]) -> dict[str, int]:
        self.reads += 1
        return await super().revisions(keys)


async def test_a_request_with_thousands_of_calls_reads_little() -> None:
    async with opened_hosts(Watched) as hosts:
        _, [go, call, answer] = await once(hosts, store=False)
        watched: Any = hosts.store
        made_up = [f"call_{number:032x}000" for number in range(2000)]
        pairs = [({**call, "call_id": each}, {**answer, "call_id": each}) for each in made_up]
        watched.reads = 0
        assert await is_told(hosts, [go, *(item for pair in pairs for item in pair), call, answer], store=False)
        assert watched.reads == 2
        items: Items = []
        for _ in range(MAX_HEALED_RESPONSES + 1):
            items += (await once(hosts, store=False))[1]
        watched.reads = 0
        assert await is_told(hosts, items, store=False)
        assert watched.reads == MAX_HEALED_RESPONSES + 1
        assert names_in(hosts.model.messages).count("send_mail") == MAX_HEALED_RESPONSES


async def test_of_large_results_the_beginnings_are_kept() -> None:
    async with opened_hosts() as hosts:
        long = "a" * (MAX_HEALED_BYTES * 2 // 5)
        parts = (mail_to(f"{long}1"), mail_to(f"{long}2", 1), weather_in("Cork", 2))
        hosts.model.plays([[Delta(calls=parts, finish="tool_calls")]])
        response = await hosts.create([GO], store=False)
        kept = strands(response["output"])
        assert await is_told(hosts, [GO, *kept, *answers_to(kept)], store=False)
        whole, cut = (message["content"] for message in hosts.model.messages if "sent" in (message["content"] or ""))
        assert whole == f"sent to {long}1"
        assert (cut[:10], len(cut) < 5000, cut[-25:]) == ("sent to aa", True, "more characters left out]")


turns_of_hosted = st.lists(st.integers(1, 3), max_size=2)
"""How many hosted calls each turn makes before the last one of a response."""
last_turn = st.lists(st.booleans(), min_size=1, max_size=4).filter(any)
"""The calls of the last turn: whether each is the client's."""
rounds = st.lists(st.tuples(turns_of_hosted, last_turn), min_size=1, max_size=3)


@settings(max_examples=25)
@given(rounds, st.data())
def test_each_hosted_call_is_told_once_in_its_place(
    made: list[tuple[list[int], list[bool]]], data: st.DataObject
) -> None:
    """Whatever a client drops, the model is told the same as if it had sent everything back."""
    loop = VirtualLoop()
    try:
        loop.run_until_complete(_tell(made, data))
    finally:
        loop.close()


async def _tell(made: list[tuple[list[int], list[bool]]], data: st.DataObject) -> None:
    number = 0

    def turn(kinds: list[bool]) -> list[Delta]:
        nonlocal number
        parts: list[CallPart] = []
        for place, is_own in enumerate(kinds):
            number += 1
            text = str(number)
            parts.append((weather_in if is_own else mail_to)(text, place, f"call_{place}"))
        words = data.draw(st.sampled_from(["", "Let me see.", f"Now {number}."]))
        return [*([Delta(text=words)] if words else []), Delta(calls=tuple(parts), finish="tool_calls")]

    async with opened_hosts() as hosts:
        history, whole = [GO], [GO]
        for before, last in made:
            hosts.model.plays([turn([False] * count) for count in before] + [turn(last)])
            response = await hosts.create(history, store=data.draw(st.booleans()))
            output = response["output"]
            whole = [*whole, *output, *answers_to(output)]
            left = [item for item in deepcopy(output) if item["type"] != "mcp_call" or data.draw(st.booleans())]
            kept = [_spoil(item, data) for item in left]
            history = [*history, *kept, *answers_to(output)]
        hosts.model.plays([[Delta(text="Done.", finish="stop")]])
        await hosts.create(history)
        assert _plain(hosts.model.messages) == _plain(as_messages(None, checked_items(whole)))
        assert hosts.mail.sent == list(dict.fromkeys(hosts.mail.sent))


def _spoil(item: dict[str, Any], data: st.DataObject) -> dict[str, Any]:
    """An item without some of its ids; a client's call keeps one of them, as its answer needs it."""
    dropped = ["id"] if data.draw(st.booleans()) else []
    if item["type"] == "mcp_call" and data.draw(st.booleans()):
        dropped.append("call_id")
    item = written_again(item) if data.draw(st.booleans()) else item
    return {name: value for name, value in item.items() if name not in dropped}


def _plain(messages: list[Any]) -> list[Any]:
    """Messages with their arguments as values, which may have been written again."""
    plain = deepcopy(messages)
    for message in plain:
        for call in message.get("tool_calls", ()):
            call["function"]["arguments"] = json.loads(call["function"]["arguments"])
    return plain
