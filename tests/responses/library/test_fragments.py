"""Calls put together from the fragments that servers send: each runs once, with the arguments that the model gave."""

from __future__ import annotations

import json

import pytest
from tests.responses.judges.stream_laws import StreamLaws
from tests.responses.library.raw_model import DONE, answer, chunk, fragment, streamed, whole

pytestmark = pytest.mark.anyio

A, B = '{"text": "a"}', '{"text": "b"}'
NONE = ...
"""For a fragment without an index."""

RUN_ONCE = {
    "as OpenAI sends it": streamed(
        fragment(0, "c1", "note", ""), fragment(0, arguments='{"text":'), fragment(0, arguments=' "a"}')
    ),
    "whole": streamed(fragment(0, "c1", "note", A)),
    "index null": streamed(fragment(None, "c1", "note", A)),
    "index null, in pieces": streamed(
        fragment(None, "c1", "note", ""), fragment(None, None, None, '{"text": '), fragment(None, None, None, '"a"}')
    ),
    "index absent": streamed(fragment(NONE, "c1", "note", A)),
    "index absent, in pieces": streamed(
        fragment(NONE, "c1", "note"), fragment(NONE, arguments='{"text": '), fragment(NONE, arguments='"a"}')
    ),
    "index as text": streamed(fragment("0", "c1", "note", ""), fragment("0", arguments=A)),
    "index as a word": streamed(fragment("first", "c1", "note", ""), fragment("first", arguments=A)),
    "index true": streamed(fragment(True, "c1", "note", A)),
    "index from one": streamed(fragment(1, "c1", "note", ""), fragment(1, arguments=A)),
    "index negative": streamed(fragment(-1, "c1", "note", ""), fragment(-1, arguments=A)),
    "index a fraction": streamed(fragment(0.5, "c1", "note", A)),
    "id a number": streamed(fragment(0, 17, "note", ""), fragment(0, 17, arguments=A)),
    "id null afterwards": streamed(
        fragment(0, "c1", "note", ""), {"index": 0, "id": None, "function": {"name": None, "arguments": A}}
    ),
    "id empty afterwards": streamed(fragment(0, "c1", "note", ""), fragment(0, "", "", A)),
    "name in every delta": streamed(
        fragment(0, "c1", "note", ""), fragment(0, "c1", "note", '{"text":'), fragment(0, "c1", "note", ' "a"}')
    ),
    "name in every delta, no id": streamed(
        fragment(0, None, "note", ""), fragment(0, None, "note", '{"text":'), fragment(0, None, "note", ' "a"}')
    ),
    "name in every delta, to the end": streamed(
        fragment(0, "c1", "note", '{"text":'), fragment(0, "c1", "note", ' "a"}'), fragment(0, "c1", "note", "")
    ),
    "name in every delta, to the end, no id": streamed(fragment(0, None, "note", A), fragment(0, None, "note", "")),
    "name in every delta, no index": streamed(
        fragment(NONE, None, "note", '{"text":'), fragment(NONE, None, "note", ' "a"}')
    ),
    "name in pieces": streamed(fragment(0, "c1", "no", ""), fragment(0, None, "te", ""), fragment(0, arguments=A)),
    "name in pieces, id with each": streamed(
        fragment(0, "c1", "no"), fragment(0, "c1", "te"), fragment(0, "c1", arguments=A)
    ),
    "name growing": streamed(fragment(0, "c1", "no"), fragment(0, "c1", "note"), fragment(0, "c1", arguments=A)),
    "name after the id": streamed(fragment(0, "c1"), fragment(0, None, "note", ""), fragment(0, arguments=A)),
    "name after the arguments": streamed(fragment(0, "c1", None, A), fragment(0, "c1", "note")),
    "name after the arguments, no id": streamed(fragment(0, "c1", None, A), fragment(0, None, "note", "")),
    "name after the arguments, no index": streamed(fragment(NONE, "c1", None, A), fragment(NONE, "c1", "note")),
    "name among the arguments": streamed(fragment(0, "c1", None, '{"text":'), fragment(0, "c1", "note", ' "a"}')),
    "id after the name": streamed(fragment(0, None, "note", ""), fragment(0, "c1", None, A)),
    "id new in every delta": streamed(
        fragment(0, "x1", "note", ""), fragment(0, "x2", None, '{"text": '), fragment(0, "x3", None, '"a"}')
    ),
    "id and name in every delta, id new": streamed(
        fragment(0, "x1", "note", '{"text": '), fragment(0, "x2", "note", '"a"}')
    ),
    "head at one index, tail at another": streamed(fragment(0, "c1", "note", ""), fragment(1, arguments=A)),
    "head at one index, tail at others": streamed(
        fragment(0, "c1", "note", '{"te'), fragment(1, arguments='xt": '), fragment(2, arguments='"a"}')
    ),
    "index counts the deltas, id with each": streamed(
        fragment(0, "c1", "note", ""), fragment(1, "c1", None, '{"text": '), fragment(2, "c1", None, '"a"}')
    ),
    "index counts the deltas, id and name with each": streamed(
        fragment(0, "c1", "note", ""), fragment(1, "c1", "note", '{"text": '), fragment(2, "c1", "note", '"a"}')
    ),
    "one call at two indexes": streamed(fragment(0, "c1", "note", A), fragment(1, "c1", "note", A)),
    "one call at three indexes": streamed(*(fragment(place, "c1", "note", A) for place in range(3))),
    "one call at two indexes, in one delta": streamed([fragment(0, "c1", "note", A), fragment(1, "c1", "note", A)]),
    "one call at two indexes, in pieces": streamed(
        fragment(0, "c1", "note", ""),
        fragment(1, "c1", "note", ""),
        fragment(0, arguments='{"te'),
        fragment(1, arguments='{"te'),
        fragment(0, arguments='xt": "a"}'),
        fragment(1, arguments='xt": "a"}'),
    ),
    "one call twice at one index": streamed(fragment(0, "c1", "note", A), fragment(0, "c1", "note", A)),
    "arguments again at the end": streamed(
        fragment(0, "c1", "note", ""),
        fragment(0, arguments='{"text": '),
        fragment(0, arguments='"a"}'),
        fragment(0, arguments=A),
    ),
    "arguments begin with an empty object": streamed(
        fragment(0, "c1", "note", "{}"), fragment(0, arguments='{"text": '), fragment(0, arguments='"a"}')
    ),
    "arguments null in the head": streamed(
        {"index": 0, "id": "c1", "function": {"name": "note", "arguments": None}}, fragment(0, arguments=A)
    ),
    "arguments as an object": streamed(fragment(0, "c1", "note", {"text": "a"})),
    "white space after the end": streamed(
        fragment(0, "c1", "note", A), fragment(0, arguments="\n"), fragment(0, arguments=" ")
    ),
    "the form before tool_calls": b"".join(
        [
            chunk({"function_call": {"name": "note", "arguments": ""}}),
            chunk({"function_call": {"arguments": A}}),
            chunk({}, "function_call"),
            DONE,
        ]
    ),
    "a call that is no list": b"".join(
        [chunk({"tool_calls": fragment(0, "c1", "note", A)}), chunk({}, "tool_calls"), DONE]
    ),
    "null among the calls": streamed([None, fragment(0, "c1", "note", A)]),  # type: ignore[list-item]
    "a function that is not nested": streamed({"index": 0, "id": "c1", "name": "note", "arguments": A}),
    "no finish reason": streamed(fragment(0, "c1", "note", A), finish=None),
    "finish reason stop": streamed(fragment(0, "c1", "note", A), finish="stop"),
    "with the last fragment": b"".join([chunk({"tool_calls": [fragment(0, "c1", "note", A)]}, "tool_calls"), DONE]),
    "whole answer": whole({"content": None, "tool_calls": [fragment(NONE, "c1", "note", A)]}),
    "whole answer, twice": whole({"tool_calls": [fragment(NONE, "c1", "note", A), fragment(NONE, "c1", "note", A)]}),
    "whole answer, as an object": whole({"tool_calls": [fragment(NONE, "c1", "note", {"text": "a"})]}),
    "whole answer, the form before": whole(
        {"content": None, "function_call": {"name": "note", "arguments": A}}, "function_call"
    ),
}


