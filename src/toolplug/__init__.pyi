"""A plugin framework for the tools that language models call."""

from toolplug.catalog.call import (
    CallContext,
    CannotAsk,
    Principal,
    ToolCall,
    ToolResult,
    ToolStatus,
    UserAnswer,
    current_tenant,
)
from toolplug.catalog.catalog import Catalog, merged
from toolplug.catalog.definition import HostedItem, Note, ToolDefinition, ToolHints
from toolplug.catalog.plan import CallSpan, CallTracer, NeedsApproval, WouldRefuse
from toolplug.cli.options import TenantOption
from toolplug.cli.plugin_commands import read_section, state_folder
from toolplug.errors import ConfigError, StoreError, ToolError, ToolUnavailable, UnmatchedStub
from toolplug.execution.executor import ModelTools, ToolExecutor, open_catalog
from toolplug.foreign.definitions import foreign_definition
from toolplug.foreign.named_objects import import_object
from toolplug.hookspecs import hookimpl, hookspec
from toolplug.host.host import Host, open_host
from toolplug.host.keys import Sealer
from toolplug.host.tool_infos import CallableTools
from toolplug.integrations.foreign_tools import ForeignTool, ForeignTools
from toolplug.mcp_extensions import McpExtension
from toolplug.model_apis.stubs import Expansion, expand_builtin_tools
from toolplug.net.checked_transport import checked_transport
from toolplug.net.egress import Egress
from toolplug.part_protocols.approvals import NO_APPROVALS, HostApprovals, PartApprovals, RevokedGrant, Ticket
from toolplug.part_protocols.host_part import HostPart, PartServices, RunningPart
from toolplug.providers.authoring import route, tool
from toolplug.providers.entry import ProviderRecord
from toolplug.providers.offering.decorators import prompt, resource
from toolplug.providers.offering.definitions import (
    ConsolePage,
    OpenToolsetSource,
    Prompt,
    PromptArgument,
    Resource,
    ToolsetLink,
    ToolsetSource,
)
from toolplug.providers.provider import FunctionProvider, SignInEndpoints
from toolplug.providers.registry import FunctionRegistry
from toolplug.providers.routes import BoundRoute
from toolplug.providers.site import ProviderContext, ProviderStore
from toolplug.search.conversation import ConversationTools
from toolplug.toolsets.saved.saved_toolset import Caller, ToolReference
from toolplug.toolsets.saved.service import SavedToolsets

__all__ = [
    "NO_APPROVALS",
    "BoundRoute",
    "CallContext",
    "CallSpan",
    "CallTracer",
    "CallableTools",
    "Caller",
    "CannotAsk",
    "Catalog",
    "ConfigError",
    "ConsolePage",
    "ConversationTools",
    "Egress",
    "Expansion",
    "ForeignTool",
    "ForeignTools",
    "FunctionProvider",
    "FunctionRegistry",
    "Host",
    "HostApprovals",
    "HostPart",
    "HostedItem",
    "McpExtension",
    "ModelTools",
    "NeedsApproval",
    "Note",
    "OpenToolsetSource",
    "PartApprovals",
    "PartServices",
    "Principal",
    "Prompt",
    "PromptArgument",
    "ProviderContext",
    "ProviderRecord",
    "ProviderStore",
    "Resource",
    "RevokedGrant",
    "RunningPart",
    "SavedToolsets",
    "Sealer",
    "SignInEndpoints",
    "StoreError",
    "TenantOption",
    "Ticket",
    "ToolCall",
    "ToolDefinition",
    "ToolError",
    "ToolExecutor",
    "ToolHints",
    "ToolReference",
    "ToolResult",
    "ToolStatus",
    "ToolUnavailable",
    "ToolsetLink",
    "ToolsetSource",
    "UnmatchedStub",
    "UserAnswer",
    "WouldRefuse",
    "checked_transport",
    "current_tenant",
    "expand_builtin_tools",
    "foreign_definition",
    "hookimpl",
    "hookspec",
    "import_object",
    "merged",
    "open_catalog",
    "open_host",
    "prompt",
    "read_section",
    "resource",
    "route",
    "state_folder",
    "tool",
]
