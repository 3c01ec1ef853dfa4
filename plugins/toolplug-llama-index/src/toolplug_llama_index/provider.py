"""The provider `llama_index`: tools and tool specs of LlamaIndex, made once and called as an agent calls them."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, cast

from llama_index.core.base.llms.types import ImageBlock
from llama_index.core.tools import BaseTool, FunctionTool, ToolOutput
from llama_index.core.tools.tool_spec.base import BaseToolSpec
from llama_index.core.tools.types import AsyncBaseTool
from pydantic import BaseModel, Field

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


class LlamaIndexTools(ForeignTools):
    """The tools that one object of LlamaIndex is or makes."""

    class Config(BaseModel):
        """The settings of one entry under `providers:`."""

        spec: str = Field(description="package.module:name or ./file.py:name of a tool spec, a tool or a function")
        arguments: dict[str, Any] = Field(default={}, description="the arguments of the class or function, by name")

    config: Config
    _site: ProviderContext
    _async: frozenset[str] = frozenset()

    async def start(self, site: ProviderContext) -> None:
        """Import and make the tools. Raises `InvalidDefinition` with the cause and the fix if that fails."""
        self._site = site
        found = await site.in_thread(_find_tools, self.config.spec, self.config.arguments, site.config_dir)
        for tool in found:
            if _needs_context(tool):
                self.log.warning("left out the tool %r: it needs the Context of a workflow", tool.metadata.name)
        self.offer([_foreign(tool) for tool in found if not _needs_context(tool)])
        names = [definition.name for definition in self.tools()]
        self._async = frozenset(name for name in names if _is_async(self.source_of(name)))

    async def execute(self, call: ToolCall, context: CallContext) -> ToolResult | str:
        """Call the tool as an agent does: the text of what it raises is that of a `ToolError`."""
        tool: BaseTool = self.source_of(call.name)
        arguments: Any = call.arguments
        try:
            if call.name in self._async:
                output: ToolOutput = await cast("Any", tool).acall(**arguments)
            else:
                # Not `acall`: it would take one of the few threads of the event loop, which belong to all.
                output = await self._site.in_thread(partial(cast("Any", tool), **arguments))
        except Exception as error:
            # To an agent of LlamaIndex too the text of an exception is what the model reads.
            raise ToolError(str(error) or type(error).__name__) from error
        if output.is_error:
            raise ToolError(output.content)
        images, text = tuple(_images(output)), output.content
        # A text alone is what a host takes fastest: the parts of a result are checked one by one.
        return ToolResult(output=text, parts=images) if images else text


def _is_async(tool: BaseTool) -> bool:
    if isinstance(tool, FunctionTool):
        return inspect.iscoroutinefunction(tool.real_fn)
    return isinstance(tool, AsyncBaseTool)


def _needs_context(tool: BaseTool) -> bool:
    return isinstance(tool, FunctionTool) and tool.requires_context


def _find_tools(name: str, arguments: Mapping[str, object], folder: Path) -> list[BaseTool]:
    named = import_object(name, folder)
    try:
        if not isinstance(named, BaseTool | BaseToolSpec) and callable(named):
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
        return list(_tools_of(name, named))
    except InvalidDefinition:
        raise
    # Constructors are the package's own code; `SystemExit` would end the process.
    except BaseException as error:
        said = " ".join(f"{type(error).__name__}: {error}".split())
        raise InvalidDefinition(f"{name} cannot be made: {said}; correct its arguments, or what it needs") from error


def _tools_of(name: str, found: object) -> Iterator[BaseTool]:
    if isinstance(found, BaseTool):
        yield found
    elif isinstance(found, BaseToolSpec):
        yield from found.to_tool_list()
    elif isinstance(found, Sequence) and not isinstance(found, str | bytes):
        for each in cast("Sequence[object]", found):
            yield from _tools_of(name, each)
    else:
        kind = type(found).__name__
        raise InvalidDefinition(f"{name} gives a {kind}; name a tool spec, a tool, a list, or a function of one")


def _foreign(tool: BaseTool) -> ForeignTool:
    meta = tool.metadata
    # LlamaIndex drops this key of its models: a name that is wrong should be heard.
    parameters: dict[str, object] = {"additionalProperties": False, **cast("Any", meta).get_parameters_dict()}
    # After a line with the signature it is the author's docstring, whose indentation a model would pay for.
    signature, _, docstring = meta.description.partition("\n")
    description = f"{signature}\n{inspect.cleandoc(docstring)}".rstrip()
    return ForeignTool(name=meta.get_name(), description=description, parameters=parameters, source=tool)


def _images(output: ToolOutput) -> Iterator[dict[str, object]]:
    for block in output.blocks:
        # Only what is there, as base64: an image that is a URL would have to be fetched.
        if isinstance(block, ImageBlock) and isinstance(block.image, bytes):
            kind = block.image_mimetype or "image/png"
            yield {"type": "image", "data": block.image.decode(), "mimeType": kind}
