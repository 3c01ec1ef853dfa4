"""A model whose server sends the bytes that a test has written down, and the loop over it."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from typing import Any

from toolplug import FunctionProvider, FunctionRegistry, tool
from toolplug.errors import BackendFailed
from toolplug.parts.responses.answers.reader import read_answer
from toolplug.parts.responses.builder import Event
from toolplug.parts.responses.request import Item
from toolplug.responses import Delta, Loop, Question, ResponseRequest, ToolCaller

NOTHING_SAID = "(nothing given)"
DONE = b"data: [DONE]\n\n"


def event(value: object, name: str = "") -> bytes:
    """One event of a stream; bytes and text are its data as they are."""
    data = (
        value if isinstance(value, bytes) else value.encode() if isinstance(value, str) else json.dumps(value).encode()
    )
    return (f"event: {name}\n".encode() if name else b"") + b"data: " + data + b"\n\n"


def chunk(delta: Mapping[str, object], finish: str | None = None, **fields: object) -> bytes:
    """A chunk with one choice."""
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return event({"id": "c", "object": "chat.completion.chunk", "choices": [choice], **fields})


def fragment(
    index: object = None, call_id: object = None, name: object = None, arguments: object = None, **extra: object
) -> dict[str, object]:
    """A fragment of a call with the fields that are given; `index` may be of any type, `...` for none."""
    function = {key: value for key, value in (("name", name), ("arguments", arguments)) if value is not None}
    fields = {} if index is ... else {"index": index}
    return {
        **fields,
        **({} if call_id is None else {"id": call_id}),
        **({"function": function} if function else {}),
        **extra,
    }


def streamed(
    *fragments: Mapping[str, object] | Sequence[Mapping[str, object]], finish: str | None = "tool_calls"
) -> bytes:
    """A stream with a chunk for each fragment, or for each list of them."""
    chunks = [chunk({"tool_calls": [each] if isinstance(each, Mapping) else list(each)}) for each in fragments]
    return b"".join([*chunks, *([chunk({}, finish)] if finish else []), DONE])


def whole(message: object, finish: str | None = "stop", **fields: object) -> bytes:
    """A whole answer."""
    return json.dumps(
        {"id": "c", "choices": [{"index": 0, "message": message, "finish_reason": finish}], **fields}
    ).encode()


class RawModel:
    """Sends its answers one after another, in pieces of `size` bytes, and keeps what it was asked; at last `done`."""

    default_model: str | None = "raw"

    def __init__(self, *answers: bytes, size: int = 1 << 20) -> None:
        self.asked: list[Question] = []
        self._answers = list(answers)
        self._size = size

    def ask(self, question: Question, *, stream: bool) -> AsyncGenerator[Delta]:
        """Read the next answer."""
        self.asked.append(question)
        return read_answer(
            self._pieces(self._answers.pop(0) if self._answers else whole({"content": "done"})), "secret"
        )

    async def models(self) -> list[Any]:
        """It lists none."""
        return []

    async def aclose(self) -> None:
        """There is nothing to close."""

    def messages(self, turn: int) -> list[dict[str, Any]]:
        """The messages of a request, from the assistant's on."""
        messages: Any = self.asked[turn]["messages"]
        return messages[1:]

    async def _pieces(self, answer: bytes) -> AsyncIterator[bytes]:
        for start in range(0, len(answer), self._size):
            yield answer[start : start + self._size]


class Notes(FunctionProvider):
    """Remembers what it was called with."""

    def __init__(self) -> None:
        self.ran: list[str] = []

    @tool
    async def note(self, text: str = NOTHING_SAID) -> str:
        """Write a note."""
        self.ran.append(text)
        return text

    @tool
    async def notebook(self) -> str:
        """Open the notebook."""
        self.ran.append("(notebook)")
        return ""


class Made:
    """One response: its events, final state and items, what ran, and what the model was asked."""

    def __init__(self, model: RawModel, ran: Sequence[str], events: Sequence[Event], items: Sequence[Item]) -> None:
        self.model = model
        self.ran = list(ran)
        self.events = events
        self.items = list(items)
        response: Any = events[-1]["response"] if events else {}
        self.status: str = response["status"]
        self.code: str | None = (response["error"] or {}).get("code")
        self.usage: Any = response["usage"]

    @property
    def text(self) -> str:
        """The text of the messages but the last `done`."""
        parts: list[Any] = [part for item in self.items if item["type"] == "message" for part in _content(item)]
        return "".join(part.get("text", "") for part in parts).removesuffix("done")

    @property
    def thought(self) -> str:
        """The reasoning."""
        return "".join(part["text"] for item in self.items if item["type"] == "reasoning" for part in _content(item))


def _content(item: Item) -> list[Any]:
    content: Any = item["content"]
    return content


async def answer(*answers: bytes, size: int = 1 << 20, history: Sequence[Item] = (), **fields: Any) -> Made:
    """Make a response over these answers of the model's server. Failures are events, as for a client that streams."""
    model, notes = RawModel(*answers, size=size), Notes()
    request = ResponseRequest(**{"input": "Hi", "stream": True, **fields})
    async with FunctionRegistry({"notes": notes}) as registry:
        loop = Loop(model, ToolCaller(registry), request)
        events = [event async for event in loop.events(history)]
    return Made(model, notes.ran, events, loop.draft.items)


__all__ = ["DONE", "BackendFailed", "Made", "RawModel", "answer", "chunk", "event", "fragment", "streamed", "whole"]
