"""The body of a chat completion, the request for a response that stands for it, and the answer from its events.

Messages and other fields go to the model's server as they came, which speaks the same API. What the host needs to know
is read here: the tools and how they may be chosen, whether to stream, and whose tools are offered.

The events of a response become the message of a completion, or the chunks of a stream. Calls of the host's own tools
are not in it, as this API has no place for them: they have been made, and the client's are left. The texts of several
turns are one text, with an empty line between the turns.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Annotated, ClassVar, Final, Literal, NamedTuple, NotRequired, Self, cast

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError
from typing_extensions import TypedDict

from toolplug.catalog.exact_json import as_object
from toolplug.errors import BackendFailed, ResponseRefused
from toolplug.http.bodies.foreign_requests import IgnoredParts
from toolplug.http.errors import STATUS, internal
from toolplug.parts.responses.builder import Event
from toolplug.parts.responses.items.transcript import ForwardedChat, Message
from toolplug.parts.responses.limits import MAX_CONTENT_PARTS, MAX_ITEMS, MAX_KEYS, MAX_TEXT, MAX_TOOLS
from toolplug.parts.responses.request import (
    BACKEND_FIELDS,
    Item,
    JsonObject,
    ResponseRequest,
    is_hosted_call,
    refuse_value,
    text_or_object,
    turn_of,
    why_not_sent,
)
from toolplug.parts.responses.request_tools import CUSTOM, make_refusal, name_for_model

_ROLES = frozenset({"system", "developer", "user", "assistant", "tool", "function"})
_PARTS = frozenset(
    {"text", "refusal", "image_url", "input_audio", "file", "video_url", "audio_url", "thinking", "reasoning"}
)
"""The types of OpenAI's API, and those that other servers of models have besides."""


def read_messages(given: Sequence[Mapping[str, object]], ignored: IgnoredParts) -> list[Message]:
    """Return the messages to forward. Those with an unknown role, and parts of an unknown type, are left out and noted.

    Raises `ResponseRefused`.
    """
    contents = [message.get("content") for message in given]
    if sum(len(cast("list[object]", each)) for each in contents if isinstance(each, list)) > 2 * MAX_CONTENT_PARTS:
        message = f"messages: they have at most {2 * MAX_CONTENT_PARTS:,} parts in all"
        raise ResponseRefused("too_many", message, param="messages")
    messages: list[Message] = []
    for index, each in enumerate(given):
        at, role = f"messages[{index}]", each.get("role")
        if not isinstance(role, str) or not role:
            raise make_refusal(f"{at}.role", f"a message has a role; known are {', '.join(sorted(_ROLES))}")
        if role in _ROLES:
            messages.append(_read_message(each, role, at, ignored))
        else:
            text = f"{at}: messages of this role are not known here; it is ignored"
            ignored.add("unknown_item", at, text, kind=role)
    if not messages:
        raise make_refusal("messages", "none of them has a role that is known here")
    return messages


def _read_message(given: Mapping[str, object], role: str, at: str, ignored: IgnoredParts) -> Message:
    message = {**given, "role": "system" if role == "developer" else role}
    if "content" in given or role == "assistant":  # clients leave out what is null, and templates of models look for it
        message["content"] = _read_content(given.get("content"), f"{at}.content", ignored)
    if role == "tool" and not isinstance(given.get("tool_call_id"), str):
        raise make_refusal(f"{at}.tool_call_id", "a message of a tool has the id of its call")
    calls = given.get("tool_calls")
    if not isinstance(calls, list | None):
        raise make_refusal(f"{at}.tool_calls", "tool_calls should be a list of calls")
    return message


def _read_content(content: object, at: str, ignored: IgnoredParts) -> object:
    if isinstance(content, str):
        _check_length(content, at)
        return content
    if not isinstance(content, list | None):
        raise make_refusal(at, "content should be text, or a list of parts")
    parts = cast("list[object]", content or [])
    if len(parts) > MAX_CONTENT_PARTS:
        raise ResponseRefused("too_many", f"{at}: a content has at most {MAX_CONTENT_PARTS:,} parts", param=at)
    for index, each in enumerate(parts):
        part, place = as_object(each), f"{at}[{index}]"
        kind = part.get("type")
        if not isinstance(kind, str):
            raise make_refusal(f"{place}.type", "a part of a content has a type, such as text")
        if kind in {"text", "refusal"}:
            _check_length(part.get(kind), f"{place}.{kind}")
    return content if content is None else ignored.keep_known(parts, at, _PARTS.__contains__, "text")


def _check_length(text: object, at: str) -> None:
    if not isinstance(text, str):
        raise make_refusal(at, "it should be text")
    if len(text) > MAX_TEXT:
        raise make_refusal(at, f"a text has at most {MAX_TEXT} characters")


_OF_THE_HOST = "toolplug_"
"""How the keys of `metadata` begin that are for the host."""
_NESTED = ("function", CUSTOM)
"""The kinds of tools whose definition Chat Completions has under the name of the kind."""


def _check_count(count: int | None) -> int | None:
    if count not in (None, 1):
        raise PydanticCustomError(
            "one_answer", "a request has one answer here; leave n out, and send it again for more"
        )
    return count


def _check_modalities(modalities: list[str] | None) -> list[str] | None:
    if modalities and modalities != ["text"]:
        raise PydanticCustomError("text_only", "this host answers with text only; leave modalities out")
    return modalities


