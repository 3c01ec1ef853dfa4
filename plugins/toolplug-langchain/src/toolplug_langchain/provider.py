"""The provider `langchain`: tools of LangChain, made once and called as an agent calls them."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, cast

from langchain_core.messages import ToolMessage
from langchain_core.tools import BaseTool, BaseToolkit, StructuredTool, Tool, ToolException
from pydantic import BaseModel, Field, ValidationError

from toolplug import (
    CallContext,
    ForeignTool,
    ForeignTools,
    ProviderContext,
    ToolCall,
    ToolError,
    ToolResult,
    import_object,
)
from toolplug.errors import InvalidDefinition


class LangChainTools(ForeignTools):
    """The tools that one object of LangChain is or makes."""

    class Config(BaseModel):
        """The settings of one entry under `providers:`."""

        tool: str = Field(description="package.module:name or ./file.py:name of a tool, a toolkit or a function")
        arguments: dict[str, Any] = Field(default={}, description="the arguments of the class or function, by name")

    config: Config
    _site: ProviderContext

    async def start(self, site: ProviderContext) -> None:
        """Import and make the tools. Raises `InvalidDefinition` with the cause and the fix if that fails."""
        self._site = site
        found = await site.in_thread(_find_tools, self.config.tool, self.config.arguments, site.config_dir)
        self.offer(found)

    async def execute(self, call: ToolCall, context: CallContext) -> ToolResult | str:
        """Call the tool. Raises `ToolError` with the text of a `ToolException` and of arguments that it refuses."""
        tool: BaseTool = self.source_of(call.name)
        # A whole call and not its arguments alone: with it the answer says whether it is an error.
        whole: Any = {"type": "tool_call", "id": call.id, "name": tool.name, "args": call.arguments}
        try:
            if _is_async(tool):
                message: Any = await tool.ainvoke(whole)
            else:
                # Not `ainvoke`: it would take one of the few threads of the event loop, which belong to all.
                message = await self._site.in_thread(partial(tool.invoke, whole))
        except ToolException as error:
            raise ToolError(str(error)) from error
        except ValidationError as error:
            problems = "; ".join(f"{'.'.join(map(str, each['loc']))}: {each['msg']}" for each in error.errors())
            raise ToolError(f"the tool refuses its arguments: {problems}") from error
        if not isinstance(message, ToolMessage):
            raise ToolError(
                "the tool answers with a command for a graph, which only an agent of LangGraph can carry out"
            )
        return _make_result(message)


def _is_async(tool: BaseTool) -> bool:
    if isinstance(tool, StructuredTool | Tool):
        return tool.coroutine is not None
    # Its own hook for subclasses, though it has an underscore: LangChain asks the same.
    return type(tool)._arun is not BaseTool._arun  # pyright: ignore[reportPrivateUsage]


def _find_tools(name: str, arguments: Mapping[str, object], folder: Path) -> list[ForeignTool]:
    named = import_object(name, folder)
    try:
        if not isinstance(named, BaseTool | BaseToolkit) and callable(named):
            needed = [
                each.name
                for each in inspect.signature(named).parameters.values()
                if each.default is each.empty
                and each.kind not in (each.VAR_POSITIONAL, each.VAR_KEYWORD)
                and each.name not in arguments
            ]
            if needed:
                example = ", ".join(f"{each}: …" for each in needed)
                raise InvalidDefinition(f"{name} needs {', '.join(needed)}; set arguments: {{{example}}}")
            named = named(**arguments)
        elif arguments:
            raise InvalidDefinition(f"{name} is made already; remove arguments, or name a class or function")
        return [_foreign(tool) for tool in _tools_of(name, named)]
    except InvalidDefinition:
        raise
    # Constructors are the package's own code; `SystemExit` would end the process.
    except BaseException as error:
        said = " ".join(f"{type(error).__name__}: {error}".split())
        raise InvalidDefinition(f"{name} cannot be made: {said}; correct its arguments, or what it needs") from error


def _tools_of(name: str, found: object) -> Iterator[BaseTool]:
    if isinstance(found, BaseTool):
        yield found
    elif isinstance(found, BaseToolkit):
        yield from found.get_tools()
    elif isinstance(found, Sequence) and not isinstance(found, str | bytes):
        for each in cast("Sequence[object]", found):
            yield from _tools_of(name, each)
    else:
        kind = type(found).__name__
        raise InvalidDefinition(f"{name} gives a {kind}; name a tool, a toolkit, a list, or a function of one")


def _foreign(tool: BaseTool) -> ForeignTool:
    # Without the arguments that LangChain injects itself.
    given: Any = tool.tool_call_schema
    if hasattr(given, "model_json_schema"):
        # A model that says nothing of other arguments drops them without a word: a name that is wrong should be heard.
        schema: Any = {"additionalProperties": False, **given.model_json_schema()}
    else:
        schema = given
    parameters: dict[str, object] = {key: schema[key] for key in schema if key not in ("title", "description")}
    return ForeignTool(name=tool.name, description=tool.description, parameters=parameters, source=tool)


def _make_result(message: ToolMessage) -> ToolResult | str:
    content: Any = message.content
    if isinstance(content, str):
        text, parts = content, ()
    else:
        blocks = [_block(each) for each in content]
        text = "\n".join(str(block["text"]) for block in blocks if block["type"] == "text")
        parts = tuple(block for block in blocks if block["type"] != "text")
    if message.status == "error":
        raise ToolError(text)
    # A text alone is what a host takes fastest: the parts of a result are checked one by one.
    return ToolResult(output=text, parts=parts) if parts else text


def _block(block: Any) -> dict[str, object]:
    """Return a content block of MCP for one of LangChain; what has no counterpart is text."""
    if isinstance(block, str):
        return {"type": "text", "text": block}
    kind, data = block.get("type"), block.get("base64") or block.get("data")
    mime = block.get("mime_type")
    if kind == "image_url":
        url = block["image_url"] if isinstance(block["image_url"], str) else block["image_url"]["url"]
        head, _, encoded = url.partition(";base64,")
        if not (head.startswith("data:") and encoded):
            return {"type": "text", "text": url}
        kind, data, mime = "image", encoded, head.removeprefix("data:")
    if kind in ("image", "audio") and isinstance(data, str) and isinstance(mime, str):
        return {"type": kind, "data": data, "mimeType": mime}
    return {"type": "text", "text": str(block.get("text") or block.get("url") or block)}
