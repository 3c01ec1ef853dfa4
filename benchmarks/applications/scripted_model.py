"""A scripted Chat Completions server: no model, the same bytes for every request, after the time that is asked for.

The last message of the user says what to answer: `text`, or `call N` for N calls of `hello` and then text. Streamed,
`tick N MS` is N fragments, one every MS milliseconds, the first after as long; each is the clock when it was sent.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from time import monotonic_ns

from starlette.types import ASGIApp, Receive, Scope, Send

_HEAD = {"id": "chatcmpl-1", "created": 1, "model": "scripted"}
_USAGE = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
_DONE = b"data: [DONE]\n\n"


@asynccontextmanager
async def opened() -> AsyncGenerator[ASGIApp]:
    """The application; it answers every path."""
    yield _answer


async def _answer(scope: Scope, receive: Receive, send: Send) -> None:
    if scope["type"] != "http":
        return
    body, more = b"", True
    while more:
        message = await receive()
        body, more = body + message["body"], message["more_body"]
    asked = json.loads(body)
    words = next(each["content"] for each in reversed(asked["messages"]) if each["role"] == "user").split()
    if asked.get("stream"):
        await _stream(words, send)
        return
    whole = json.dumps(_completion(words, asked["messages"])).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(whole))]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": whole})


def _completion(words: Sequence[str], messages: Sequence[Mapping[str, object]]) -> Mapping[str, object]:
    message: dict[str, object] = {"role": "assistant", "content": "Hello, otter!"}
    if words[0] == "call" and messages[-1]["role"] == "user":
        function = {"name": "hello", "arguments": '{"name": "otter"}'}
        message["tool_calls"] = [
            {"id": f"call_{number}", "type": "function", "function": function} for number in range(int(words[1]))
        ]
    choice = {"index": 0, "message": message, "finish_reason": "tool_calls" if "tool_calls" in message else "stop"}
    return {**_HEAD, "object": "chat.completion", "choices": [choice], "usage": _USAGE}


async def _stream(words: Sequence[str], send: Send) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/event-stream")]})
    due = asyncio.get_running_loop().time()
    for _ in range(int(words[1])):
        due += int(words[2]) / 1000
        await asyncio.sleep(due - asyncio.get_running_loop().time())
        await _send(send, _chunk({"content": f"<{monotonic_ns()}>"}))
    await _send(send, _chunk({}, "stop"))
    await send({"type": "http.response.body", "body": _DONE})


async def _send(send: Send, chunk: bytes) -> None:
    await send({"type": "http.response.body", "body": chunk, "more_body": True})


def _chunk(delta: Mapping[str, str], finish: str | None = None) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return b"data: %b\n\n" % json.dumps({**_HEAD, "object": "chat.completion.chunk", "choices": [choice]}).encode()
