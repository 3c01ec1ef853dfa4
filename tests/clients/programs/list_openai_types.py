"""Print an example of each field, item, content part and tool that the installed `openai` has types for, as JSON."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import UnionType
from typing import Annotated, Any, Literal, NotRequired, Required, Union, get_args, get_origin, get_type_hints

from openai.types import chat, responses
from openai.types.chat import completion_create_params
from openai.types.responses import response_create_params, response_input_item_param, tool_param

DEEPEST = 6
_PLAIN: dict[Any, object] = {
    str: "x",
    int: 1,
    float: 1.0,
    bool: True,
    object: {"type": "object"},
    Any: "x",
    type(None): None,
}


def unwrapped(annotation: Any) -> Any:
    """Return an annotation without what says whether a key is required."""
    while get_origin(annotation) in {Required, NotRequired, Annotated}:
        annotation = get_args(annotation)[0]
    return annotation


def members(annotation: Any) -> Sequence[Any]:
    """Return the members of a union, or the annotation itself."""
    annotation = unwrapped(annotation)
    if get_origin(annotation) in {Union, UnionType}:
        return [inner for member in get_args(annotation) for inner in members(member)]
    return [annotation]


def example(annotation: Any, depth: int = 0) -> object:
    """Return a value of a type, with every key that it may have; of a union, a value of its first member."""
    annotation = next((member for member in members(annotation) if member is not type(None)), type(None))
    if annotation in _PLAIN:
        return _PLAIN[annotation]
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Literal:
        return arguments[0]
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return {"x": example(arguments[1], depth + 1)}
    if isinstance(origin, type) and issubclass(origin, Iterable):
        return [] if depth > DEEPEST else [example(arguments[0], depth + 1)]
    if hasattr(annotation, "__required_keys__"):
        hints = get_type_hints(annotation, include_extras=True)
        keys = annotation.__required_keys__ if depth > DEEPEST else hints
        return {key: example(hints[key], depth + 1) for key in hints if key in keys}
    return "x"


def examples(union: Any) -> Iterator[object]:
    """Yield an example of each member of a union."""
    for member in members(union):
        yield example(member)


def fields(plain: Any, streaming: Any) -> dict[str, object]:
    """Return an example of each field of a request, which has one type without and one with `stream`."""
    hints = {**get_type_hints(streaming, include_extras=True), **get_type_hints(plain, include_extras=True)}
    return {name: example(hint) for name, hint in hints.items()}


def main() -> None:
    """Print them."""
    of_chat = completion_create_params
    listed = {
        "fields": fields(
            response_create_params.ResponseCreateParamsNonStreaming,
            response_create_params.ResponseCreateParamsStreaming,
        ),
        "chat fields": fields(of_chat.CompletionCreateParamsNonStreaming, of_chat.CompletionCreateParamsStreaming),
        "messages": [*examples(chat.ChatCompletionMessageParam)],
        "chat parts": [*examples(chat.ChatCompletionContentPartParam)],
        "chat tools": [*examples(chat.ChatCompletionToolUnionParam)],
        "items": [*examples(response_input_item_param.ResponseInputItemParam)],
        "parts": [*examples(responses.response_input_content_param.ResponseInputContentParam)],
        "tools": [*examples(tool_param.ToolParam)],
    }
    json.dump(listed, sys.stdout)


if __name__ == "__main__":
    main()
