"""What goes over the wire under `/api/agents` and `/api/toolset-bindings`."""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import BaseModel, ConfigDict, Field

from toolplug.host.file.toolset_settings import Scope
from toolplug.http.wire_models import MAX_TOOLSETS


class _Body(BaseModel):
    model_config: ClassVar[ConfigDict] = ConfigDict(extra="forbid", strict=True, frozen=True)


class AllowlistBody(_Body):
    """The toolsets of an agent, in place of those that it had."""

    toolsets: Annotated[
        list[str], Field(max_length=MAX_TOOLSETS, description="ids, in the order in which a model sees them")
    ]


class AllowlistAnswer(BaseModel):
    """The toolsets that an agent may use, and the line or the request that says so."""

    agent: str
    toolsets: list[str]
    origin: str


class BindingBody(_Body):
    """A toolset: the tools of a provider or of an MCP server under a prefix."""

    prefix: Annotated[str, Field(description="the tools are called prefix.tool; used once")]
    source: Annotated[str, Field(alias="from", description="provider:KEY or mcp:ID")]
    scope: Annotated[Scope, Field(description="session: a connection for each session, for mcp:")] = "shared"


class BindingAnswer(BaseModel):
    """A toolset as it is bound now."""

    id: str
    prefix: str
    source: Annotated[str, Field(alias="from")]
    scope: Scope