class ChatStreamOptions(BaseModel):
    """Whether a stream ends with the tokens of its turns; the other option has no effect, as events are not padded."""

    model_config: ClassVar[ConfigDict] = ConfigDict(extra="forbid", strict=True, frozen=True)

    include_usage: bool | None = None
    include_obfuscation: bool | None = None


class ChatRequest(BaseModel):
    """The fields that this host reads, and common ones that it does not; any other goes to the model's server, too."""

    model_config: ClassVar[ConfigDict] = ConfigDict(
        extra="allow", strict=True, frozen=True, json_schema_extra={"maxProperties": MAX_KEYS}
    )

    model: Annotated[str | None, Field(min_length=1, description="the backend's own default when absent")] = None
    messages: Annotated[list[JsonObject], Field(min_length=1, max_length=MAX_ITEMS)]
    tools: Annotated[
        list[JsonObject] | None,
        Field(max_length=MAX_TOOLS, description="the client's functions, which it calls, and built-in types"),
    ] = None
    tool_choice: Annotated[object, BeforeValidator(text_or_object, json_schema_input_type=str | JsonObject | None)] = (
        None
    )
    parallel_tool_calls: bool | None = None
    stream: bool | None = None
    stream_options: ChatStreamOptions | None = None
    n: Annotated[int | None, AfterValidator(_check_count), Field(description="1 if it is sent")] = None
    metadata: Annotated[dict[str, Annotated[str, Field(max_length=512)]] | None, Field(max_length=16)] = None
    max_completion_tokens: Annotated[int | None, Field(description="of all turns of the answer")] = None
    max_tokens: Annotated[int | None, Field(description="the older name of max_completion_tokens")] = None
    response_format: JsonObject | None = None
    reasoning_effort: str | None = None
    temperature: float | None = None
    top_p: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    seed: int | None = None
    stop: Annotated[object, Field(description="text, or a list of texts")] = None
    logprobs: bool | None = None
    top_logprobs: int | None = None
    modalities: Annotated[
        Annotated[list[str], Field(max_length=MAX_KEYS)] | None,
        AfterValidator(_check_modalities),
        Field(description="text only"),
    ] = None
    user: str | None = None
    functions: Annotated[None, refuse_value("send them as tools of type function")] = None
    function_call: Annotated[None, refuse_value("send tool_choice instead")] = None

    @model_validator(mode="after")
    def _check_others(self) -> Self:
        others = self.model_extra or {}
        if len(self.model_fields_set) > MAX_KEYS:
            message = "a request has at most {most} fields"
            raise PydanticCustomError("too_many_fields", message, {"most": MAX_KEYS})
        if (why := why_not_sent({**others, "stop": self.stop})) is not None:
            raise PydanticCustomError("not_json", "{why}", {"why": why})
        return self


_READ = frozenset({"messages", "model", "tools", "tool_choice", "parallel_tool_calls"}) | frozenset(
    {"stream", "stream_options", "n", "metadata", "functions", "function_call"}
)
"""The fields that go to the model's server in another form, or not at all."""


def response_request(body: ChatRequest) -> ResponseRequest:
    """Return the request for a response with these tools, which is not stored; its messages are forwarded."""
    return ResponseRequest.model_construct(
        model=body.model,
        tools=None if body.tools is None else [_flatten(tool) for tool in body.tools],
        tool_choice=_flatten_choice(body.tool_choice),
        parallel_tool_calls=body.parallel_tool_calls,
        metadata=body.metadata,
        stream=body.stream,
        store=False,
    )


def forwarded_chat(body: ChatRequest, messages: Sequence[Message]) -> ForwardedChat:
    """Return what of the request goes to the model's server, with these messages."""
    known = {name: getattr(body, name) for name in ChatRequest.model_fields.keys() - _READ}
    fields = {name: value for name, value in known.items() if value is not None} | (body.model_extra or {})
    metadata = {key: text for key, text in (body.metadata or {}).items() if not key.startswith(_OF_THE_HOST)}
    if metadata:
        fields["metadata"] = metadata
    return ForwardedChat(messages, fields, dict(_functions_of(body.tools or ())))


def _functions_of(tools: Sequence[Mapping[str, object]]) -> Iterator[tuple[str, Mapping[str, object]]]:
    for tool in tools:
        name = as_object(tool.get("function")).get("name")
        if tool.get("type") == "function" and isinstance(name, str):
            yield name, tool


def _flatten(tool: Mapping[str, object]) -> dict[str, object]:
    """Return a tool as Responses has it, where the definition is not nested."""
    kind = tool.get("type")
    inner = as_object(tool.get(str(kind)))
    if kind not in _NESTED or not inner:
        return dict(tool)
    flat = {**inner, "type": kind}
    form = as_object(inner.get("format"))
    if kind == CUSTOM and (grammar := as_object(form.get("grammar"))):
        flat["format"] = {"type": "grammar", **grammar}
    return flat


def _flatten_choice(choice: object) -> object:
    given = as_object(choice)
    if not given:
        return choice
    allowed = as_object(given.get("allowed_tools"))
    if given.get("type") == "allowed_tools" and isinstance(allowed.get("tools"), list):
        tools = [_flatten(as_object(each)) for each in cast("list[object]", allowed["tools"])]
        return {**given, **allowed, "tools": tools, "allowed_tools": {**allowed, "tools": tools}}
    return _flatten(given)


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