@pytest.mark.requirement("C-9-fragments")
@pytest.mark.parametrize("size", [1 << 20, 7])
@pytest.mark.parametrize("sent", RUN_ONCE.values(), ids=RUN_ONCE)
async def test_a_call_runs_once_however_it_is_sent(sent: bytes, size: int) -> None:
    made = await answer(sent, size=size)
    assert (made.status, made.ran, made.text) == ("completed", ["a"], "")


RUN_TWICE = {
    "as OpenAI sends them": streamed(
        fragment(0, "c1", "note", ""), fragment(0, arguments=A), fragment(1, "c2", "note", ""), fragment(1, arguments=B)
    ),
    "heads first": streamed(
        fragment(0, "c1", "note", ""), fragment(1, "c2", "note", ""), fragment(0, arguments=A), fragment(1, arguments=B)
    ),
    "heads first, no ids": streamed(
        fragment(0, None, "note", ""), fragment(1, None, "note", ""), fragment(0, arguments=A), fragment(1, arguments=B)
    ),
    "by turns": streamed(
        fragment(0, "c1", "note", ""),
        fragment(1, "c2", "note", ""),
        fragment(0, arguments='{"text": '),
        fragment(1, arguments='{"text": '),
        fragment(0, arguments='"a"}'),
        fragment(1, arguments='"b"}'),
    ),
    "by turns, id with each, one index": streamed(
        fragment(0, "c1", "note", '{"text": '),
        fragment(0, "c2", "note", '{"text": '),
        fragment(0, "c1", None, '"a"}'),
        fragment(0, "c2", None, '"b"}'),
    ),
    "no index, ids": streamed(fragment(NONE, "c1", "note", A), fragment(NONE, "c2", "note", B)),
    "no index, no ids": streamed(fragment(NONE, None, "note", A), fragment(NONE, None, "note", B)),
    "no index, heads in one delta": streamed(
        [fragment(NONE, "c1", "note"), fragment(NONE, "c2", "note")],
        [fragment(NONE, arguments=A), fragment(NONE, arguments=B)],
    ),
    "no index, in one delta": streamed([fragment(NONE, "c1", "note", A), fragment(NONE, "c2", "note", B)]),
    "one index, ids": streamed(fragment(0, "c1", "note", A), fragment(0, "c2", "note", B)),
    "one index, no ids": streamed(fragment(0, None, "note", A), fragment(0, None, "note", B)),
    "one index, empty ids": streamed(fragment(0, "", "note", A), fragment(0, "", "note", B)),
    "one index, empty ids, in one delta": streamed([fragment(0, "", "note", A), fragment(0, "", "note", B)]),
    "one index, empty ids, in pieces": streamed(
        fragment(0, "", "note", '{"text": '),
        fragment(0, "", "", '"a"}'),
        fragment(0, "", "note", '{"text": '),
        fragment(0, "", "", '"b"}'),
    ),
    "one id for both": streamed(fragment(0, "c1", "note", A), fragment(1, "c1", "note", B)),
    "one id and index for both": streamed(fragment(0, "c1", "note", A), fragment(0, "c1", "note", B)),
    "arguments of the second at another index": streamed(
        fragment(0, "c1", "note", A), fragment(0, "c2", "note", ""), fragment(1, arguments=B)
    ),
    "arguments of the second at the index of the first": streamed(
        fragment(0, "c1", "note", A), fragment(1, "c2", "note", ""), fragment(0, arguments=B)
    ),
    "name in every delta": streamed(
        fragment(0, "c1", "note", ""),
        fragment(0, "c1", "note", A),
        fragment(1, "c2", "note", ""),
        fragment(1, "c2", "note", B),
    ),
    "whole answer": whole({"tool_calls": [fragment(NONE, "c1", "note", A), fragment(NONE, "c2", "note", B)]}),
    "whole answer, one id": whole({"tool_calls": [fragment(NONE, "c1", "note", A), fragment(NONE, "c1", "note", B)]}),
    "whole answer, no ids": whole({"tool_calls": [fragment(NONE, None, "note", A), fragment(NONE, None, "note", B)]}),
    "whole answer, one index": whole({"tool_calls": [fragment(0, "", "note", A), fragment(0, "", "note", B)]}),
}


