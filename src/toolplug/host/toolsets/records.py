"""Stored records of tenants' allowlists and toolsets, and the checks of requests that change them.

`allowlist/<hash of tenant and agent>`  the toolsets of an agent
`toolset/<hash of tenant and id>`       a toolset
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Literal, NamedTuple

from toolplug.catalog.definition import Offer
from toolplug.config.nearest import name_hint
from toolplug.config.units import FileMapping
from toolplug.errors import ApiError
from toolplug.host.file.settings import MCP, PROVIDER, Scope, split_source
from toolplug.host.file.toolset_entries import AGENT_RULE, is_agent_id
from toolplug.toolsets.registered import Allowlist


class Binding(NamedTuple):
    """A toolset in a request; `source` is `provider:KEY` or `mcp:ID`, and `offer` None, as in the configuration."""

    prefix: str
    source: str
    scope: Scope = "shared"
    offer: Offer | None = None


def check_agent(agent: str) -> None:
    """Raise `ApiError` for an invalid agent id."""
    if not is_agent_id(agent):
        raise ApiError("invalid_agent", f"{agent!r} is no agent id; {AGENT_RULE} are allowed", param="id")


def check_toolsets(toolsets: Collection[str], known: Collection[str]) -> None:
    """Raise `ApiError` for an unknown toolset, with the nearest id."""
    for index, name in enumerate(toolsets):
        if name not in known:
            raise ApiError("unknown_toolset", no_such("toolset", name, known), param=f"toolsets[{index}]")


def check_source(binding: Binding, providers: Collection[str], servers: Collection[str]) -> None:
    """Raise `ApiError` for an unknown source, and for a scope that the source cannot have."""
    kind, key = split_source(binding.source) or ("", binding.source)
    if kind == MCP:
        if key not in servers:
            raise ApiError("unknown_server", no_such("MCP server", key, servers), param="from")
        return
    if kind != PROVIDER:
        message = f"from should be {PROVIDER} and the key of a provider or {MCP} and the id of an MCP server"
        raise ApiError("unknown_provider", message, param="from")
    if key not in providers:
        raise ApiError("unknown_provider", no_such("provider", key, providers), param="from")
    if binding.scope != "shared":
        message = "scope must be shared: a provider runs once, for every session"
        raise ApiError("provider_is_shared", message, param="scope")


def no_such(what: str, name: str, known: Collection[str]) -> str:
    """Return the message that a name is unknown, with the nearest known one."""
    hint = name_hint(name, known)
    return f"there is no {what} {name!r}" + (f" ({hint})" if hint else "")


ALLOWLISTS = "allowlist/"
BINDINGS = "toolset/"

Way = Literal["http", "cli"]
_WAYS: dict[Way, str] = {"http": "PUT /api/agents/{}/toolsets by {}", "cli": "toolplug agents ({}) by {}"}


class AllowlistRecord(FileMapping):
    """The toolsets of a tenant's agent, with the subject and the way of the last change."""

    tenant: str
    agent: str
    toolsets: list[str]
    by: str
    way: Way = "http"

    @property
    def allowlist(self) -> Allowlist:
        """The allowlist that executors use, with the change as its origin."""
        return Allowlist(tuple(self.toolsets), _WAYS[self.way].format(self.agent, self.by))


class BindingRecord(FileMapping):
    """A toolset of one tenant; `source` is `provider:KEY` or `mcp:ID`."""

    tenant: str
    id: str
    prefix: str
    source: str
    scope: Scope = "shared"
    offer: Offer | None = None
    by: str
