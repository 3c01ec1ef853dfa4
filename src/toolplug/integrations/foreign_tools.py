"""Providers whose tools are objects of another framework: what they share."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from toolplug.catalog.definition import NO_HINTS, ToolDefinition, ToolHints
from toolplug.errors import InvalidDefinition
from toolplug.foreign.definitions import foreign_definition
from toolplug.providers.provider import FunctionProvider


@dataclass(frozen=True, slots=True, kw_only=True)
class ForeignTool:
    """One tool of another framework: the object that is called, and what the framework says of it.

    `parameters` and `output_schema` are JSON Schemas of objects, as the framework makes them.

    ```python
    from toolplug import ForeignTool

    tool = ForeignTool(name="dump", description="Write JSON.", parameters={"type": "object"}, source=repr)
    ```
    """

    name: str
    description: str
    parameters: Mapping[str, object]
    source: Any
    output_schema: Mapping[str, object] | None = None
    hints: ToolHints = NO_HINTS


class ForeignTools(FunctionProvider):
    """The base class of providers whose tools are objects of another framework.

    A subclass finds them in `start`, gives them to `offer`, and calls `source_of(call.name)` in `execute`.

    ```python
    import asyncio

    from toolplug import ForeignTool, ForeignTools, FunctionRegistry

    class Builtins(ForeignTools):
        async def start(self, site):
            schema = {"type": "object", "properties": {"of": {"type": "array"}}}
            self.offer([ForeignTool(name="total", description="Add numbers.", parameters=schema, source=sum)])

        async def execute(self, call, context):
            return self.source_of(call.name)(call.arguments["of"])

    async def main():
        async with FunctionRegistry([Builtins()]) as registry:
            assert (await registry.call("total", of=[1, 2])).output == "3"

    asyncio.run(main())
    ```
    """

    _offered: Mapping[str, tuple[ToolDefinition, Any]] = {}

    def offer(self, found: Iterable[ForeignTool]) -> None:
        """Take these tools as those of this provider, in this order, with definitions that are valid and harmless.

        A tool that cannot be used is left out with a warning in the log, as is the second of a name; what was removed
        from a schema is logged. Raises `InvalidDefinition` if none is left, with the reasons.
        """
        offered: dict[str, tuple[ToolDefinition, Any]] = {}
        problems: list[str] = []
        for each in found:
            try:
                if each.name in offered:
                    raise InvalidDefinition("another tool has this name")
                definition, removed = foreign_definition(
                    name=each.name,
                    description=each.description,
                    parameters=cast("dict[str, object]", {"type": "object", **each.parameters}),
                    output_schema=None if each.output_schema is None else dict(each.output_schema),
                    hints=each.hints,
                )
            except InvalidDefinition as error:
                problems.append(f"{each.name!r}: {error}")
                continue
            for line in removed:
                self.log.info("tool %r: %s", each.name, line)
            offered[each.name] = (definition, each.source)
        for text in problems:
            self.log.warning("left out the tool %s", text)
        if not offered:
            raise InvalidDefinition(
                "; ".join(problems) if problems else "it has no tools; correct what the entry names"
            )
        self._offered = offered

    def source_of(self, name: str) -> Any:
        """Return the object of the tool of this name. Raises `LookupError` for one that was not offered."""
        return self._offered[name][1]

    def tools(self) -> Sequence[ToolDefinition]:
        """Return the tools that were offered, in order."""
        return [definition for definition, _ in self._offered.values()]

    def can_execute(self, name: str) -> bool:
        """Return whether a tool of this name was offered."""
        return name in self._offered