@pytest.mark.requirement("C-9-fragments")
@pytest.mark.parametrize("sent", RUN_TWICE.values(), ids=RUN_TWICE)
async def test_two_calls_are_told_apart_however_they_are_sent(sent: bytes) -> None:
    made = await answer(sent)
    assert (made.status, sorted(made.ran)) == ("completed", ["a", "b"])
    ids = [item["call_id"] for item in made.items if item["type"] == "mcp_call"]
    assert len(set(ids)) == 2
    assert all(ids)


NEVER = {
    "arguments before their head": streamed(fragment(1, arguments=B), fragment(0, "c1", "note", "")),
    "arguments of nobody": streamed(
        fragment(0, "c1", "note", A), fragment(1, arguments=B), fragment(2, "c2", "note", "")
    ),
    "arguments before their head, of its id": streamed(fragment(0, "c1", None, B), fragment(1, "c1", "note", "")),
    "arguments before their head, of another id": streamed(fragment(0, "c1", None, B), fragment(0, "c2", "note", "")),
    "no end, arguments missing": streamed(fragment(0, "c1", "note", ""), finish=None),
    "no end, arguments broken off": streamed(fragment(0, "c1", "note", '{"text": "a'), finish=None),
    "arguments that are no JSON": streamed(fragment(0, "c1", "note", '{"text": a}')),
    "arguments that are no object": whole({"tool_calls": [fragment(NONE, "c1", "note", 3)]}),
    "arguments of two calls in one": streamed(fragment(0, "c1", "note", A + B)),
    "too many calls": streamed(*(fragment(place, f"c{place}", "note", A) for place in range(129))),
    "arguments over a mebibyte": streamed(fragment(0, "c1", "note", '{"text": "' + "x" * (1 << 20) + '"}')),
    "a call that is a number": whole({"tool_calls": [3]}),
}


