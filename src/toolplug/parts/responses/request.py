"""The body of `POST /v1/responses`, and its input items: validated where the loop relies on them, otherwise unchanged.

message                  role and content
function_call            a call by the model, with its `call_id`
function_call_output     the client's output of it
custom_tool_call         a call of the client's custom tool, and
custom_tool_call_output  its output
reasoning                the model's reasoning; sent back to the backend that made it
item_reference           an item of a stored response
mcp_approval_request, mcp_approval_response, mcp_list_tools
*_call, slug:name        finished hosted calls, of this host or another
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Annotated, ClassVar, Final, Literal, cast

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field
from pydantic_core import PydanticCustomError

from toolplug.catalog.exact_json import as_list, as_object
from toolplug.errors import ResponseRefused
from toolplug.parts.responses.limits import MAX_CONTENT_PARTS, MAX_INCLUDES, MAX_ITEMS, MAX_KEYS, MAX_TEXT, MAX_TOOLS
from toolplug.parts.responses.request_tools import arguments_of, make_refusal, name_for_model
from toolplug.signatures.values import encode_value, why_not_json

Item = Mapping[str, object]

WIRE_NAME = "wire_name"
"""The model's name for a tool, in items that have the name of its server for it."""
BACKEND_FIELDS = "backend_fields"
"""What the model's server wants back, in items of its turns: fields of its `message` and of the item's `tool_call`, and
the names of the fields that its `reasoning` came in."""
CLIENT_CALLS = frozenset({"function_call", "custom_tool_call"})
"""Calls that are left to the client."""
CLIENT_ANSWERS = frozenset({"function_call_output", "custom_tool_call_output"})
MANY_ITEMS = 500
"""Above these, other tasks have their turn between the steps of a request."""

_CALL_TYPE = re.compile(r"[a-z][a-z0-9_]*_call|[a-z][a-z0-9_-]*:[A-Za-z0-9_./-]{1,128}")
_ID = re.compile(r"[a-z0-9_-]+?_(?P<key>[0-9a-f]{32})i?[0-9a-f]{3,}(t(?P<turn>[0-9a-f]+))?(_[0-9a-f]+)?")
_CALL_ID = re.compile(r"call_(?P<key>[0-9a-f]{32})[0-9a-f]{3,}(?:_(?P<given>.+))?", re.DOTALL)
_SEARCHES = frozenset({"tool_search_call", "tool_search_output"})
_ROLES = frozenset({"user", "system", "developer", "assistant"})
_TEXT_PARTS = frozenset({"input_text", "output_text", "text", "summary_text", "reasoning_text"})


