"""The provider `fastmcp`: the tools of a FastMCP server in this process, over its own client in memory."""

from __future__ import annotations

import inspect
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any, cast

from fastmcp import Client, FastMCP
from fastmcp.exceptions import ToolError as FastMcpToolError
from mcp_types import CallToolResult, TextContent, Tool
from pydantic import BaseModel, Field

from toolplug import (
    CallContext,
    ForeignTool,
    ForeignTools,
    ProviderContext,
    ToolCall,
    ToolError,
    ToolHints,
    ToolResult,
    import_object,
)
from toolplug.errors import InvalidDefinition

USUAL_NAMES = ("mcp", "server", "app")
"""What FastMCP's own command line looks for in a file that is named without an object."""


class FastMcpServer(ForeignTools):
    """The tools of one FastMCP server, whose lifespan is that of the entry."""

    class Config(BaseModel):
        """The settings of one entry under `providers:`."""

        server: str = Field(description="./file.py:name or package.module:name of a FastMCP object or its function")

    config: Config
    _client: Any = None

    async def start(self, site: ProviderContext) -> None:
        """Import the server, enter its lifespan and list its tools. Raises `InvalidDefinition` with cause and fix."""
        name = self.config.server
        server: Any = await site.in_thread(_find_server, name, site.config_dir)
        if inspect.isawaitable(server):
            server = await server
        if not isinstance(server, FastMCP):
            raise InvalidDefinition(f"{name} gives a {type(server).__name__}; name a FastMCP object, or its function")
        client: Any = cast("Any", Client)(server)
        try:
            await client.__aenter__()
        except Exception as error:
            said = " ".join(f"{type(error).__name__}: {error}".split())
            raise InvalidDefinition(f"{name} does not start: {said}; fix its lifespan") from error
        self._client = client
        self.offer([_foreign(tool) for tool in await client.list_tools()])

    async def aclose(self) -> None:
        """Leave the server's lifespan."""
        client, self._client = self._client, None
        if client is not None:
            await client.__aexit__(None, None, None)

    async def execute(self, call: ToolCall, context: CallContext) -> ToolResult:
        """Call the tool through the server's own middleware. Raises `ToolError` with what the server answers."""
        client = self._client
        if client is None:
            raise LookupError("the provider has not been started")

        async def report(progress: float, total: float | None, message: str | None) -> None:
            context.report(progress, total, message)

        arguments: Any = call.arguments
        try:
            result = await client.call_tool_mcp(call.name, arguments, progress_handler=report)
        except FastMcpToolError as error:
            raise ToolError(str(error)) from error
        return _make_result(result)


def _find_server(name: str, folder: Path) -> Any:
    # The client of the MCP SDK imports it in the first call of a tool, which held the event loop for 1 to 5 s.
    import_module("jsonschema")
    named: Any = import_object(name, folder)
    if isinstance(named, ModuleType):
        named = next((found for each in USUAL_NAMES if (found := getattr(named, each, None)) is not None), None)
        if named is None:
            raise InvalidDefinition(f"{name} has none of {', '.join(USUAL_NAMES)}; write {name}:NAME")
    # A function of any kind, `async` too; a FastMCP object is not called.
    if not callable(named) or isinstance(cast("object", named), FastMCP):
        return named
    try:
        return named()
    # The function is the author's own code; `SystemExit` would end the process.
    except BaseException as error:
        said = " ".join(f"{type(error).__name__}: {error}".split())
        raise InvalidDefinition(f"{name} raised {said}; fix the function") from error


def _foreign(tool: Tool) -> ForeignTool:
    hints = tool.annotations
    return ForeignTool(
        name=tool.name,
        description=tool.description or "",
        parameters=tool.input_schema,
        output_schema=tool.output_schema,
        hints=ToolHints()
        if hints is None
        else ToolHints(hints.read_only_hint, hints.idempotent_hint, hints.destructive_hint),
        source=tool,
    )


def _make_result(result: CallToolResult) -> ToolResult:
    text = "\n".join(block.text for block in result.content if isinstance(block, TextContent))
    if result.is_error:
        raise ToolError(text or "the tool failed without a word")
    parts = tuple(
        block.model_dump(mode="json", by_alias=True, exclude_none=True)
        for block in result.content
        if not isinstance(block, TextContent)
    )
    return ToolResult(output=text, structured=result.structured_content, parts=parts)
