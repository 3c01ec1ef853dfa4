"""The public names of the package, each imported from its module at its first use.

Importing the package is fast, and using one part imports no other. Type checkers read the same list in `__init__.pyi`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from importlib import import_module

HOMES = {
    "CallContext": "toolplug.catalog.call",
    "CallSpan": "toolplug.catalog.plan",
    "CallTracer": "toolplug.catalog.plan",
    "CallableTools": "toolplug.host.tool_infos",
    "Caller": "toolplug.toolsets.saved.saved_toolset",
    "CannotAsk": "toolplug.catalog.call",
    "Catalog": "toolplug.catalog.catalog",
    "BoundRoute": "toolplug.providers.routes",
    "ConfigError": "toolplug.errors",
    "ConsolePage": "toolplug.providers.offering.definitions",
    "ConversationTools": "toolplug.search.conversation",
    "Egress": "toolplug.net.egress",
    "Expansion": "toolplug.model_apis.stubs",
    "ForeignTool": "toolplug.integrations.foreign_tools",
    "ForeignTools": "toolplug.integrations.foreign_tools",
    "FunctionProvider": "toolplug.providers.provider",
    "FunctionRegistry": "toolplug.providers.registry",
    "Host": "toolplug.host.host",
    "HostApprovals": "toolplug.part_protocols.approvals",
    "HostPart": "toolplug.part_protocols.host_part",
    "HostedItem": "toolplug.catalog.definition",
    "McpExtension": "toolplug.mcp_extensions",
    "ModelTools": "toolplug.execution.executor",
    "NO_APPROVALS": "toolplug.part_protocols.approvals",
    "NeedsApproval": "toolplug.catalog.plan",
    "Note": "toolplug.catalog.definition",
    "OpenToolsetSource": "toolplug.providers.offering.definitions",
    "PartApprovals": "toolplug.part_protocols.approvals",
    "PartServices": "toolplug.part_protocols.host_part",
    "Principal": "toolplug.catalog.call",
    "Prompt": "toolplug.providers.offering.definitions",
    "PromptArgument": "toolplug.providers.offering.definitions",
    "ProviderContext": "toolplug.providers.site",
    "ProviderRecord": "toolplug.providers.entry",
    "ProviderStore": "toolplug.providers.site",
    "Resource": "toolplug.providers.offering.definitions",
    "RevokedGrant": "toolplug.part_protocols.approvals",
    "RunningPart": "toolplug.part_protocols.host_part",
    "SavedToolsets": "toolplug.toolsets.saved.service",
    "Sealer": "toolplug.host.keys",
    "SignInEndpoints": "toolplug.providers.provider",
    "StoreError": "toolplug.errors",
    "TenantOption": "toolplug.cli.options",
    "Ticket": "toolplug.part_protocols.approvals",
    "ToolCall": "toolplug.catalog.call",
    "ToolDefinition": "toolplug.catalog.definition",
    "ToolError": "toolplug.errors",
    "ToolExecutor": "toolplug.execution.executor",
    "ToolHints": "toolplug.catalog.definition",
    "ToolReference": "toolplug.toolsets.saved.saved_toolset",
    "ToolResult": "toolplug.catalog.call",
    "ToolStatus": "toolplug.catalog.call",
    "ToolUnavailable": "toolplug.errors",
    "ToolsetLink": "toolplug.providers.offering.definitions",
    "ToolsetSource": "toolplug.providers.offering.definitions",
    "UnmatchedStub": "toolplug.errors",
    "UserAnswer": "toolplug.catalog.call",
    "WouldRefuse": "toolplug.catalog.plan",
    "checked_transport": "toolplug.net.checked_transport",
    "current_tenant": "toolplug.catalog.call",
    "expand_builtin_tools": "toolplug.model_apis.stubs",
    "foreign_definition": "toolplug.foreign.definitions",
    "hookimpl": "toolplug.hookspecs",
    "hookspec": "toolplug.hookspecs",
    "import_object": "toolplug.foreign.named_objects",
    "merged": "toolplug.catalog.catalog",
    "open_catalog": "toolplug.execution.executor",
    "open_host": "toolplug.host.host",
    "prompt": "toolplug.providers.offering.decorators",
    "read_section": "toolplug.cli.plugin_commands",
    "resource": "toolplug.providers.offering.decorators",
    "route": "toolplug.providers.authoring",
    "state_folder": "toolplug.cli.plugin_commands",
    "tool": "toolplug.providers.authoring",
}

OF_EXTRAS = frozenset({"TenantOption", "checked_transport", "read_section", "state_folder"})
"""Names that need an extra. `from toolplug import *` leaves them out, so that it works without one."""

NAMES = [name for name in HOMES if name not in OF_EXTRAS]

_EXTRAS = {
    **dict.fromkeys(("json5", "rich", "typer"), "toolplug[cli]"),
    **dict.fromkeys(("httpx2", "tenacity"), "toolplug[client]"),
    **dict.fromkeys(("httpcore2", "mcp"), "toolplug[mcp]"),
    **dict.fromkeys(("aiosqlite",), "toolplug[sqlite]"),
    **dict.fromkeys(("pytest",), "toolplug[testing]"),
    **dict.fromkeys(("vcr",), "toolplug[recording]"),
}


def not_installed(error: ImportError, what: str, package: str = "") -> ImportError:
    """Return the error of something whose package is missing, with what installs it; `package`: for any of its modules.

    An error that names no package of an extra is returned as it is.
    """
    wanted = package or _EXTRAS.get((error.name or "").partition(".")[0], "")
    if not wanted:
        return error
    other = "" if isinstance(error, ModuleNotFoundError) else f", and the installed {error.name!r} is not it ({error})"
    return type(error)(f"{what} needs {wanted}{other}; pip install '{wanted}'", name=error.name, path=error.path)


def loader(package: str, homes: Mapping[str, str]) -> Callable[[str], object]:
    """Return the `__getattr__` of a package, for public names by their modules, and for `__all__` if it has none.

    It raises `AttributeError`, and `ModuleNotFoundError` with the extra to install.
    """

    # Once for each name: a module that asks for one of them does so at each call.
    @cache
    def load(name: str) -> object:
        if name == "__all__":  # `import *` asks for it
            return [*homes]
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        try:
            return getattr(import_module(homes[name]), name)
        except ModuleNotFoundError as error:
            raise not_installed(error, f"{package}.{name}") from None

    return load


def make_lister(package: str, names: Iterable[str]) -> Callable[[], list[str]]:
    """Return the `__dir__` of a package: its public names, loaded or not, and whatever else it has."""

    def list_names() -> list[str]:
        return sorted({*vars(sys.modules[package]), *names})

    return list_names


load: Callable[[str], object] = loader("toolplug", HOMES)
list_names: Callable[[], list[str]] = make_lister("toolplug", NAMES)
