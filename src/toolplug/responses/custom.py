"""Custom tools: the client's own, called with a text instead of arguments.

Every model's server knows functions, so the model is offered a function of one text; what it calls with that text is
shown as a call of the custom tool.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, cast

import orjson

from toolplug.providers.json_object import as_object

CUSTOM: Final = "custom"

_INPUT = "input"
_PARAMETERS: Mapping[str, object] = {
    "type": "object",
    "properties": {_INPUT: {"type": "string"}},
    "required": [_INPUT],
    "additionalProperties": False,
}


def as_function(tool: Mapping[str, object]) -> Mapping[str, object]:
    """The function that stands for a custom tool; any other tool as it is. A grammar is told, not enforced."""
    if tool.get("type") != CUSTOM:
        return tool
    form = as_object(tool.get("format"))
    told = [text] if isinstance(text := tool.get("description"), str) else []
    if form.get("type") == "grammar":
        told.append(f"The input keeps to this grammar ({form.get('syntax')}):\n{form.get('definition')}")
    described = {"description": "\n\n".join(told)} if told else {}
    return {"type": "function", "name": tool.get("name"), **described, "parameters": _PARAMETERS}


def as_function_choice(choice: object) -> object:
    """The choice of the functions that stand for custom tools; any other choice as it is."""
    given = as_object(choice)
    if given.get("type") == CUSTOM:
        return {**given, "type": "function"}
    listed = given.get("tools")
    if given.get("type") == "allowed_tools" and isinstance(listed, list):
        return {**given, "tools": [as_function_choice(entry) for entry in cast("list[object]", listed)]}
    return choice


def input_of(arguments: str) -> str:
    """The text of a call; the arguments themselves where the model has not kept to the function's parameters."""
    try:
        text = as_object(orjson.loads(arguments)).get(_INPUT)
    except orjson.JSONDecodeError:
        return arguments
    return text if isinstance(text, str) else arguments


def arguments_of(text: str) -> str:
    """The function's arguments for a text."""
    return orjson.dumps({_INPUT: text}).decode()
