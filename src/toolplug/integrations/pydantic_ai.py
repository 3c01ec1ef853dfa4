"""A toolset of pydantic-ai over an executor: asked at each step of a run, so that tools come and go in between."""

from __future__ import annotations

from base64 import b64decode
from dataclasses import dataclass, field
from typing import Any

from pydantic_core import SchemaValidator, core_schema

from toolplug.catalog.call import CallContext, ToolCall, ToolStatus, is_image, text_of_result
from toolplug.catalog.catalog import Catalog
from toolplug.catalog.definition import ToolDefinition as Definition
from toolplug.catalog.render import describe
from toolplug.execution.executor import ToolExecutor, entered_catalog
from toolplug.exports import not_installed
from toolplug.model_apis.messages import without_absent
from toolplug.model_apis.strict import strict_schema

try:
    from pydantic_ai import AbstractToolset, ModelRetry, RunContext, ToolDefinition, ToolFailed, ToolReturn
    from pydantic_ai.messages import BinaryContent
    from pydantic_ai.toolsets import ToolsetTool
except ImportError as _error:
    raise not_installed(_error, __name__, "pydantic-ai-slim") from None

# The executor validates: two validators would word and count the errors of a model differently.
_ANY_ARGUMENTS = SchemaValidator(core_schema.dict_schema())


def toolset(
    executor: ToolExecutor, context: CallContext | None = None, *, strict: bool = False, retries: int = 1
) -> AbstractToolset[Any]:
    """Return the executor's tools as a toolset for `Agent(toolsets=[…])`.

    context: the caller that all calls are made for; without one the executor's own
    strict: rewrite schemas for strict mode where that is possible
    retries: how often the model may correct invalid arguments of one tool in a run

    Invalid arguments ask the model to retry (`ModelRetry`); any other error is a failed call (`ToolFailed`). Images of
    a result reach the model, and its metadata and structured value are in the `metadata` of the tool return.
    """
    return _Toolset(executor, context, strict, retries)


@dataclass(eq=False)
class _Toolset(AbstractToolset[Any]):
    executor: ToolExecutor
    context: CallContext | None
    strict: bool
    retries: int
    _listed: tuple[Catalog, dict[str, ToolsetTool[Any]]] | None = field(default=None, init=False)

    @property
    def id(self) -> str | None:
        return None

    async def get_tools(self, ctx: RunContext[Any]) -> dict[str, ToolsetTool[Any]]:
        """Return the tools of now; the same ones while the catalog is the same object."""
        catalog = entered_catalog(self.executor)
        if self._listed is None or self._listed[0] is not catalog:
            self._listed = (
                catalog,
                {item.definition.wire: self._tool(item.definition) for item in catalog.shown.values()},
            )
        return self._listed[1]

    def _tool(self, definition: Definition) -> ToolsetTool[Any]:
        schema = dict(definition.parameters.value)
        strict = strict_schema(schema) if self.strict else None
        return ToolsetTool(
            toolset=self,
            tool_def=ToolDefinition(
                name=definition.wire,
                description=describe(definition),
                parameters_json_schema=strict or schema,
                strict=strict is not None,
            ),
            max_retries=self.retries,
            args_validator=_ANY_ARGUMENTS,
        )

    async def call_tool(
        self, name: str, tool_args: dict[str, Any], ctx: RunContext[Any], tool: ToolsetTool[Any]
    ) -> ToolReturn[Any]:
        """Run the call. Raises `ModelRetry` and `ToolFailed`."""
        call = without_absent(self.executor.catalog, ToolCall(ctx.tool_call_id or "", name, tool_args))
        result = await self.executor.execute(call, self.context)
        text = text_of_result(result)
        if result.status is ToolStatus.INVALID_ARGUMENTS:
            raise ModelRetry(text)
        if result.is_error:
            raise ToolFailed(text)
        images = [
            BinaryContent(b64decode(str(part["data"])), media_type=str(part["mimeType"]))
            for part in result.parts
            if is_image(part)
        ]
        about = {**result.metadata, "structured": result.structured}
        return ToolReturn(text, content=images or None, metadata=about)
