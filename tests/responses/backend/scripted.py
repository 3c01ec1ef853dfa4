"""A scripted Chat Completions server: no model, only what a test wrote down, so that every run is the same.

It stands behind the real `openai` client and a real HTTP server, as a model's server would.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice, repeat
from typing import Any

from anyio import create_task_group, sleep
from starlette.types import Receive, Scope, Send
from tests.responses.backend.completion import DONE, completion, events
from tests.responses.backend.script import Answer, CutOff, Ended, Garbled, Gate, Held, Raw, Refused, Turn

GARBAGE = b"data: {this is no JSON\n\n"
_JSON = [(b"content-type", b"application/json")]
_STREAM = [(b"content-type", b"text/event-stream")]


class LineCut(Exception):
    """Ends a connection in the middle of an answer, as a crashed server does."""


@dataclass(frozen=True, slots=True)
class Asked:
    """One request that the backend got."""

    body: Mapping[str, Any]
    headers: Mapping[str, str]

    @property
    def messages(self) -> list[dict[str, Any]]:
        return self.body["messages"]

    @property
    def tool_names(self) -> list[str]:
        return [tool["function"]["name"] for tool in self.body.get("tools", ())]


class ScriptedBackend:
    """An ASGI application at `/v1/chat/completions`. A request past the end of the script is a 400 that says so.

    `models` is the body of `/v1/models`, None where there is no such route.
    """

    def __init__(self) -> None:
        self.asked: list[Asked] = []
        self.overrun = 0
        self.models: bytes | None = None
        self._next: Callable[[Asked], Answer | None] = lambda asked: None

    def clear(self) -> None:
        """Forget the script, the models and what was asked."""
        self.models = None
        self.asked.clear()
        self.overrun = 0
        self._play(())

    def plays(self, *answers: Answer) -> None:
        """Answer the next requests with these, in order."""
        self._play(answers)

    def plays_for_ever(self, answer: Answer) -> None:
        """Answer every request with this one."""
        self._play(repeat(answer))

    def answers(self, answer: Callable[[Asked], Answer]) -> None:
        """Answer each request with what the function says; for requests that come in no certain order."""
        self._next = answer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"] == "/v1/models":
            status = 404 if self.models is None else 200
            await send({"type": "http.response.start", "status": status, "headers": _JSON})
            await send({"type": "http.response.body", "body": self.models or b"{}"})
            return
        if scope["type"] != "http" or (scope["method"], scope["path"]) != ("POST", "/v1/chat/completions"):
            raise RuntimeError(f"the backend has no {scope.get('path')}")
        body = json.loads(await _body(receive))
        asked = Asked(body, {name.decode(): value.decode() for name, value in scope["headers"]})
        self.asked.append(asked)
        answer = self._next(asked)
        if answer is None:
            self.overrun += 1
            answer = Refused(status=400, message="the script is at its end")
        if isinstance(answer, Refused):
            await _refuse(answer, send)
        elif isinstance(answer, Raw):
            await _send_raw(answer, bool(body.get("stream")), receive, send)
        else:
            await _answer(answer, body, receive, send)

    def _play(self, answers: Iterable[Answer]) -> None:
        script = iter(answers)
        self._next = lambda asked: next(script, None)


async def _body(receive: Receive) -> bytes:
    body, more = b"", True
    while more:
        message = await receive()
        body, more = body + message["body"], message.get("more_body", False)
    return body


async def _refuse(refused: Refused, send: Send) -> None:
    error = {"error": {"message": refused.message, "type": "scripted", "code": None, "param": None}}
    headers = [*_JSON, *((name.encode(), value.encode()) for name, value in refused.headers.items())]
    await send({"type": "http.response.start", "status": refused.status, "headers": headers})
    await send({"type": "http.response.body", "body": json.dumps(error).encode()})


async def _send_raw(raw: Raw, streamed: bool, receive: Receive, send: Send) -> None:
    headers = [
        *(_STREAM if streamed else _JSON),
        *((name.encode(), each.encode()) for name, each in raw.headers.items()),
    ]
    await send({"type": "http.response.start", "status": raw.status, "headers": headers})
    async with create_task_group() as group:

        async def watch() -> None:
            await receive()
            raw.left.set()
            group.cancel_scope.cancel()

        group.start_soon(watch)
        for _ in repeat(None) if raw.times is None else range(raw.times):
            await _send_piece(send, raw.piece)
            await sleep(raw.pause_s)
        await send({"type": "http.response.body", "body": b""})
        group.cancel_scope.cancel()


async def _answer(
    answer: Turn | Garbled | CutOff | Ended | Held, body: Mapping[str, Any], receive: Receive, send: Send
) -> None:
    streamed = bool(body.get("stream"))
    turn = answer if isinstance(answer, Turn) else answer.turn
    whole = _stream(turn, body) if streamed else iter((completion(turn),))
    after = 0 if isinstance(answer, Turn) or not streamed else answer.after
    if isinstance(answer, Held) and after == 0:
        await _stand_still(answer.gate, receive)
    await send({"type": "http.response.start", "status": 200, "headers": _STREAM if streamed else _JSON})
    for piece in islice(whole, after):
        await _send_piece(send, piece)
    if isinstance(answer, Garbled):
        await _send_piece(send, GARBAGE)
    if isinstance(answer, CutOff):
        raise LineCut
    if isinstance(answer, Held) and after:
        await _stand_still(answer.gate, receive)
    if isinstance(answer, Turn | Held):
        for piece in whole:
            await _send_piece(send, piece)
    await send({"type": "http.response.body", "body": b""})


def _stream(turn: Turn, body: Mapping[str, Any]) -> Iterator[bytes]:
    yield from events(turn, with_usage=bool((body.get("stream_options") or {}).get("include_usage")))
    yield DONE


async def _send_piece(send: Send, piece: bytes) -> None:
    await send({"type": "http.response.body", "body": piece, "more_body": True})


async def _stand_still(gate: Gate, receive: Receive) -> None:
    """Wait at the gate; a client that leaves meanwhile is let through to nobody."""
    gate.reached.set()
    async with create_task_group() as group:

        async def watch() -> None:
            await receive()
            gate.left.set()
            group.cancel_scope.cancel()

        group.start_soon(watch)
        await gate.go.wait()
        group.cancel_scope.cancel()
