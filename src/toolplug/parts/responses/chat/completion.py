"""The answer of a chat: the events of a response become the message of a completion, or the chunks of a stream.

Calls of the host's own tools are not in it, as this API has no place for them: they have been made, and the client's
are left. The texts of several turns are one text, with an empty line between the turns.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Annotated, Final, Literal, NamedTuple, NotRequired, cast

from pydantic import Field
from typing_extensions import TypedDict

from toolplug.catalog.exact_json import as_object
from toolplug.errors import BackendFailed
from toolplug.http.errors import STATUS, internal
from toolplug.parts.responses.builder import Event
from toolplug.parts.responses.items.input_items import BACKEND_FIELDS, Item, is_hosted_call, turn_of
from toolplug.parts.responses.request_tools import name_for_model

Json = Mapping[str, object]


class ChatCompletion(TypedDict):
    """An answer with its one choice."""

    id: str
    object: Literal["chat.completion"]
    created: int
    model: str
    choices: list[Json]
    usage: Annotated[Json | None, Field(description="the tokens of all turns of the model")]
    toolplug: NotRequired[Annotated[Json, Field(description="`warnings` about the request")]]


class ChatPiece(NamedTuple):
    """A part of the message, as a stream has it in `delta`, and the `logprobs` of its text."""

    delta: Json
    logprobs: Sequence[object] = ()


_BETWEEN: Final = ChatPiece({"content": "\n\n"})
_TEXTS: Mapping[str, str] = {
    "response.output_text.delta": "content",
    "response.refusal.delta": "refusal",
    "response.reasoning.delta": "reasoning_content",
}
_ENDS = frozenset({"response.completed", "response.incomplete"})
_CALLS: Mapping[object, tuple[str, str]] = {
    "function_call": ("function", "arguments"),
    "custom_tool_call": ("custom", "input"),
}
"""By the type of the item: the type of the call, and the name of its text."""
_OF_SERVER = frozenset({429, 502})
"""The statuses of what the server of the model has done wrong."""
_CALL_DELTAS = frozenset({"response.function_call_arguments.delta", "response.custom_tool_call_input.delta"})
_OF_MESSAGE = frozenset({"role", "content", "refusal", "tool_calls", "annotations", *_TEXTS.values()})


class Completion:
    """One answer in progress. It takes all events of a response in order.

    `has_called`: a tool of the host was called.
    """

    def __init__(self) -> None:
        self.has_called: bool = False
        self._response: Json = {}
        self._calls: dict[object, tuple[int, str, str]] = {}
        self._place: tuple[object, object] | None = None
        self._turn: str | None = None
        self._chars = 0
        self._start = 0

    @property
    def toolplug(self) -> Json:
        """What the host says besides the message; empty if there is nothing."""
        return as_object(self._response.get("toolplug"))

    @property
    def finish_reason(self) -> str:
        """Why the answer has ended. One that is not complete was too long, in tokens or in turns, or was filtered."""
        reason = as_object(self._response.get("incomplete_details")).get("reason")
        if reason is not None:
            return "content_filter" if reason == "content_filter" else "length"
        return "tool_calls" if self._calls else "stop"

    @property
    def _usage(self) -> Json | None:
        """The tokens of all turns; None if the model's server has not counted them."""
        counted = as_object(self._response.get("usage"))
        if not counted:
            return None
        return {
            "prompt_tokens": counted["input_tokens"],
            "completion_tokens": counted["output_tokens"],
            "total_tokens": counted["total_tokens"],
            "prompt_tokens_details": counted["input_tokens_details"],
            "completion_tokens_details": counted["output_tokens_details"],
        }

    def read(self, event: Event) -> Iterator[ChatPiece]:
        """Yield what an event adds. Raises `BackendFailed` or `HttpProblem` if the response has failed."""
        kind = event["type"]
        if kind in _TEXTS:
            yield from self._write(_TEXTS[str(kind)], event)
        elif kind in _CALL_DELTAS:
            place, of, text = self._calls[event["output_index"]]
            yield ChatPiece({"tool_calls": [{"index": place, of: {text: event["delta"]}}]})
        elif kind == "response.output_text.annotation.added":
            yield from self._annotate(as_object(event["annotation"]))
        elif kind == "response.output_item.added":
            yield from self._begin_call(event["output_index"], as_object(event["item"]))
        elif kind == "response.output_item.done":
            yield from self._end_item(event["output_index"], as_object(event["item"]))
        elif kind == "response.created" or kind in _ENDS:
            self._response = as_object(event["response"])
        elif kind == "response.failed":
            raise _failure(as_object(as_object(event["response"])["error"]))

    def _head(self, kind: str) -> dict[str, object]:
        """Return the members that the completion and its chunks have."""
        made = self._response
        key = str(made["id"]).removeprefix("resp_")
        return {"id": f"chatcmpl-{key}", "object": kind, "created": made["created_at"], "model": made["model"]}

    def chunk(self, piece: ChatPiece, finish: str | None = None) -> dict[str, object]:
        return {**self._head("chat.completion.chunk"), "choices": [_choice("delta", piece, finish)]}

    def count(self) -> Json:
        """Return the chunk with the tokens."""
        return {**self._head("chat.completion.chunk"), "choices": (), "usage": self._usage}

    def whole(self, pieces: Iterable[ChatPiece]) -> ChatCompletion:
        choice = _choice("message", _join(pieces), self.finish_reason)
        whole = {**self._head("chat.completion"), "choices": [choice], "usage": self._usage}
        return cast("ChatCompletion", {**whole, **({"toolplug": self.toolplug} if self.toolplug else {})})

    def _write(self, name: str, event: Event) -> Iterator[ChatPiece]:
        if name != "content":
            yield ChatPiece({name: event["delta"]})
            return
        place = (event["item_id"], event["content_index"])
        if place != self._place:
            turn = turn_of({"id": place[0]})
            if self._chars and turn != self._turn:
                self._chars += len(str(_BETWEEN.delta[name]))
                yield _BETWEEN
            self._place, self._turn, self._start = place, turn, self._chars
        self._chars += len(str(event["delta"]))
        yield ChatPiece({name: event["delta"]}, cast("Sequence[object]", event["logprobs"]))

    def _annotate(self, note: Json) -> Iterator[ChatPiece]:
        """Yield a citation of a page, at its place in the whole text; this API has none of files."""
        if note.get("type") != "url_citation":
            return
        cited = {name: value for name, value in note.items() if name != "type"}
        for name in ("start_index", "end_index"):
            cited[name] = cast("int", note[name]) + self._start
        yield ChatPiece({"annotations": [{"type": "url_citation", "url_citation": cited}]})

    def _begin_call(self, index: object, item: Item) -> Iterator[ChatPiece]:
        if item.get("type") not in _CALLS:
            self.has_called = self.has_called or is_hosted_call(item.get("type"))
            return
        of, text = _CALLS[item["type"]]
        place = len(self._calls)
        self._calls[index] = (place, of, text)
        inner = {"name": name_for_model(str(item["name"]), item.get("namespace")), text: ""}
        yield ChatPiece({"tool_calls": [{"index": place, "id": item["call_id"], "type": of, of: inner}]})

    def _end_item(self, index: object, item: Item) -> Iterator[ChatPiece]:
        """Yield the fields that the model's server wants back with the message and with a call."""
        fields = as_object(item.get(BACKEND_FIELDS))
        if item.get("type") == "message" or index in self._calls:
            message = {
                name: value for name, value in as_object(fields.get("message")).items() if name not in _OF_MESSAGE
            }
            if message:
                yield ChatPiece(message)
        if index in self._calls and (of_call := as_object(fields.get("tool_call"))):
            place, of, text = self._calls[index]  # clients expect the text in every piece of a call
            yield ChatPiece({"tool_calls": [{**of_call, "index": place, of: {**as_object(of_call.get(of)), text: ""}}]})