def checked_items(given: object) -> list[Item]:
    """Return the items of a request's input; a text is a user message. Raises `ResponseRefused`."""
    if isinstance(given, str):
        _check_length(given, "input")
        return [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": given}]}]
    items = as_list(given)
    parts = [as_object(item).get(name) for item in items for name in ("content", "output", "summary")]
    if sum(len(cast("list[object]", each)) for each in parts if isinstance(each, list)) > 2 * MAX_CONTENT_PARTS:
        message = f"input: its items have at most {2 * MAX_CONTENT_PARTS:,} parts in all"
        raise ResponseRefused("too_many", message, param="input")
    found = [_check_item(item, f"input[{index}]") for index, item in enumerate(items)]
    if encode_value(items) is None:
        index, why = next((index, why) for index, item in enumerate(items) if (why := why_not_sent(item)) is not None)
        raise make_refusal(f"input[{index}]", why)
    return found


def is_hosted_call(kind: object) -> bool:
    """Return whether this is the type of an item that shows a hosted call."""
    return isinstance(kind, str) and kind not in CLIENT_CALLS and _CALL_TYPE.fullmatch(kind) is not None


def is_known_item(kind: object) -> bool:
    """Return whether items of this type are read here. Searches of another server are not: this host has its own."""
    return kind in _TEXTS or (is_hosted_call(kind) and kind not in _SEARCHES)


def is_known_part(kind: object) -> bool:
    """Return whether parts of this type are read here, in contents and outputs."""
    return kind in _TEXT_PARTS or kind in {"refusal", "input_image", "input_file"}


def call_key(item: Item) -> str:
    """Return the key that a call and its answer share."""
    return str(item.get("call_id") or item.get("approval_request_id") or item.get("id"))


def response_key_of(item_id: str) -> str | None:
    """Return the key of the response in an item's id; None if another server made the id."""
    match = _ID.fullmatch(item_id)
    return None if match is None else match["key"]


def response_key_of_call(call_id: str) -> str | None:
    """Return the key of the response in the id of a client's call; None if another server made the id."""
    match = _CALL_ID.fullmatch(call_id)
    return None if match is None else match["key"]


def model_call_id(call_id: str) -> str:
    """Return the model's own id of a call, where the id of a client's call has it; otherwise the id itself."""
    match = _CALL_ID.fullmatch(call_id)
    return call_id if match is None else match["given"] or call_id


def turn_of(item: Item) -> str | None:
    """Return the response and turn in an item's id; None if it contains none."""
    match = _ID.fullmatch(str(item.get("id")))
    return None if match is None or match["turn"] is None else f"{match['key']} {match['turn']}"


def is_cut(item: Item) -> bool:
    """Return whether the item's response ended before the item did."""
    return item.get("status") in {"in_progress", "incomplete"}


def called_name(item: Item) -> str:
    """Return the tool's name as the model calls it."""
    name = str(item.get(WIRE_NAME) or item.get("name") or str(item.get("type")).removesuffix("_call"))
    return name_for_model(name, item.get("namespace"))


def called_with(item: Item) -> str:
    """Return the arguments of a call as JSON."""
    if item.get("type") == "custom_tool_call":
        return arguments_of(str(item["input"]))
    return str(item.get("arguments") or "{}")


def text_of(part: Mapping[str, object]) -> str | None:
    """Return the text of a content part; None for other parts."""
    text = part.get("refusal") if part.get("type") == "refusal" else part.get("text")
    return text if isinstance(text, str) and part.get("type") in {*_TEXT_PARTS, "refusal"} else None


def parts_of(content: object) -> list[Mapping[str, object]]:
    """Return the content as parts; a text is one part."""
    if isinstance(content, str):
        return [{"type": "input_text", "text": content}]
    return [as_object(part) for part in as_list(content)]


def _check_length(text: str, at: str) -> None:
    if len(text) > MAX_TEXT:
        raise make_refusal(at, f"a text has at most {MAX_TEXT} characters")


def _check_item(given: object, at: str) -> Item:
    if not isinstance(given, Mapping):
        raise make_refusal(at, "an item should be an object")
    item = as_object(cast("object", given))
    kind = _find_type(item) if item.get("type") is None else item["type"]
    if isinstance(kind, str) and kind in _TEXTS:
        _check_texts(item, at, _TEXTS[kind])
        _check_members(kind, item, at)
    elif not is_known_item(kind):
        known = ", ".join(sorted(_TEXTS))
        raise make_refusal(
            f"{at}.type", f"{kind!r} is no type of an item; known are {known}, and those of hosted calls"
        )
    return {**item, "type": kind}


def why_not_sent(value: object) -> str | None:
    """Return why no model's server can be sent the value; None if it can.

    What a body has out of range, and what is too deep in it, was read as infinity.
    """
    if encode_value(value) is not None:
        return None
    fault = why_not_json(value)
    return f"it has a number out of range, or more than 160 levels ({fault})"


def _find_type(item: Item) -> str | None:
    """Return the type of an item without one; None if it is not known."""
    if "role" in item:
        return "message"
    return "item_reference" if "id" in item else None


_TEXTS: Mapping[str, tuple[str, ...]] = {
    "message": (),
    "function_call": ("call_id", "name", "arguments"),
    "function_call_output": ("call_id",),
    "custom_tool_call": ("call_id", "name", "input"),
    "custom_tool_call_output": ("call_id",),
    "reasoning": (),
    "item_reference": ("id",),
    "mcp_approval_request": ("id", "name", "arguments"),
    "mcp_approval_response": ("approval_request_id",),
    "mcp_list_tools": ("server_label",),
}
"""The types of items that are no hosted calls, and the members that each must have as text."""


def _check_members(kind: str, item: Item, at: str) -> None:
    """Raise `ResponseRefused` for a member of the wrong type."""
    if kind == "message":
        role = item.get("role")
        if role not in _ROLES:
            raise make_refusal(f"{at}.role", f"{role!r} is no role; known are {', '.join(sorted(_ROLES))}")
        _content(item.get("content"), f"{at}.content", own=role == "assistant")
    elif kind in CLIENT_ANSWERS:
        _content(item.get("output"), f"{at}.output", own=False)
    elif kind == "reasoning" and not isinstance(item.get("summary", []), list):
        raise make_refusal(f"{at}.summary", "summary should be a list of parts")
    elif kind == "mcp_approval_response" and not isinstance(item.get("approve"), bool):
        raise make_refusal(f"{at}.approve", "approve should be true or false")


_MAY_BE_EMPTY = frozenset({"arguments", "input"})


def _check_texts(item: Item, at: str, names: Iterable[str]) -> None:
    for name in names:
        value = item.get(name)
        if not isinstance(value, str) or not (value or name in _MAY_BE_EMPTY):
            raise make_refusal(
                f"{at}.{name}", f"{name} should be text" + ("" if name in _MAY_BE_EMPTY else ", not empty")
            )


def _content(content: object, at: str, *, own: bool) -> None:
    """Return the parts for a Chat Completions backend; with `own`, of an assistant message, which is text only."""
    if isinstance(content, str):
        _check_length(content, at)
        return
    if not isinstance(content, list):
        raise make_refusal(at, "it should be text, or a list of parts")
    if len(cast("list[object]", content)) > MAX_CONTENT_PARTS:
        raise ResponseRefused("too_many", f"{at}: a content has at most {MAX_CONTENT_PARTS:,} parts", param=at)
    for index, part in enumerate(cast("list[object]", content)):
        _part(as_object(part), f"{at}[{index}]", own=own)


def _part(part: Mapping[str, object], at: str, *, own: bool) -> None:
    kind = part.get("type")
    if text_of(part) is not None:
        return
    if kind in _TEXT_PARTS or own:
        raise make_refusal(at, "a part of a text has a type, such as input_text or output_text, and a text")
    if kind == "input_image":
        if not isinstance(part.get("image_url"), str):
            raise make_refusal(f"{at}.image_url", "image_url should be a URL; images by file_id are not known here")
    elif kind == "input_file":
        if not isinstance(part.get("file_data") or part.get("file_id"), str):
            raise make_refusal(at, "a file is sent as file_data or file_id; the model's server fetches no file_url")
    else:
        raise make_refusal(
            f"{at}.type", f"{kind!r} is no type of a part; known are input_text, input_image, input_file"
        )


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
