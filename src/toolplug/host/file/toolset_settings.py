"""The shape of `toolsets:` and `agents:` (CONTRACT.md sections 2 and 7)."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, model_validator
from pydantic_core import PydanticCustomError

from toolplug.config.shape_error import shape_error
from toolplug.execution.knobs import NO_LIMITS, Limits
from toolplug.host.file.part import Part

PROVIDER = "provider:"
MCP = "mcp:"

Scope = Literal["shared", "session"]


def split_source(text: str) -> tuple[str, str] | None:
    """`provider:` or `mcp:`, and the key or id after it; None for text that is neither."""
    for kind in (PROVIDER, MCP):
        if text.startswith(kind) and text != kind:
            return kind, text.removeprefix(kind)
    return None


def _source(text: str) -> str:
    if split_source(text) is None:
        raise shape_error(f"{PROVIDER} and the key of a provider or {MCP} and the id of an MCP server")
    return text


def _of_calls(limits: Limits) -> Limits:
    if limits.drain is not None:
        raise PydanticCustomError("drain_of_provider", "drain is set at the provider: it is how long its calls may end")
    return limits


class ToolsetSettings(Part):
    """One toolset: the tools of a provider or of an MCP server under a prefix."""

    prefix: Annotated[
        str, Field(pattern="^[a-z][a-z0-9_-]{0,31}$", description="the tools are called prefix.tool; used once")
    ]
    source: Annotated[
        str,
        AfterValidator(_source),
        Field(alias="from", description="provider:KEY or mcp:ID, an entry of providers or of mcp_servers"),
    ]
    scope: Annotated[Scope, Field(description="session: each session has a connection of its own, for mcp:")] = "shared"
    limits: Annotated[
        Limits,
        AfterValidator(_of_calls),
        Field(description="for its tools together, between the provider's limits and each tool's own; no drain"),
    ] = NO_LIMITS

    @model_validator(mode="after")
    def _one_provider_for_all(self) -> Self:
        if self.scope == "session" and self.source.startswith(PROVIDER):
            raise PydanticCustomError(
                "provider_is_shared",
                "scope must be shared: a provider runs once, for every session; a toolset that is made for each session"
                " is that of an MCP server, or registered by code, with a factory",
            )
        return self

    @property
    def origin(self) -> tuple[str, str]:
        """`provider:` and a provider's key, or `mcp:` and a server's id."""
        found = split_source(self.source)
        assert found is not None, "it was checked"
        return found


class AgentSettings(Part):
    """One agent: the toolsets that it may use."""

    toolsets: Annotated[
        tuple[str, ...], Field(strict=False, description="ids, in the order in which a model sees them; none: no tools")
    ] = ()
