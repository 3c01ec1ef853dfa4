"""A session's tools as people and plugins read them: each with whether it can be called now, and if not, why."""

from __future__ import annotations

from collections.abc import Callable

import orjson

from toolplug.catalog.catalog import Catalog
from toolplug.catalog.definition import ToolDefinition
from toolplug.sessions.tool_set import ToolSet

_AVAILABLE = b',"available":true}'


def tool_list(tools: ToolSet, away: str | None, shadowed: Callable[[str], bool]) -> bytes:
    """The definitions as a JSON array; `away` is why none can be called, `shadowed` tells whose name was taken."""
    shown: list[bytes] = []
    for name, tool in tools.tools.items():
        reason = "shadowed" if shadowed(name) else away
        shown.append(
            tool.wire[:-1] + (_AVAILABLE if reason is None else b',"available":false,"reason":"%s"}' % reason.encode())
        )
    return b"[%s]" % b",".join(shown)


def default_tool_list(catalog: Catalog) -> bytes:
    """The tools of a session whose plugin has registered nothing, in the same shape."""
    return orjson.dumps([_defined(definition) for definition in catalog.definitions()])


def _defined(definition: ToolDefinition) -> dict[str, object]:
    shown: dict[str, object] = {
        "name": definition.name,
        "description": definition.description,
        "inputSchema": orjson.Fragment(definition.parameters.text),
    }
    if definition.output_schema is not None:
        shown["outputSchema"] = orjson.Fragment(definition.output_schema.text)
    return shown | {"available": True}