@pytest.mark.requirement("C-9-fragments")
@pytest.mark.parametrize("sent", NEVER.values(), ids=NEVER)
async def test_a_tool_never_runs_with_arguments_that_nobody_gave(sent: bytes) -> None:
    made = await answer(sent)
    assert [each for each in made.ran if each != "a"] == []
    assert made.status == "failed" or made.items[0]["status"] == "failed"


@pytest.mark.requirement("C-9-fragments")
@pytest.mark.parametrize("finish", ["tool_calls", "stop"])
@pytest.mark.parametrize("tools", [[], [{"type": "function", "name": "note"}]], ids=["hosted", "own"])
async def test_arguments_without_any_call_are_no_empty_success(finish: str, tools: list[dict[str, object]]) -> None:
    made = await answer(streamed(fragment(0, None, None, A), finish=finish), tools=tools)
    assert (made.status, made.items) == ("failed", [])


@pytest.mark.requirement("C-9-fragments")
async def test_a_call_without_arguments_runs() -> None:
    calls = streamed(fragment(0, "c1", "note", ""), fragment(1, "c2", "notebook", "{}"), fragment(2, "c3", "notebook"))
    made = await answer(calls)
    assert sorted(made.ran) == ["(notebook)", "(notebook)", "(nothing given)"]
    names = streamed(fragment(0, "", "note", ""), fragment(0, "", "notebook", ""))
    assert (await answer(names)).ran == ["(nothing given)", "(notebook)"]


@pytest.mark.requirement("C-9-fragments")
@pytest.mark.parametrize(
    "sent", [*RUN_ONCE.values(), *RUN_TWICE.values()], ids=[*RUN_ONCE, *(f"two: {name}" for name in RUN_TWICE)]
)
async def test_a_clients_own_function_is_put_together_by_the_same_rule(sent: bytes) -> None:
    made = await answer(sent, tools=[{"type": "function", "name": "note"}])
    assert made.status == "completed"
    laws = StreamLaws()
    for each in made.events:
        laws.take(each)
    texts = sorted(str(json.loads(str(item["arguments"]))["text"]) for item in made.items)
    assert texts == (["a", "b"] if sent in RUN_TWICE.values() else ["a"])


@pytest.mark.requirement("C-9-fragments")
@pytest.mark.parametrize("size", [1, 2, 3, 100])
@pytest.mark.parametrize("text", ['"}{"', "\\", '\\"', "{[", "]}", "\n\t\u2028"])
async def test_brackets_quotes_and_backslashes_in_a_text_end_no_arguments(text: str, size: int) -> None:
    arguments = json.dumps({"text": text})
    pieces = [arguments[start : start + size] for start in range(0, len(arguments), size)]
    made = await answer(streamed(*(fragment(0, "c1", "note", piece) for piece in pieces)))
    assert made.ran == [text]
