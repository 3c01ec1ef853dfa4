"""What is published judges every object and every event: the models of the Open Responses specification.

Its extension points (items and tools of hosted kinds, and their events) have no model there. Those that the `openai`
client knows are judged by its models; others must keep the specification's rule for extensions: a type with our
prefix, an id and a status.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, get_args

import openresponses_types as published
from openai.types.responses import ResponseOutputItem, ResponseStreamEvent, Tool
from openai.types.responses.response_item_list import ResponseItemList
from openai.types.responses.response_output_text import Annotation
from pydantic import BaseModel, TypeAdapter, ValidationError

Object = Mapping[str, Any]

SPECIFIED_ITEMS = {"message", "function_call", "function_call_output", "reasoning", "compaction"}
_SPECIFIED_ITEM: TypeAdapter[object] = TypeAdapter(
    published.Message
    | published.FunctionCall
    | published.FunctionCallOutput
    | published.ReasoningBody
    | published.CompactionBody
)
_SPECIFIED_EVENTS: dict[str, type[BaseModel]] = {
    next(iter(model.model_fields["type"].annotation)).value: model  # type: ignore[arg-type, union-attr]
    for name, model in vars(published).items()
    if name.endswith("StreamingEvent")
}
_STATUSES = {"in_progress", "completed", "incomplete", "failed"}
_EXTENSION = re.compile(r"[a-z][a-z0-9_-]*:[a-z][a-z0-9_]*")
_EXTENSION_EVENT = re.compile(r"[a-z][a-z0-9_-]*:[a-z][a-z0-9_]*\.[a-z_]+")


def _known(union: object) -> dict[str, type[BaseModel]]:
    """The models of a union of the `openai` client, by the types that they are for."""
    models: Sequence[type[BaseModel]] = get_args(get_args(union)[0])
    return {kind: model for model in models for kind in get_args(model.model_fields["type"].annotation)}


_CLIENT_ITEMS = _known(ResponseOutputItem)
_CLIENT_EVENTS = _known(ResponseStreamEvent)
_CLIENT_TOOLS = _known(Tool)
_CLIENT_ANNOTATIONS = _known(Annotation)
_FAILED = {f"response.{kind}_call.failed" for kind in ("web_search", "file_search", "code_interpreter")}
"""Events that CONTRACT.md section 9 adds to those that are published: every hosted call ends by one."""


class Unpublished(AssertionError):
    """An object or event that does not keep to what is published."""


def check_response(value: Object) -> None:
    """Judge a response object with all its items and tools. Raises `Unpublished`."""
    items, tools = value.get("output"), value.get("tools")
    if not isinstance(items, list) or not isinstance(tools, list):
        raise Unpublished(f"a response has a list of output and one of tools: {value}")
    for item in items:
        check_item(item)
    for tool in tools:
        check_tool(tool)
    if "tool_choice" not in value:
        raise Unpublished(f"a response says what the choice was: {value}")
    bare = {
        **value,
        "output": [],
        "tools": [tool for tool in tools if tool["type"] == "function"],
        "tool_choice": _specified_choice(value.get("tool_choice")),
        "text": _specified_text(value.get("text")),
    }
    _judge(published.ResponseResource, bare)


def check_item(item: Object) -> None:
    """Judge one output item. Raises `Unpublished`."""
    kind = item.get("type")
    if kind == "message":
        _check_message(item)
    elif kind in SPECIFIED_ITEMS:
        _validated(_SPECIFIED_ITEM, item)
    elif kind in _CLIENT_ITEMS:
        _judge(_CLIENT_ITEMS[kind], item)
    elif not isinstance(kind, str) or not _EXTENSION.fullmatch(kind):
        raise Unpublished(f"{kind!r} is no published item and has no prefix")
    elif not isinstance(item.get("id"), str) or item.get("status") not in _STATUSES:
        raise Unpublished(f"an item of {kind!r} lacks an id or a status: {item}")


def _check_message(item: Object) -> None:
    """Judge a message; what it cites beside web pages is judged by the models of the `openai` client."""
    parts: list[Object] = []
    for part in item.get("content", ()):
        cited = part.get("annotations", ())
        for each in cited:
            if each["type"] != "url_citation":
                _judge(_CLIENT_ANNOTATIONS[each["type"]], each)
        kept = [each for each in cited if each["type"] == "url_citation"]
        parts.append({**part, "annotations": kept} if "annotations" in part else part)
    _validated(_SPECIFIED_ITEM, {**item, "content": parts})


def check_tool(tool: Object) -> None:
    """Judge one tool that a response echoes; a stub of a provider's own type is an object with a type."""
    kind = tool.get("type")
    if kind == "function":
        _judge(published.FunctionTool, tool)
    elif kind in _CLIENT_TOOLS:
        _judge(_CLIENT_TOOLS[kind], tool)
    elif not isinstance(kind, str):
        raise Unpublished(f"a tool without a type: {tool}")


