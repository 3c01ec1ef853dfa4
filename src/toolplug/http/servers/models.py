"""What goes over the wire under `/api/mcp-servers` and `/api/catalog`: camelCase, as CONTRACT.md section 8 has it."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator, Field
from pydantic.json_schema import SkipJsonSchema

from toolplug.discovery.record import Status
from toolplug.execution.plans import Policy, ToolRule
from toolplug.host.file.server_entries import LONGEST_DISCOVERY_S
from toolplug.host.file.settings import of_one_tool, rule
from toolplug.host.servers.view import Source
from toolplug.http.json_body import CamelAnswer, CamelBody
from toolplug.http.wire_models import absent

MAX_TOOL_NAMES = 1000

JsonObject = dict[str, object]

_Headers = Annotated[dict[str, str], Field(description="sent with every request; never shown again")]
_Enabled = Annotated[bool, Field(description="false: never reached, no tools")]
_Rules = Annotated[
    dict[
        str,
        Annotated[
            ToolRule, BeforeValidator(rule, json_schema_input_type=ToolRule | Policy), AfterValidator(of_one_tool)
        ],
    ],
    Field(description="rules by the server's own names: a policy, or policy, limits and tenants"),
]
_Timeout = Annotated[
    int, Field(ge=1, le=int(LONGEST_DISCOVERY_S * 1000), description="how long listing its tools may take")
]


class AddServerBody(CamelBody):
    """A server for the caller's tenant, reached over Streamable HTTP. A command is never taken over HTTP."""

    id: Annotated[str, Field(description="a lower-case letter, then up to 63 of a-z 0-9 _ -")]
    url: Annotated[str, Field(description="of its Streamable HTTP endpoint; public, or listed under egress.allow")]
    headers: _Headers = {}  # noqa: RUF012  pydantic copies it, and the model is frozen
    enabled: _Enabled = True
    policy: Annotated[Policy, Field(description="of the tools that tools says nothing of")] = "ask"
    tools: _Rules = {}  # noqa: RUF012  as above
    discovery_timeout_ms: _Timeout = 30_000


class ChangeServerBody(CamelBody):
    """What is to be changed, each part whole; what is left out stays. Of the file's servers: tools and enabled."""

    url: Annotated[str, Field(json_schema_extra=absent)] = ""
    headers: Annotated[_Headers, Field(json_schema_extra=absent)] = {}  # noqa: RUF012  as above
    enabled: Annotated[_Enabled, Field(json_schema_extra=absent)] = True
    policy: Annotated[Policy, Field(json_schema_extra=absent)] = "ask"
    tools: Annotated[_Rules, Field(json_schema_extra=absent)] = {}  # noqa: RUF012  as above
    discovery_timeout_ms: Annotated[_Timeout, Field(json_schema_extra=absent)] = 30_000


class AcceptBody(CamelBody):
    """The quarantined tools whose new definitions are accepted."""

    tools: list[str] | None = Field(
        None, max_length=MAX_TOOL_NAMES, description="by the server's own names; all when absent"
    )


class TransportAnswer(CamelAnswer):
    """How the server is reached, with `***` in place of what could be a secret. For the scope `admin` alone."""

    command: Annotated[str | SkipJsonSchema[None], Field(json_schema_extra=absent)] = None
    args: Annotated[list[str] | SkipJsonSchema[None], Field(json_schema_extra=absent)] = None
    env: Annotated[dict[str, str] | SkipJsonSchema[None], Field(json_schema_extra=absent)] = None
    url: Annotated[str | SkipJsonSchema[None], Field(json_schema_extra=absent)] = None
    headers: Annotated[dict[str, str] | SkipJsonSchema[None], Field(json_schema_extra=absent)] = None
    oauth: Annotated[JsonObject | SkipJsonSchema[None], Field(json_schema_extra=absent)] = None


class FoundToolAnswer(CamelAnswer):
    """A tool as it was found last, with what was cut from its definition at the door."""

    name: Annotated[str, Field(description="the server's own")]
    description: str
    input_schema: JsonObject
    output_schema: Annotated[JsonObject | SkipJsonSchema[None], Field(json_schema_extra=absent)] = None
    policy: Policy
    cut: Annotated[list[str], Field(description="what was removed, each as `/path: why`")]
    quarantined: Annotated[bool, Field(description="its definition has changed, and nobody has accepted it yet")]


class ServerAnswer(CamelAnswer):
    """A server, and what was found when its tools were listed last."""

    id: str
    source: Source
    enabled: bool
    policy: Policy
    pin: Annotated[bool, Field(description="is a tool quarantined when its definition changes")]
    tool_policies: Annotated[dict[str, Policy], Field(description="of tools with a policy of their own")]
    transport: TransportAnswer | SkipJsonSchema[None] = Field(
        None, description="for admin alone", json_schema_extra=absent
    )
    status: Status
    tools: list[FoundToolAnswer]
    last_discovery: str | None
    error: str | None
    config_hash: Annotated[str, Field(description="equal for configurations that reach the same server")]
    stale: Annotated[bool, Field(description="the tools are those of an earlier discovery")]
    next_retry: str | None
    left_out: Annotated[list[str], Field(description="listed tools that are not among these, and why")]


class ServerList(CamelAnswer):
    """The tenant's servers: those of the file, then those added over HTTP."""

    servers: list[ServerAnswer]


class ToolInfo(CamelAnswer):
    """One tool of the catalog for people."""

    name: Annotated[str, Field(description="what a call names; server/tool where no toolset exposes it")]
    description: str
    type: Literal["native", "mcp", "session", "remote"]
    server: Annotated[str | SkipJsonSchema[None], Field(json_schema_extra=absent)] = None
    toolset: Annotated[str | SkipJsonSchema[None], Field(json_schema_extra=absent)] = None
    callable: bool
    configured_policy: Policy
    discovery_status: Annotated[Status | None, Field(description="of its server")]
    last_discovered: str | None
    stale: Annotated[bool, Field(description="the server has not said so lately")]


class CatalogAnswer(CamelAnswer):
    """Every tool that there is for the caller."""

    tools: list[ToolInfo]
