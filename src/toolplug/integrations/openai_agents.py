"""Tools of the OpenAI Agents SDK over an executor."""

from __future__ import annotations

from typing import Any

from toolplug.catalog.call import CallContext, ToolCall, data_url, is_image, text_of_result
from toolplug.catalog.definition import ToolDefinition
from toolplug.catalog.render import describe
from toolplug.execution.executor import ToolExecutor, entered_catalog
from toolplug.exports import not_installed
from toolplug.model_apis.messages import without_absent
from toolplug.model_apis.strict import strict_schema

try:
    from agents import FunctionTool, Tool, ToolOutputImage, ToolOutputText
except ImportError as _error:
    raise not_installed(_error, __name__, "openai-agents") from None


def tools(executor: ToolExecutor, context: CallContext | None = None, *, strict: bool = False) -> list[Tool]:
    """Return the tools that the executor lists now, for `Agent(tools=…)`.

    context: the caller that all calls are made for; without one the executor's own
    strict: rewrite schemas for strict mode where that is possible

    An error is the text that the model reads, images of a result are image outputs. A tool that is gone is no longer
    offered at the next step of a run, and answers with an error.
    """
    listed = entered_catalog(executor).shown
    return [_tool(executor, item.definition, context, strict) for item in listed.values()]


def _tool(
    executor: ToolExecutor, definition: ToolDefinition, context: CallContext | None, strict: bool
) -> FunctionTool:
    name, schema = definition.wire, dict(definition.parameters.value)
    rewritten = strict_schema(schema) if strict else None

    async def invoke(run: Any, arguments: str) -> str | list[ToolOutputText | ToolOutputImage]:
        call = without_absent(executor.catalog, ToolCall(run.tool_call_id, name, arguments))
        result = await executor.execute(call, context)
        text = text_of_result(result)
        images = [ToolOutputImage(image_url=data_url(part)) for part in result.parts if is_image(part)]
        return [ToolOutputText(text=text), *images] if images else text

    return FunctionTool(
        name=name,
        description=describe(definition),
        params_json_schema=rewritten or schema,
        on_invoke_tool=invoke,
        # The SDK would otherwise rewrite the schema for strict mode itself, and raise for one that has no strict form.
        strict_json_schema=rewritten is not None,
        # Asked by the SDK at each step of a run.
        is_enabled=lambda run, agent: executor.can_execute(name),
    )
