"""What the code that opens a host gives it, besides the configuration."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from toolplug.execution.accounting import OnCall
from toolplug.host.file.tool_servers import ConfiguredServer
from toolplug.host.toolsets.service import McpRegistration
from toolplug.providers.plugins.registration import PluginManager
from toolplug.toolsets.registered import Toolsets


class Serves(NamedTuple):
    """Whether a host discovers MCP `servers`, and whether it holds the `sessions` of its store.

    Another process does what it does not. `on_call` is called for each tool call that was answered.
    """

    servers: bool
    sessions: bool
    on_call: OnCall | None = None


class CodedParts(NamedTuple):
    """What the host's own code gave it: toolsets, by id those of MCP servers, and the manager of its plugins."""

    toolsets: Toolsets
    mcp: Mapping[str, McpRegistration]
    plugins: PluginManager

    @property
    def servers(self) -> Sequence[ConfiguredServer]:
        """The MCP servers that the code describes itself."""
        return [item.server for item in self.mcp.values() if item.server is not None]
