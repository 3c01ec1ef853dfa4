"""The body of `POST /v1/chat/completions`, and the request for a response that stands for it.

Messages and other fields go to the model's server as they came, which speaks the same API. What the host needs to know
is read here: the tools and how they may be chosen, whether to stream, and whose tools are offered.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, ClassVar, Self, cast

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError

from toolplug.catalog.exact_json import as_object
from toolplug.errors import ResponseRefused
from toolplug.http.bodies.foreign_requests import IgnoredParts
from toolplug.parts.responses.items.input_items import why_not_sent
from toolplug.parts.responses.items.transcript import ForwardedChat, Message
from toolplug.parts.responses.limits import MAX_CONTENT_PARTS, MAX_ITEMS, MAX_KEYS, MAX_TEXT, MAX_TOOLS
from toolplug.parts.responses.request import JsonObject, ResponseRequest, refuse_value, text_or_object
from toolplug.parts.responses.request_tools import CUSTOM, make_refusal

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
