"""What a request's `tool_choice` says once its stubs are functions, in the Chat Completions form.

    "auto" | "none" | "required"                   as it is
    {"type": "function", …}                        as it is; the flat form of the Responses API is nested
    {"type": "custom", …}                          as it is
    {"type": <stub>}, one tool                     that function
    {"type": <stub>}, several tools                allowed_tools with mode required: one of them must be called
    {"type": "allowed_tools", …}                   each entry so; nested if it was flat; "none" when nothing is left,
                                                   since a request that allows nothing we have allows nothing
    anything else                                  dropped and reported

The tools of the request are not changed: a choice of a type does not add its tools.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import cast

from toolplug.providers.json_object import as_object

Names = Callable[[str], tuple[str, ...]]
"""The wire names of the tools that a stub type stands for in this request; none for an unmatched one."""

Report = Callable[[str, str], None]
"""Takes the type of a choice that matches nothing, as text, and the message."""


def mapped_choice(choice: object, names: Names, unmatched: Report) -> object:
    """The choice in the Chat Completions form; the same object where nothing changes."""
    if choice is None or isinstance(choice, str):
        return choice
    given = as_object(choice)
    if not isinstance(choice, Mapping):
        unmatched("", f"tool_choice is neither text nor an object but {type(choice).__name__}; it is dropped")
        return None
    if given.get("type") == "allowed_tools":
        return _allowed(given, names, unmatched)
    functions = _functions(given, names, unmatched)
    if len(functions) > 1:
        return {"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": functions}}
    return functions[0] if functions else None


def _allowed(choice: Mapping[str, object], names: Names, unmatched: Report) -> object:
    inner = as_object(choice["allowed_tools"]) if "allowed_tools" in choice else choice
    listed = inner.get("tools")
    if not isinstance(listed, list | tuple):
        unmatched("allowed_tools", "tool_choice of type allowed_tools has no list of tools; nothing is allowed")
        return "none"
    entries = cast("list[object]", listed)
    tools: list[Mapping[str, object]] = []
    for entry in entries:
        functions = _functions(as_object(entry), names, unmatched)
        tools.extend(function for function in functions if function not in tools)
    if not tools:
        return "none"
    if inner is not choice and len(tools) == len(entries) and all(a is b for a, b in zip(tools, entries, strict=True)):
        return choice
    return {"type": "allowed_tools", "allowed_tools": {"mode": inner.get("mode", "auto"), "tools": tools}}


def _functions(choice: Mapping[str, object], names: Names, unmatched: Report) -> list[Mapping[str, object]]:
    """The functions that one choice means: itself, or those of a stub type."""
    kind = choice.get("type")
    if kind == "custom":
        return [choice]
    if kind == "function":
        nested = "function" in choice or "name" not in choice
        return [choice if nested else {"type": "function", "function": {"name": choice["name"]}}]
    named = names(kind) if isinstance(kind, str) else ()
    if not named:
        unmatched(kind if isinstance(kind, str) else "", f"tool_choice names {kind!r}, which matches no tool here")
    return [{"type": "function", "function": {"name": name}} for name in named]
