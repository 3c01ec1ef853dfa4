"""The shape of `toolsets:` and `agents:` (CONTRACT.md sections 2 and 7)."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, model_validator
from pydantic_core import PydanticCustomError

from toolplug.config.not_built import not_built
from toolplug.config.shape_error import shape_error
from toolplug.execution.knobs import NO_LIMITS, Limits
from toolplug.host.part import Part

PROVIDER = "provider:"
MCP = "mcp:"

Scope = Literal["shared", "session"]


def _source(text: str) -> str:
    if text.startswith(MCP):
        raise not_built(f"{MCP} needs MCP servers, which this version of toolplug does not have; use {PROVIDER}KEY")
    if not text.removeprefix(PROVIDER) or not text.startswith(PROVIDER):
        raise shape_error(f"{PROVIDER} and the key of a provider")
    return text


def _of_calls(limits: Limits) -> Limits:
    if limits.drain is not None:
        raise PydanticCustomError("drain_of_provider", "drain is set at the provider: it is how long its calls may end")
    return limits


class ToolsetSettings(Part):
    """One toolset: the tools of a provider under a prefix."""

    prefix: Annotated[
        str, Field(pattern="^[a-z][a-z0-9_-]{0,31}$", description="the tools are called prefix.tool; used once")
    ]
    source: Annotated[
        str, AfterValidator(_source), Field(alias="from", description="provider:KEY, the key of an entry of providers")
    ]
    scope: Annotated[Scope, Field(description="shared; session comes with MCP servers")] = "shared"
    limits: Annotated[
        Limits,
        AfterValidator(_of_calls),
        Field(description="for its tools together, between the provider's limits and each tool's own; no drain"),
    ] = NO_LIMITS

    @model_validator(mode="after")
    def _one_provider_for_all(self) -> Self:
        if self.scope == "session":
            raise PydanticCustomError(
                "provider_is_shared",
                "scope must be shared: a provider runs once, for every session; a toolset that is made for each session"
                " is registered by code, with a factory",
            )
        return self

    @property
    def provider(self) -> str:
        """The key of the provider."""
        return self.source.removeprefix(PROVIDER)


class AgentSettings(Part):
    """One agent: the toolsets that it may use."""

    toolsets: Annotated[
        tuple[str, ...], Field(strict=False, description="ids, in the order in which a model sees them; none: no tools")
    ] = ()
