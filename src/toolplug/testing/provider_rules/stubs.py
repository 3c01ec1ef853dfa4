"""A stub of each declared type becomes the tool that declares it."""

from __future__ import annotations

from collections.abc import Iterator

from toolplug.catalog.definition import ToolDefinition
from toolplug.providers.stubs import expand_builtin_tools
from toolplug.testing.broken_rule import BrokenRule
from toolplug.testing.provider_rules.subject import Started


def stub_rules(run: Started) -> list[BrokenRule]:
    """The rules of every stub type; one whose options name a required key is not asked for without it."""
    return [
        broken
        for definition in run.registry.catalog.definitions()
        for stub in (definition.hosted.stubs if definition.hosted else ())
        for broken in _expands(run, definition, stub)
    ]


def _expands(run: Started, definition: ToolDefinition, stub: str) -> Iterator[BrokenRule]:
    options = definition.hosted.options if definition.hosted else None
    if options is not None and options.value.get("required"):
        return
    expansion = expand_builtin_tools([{"type": stub}], run.registry)
    for warning in expansion.warnings:
        fix = "let stub_options admit a stub that says nothing but its type"
        yield BrokenRule("stubs", f"stub {stub!r} of tool {definition.name!r}", warning.message, fix)