def check_event(event: Object) -> None:
    """Judge one event of a stream, with the response, item or part that it carries. Raises `Unpublished`."""
    kind = event.get("type")
    if not isinstance(event.get("sequence_number"), int):
        raise Unpublished(f"an event without a sequence number: {event}")
    if isinstance(event.get("response"), Mapping):
        check_response(event["response"])
        if kind not in _SPECIFIED_EVENTS:
            raise Unpublished(f"{kind!r} carries a response and is not published")
    elif kind in ("response.output_item.added", "response.output_item.done"):
        check_item(event["item"])
        _judge(_SPECIFIED_EVENTS[kind], {**event, "item": None})
    elif kind == "response.output_text.annotation.added" and event["annotation"]["type"] != "url_citation":
        _judge(_CLIENT_EVENTS[kind], event)
    elif kind in _SPECIFIED_EVENTS:
        _judge(_SPECIFIED_EVENTS[kind], event)
    elif kind in _CLIENT_EVENTS:
        _judge(_CLIENT_EVENTS[kind], event)
    elif kind in _FAILED:
        _judge(_CLIENT_EVENTS["response.mcp_call.failed"], {**event, "type": "response.mcp_call.failed"})
    elif not isinstance(kind, str) or not _EXTENSION_EVENT.fullmatch(kind):
        raise Unpublished(f"{kind!r} is no published event and has no prefix")


def check_list(value: Object) -> None:
    """Judge a page of input items. Raises `Unpublished`."""
    ours = [item for item in value["data"] if ":" in str(item.get("type"))]
    for item in ours:
        check_item(item)
    _judge(ResponseItemList, {**value, "data": [item for item in value["data"] if item not in ours]})


def check_error(value: Object) -> None:
    """Judge the body of a refusal (CONTRACT.md section 5)."""
    error = value.get("error")
    if not isinstance(error, Mapping) or set(error) != {"type", "code", "message", "param", "request_id"}:
        raise Unpublished(f"a refusal is an error with five members: {value}")


def _specified_text(text: object) -> object:
    """The text settings without the schema of a format, which the models would have be null."""
    if isinstance(text, Mapping) and isinstance(text.get("format"), Mapping) and "schema" in text["format"]:
        return {**text, "format": {**text["format"], "schema": None}}
    return text


def _specified_choice(choice: object) -> object:
    """The choice, or `auto` for one that names a hosted type, which the specification leaves to extensions."""
    kind = choice.get("type") if isinstance(choice, Mapping) else None
    if kind == "allowed_tools" and isinstance(choice, Mapping):
        return {**choice, "tools": [tool for tool in choice["tools"] if tool["type"] == "function"]}
    return choice if kind in (None, "function") else "auto"


def _judge(model: type[BaseModel], value: Object) -> None:
    _validated(TypeAdapter(model), value)


def _validated(adapter: TypeAdapter[Any], value: Object) -> None:
    try:
        adapter.validate_json(json.dumps(value), strict=True)
    except ValidationError as error:
        raise Unpublished(f"{error}\nin {value}") from None
