"""What is asked of toolsets and allowlists while a host runs, and whether it can be."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from toolplug.config.nearest import name_hint
from toolplug.errors import ToolsetRefused
from toolplug.host.file.toolset_entries import AGENT_RULE, is_agent_id
from toolplug.host.file.toolset_settings import MCP, PROVIDER, Scope, split_source


class Binding(NamedTuple):
    """A toolset as it is asked for over HTTP; `source` as in the configuration: `provider:KEY` or `mcp:ID`."""

    prefix: str
    source: str
    scope: Scope = "shared"


def check_agent(agent: str) -> None:
    """Raise `ToolsetRefused` for what no agent can be called."""
    if not is_agent_id(agent):
        raise ToolsetRefused("invalid_agent", f"{agent!r} is no agent id; {AGENT_RULE} are allowed", param="id")


def check_toolsets(toolsets: Collection[str], known: Collection[str]) -> None:
    """Raise `ToolsetRefused` for a toolset that is not known, with the nearest."""
    for index, name in enumerate(toolsets):
        if name not in known:
            hint = name_hint(name, known)
            message = f"there is no toolset {name!r}" + (f" ({hint})" if hint else "")
            raise ToolsetRefused("unknown_toolset", message, param=f"toolsets[{index}]")


def check_source(binding: Binding, providers: Collection[str], servers: Collection[str]) -> None:
    """Raise `ToolsetRefused` for a source that is none of these, or a scope that it cannot have."""
    kind, key = split_source(binding.source) or ("", binding.source)
    if kind == MCP:
        if key not in servers:
            raise ToolsetRefused("unknown_server", no_such("MCP server", key, servers), param="from")
        return
    if kind != PROVIDER:
        message = f"from should be {PROVIDER} and the key of a provider or {MCP} and the id of an MCP server"
        raise ToolsetRefused("unknown_provider", message, param="from")
    if key not in providers:
        raise ToolsetRefused("unknown_provider", no_such("provider", key, providers), param="from")
    if binding.scope != "shared":
        message = "scope must be shared: a provider runs once, for every session"
        raise ToolsetRefused("provider_is_shared", message, param="scope")


def no_such(what: str, name: str, known: Collection[str]) -> str:
    """That there is none, with the nearest that there is."""
    hint = name_hint(name, known)
    return f"there is no {what} {name!r}" + (f" ({hint})" if hint else "")
