"""The shape of one entry of `mcp_servers:` (CONTRACT.md sections 2 and 8)."""

from __future__ import annotations

from typing import Annotated, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, Field, SecretStr, model_validator
from pydantic_core import PydanticCustomError

from toolplug.config.shape_error import shape_error
from toolplug.config.units import Duration
from toolplug.execution.knobs import NO_LIMITS, Limits
from toolplug.execution.tool_rule import Policy, ToolRule
from toolplug.host.file.part import Part
from toolplug.host.file.sent_header import is_header
from toolplug.host.file.tool_rules import acting, of_one_tool, rule

LONGEST_DISCOVERY_S = 600.0


def _text_of_number(value: object) -> object:
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


_Text = Annotated[str, BeforeValidator(_text_of_number, json_schema_input_type=str | int)]
_Secret = Annotated[SecretStr, BeforeValidator(_text_of_number, json_schema_input_type=str | int)]


def _sendable(headers: dict[str, SecretStr]) -> dict[str, SecretStr]:
    for name, value in headers.items():
        if not is_header(name, value.get_secret_value()):
            raise PydanticCustomError(
                "no_header",
                "{name} cannot be sent: a name is one word, a value one line of ASCII",
                {"name": repr(name[:80])},
            )
    return headers


def _with_host(url: str) -> str:
    try:
        host = urlsplit(url).hostname
    except ValueError:
        host = None
    if not host:
        raise shape_error("an http or https address with a host")
    return url


class OAuthSettings(Part):
    """How a token for the server is fetched: OAuth 2.1 with client credentials."""

    client_id: Annotated[str, Field(min_length=1)]
    client_secret: Annotated[SecretStr, Field(description="best as ${NAME}; or client_secret_file")]
    scope: Annotated[str | None, Field(description="the scopes to ask for, separated by spaces")] = None
    issuer: Annotated[
        str | None, Field(pattern="^https?://", description="the authorization server; none: the one that it names")
    ] = None


class McpServerSettings(Part):
    """One MCP server: either a command that is started, or a URL that is asked."""

    command: Annotated[str | None, Field(min_length=1, description="the program; no shell reads it")] = None
    args: Annotated[tuple[_Text, ...], Field(strict=False)] = ()
    env: Annotated[dict[str, _Secret], Field(description="added to the few variables that every child gets")] = {}  # noqa: RUF012  pydantic copies it, and the model is frozen
    cwd: Annotated[str | None, Field(description="relative to the folder of this file, which it is by default")] = None
    url: Annotated[
        Annotated[str, Field(pattern="^https?://"), AfterValidator(_with_host)] | None,
        Field(description="of its Streamable HTTP endpoint"),
    ] = None
    headers: Annotated[dict[str, _Secret], AfterValidator(_sendable), Field(description="sent with every request")] = {}  # noqa: RUF012  as above
    oauth: OAuthSettings | None = None
    enabled: Annotated[bool, Field(description="false: never started, no tools")] = True
    discovery_timeout: Annotated[
        Duration, Field(gt=0, le=LONGEST_DISCOVERY_S, description="how long listing its tools may take")
    ] = 30.0
    policy: Annotated[Policy, Field(description="of the tools that tools says nothing of")] = "allow"
    pin: Annotated[bool, Field(description="quarantine a tool whose definition has changed until it is accepted")] = (
        False
    )
    limits: Annotated[Limits, AfterValidator(acting)] = NO_LIMITS
    tools: Annotated[
        dict[
            str,
            Annotated[
                ToolRule, BeforeValidator(rule, json_schema_input_type=ToolRule | Policy), AfterValidator(of_one_tool)
            ],
        ],
        Field(description="rules by the server's own names: a policy, or policy, limits and tenants"),
    ] = {}  # noqa: RUF012  as above

    @model_validator(mode="after")
    def _one_transport(self) -> Self:
        if (self.command is None) == (self.url is None):
            raise PydanticCustomError("one_transport", "must have exactly one of command and url")
        if self.command is None and (self.args or self.env or self.cwd is not None):
            raise PydanticCustomError("of_command", "args, env and cwd are for a command; a url has headers and oauth")
        if self.url is None and (self.headers or self.oauth is not None):
            raise PydanticCustomError("of_url", "headers and oauth are for a url; a command has args, env and cwd")
        return self
