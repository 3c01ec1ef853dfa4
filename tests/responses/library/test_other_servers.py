"""Answers of servers that are not exact: what can be read is read, and what cannot is never an empty success."""

from __future__ import annotations

import json

import pytest
from tests.responses.library.raw_model import DONE, answer, chunk, event, fragment, streamed, whole

pytestmark = pytest.mark.anyio

HI = chunk({"content": "hi"})
STOP = chunk({}, "stop")
USAGE = {"prompt_tokens": 3, "completion_tokens": 1, "total_tokens": 4}
WHOLE = whole({"role": "assistant", "content": "hi"}, usage=USAGE)
PRETTY = json.dumps(json.loads(WHOLE), indent=2).encode()
PARTS = [{"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}, {"type": "text", "text": "hi"}]

SAYS_HI = {
    "as OpenAI sends it": HI + STOP + DONE,
    "usage with choices null": HI + STOP + event({"choices": None, "usage": USAGE}) + DONE,
    "usage without choices": HI + STOP + event({"usage": USAGE}) + DONE,
    "usage with an empty list": HI + STOP + event({"choices": [], "usage": USAGE}) + DONE,
    "choices null before the text": event({"choices": None}) + HI + STOP + DONE,
    "choices of another kind": HI + event({"choices": 3}) + STOP + DONE,
    "choices as one object": event({"choices": {"delta": {"content": "hi"}, "finish_reason": "stop"}}) + DONE,
    "null": HI + STOP + event("null") + DONE,
    "a list": HI + event("[]") + STOP + DONE,
    "a choice that is null": HI + event({"choices": [None]}) + STOP + DONE,
    "a delta that is null": HI + event({"choices": [{"delta": None, "finish_reason": "stop"}]}) + DONE,
    "an event without data": HI + b"data:\n\n" + STOP + DONE,
    "comments": b": wait\n\n" + HI + b": wait\n\n" + STOP + DONE,
    "pings": event("{}", "ping") + HI + event("", "ping") + event("pong", "ping") + STOP + DONE,
    "events with a name": event(HI[6:-2], "message") + event(STOP[6:-2], "completion.chunk") + DONE,
    "no finish reason": HI + DONE,
    "no [DONE]": HI + STOP,
    "no empty line at the end": HI + STOP.rstrip(),
    "a finish reason that is empty": chunk({"content": "hi"}, "") + chunk({}, "") + DONE,
    "a finish reason of its own": HI + chunk({}, "eos_token") + DONE,
    "a finish reason that is no text": HI
    + event({"choices": [{"delta": {}, "finish_reason": {"type": "stop"}}]})
    + DONE,
    "lines end as on Windows": (HI + STOP + DONE).replace(b"\n", b"\r\n"),
    "lines end as on an old Mac": (HI + STOP + DONE).replace(b"\n", b"\r"),
    "no blank after the colon": (HI + STOP + DONE).replace(b"data: ", b"data:"),
    "a byte order mark": b"\xef\xbb\xbf" + HI + STOP + DONE,
    "blank lines first": b"\n\n" + HI + STOP + DONE,
    "text after [DONE]": HI + STOP + DONE + event("{broken"),
    "message in place of delta": event({"choices": [{"message": {"content": "hi"}, "finish_reason": "stop"}]}) + DONE,
    "the message again at the end": HI
    + event({"choices": [{"message": {"content": "hi"}, "finish_reason": "stop"}]})
    + DONE,
    "text in place of delta": event({"choices": [{"text": "hi", "finish_reason": "stop"}]}) + DONE,
    "content as parts": chunk({"content": [{"type": "text", "text": "h"}]}) + chunk({"content": "i"}) + STOP + DONE,
    "content as an object": chunk({"content": {"type": "text", "text": "hi"}}) + STOP + DONE,
    "content as texts": chunk({"content": ["h", "i"]}) + STOP + DONE,
    "content with a part of another type": chunk({"content": [{"type": "x"}, {"type": "text", "text": "hi"}]})
    + STOP
    + DONE,
    "usage with every chunk": chunk({"content": "h"}, usage=USAGE)
    + chunk({"content": "i"}, "stop", usage=USAGE)
    + DONE,
    "usage of another kind": chunk({"content": "hi"}, "stop", usage="none") + DONE,
    "an error that is null": chunk({"content": "hi"}, "stop", error=None) + DONE,
    "an error that is none": chunk({"content": "hi"}, "stop", error={"code": 0, "message": ""}) + DONE,
    "calls that are null": chunk({"content": "hi", "tool_calls": None, "function_call": None}, "stop") + DONE,
    "calls that are empty": chunk({"content": "hi", "tool_calls": []}, "stop") + DONE,
    "JSON where a stream was asked for": WHOLE,
    "JSON over several lines": PRETTY,
    "a whole answer": WHOLE,
    "a whole answer as parts": whole({"content": PARTS[1:]}),
    "a whole answer as delta": json.dumps({"choices": [{"delta": {"content": "hi"}}]}).encode(),
    "a whole answer as text": json.dumps({"choices": [{"text": "hi", "finish_reason": "stop"}]}).encode(),
    "a whole answer without finish reason": whole({"content": "hi"}, None),
    "a logprob that is no number": json.dumps(
        {"choices": [{"message": {"content": "hi"}, "logprobs": {"content": [{"logprob": float("-inf")}]}}]}
    ).encode(),
}


@pytest.mark.requirement("C-9-lenient")
@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("size", [1 << 20, 5])
@pytest.mark.parametrize("sent", SAYS_HI.values(), ids=SAYS_HI)
async def test_a_text_is_read_however_it_is_sent(sent: bytes, size: int, stream: bool) -> None:
    made = await answer(sent, size=size, stream=stream)
    assert (made.status, made.text) == ("completed", "hi")
    if b'"usage": {' in sent:
        assert (made.usage["input_tokens"], made.usage["output_tokens"]) == (3, 1)


THINKS = {
    "reasoning_content": chunk({"reasoning_content": "hm"}) + HI + STOP + DONE,
    "reasoning": chunk({"reasoning": "hm"}) + HI + STOP + DONE,
    "both": chunk({"reasoning": "hm", "reasoning_content": "hm"}) + HI + STOP + DONE,
    "thinking in the content": whole({"content": PARTS}),
    "thinking in the content, as a text": whole({"content": [{"type": "thinking", "thinking": "hm"}, PARTS[1]]}),
    "thinking in the content, streamed": chunk({"content": [PARTS[0]]}) + HI + STOP + DONE,
    "reasoning in the content": whole({"content": [{"type": "reasoning", "text": "hm"}, PARTS[1]]}),
    "reasoning as parts": whole({"content": "hi", "reasoning": [{"text": "hm"}]}),
    "reasoning as an object": whole({"content": "hi", "reasoning": {"content": "hm"}}),
    "reasoning empty": chunk({"reasoning_content": "", "reasoning": "hm"}) + HI + STOP + DONE,
}


@pytest.mark.requirement("C-9-lenient")
@pytest.mark.parametrize("sent", THINKS.values(), ids=THINKS)
async def test_reasoning_is_read_wherever_it_is(sent: bytes) -> None:
    made = await answer(sent)
    assert (made.status, made.thought, made.text) == ("completed", "hm", "hi")


FAILS: dict[str, tuple[bytes, str]] = {
    "nothing": (b"", "backend_garbage"),
    "[DONE] alone": (DONE, "backend_garbage"),
    "a stream of another API": (event({"type": "message_start"}, "message_start") + DONE, "backend_garbage"),
    "a stream without [DONE]": (HI, "backend_broke_off"),
    "a stream that is cut": (HI + b'data: {"choices": [{"del', "backend_broke_off"),
    "thoughts alone": (chunk({"reasoning": "hm"}) + DONE, "backend_broke_off"),
    "an empty text, and no reason": (chunk({"role": "assistant", "content": ""}) + DONE, "backend_broke_off"),
    "broken JSON": (HI + event("{broken") + STOP + DONE, "backend_garbage"),
    "broken JSON, whole": (b'{"choices": [', "backend_garbage"),
    "choices of another kind alone": (event({"choices": 3}) + STOP + DONE, "backend_garbage"),
    "parts of unknown types alone": (chunk({"content": [{"type": "x"}]}) + STOP + DONE, "backend_garbage"),
    "no message": (whole(None), "backend_garbage"),
    "an empty message": (whole({}), "backend_garbage"),
    "no choice": (b'{"choices": []}', "backend_garbage"),
    "choices null": (b'{"choices": null, "id": "x"}', "backend_garbage"),
    "a list": (b"[]", "backend_garbage"),
    "a text in JSON": (b'"hi"', "backend_garbage"),
    "calls announced and not sent": (whole({"content": None, "tool_calls": []}, "tool_calls"), "backend_garbage"),
    "calls announced and not streamed": (
        chunk({"role": "assistant"}) + chunk({}, "tool_calls") + DONE,
        "backend_garbage",
    ),
    "an error": (b'{"error": {"message": "WORDS", "code": 402}}', "backend_error"),
    "an error next to choices": (b'{"error": {"message": "WORDS"}, "choices": null}', "backend_error"),
    "an error as text": (b'{"error": "WORDS"}', "backend_error"),
    "an error of the choice": (
        b'{"choices": [{"error": {"message": "WORDS"}, "message": {"content": ""}}]}',
        "backend_error",
    ),
    "an error of vLLM's form": (b'{"object": "error", "message": "WORDS", "code": 400}', "backend_error"),
    "an error of Anthropic's form": (b'{"type": "error", "error": {"message": "WORDS"}}', "backend_error"),
    "an error of FastAPI's form": (b'{"detail": "WORDS"}', "backend_error"),
    "an error of MiniMax's form": (
        b'{"choices": null, "base_resp": {"status_code": 1004, "status_msg": "WORDS"}}',
        "backend_error",
    ),
    "a list of errors": (b'{"errors": [{"message": "WORDS"}]}', "backend_error"),
    "a page": (b"<!DOCTYPE html><title>WORDS</title>", "backend_error"),
    "a line of text": (b"WORDS: upstream connect error", "backend_error"),
    "a text that looks like a field": (b"data is WORDS", "backend_error"),
    "an error in the stream": (HI + event({"error": {"message": "WORDS"}}) + DONE, "backend_error"),
    "an error event": (HI + event({"message": "WORDS"}, "error") + DONE, "backend_error"),
    "an error event with text": (HI + event("WORDS", "error") + DONE, "backend_error"),
    "an error written into the stream": (HI + b'{"error": {"message": "WORDS"}}\n\n', "backend_error"),
    "an error with a choice": (
        HI + chunk({"content": ""}, "error", error={"message": "WORDS"}) + DONE,
        "backend_error",
    ),
    "finish reason error": (HI + chunk({}, "error", note="WORDS") + DONE, "backend_error"),
}


@pytest.mark.requirement("C-9-lenient", "C-9-backend-words")
@pytest.mark.parametrize("size", [1 << 20, 5])
@pytest.mark.parametrize(("sent", "code"), FAILS.values(), ids=FAILS)
async def test_what_bears_on_the_answer_fails_it_and_its_words_go_to_the_log_alone(
    sent: bytes, code: str, size: int, caplog: pytest.LogCaptureFixture
) -> None:
    made = await answer(sent, size=size)
    assert (made.status, made.code, made.ran) == ("failed", code, [])
    assert "WORDS" not in json.dumps(made.events)
    assert ("WORDS" in caplog.text) == (b"WORDS" in sent)


@pytest.mark.requirement("C-9-backend-words")
async def test_words_in_the_log_are_short_and_escaped_and_have_no_key(caplog: pytest.LogCaptureFixture) -> None:
    words = "the key is secret\nWARNING forged\x1b[31m\u202e " + "x" * 10_000
    await answer(json.dumps({"error": {"message": words}}, ensure_ascii=False).replace("\\n", "\n").encode())
    await answer(b"<p>" + words.encode())
    said = [record.getMessage() for record in caplog.records if "said" in record.getMessage()]
    assert len(said) == 1  # the first one is broken JSON, and has a text of the model perhaps
    assert "the key is ***\\nWARNING forged\\x1b[31m\\u202e" in said[0]
    assert len(said[0]) < 600


@pytest.mark.requirement("C-9-lenient")
async def test_what_was_left_out_is_in_the_log_with_its_place(caplog: pytest.LogCaptureFixture) -> None:
    await answer(HI + event({"choices": 3}) + event("null") + STOP + DONE)
    assert (
        "left out of an answer of the model's server: chunk 2: /choices: no list; chunk 3: /: no object" in caplog.text
    )


@pytest.mark.requirement("C-9-lenient")
async def test_an_answer_that_is_empty_and_well_formed_is_complete() -> None:
    after_call = (streamed(fragment(0, "c1", "note", '{"text": "a"}')), whole({"role": "assistant", "content": ""}))
    made = await answer(*after_call)
    assert (made.status, made.ran, made.text) == ("completed", ["a"], "")


@pytest.mark.requirement("C-9-backend-bounded")
@pytest.mark.parametrize("value", [b"1", b"[]", b'{"a":1}', b'""', b'"a,[{"'])
async def test_an_answer_of_many_values_is_refused_before_they_are_built(value: bytes) -> None:
    many = b'{"choices": [{"message": {"content": "hi", "x": [' + b",".join([value] * 600_000) + b"]}}]}"
    made = await answer(many)
    assert (made.status, made.code) == ("failed", "backend_garbage")


@pytest.mark.requirement("C-9-backend-bounded")
async def test_a_text_with_many_commas_is_one_value() -> None:
    text = "1," * 400_000
    made = await answer(whole({"content": text}))
    assert (made.status, made.text) == ("completed", text)