def _choice(name: str, piece: ChatPiece, finish: str | None) -> Json:
    logprobs = {"content": piece.logprobs, "refusal": None} if piece.logprobs else None
    return {"index": 0, name: piece.delta, "logprobs": logprobs, "finish_reason": finish}


def _join(pieces: Iterable[ChatPiece]) -> ChatPiece:
    texts: dict[str, list[str]] = {}
    calls: dict[object, list[Json]] = {}
    notes: list[object] = []
    logprobs: list[object] = []
    message: dict[str, object] = {"role": "assistant", "content": None, "refusal": None}
    for delta, probable in pieces:
        logprobs += probable
        for name, value in delta.items():
            if name in _TEXTS.values():
                texts.setdefault(name, []).append(str(value))
            elif name == "tool_calls":
                for call in cast("list[Json]", value):
                    calls.setdefault(call["index"], []).append(call)
            elif name == "annotations":
                notes += cast("list[object]", value)
            else:
                message[name] = value
    message |= {name: "".join(parts) for name, parts in texts.items()}
    if calls:
        message["tool_calls"] = [_join_call(parts) for parts in calls.values()]
    return ChatPiece({**message, "annotations": notes} if notes else message, logprobs)


def _join_call(parts: Sequence[Json]) -> Json:
    call: dict[str, object] = {}
    texts: list[str] = []
    of, text = ("function", "arguments") if parts[0]["type"] == "function" else ("custom", "input")
    for part in parts:
        inner = as_object(part.get(of))
        texts.append(str(inner.get(text, "")))
        call |= {**part, of: {**as_object(call.get(of)), **inner}}
    del call["index"]
    return {**call, of: {**as_object(call[of]), text: "".join(texts)}}


def _failure(error: Json) -> Exception:
    """Return the error of a response that has failed in the middle."""
    code = str(error["code"])
    return BackendFailed(code, str(error["message"])) if STATUS.get(code) in _OF_SERVER else internal()
