"""The body of `POST /v1/responses`."""

from __future__ import annotations

import re
from typing import Annotated, ClassVar, Final, Literal, cast

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field
from pydantic_core import PydanticCustomError

from toolplug.parts.responses.items.input_items import why_not_sent
from toolplug.parts.responses.limits import MAX_INCLUDES, MAX_ITEMS, MAX_KEYS, MAX_TEXT, MAX_TOOLS

APPROVALS_FIELD: Final = "toolplug_approvals"
"""In `metadata`: how a client hears of calls that wait for a person whose server it has not declared."""
ITEMS: Final = "items"
"""As `mcp_approval_request`, and not in words of the model."""


def _sendable(value: dict[str, object]) -> dict[str, object]:
    if (why := why_not_sent(value)) is not None:
        raise PydanticCustomError("not_json", "{why}", {"why": why})
    return value


JsonObject = Annotated[dict[str, object], Field(max_length=MAX_KEYS), AfterValidator(_sendable)]
Effort = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]

_INCLUDES = frozenset(
    {
        "computer_call_output.output.image_url",
        "message.input_image.image_url",
        "message.output_text.logprobs",
        "reasoning.encrypted_content",
    }
)
_OF_CALL = re.compile(r"([a-z0-9_]+_call|[a-z][a-z0-9_-]*:[a-z][a-z0-9_.-]*)\.[a-z_.]+")


def _check_include(path: str) -> str:
    if path not in _INCLUDES and not _OF_CALL.fullmatch(path):
        known = ", ".join(sorted(_INCLUDES))
        raise PydanticCustomError("include", "should be one of {known}, or <type of a call>.<field>", {"known": known})
    return path


def _text_or_list(value: object) -> object:
    if isinstance(value, list) and len(cast("list[object]", value)) > MAX_ITEMS:
        raise PydanticCustomError("too_long", "has at most {max_length} items", {"max_length": MAX_ITEMS})
    if isinstance(value, str | list | None):
        return cast("object", value)
    raise PydanticCustomError("text_or_list", "should be text, or a list of items")


def text_or_object(value: object) -> object:
    if isinstance(value, str | None):
        return value
    if isinstance(value, dict):
        return _sendable(cast("dict[str, object]", value))
    raise PydanticCustomError("text_or_object", "should be text, or an object with a type")


def refuse_value(advice: str) -> BeforeValidator:
    """Accept only null; `advice` is the alternative that the error names."""

    def check(value: object) -> None:
        if value is not None:
            raise PydanticCustomError("not_here", "is not known to this host; {advice}", {"advice": advice})

    return BeforeValidator(check, json_schema_input_type=None)


Items = Annotated[list[JsonObject], Field(max_length=MAX_ITEMS)]


class _Part(BaseModel):
    model_config: ClassVar[ConfigDict] = ConfigDict(extra="forbid", strict=True, frozen=True)


class Reasoning(_Part):
    """The reasoning effort, and whether to return a summary."""

    effort: Effort | None = None
    summary: Literal["auto", "concise", "detailed"] | None = None


class Format(_Part):
    """The required format of the model's text."""

    type: Literal["text", "json_object", "json_schema"]
    name: Annotated[str | None, Field(pattern="^[a-zA-Z0-9_-]{1,64}$")] = None
    description: str | None = None
    schema_: Annotated[JsonObject | None, Field(alias="schema")] = None
    strict: bool | None = None


class Text(_Part):
    """Settings of the model's text."""

    format: Format | None = None
    verbosity: Literal["low", "medium", "high"] | None = None


class StreamOptions(_Part):
    """Accepted without effect: events are never padded."""

    include_obfuscation: bool | None = None


class ResponseRequest(_Part):
    """The validated fields of a request. Items, tools and choices are unchanged JSON, validated where they are used."""

    model: Annotated[str | None, Field(min_length=1, description="the backend's own default when absent")] = None
    input: Annotated[
        object,
        BeforeValidator(_text_or_list, json_schema_input_type=str | Items | None),
        Field(description="a user's text, or items"),
    ] = None
    instructions: Annotated[str | None, Field(max_length=MAX_TEXT, description="for this response only")] = None
    previous_response_id: Annotated[str | None, Field(description="the stored response that this one continues")] = None
    conversation: Annotated[None, refuse_value("continue a response with previous_response_id, or send its items")] = (
        None
    )
    prompt: Annotated[None, refuse_value("send the prompt's text as instructions and input")] = None
    tools: Annotated[list[JsonObject] | None, Field(max_length=MAX_TOOLS)] = None
    tool_choice: Annotated[object, BeforeValidator(text_or_object, json_schema_input_type=str | JsonObject | None)] = (
        None
    )
    allowed_tools: Annotated[
        list[Annotated[object, BeforeValidator(text_or_object, json_schema_input_type=str | JsonObject)]] | None,
        Field(max_length=MAX_TOOLS, description="names, or {type, name}; the model may call no other"),
    ] = None
    parallel_tool_calls: bool | None = None
    max_tool_calls: Annotated[int | None, Field(ge=1, description="hosted calls of the whole response")] = None
    include: Annotated[
        list[Annotated[str, AfterValidator(_check_include)]] | None,
        Field(max_length=MAX_INCLUDES, description="what is left out otherwise"),
    ] = None
    metadata: Annotated[dict[str, Annotated[str, Field(max_length=512)]] | None, Field(max_length=16)] = None
    store: bool | None = None
    background: bool | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    text: Text | None = None
    reasoning: Reasoning | None = None
    temperature: Annotated[float | None, Field(ge=0, le=2)] = None
    top_p: Annotated[float | None, Field(ge=0, le=1)] = None
    presence_penalty: Annotated[float | None, Field(ge=-2, le=2)] = None
    frequency_penalty: Annotated[float | None, Field(ge=-2, le=2)] = None
    top_logprobs: Annotated[int | None, Field(ge=0, le=20)] = None
    max_output_tokens: Annotated[int | None, Field(ge=1)] = None
    truncation: Literal["auto", "disabled"] | None = None
    service_tier: str | None = None
    safety_identifier: Annotated[str | None, Field(max_length=64)] = None
    prompt_cache_key: Annotated[str | None, Field(max_length=64)] = None
    prompt_cache_retention: str | None = None
    user: str | None = None

    @property
    def is_stored(self) -> bool:
        """True if the response is stored, which is the default."""
        return self.store is not False

    @property
    def is_plain(self) -> bool:
        """True if the client waits for the whole answer."""
        return not self.stream and not self.background
