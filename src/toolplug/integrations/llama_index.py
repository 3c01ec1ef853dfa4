"""Tools of LlamaIndex over an executor."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from toolplug.catalog.call import CallContext, ToolCall, is_image, text_of_result
from toolplug.catalog.definition import ToolDefinition
from toolplug.catalog.render import describe
from toolplug.execution.executor import ToolExecutor, entered_catalog
from toolplug.exports import not_installed
from toolplug.model_apis.messages import without_absent
from toolplug.model_apis.strict import strict_schema

try:
    from llama_index.core.base.llms.types import ImageBlock, TextBlock
    from llama_index.core.tools import AsyncBaseTool, ToolMetadata, ToolOutput
except ImportError as _error:
    raise not_installed(_error, __name__, "llama-index-core") from None


def tools(executor: ToolExecutor, context: CallContext | None = None, *, strict: bool = False) -> list[AsyncBaseTool]:
    """Return the tools that the executor lists now, for `FunctionAgent(tools=…)`.

    context: the caller that all calls are made for; without one the executor's own
    strict: rewrite schemas for strict mode where that is possible; the model's `strict=True` does the rest

    They are asynchronous (`acall`). An error is an output with `is_error`, images of a result are image blocks, and
    `raw_output` is its structured value. A tool that is gone answers with an error.
    """
    return [
        _LlamaIndexTool(
            executor,
            context,
            _Metadata(
                name=item.definition.wire,
                description=describe(item.definition),
                schema=_schema(item.definition, strict),
            ),
        )
        for item in entered_catalog(executor).shown.values()
    ]


def _schema(definition: ToolDefinition, strict: bool) -> dict[str, Any]:
    schema = dict(definition.parameters.value)
    return (strict_schema(schema) if strict else None) or schema


@dataclass
class _Metadata(ToolMetadata):
    """With the tool's own JSON Schema: LlamaIndex would make a model of it, and fails at a recursive one."""

    schema: dict[str, Any] = field(default_factory=dict[str, Any])

    def get_parameters_dict(self) -> dict[str, Any]:
        return self.schema


class _LlamaIndexTool(AsyncBaseTool):
    def __init__(self, executor: ToolExecutor, context: CallContext | None, metadata: ToolMetadata) -> None:
        self._executor = executor
        self._context = context
        self._metadata = metadata

    @property
    def metadata(self) -> ToolMetadata:
        return self._metadata

    def call(self, /, *args: Any, **kwargs: Any) -> ToolOutput:
        name = self._metadata.get_name()
        said = f"the tool {name!r} is asynchronous: use acall"
        return ToolOutput(tool_name=name, content=said, raw_input=kwargs, is_error=True)

    async def acall(self, /, *args: Any, **kwargs: Any) -> ToolOutput:
        name = self._metadata.get_name()
        call = without_absent(self._executor.catalog, ToolCall("", name, kwargs))
        result = await self._executor.execute(call, self._context)
        images = [
            ImageBlock(image=str(part["data"]).encode(), image_mimetype=str(part["mimeType"]))
            for part in result.parts
            if is_image(part)
        ]
        return ToolOutput(
            tool_name=name,
            blocks=[TextBlock(text=text_of_result(result)), *images],
            raw_input=kwargs,
            raw_output=result.structured,
            is_error=result.is_error,
        )
