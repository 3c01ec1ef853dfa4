"""Which tools stand behind which type of built-in stub, and what options they take: read from the catalog itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from toolplug.catalog.catalog import Catalog
from toolplug.catalog.definition import ToolDefinition
from toolplug.providers.json_object import as_object


class OptionsRefused(NamedTuple):
    """Why a stub's options do not do: no tool of its type supports the key, or a value is not valid."""

    supported: bool
    message: str


class StubTable:
    """The stub types of one catalog. The provider that declares a type first has it, with its tools in their order."""

    def __init__(self, catalog: Catalog) -> None:
        self._tools: dict[str, list[ToolDefinition]] = {}
        self._others: dict[str, ToolDefinition] = {}
        for definition in catalog.definitions():
            for stub in dict.fromkeys(definition.hosted.stubs if definition.hosted else ()):
                tools = self._tools.setdefault(stub, [])
                if tools and _provider(tools[0]) != _provider(definition):
                    self._others.setdefault(stub, definition)
                else:
                    tools.append(definition)

    def tools(self, kind: str) -> tuple[ToolDefinition, ...]:
        """The tools of a type, in listing order; none for an unknown one."""
        return tuple(self._tools.get(kind, ()))

    def doubled(self, kind: str) -> str | None:
        """Which provider has the type and which other one declares it too, where there is another."""
        other = self._others.get(kind)
        if other is None:
            return None
        return (
            f"stub type {kind!r} is declared by {self._tools[kind][0].ref.source!r} and by {other.ref.source!r}; the "
            "first one is used"
        )

    def options(self, kind: str, given: Mapping[str, object]) -> Mapping[str, Mapping[str, object]] | OptionsRefused:
        """The given options by tool name: each tool gets those that it declares, and every one must be declared."""
        tools = self.tools(kind)
        unsupported = [key for key in given if not any(_supports(tool, key) for tool in tools)]
        if unsupported:
            known = sorted({key for tool in tools for key in _declared(tool)})
            return OptionsRefused(
                supported=False,
                message=f"stub {kind!r} does not support {_listed(unsupported)}; it takes {_listed(known)}",
            )
        taken: dict[str, Mapping[str, object]] = {}
        for tool in tools:
            mine = {key: value for key, value in given.items() if _supports(tool, key)}
            lines = tool.hosted.options.refusals(mine) if tool.hosted and tool.hosted.options else ()
            if lines:
                return OptionsRefused(
                    supported=True, message=f"the options of stub {kind!r} are not valid: {'; '.join(lines)}"
                )
            taken[tool.name] = mine
        return taken


def _provider(definition: ToolDefinition) -> tuple[str, str]:
    return (definition.ref.kind, definition.ref.source)


def _supports(tool: ToolDefinition, key: str) -> bool:
    """Is the option declared; an object schema that says nothing of further keys takes none here."""
    if tool.hosted is None or tool.hosted.options is None:
        return False
    schema = tool.hosted.options.value
    open_ended = schema.get("additionalProperties", False) is not False or "patternProperties" in schema
    return open_ended or "properties" not in schema or key in _declared(tool)


def _declared(tool: ToolDefinition) -> Mapping[str, object]:
    options = tool.hosted.options if tool.hosted else None
    return as_object(options.value.get("properties") if options else None)


def _listed(keys: list[str]) -> str:
    return ", ".join(repr(key) for key in keys) or "no options"
