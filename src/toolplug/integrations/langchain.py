"""Tools of LangChain over an executor."""

from __future__ import annotations

from typing import Any, NoReturn

from toolplug.catalog.call import CallContext, ToolCall, data_url, is_image, text_of_result
from toolplug.catalog.definition import ToolDefinition
from toolplug.catalog.render import describe
from toolplug.execution.executor import ToolExecutor, entered_catalog
from toolplug.exports import not_installed
from toolplug.model_apis.messages import without_absent
from toolplug.model_apis.strict import strict_schema

try:
    from langchain_core.tools import BaseTool, ToolException
except ImportError as _error:
    raise not_installed(_error, __name__, "langchain-core") from None

Content = str | list[str | dict[str, Any]]


def tools(executor: ToolExecutor, context: CallContext | None = None, *, strict: bool = False) -> list[BaseTool]:
    """Return the tools that the executor lists now, for `create_agent(model, tools)` and `model.bind_tools(tools)`.

    context: the caller that all calls are made for; without one the executor's own
    strict: rewrite schemas for strict mode where that is possible; `bind_tools(tools, strict=True)` does the rest

    They are asynchronous (`ainvoke`). An error of a tool is a message with the status `error`, not an exception;
    images of a result are content blocks, its structured value is the artifact. A tool that is gone answers with an
    error.
    """
    return [
        _LangchainTool(
            name=item.definition.wire,
            description=describe(item.definition) or item.definition.wire,
            args_schema=_schema(item.definition, strict),
            executor=executor,
            context=context,
        )
        for item in entered_catalog(executor).shown.values()
    ]


def _schema(definition: ToolDefinition, strict: bool) -> dict[str, Any]:
    schema = dict(definition.parameters.value)
    return (strict_schema(schema) if strict else None) or schema


class _LangchainTool(BaseTool):
    """`StructuredTool` would take arguments named `config`, `callbacks` or `run_manager` for its own."""

    executor: Any
    context: CallContext | None
    # Then the message of a `ToolException` is the result that the model reads.
    handle_tool_error: Any = True
    response_format: Any = "content_and_artifact"

    def _run(self, /, *args: Any, **kwargs: Any) -> NoReturn:
        raise ToolException(f"the tool {self.name!r} is asynchronous: use ainvoke, or an agent with ainvoke or astream")

    async def _arun(self, /, **kwargs: Any) -> tuple[Content, Any]:
        call = without_absent(self.executor.catalog, ToolCall("", self.name, kwargs))
        result = await self.executor.execute(call, self.context)
        text = text_of_result(result)
        if result.is_error:
            raise ToolException(text)
        images = [
            {"type": "image_url", "image_url": {"url": data_url(part)}} for part in result.parts if is_image(part)
        ]
        return ([{"type": "text", "text": text}, *images] if images else text), result.structured
