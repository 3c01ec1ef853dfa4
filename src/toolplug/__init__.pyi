"""A plugin framework for the tools that language models call."""

from toolplug.catalog.call import CallContext, Principal, ToolCall, ToolResult, ToolStatus
from toolplug.catalog.catalog import Catalog, merged
from toolplug.catalog.current import current_tenant
from toolplug.catalog.definition import ToolDefinition
from toolplug.errors import ToolError, UnmatchedStub
from toolplug.execution.executor import ToolExecutor
from toolplug.host.host import Host, open_host
from toolplug.providers.authoring import route, tool
from toolplug.providers.hooks import hookimpl
from toolplug.providers.provider import FunctionProvider
from toolplug.providers.registry import FunctionRegistry
from toolplug.providers.site import ProviderStore, Site
from toolplug.providers.stubs import Expansion, expand_builtin_tools

__all__ = [
    "CallContext",
    "Catalog",
    "Expansion",
    "FunctionProvider",
    "FunctionRegistry",
    "Host",
    "Principal",
    "ProviderStore",
    "Site",
    "ToolCall",
    "ToolDefinition",
    "ToolError",
    "ToolExecutor",
    "ToolResult",
    "ToolStatus",
    "UnmatchedStub",
    "current_tenant",
    "expand_builtin_tools",
    "hookimpl",
    "merged",
    "open_host",
    "route",
    "tool",
]
