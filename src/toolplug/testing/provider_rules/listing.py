"""What a provider lists, before a host looks at it: names, descriptions, schemas, built-in stubs."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from toolplug.catalog.definition import ToolDefinition, check_provider_tool_name
from toolplug.catalog.schema import Schema
from toolplug.errors import InvalidDefinition
from toolplug.testing.broken_rule import BrokenRule

_STUB = re.compile(r"[a-z][a-z0-9_]{0,63}")
_NO_STUBS = frozenset({"function", "custom"})


def listing_rules(definitions: Sequence[ToolDefinition]) -> list[BrokenRule]:
    """Every rule that one of the definitions breaks."""
    names = [item.name for item in definitions]
    broken = [
        BrokenRule("names", f"tool {name!r}", "is listed twice", "give one of them another name")
        for name in dict.fromkeys(names)
        if names.count(name) > 1
    ]
    for item in definitions:
        broken += [*_name(item), *_description(item), *_schemas(item), *_stubs(item)]
    return broken


def _name(item: ToolDefinition) -> Iterator[BrokenRule]:
    try:
        check_provider_tool_name(item.name)
    except InvalidDefinition as error:
        yield BrokenRule("names", f"tool {item.name!r}", str(error), "rename it")


def _description(item: ToolDefinition) -> Iterator[BrokenRule]:
    if not item.description.strip():
        fix = "write a docstring: it is all that a model knows of the tool"
        yield BrokenRule("descriptions", f"tool {item.name!r}", "has no description", fix)


def _schemas(item: ToolDefinition) -> Iterator[BrokenRule]:
    options = item.hosted.options if item.hosted else None
    named = {"parameters": item.parameters, "output_schema": item.output_schema, "stub_options": options}
    for what, schema in named.items():
        if schema is not None:
            yield from _compiles(item, what, schema)
    if item.parameters.value.get("type") != "object":
        fix = 'write {"type": "object", "properties": …}'
        yield BrokenRule("schemas", f"parameters of tool {item.name!r}", "are not those of an object", fix)


def _compiles(item: ToolDefinition, what: str, schema: Schema) -> Iterator[BrokenRule]:
    try:
        schema.validator()
    except InvalidDefinition as error:
        fix = "write JSON Schema of draft 2020-12, with patterns that need no backtracking"
        yield BrokenRule("schemas", f"{what} of tool {item.name!r}", str(error), fix)


def _stubs(item: ToolDefinition) -> Iterator[BrokenRule]:
    for stub in item.hosted.stubs if item.hosted else ():
        if stub in _NO_STUBS or not _STUB.fullmatch(stub):
            fix = "use lower-case letters, digits and _, as in 'web_lookup'"
            yield BrokenRule("stubs", f"tool {item.name!r}", f"{stub!r} is no type of a built-in stub", fix)
