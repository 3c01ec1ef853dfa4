"""Message formats of the model vendors: function calls as their SDKs give them, and the messages that answer them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, cast

from toolplug.catalog.call import CallContext, ToolCall, ToolResult, data_url, is_image, text_of_result
from toolplug.catalog.catalog import Catalog
from toolplug.catalog.exact_json import as_object
from toolplug.errors import InvalidArguments
from toolplug.execution.executor import Message, ToolExecutor
from toolplug.model_apis.strict import strict_schema, without_nulls
from toolplug.signatures.values import decode_arguments


def set_strict_openai(tools: Iterable[Message]) -> None:
    """Set strict mode for each of OpenAI's tools whose schema can be rewritten for it."""
    for function in _functions_of(tools):
        schema = strict_schema(function["parameters"])
        if schema is not None:
            function.update(parameters=schema, strict=True)


def set_strict_anthropic(tools: Iterable[Message]) -> None:
    """Set strict mode for each of Anthropic's tools whose schema can be rewritten for it."""
    for function in tools:
        schema = strict_schema(function["input_schema"]) if "input_schema" in function else None
        if schema is not None:
            function.update(input_schema=schema, strict=True)


async def answer_calls(
    executor: ToolExecutor, calls: Iterable[object] | None, context: CallContext | None
) -> list[Message]:
    """Run the calls of one turn of a model, and return the messages that answer them: `ModelTools.answer`."""
    found = [(api, call) for item in calls or () for api, call in read_calls(item)]
    made = [without_absent(executor.catalog, call) for _, call in found]
    results = await asyncio.gather(*(executor.execute(call, context) for call in made))
    answers: list[Message] = []
    # Anthropic and Gemini want one message for all results of a turn, so that they are collected by API.
    for api in dict.fromkeys(api for api, _ in found):
        answers += api.messages(
            [
                result._replace(name=call.name)  # that of `call_tool` is the name of the tool that it calls
                for (each, call), result in zip(found, results, strict=True)
                if each is api
            ]
        )
    return answers


def _functions_of(tools: Iterable[Message]) -> Iterator[Message]:
    """Yield the functions of OpenAI's tools, those of namespaces too."""
    for tool in tools:
        if tool["type"] == "namespace":
            yield from tool["tools"]
        elif tool["type"] == "function":
            yield tool.get("function", tool)


class ModelApi(NamedTuple):
    """How one API writes a function call, and the messages that answer several."""

    read: Callable[[object], ToolCall]
    messages: Callable[[Sequence[ToolResult]], list[Message]]


def _field(item: object, name: str) -> Any:
    return cast("Mapping[str, Any]", item).get(name) if isinstance(item, Mapping) else getattr(item, name, None)


def read_calls(item: object) -> list[tuple[ModelApi, ToolCall]]:
    """Return the function call of one item of a model's answer with its API, an empty list for texts and the like.

    Raises `TypeError` for what is no item of these APIs and `ValueError` for a call that is not of a function.
    """
    kind = _field(item, "type")
    if kind is None and isinstance(_field(item, "name"), str):
        kind = _GEMINI
    if not isinstance(kind, str):
        raise TypeError(f"{item!r} is no item of a model's answer; give message.tool_calls or response.output")
    if kind in _UNANSWERED:
        raise ValueError(f"an item of type {kind!r} is no function call; answer it yourself and leave it out here")
    if kind == _SEARCH and _field(item, "execution") == "client":
        raise ValueError(f"an item of type {kind!r} with execution: client is your own search; answer it yourself")
    api = _APIS.get(kind)
    return [] if api is None else [(api, api.read(item))]


def without_absent(catalog: Catalog, call: ToolCall) -> ToolCall:
    """Return the call without nulls for optional parameters that take none: so models in strict mode say *absent*.

    A call that cannot be read, or of a tool that is not listed, is returned as it is.
    """
    tool = catalog.find(call.name)
    try:
        arguments = decode_arguments(call.arguments)
    except InvalidArguments:
        return call
    if tool is None or None not in _values(arguments):
        return call
    return call._replace(arguments=as_object(without_nulls(tool.definition.parameters.value, arguments)))


def _values(value: object) -> Iterable[object]:
    """Every value in a JSON document."""
    waiting = [value]
    for item in waiting:
        if isinstance(item, dict):
            waiting += cast("dict[str, object]", item).values()
        elif isinstance(item, list):
            waiting += cast("list[object]", item)
        else:
            yield item


def _chat_call(item: object) -> ToolCall:
    function = _field(item, "function")
    return ToolCall(_field(item, "id"), _field(function, "name"), _field(function, "arguments"))


def _chat_messages(results: Sequence[ToolResult]) -> list[Message]:
    return [{"role": "tool", "tool_call_id": each.call_id, "content": text_of_result(each)} for each in results]


def _responses_call(item: object) -> ToolCall:
    name, namespace = _field(item, "name"), _field(item, "namespace")
    return ToolCall(_field(item, "call_id"), f"{namespace}__{name}" if namespace else name, _field(item, "arguments"))


def _responses_messages(results: Sequence[ToolResult]) -> list[Message]:
    return [
        {"type": "function_call_output", "call_id": each.call_id, "output": _responses_output(each)} for each in results
    ]


def _responses_output(result: ToolResult) -> str | list[Message]:
    images = [{"type": "input_image", "image_url": data_url(part)} for part in result.parts if is_image(part)]
    text = text_of_result(result)
    return [{"type": "input_text", "text": text}, *images] if images else text


def _anthropic_call(item: object) -> ToolCall:
    return ToolCall(_field(item, "id"), _field(item, "name"), _field(item, "input"))


def _anthropic_messages(results: Sequence[ToolResult]) -> list[Message]:
    blocks = [
        {
            "type": "tool_result",
            "tool_use_id": each.call_id,
            # The API refuses an empty text block.
            "content": [{"type": "text", "text": text_of_result(each) or "(no output)"}, *_anthropic_images(each)],
            "is_error": each.is_error,
        }
        for each in results
    ]
    return [{"role": "user", "content": blocks}]


def _anthropic_images(result: ToolResult) -> list[Message]:
    return [
        {"type": "image", "source": {"type": "base64", "media_type": part["mimeType"], "data": part["data"]}}
        for part in result.parts
        if is_image(part)
    ]


def _gemini_call(item: object) -> ToolCall:
    # Gemini gives ids to some calls only, and leaves `args` out of a call without arguments.
    return ToolCall(_field(item, "id") or "", _field(item, "name"), _field(item, "args") or {})


def _gemini_messages(results: Sequence[ToolResult]) -> list[Message]:
    parts = [
        {
            "functionResponse": {
                **({"id": each.call_id} if each.call_id else {}),
                "name": each.name,
                "response": {"error" if each.is_error else "output": text_of_result(each)},
            }
        }
        for each in results
    ]
    return [{"role": "user", "parts": parts}]


_GEMINI = "gemini"
_SEARCH = "tool_search_call"
_APIS: Mapping[str, ModelApi] = {
    "function": ModelApi(_chat_call, _chat_messages),
    "function_call": ModelApi(_responses_call, _responses_messages),
    "tool_use": ModelApi(_anthropic_call, _anthropic_messages),
    _GEMINI: ModelApi(_gemini_call, _gemini_messages),
}
"""By the type of the item; an item of Gemini has none."""
_UNANSWERED = frozenset(
    {"custom", "custom_tool_call", "computer_call", "local_shell_call", "shell_call", "apply_patch_call"}
)
"""Calls that wait for an answer of the caller's and are not of functions."""
