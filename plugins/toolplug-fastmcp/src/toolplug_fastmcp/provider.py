"""The provider `fastmcp`: the tools of a FastMCP server in this process, over its own client in memory."""

from __future__ import annotations

import asyncio
import inspect
from abc import ABC, abstractmethod
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any, cast

from anyio import ClosedResourceError
from fastmcp import Client, FastMCP
from fastmcp.exceptions import ToolError as FastMcpToolError
from httpx2 import TransportError
from mcp_types import CONNECTION_CLOSED, CallToolResult, TextContent, Tool
from pydantic import BaseModel, Field

from mcp import MCPError
from toolplug import (
    CallContext,
    ForeignTool,
    ForeignTools,
    ProviderContext,
    ToolCall,
    ToolError,
    ToolHints,
    ToolResult,
    ToolUnavailable,
    import_object,
)
from toolplug.errors import InvalidDefinition

USUAL_NAMES = ("mcp", "server", "app")
"""What FastMCP's own command line looks for in a file that is named without an object."""


class FastMcpTools(ForeignTools, ABC):
    """The base class of providers whose tools are those of one server that a FastMCP client connects to.

    `find_target` says which: the provider `fastmcp` names a server in this process, a package of its own may name the
    URL of an MCP server, or the program that it is (`toolplug new-provider --from` writes such a package).
    """

    _client: Any = None
    _lost = False

    def __init__(self, config: object = None, *, key: str = "") -> None:
        super().__init__(config, key=key)
        self._connecting = asyncio.Lock()

    @abstractmethod
    async def find_target(self, site: ProviderContext) -> Any:
        """Return what the client connects to: a FastMCP object, a URL, or a transport of `fastmcp.client.transports`.

        Raises `InvalidDefinition` with cause and fix.
        """

    def explain_failure(self, said: str) -> str:
        """Return why the start fails where the server does not start or answer, with the fix; `said`: its own words."""
        return f"the server of {self.key!r} does not answer: {said}; start it, or correct its entry"

    async def start(self, site: ProviderContext) -> None:
        """Connect to the server and list its tools. Raises `InvalidDefinition` with cause and fix."""
        # The client of the MCP SDK imports it in the first call of a tool, which held the event loop for 1 to 5 s.
        await site.in_thread(import_module, "jsonschema")
        client: Any = cast("Any", Client)(await self.find_target(site))
        try:
            await client.__aenter__()
            self._client = client
            found: list[Tool] = await client.list_tools()
        except Exception as error:
            raise InvalidDefinition(self.explain_failure(_in_words(error))) from error
        self.offer(map(_foreign, found))

    async def aclose(self) -> None:
        """Leave the server, and so the lifespan of one in this process."""
        client, self._client = self._client, None
        if client is not None:
            try:
                await client.close()
            except TransportError as error:
                # It wants to say goodbye to a server that may have gone.
                self.log.debug("closing the connection: %s", error)

    async def execute(self, call: ToolCall, context: CallContext) -> ToolResult:
        """Call the tool through the server's own middleware.

        Raises `ToolError` with what the server answers, and `ToolUnavailable` if it went away; the next call connects
        again.
        """
        client = self._client
        if client is None:
            raise LookupError("the provider has not been started")
        if self._lost:
            await self._connect_again(client)

        async def report(progress: float, total: float | None, message: str | None) -> None:
            context.report(progress, total, message)

        arguments: Any = call.arguments
        try:
            result = await client.call_tool_mcp(call.name, arguments, progress_handler=report)
        except FastMcpToolError as error:
            raise ToolError(str(error)) from error
        except (MCPError, TransportError, ClosedResourceError) as error:
            if isinstance(error, MCPError) and error.code != CONNECTION_CLOSED:
                raise ToolError(str(error)) from error
            self._lost = True
            raise self._report_lost(error) from error
        return _make_result(result)

    async def _connect_again(self, client: Any) -> None:
        """Connect anew, once for all calls that wait. Raises `ToolUnavailable`."""
        async with self._connecting:
            if self._lost:
                try:
                    await client.close()
                    await client.__aenter__()
                except Exception as error:
                    raise self._report_lost(error) from error
                self._lost = False

    def _report_lost(self, error: Exception) -> ToolUnavailable:
        text = f"the server of {self.key!r} went away: {_in_words(error)}; the next call connects to it again"
        return ToolUnavailable(text, code="server_gone")


class FastMcpServer(FastMcpTools):
    """The tools of one FastMCP server, whose lifespan is that of the entry."""

    class Config(BaseModel):
        """The settings of one entry under `providers:`."""

        server: str = Field(description="./file.py:name or package.module:name of a FastMCP object or its function")

    config: Config

    async def find_target(self, site: ProviderContext) -> Any:
        """Import the server; a function is called. Raises `InvalidDefinition` with cause and fix."""
        name = self.config.server
        server: Any = await site.in_thread(_find_server, name, site.config_dir)
        if inspect.isawaitable(server):
            server = await server
        if not isinstance(cast("object", server), FastMCP):
            raise InvalidDefinition(f"{name} gives a {type(server).__name__}; name a FastMCP object, or its function")
        return server

    def explain_failure(self, said: str) -> str:
        """Return the failure of the server's lifespan, with its name."""
        return f"{self.config.server} does not start: {said}; fix its lifespan"


def _find_server(name: str, folder: Path) -> Any:
    named: Any = import_object(name, folder)
    if isinstance(named, ModuleType):
        named = _object_in(named, name)
    # A function of any kind, `async` too; a FastMCP object is not called.
    if not callable(named) or isinstance(cast("object", named), FastMCP):
        return named
    try:
        return named()
    # The function is the author's own code; `SystemExit` would end the process.
    except BaseException as error:
        raise InvalidDefinition(f"{name} raised {_in_words(error)}; fix the function") from error


def _object_in(module: ModuleType, name: str) -> object:
    """Return what a file without a named object means: that of a usual name, else its only server."""
    servers = [each for each, found in vars(module).items() if isinstance(found, FastMCP)]
    for usual in USUAL_NAMES:
        if usual in servers or inspect.isroutine(getattr(module, usual, None)):
            return getattr(module, usual)
    if len(servers) == 1:
        return getattr(module, servers[0])
    which = f", such as {name}:{servers[0]}" if servers else ""
    raise InvalidDefinition(f"{name} has none of {', '.join(USUAL_NAMES)}; write {name}:NAME{which}")


def _in_words(error: BaseException) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())


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
