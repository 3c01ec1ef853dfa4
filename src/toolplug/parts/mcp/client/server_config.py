"""The configuration of an MCP server: its transport, and the rules for its tools."""

from __future__ import annotations

import hmac
import os
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from shutil import which
from types import MappingProxyType

from toolplug.catalog.definition import ALWAYS, Offer, Offered
from toolplug.config.units import DEFAULT_ORIGIN
from toolplug.execution.plans import DEFAULT_POLICY, NO_RULE, Policy, ToolRule
from toolplug.execution.resolved_limits import NO_LIMITS, Limits
from toolplug.execution.user_auth import UserAuth
from toolplug.parts.mcp.discovery.record import ServerName
from toolplug.signatures.values import canonical

ADDED = "_added"
"""In metrics, the servers that tenants have added, and their tools: their names are not ours."""

_NONE: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """A process that talks over its standard input and output.

    `env` is added to the few variables that each child gets; `cwd` None is the folder of the configuration.
    """

    command: str
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=lambda: _NONE, repr=False)
    cwd: Path | None = None


def is_command_line(command: str) -> bool:
    """Return whether a command that does not exist is a program with its arguments, written as for a shell.

    A path may have blanks, so one is a command line only if its first word is a program.
    """
    program, *arguments = command.split() or [""]
    return bool(arguments) and (not os.path.dirname(program) or which(program) is not None)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientCredentials:
    """OAuth 2.1, grant `client_credentials`. `issuer` None is the authorization server that the MCP server names."""

    client_id: str
    client_secret: str = field(repr=False)
    scope: str | None = None
    issuer: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """A server over Streamable HTTP.

    `headers` are sent with each request. With `user_auth` they, and `oauth`, serve the list of tools alone: requests of
    callers carry their own credentials; the connection that they share, or that one has, is `of_user`. `listens`: what
    the server announces is followed. A `trusted` URL is in the operator's file and is allowed as written; any other
    must be public or listed under `egress.allow`.
    """

    url: str
    headers: Mapping[str, str] = field(default_factory=lambda: _NONE, repr=False)
    oauth: ClientCredentials | None = None
    user_auth: UserAuth | None = None
    of_user: bool = False
    listens: bool = True
    trusted: bool = False


Transport = Command | Endpoint

_NO_RULES: Mapping[str, ToolRule] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Server:
    """One server. `policy`, `offer` and `limits` apply to all its tools; `tools` has rules of some, by its own names.

    `discovery_timeout_s` limits the start and the listing of its tools; `rediscover_s` is the maximum age of its list,
    None for no limit. With a `prefix`, its tools are in all catalogs without an agent. `origin` returns the place of a
    key of the entry by its path: `origin("tools", "get_time", "policy")`. `locked` are the digests of the tools that
    may be called; with None each may.
    """

    name: ServerName
    transport: Transport
    enabled: bool = True
    discovery_timeout_s: float = 30.0
    rediscover_s: float | None = None
    pin: bool = False
    locked: Mapping[str, str] | None = None
    prefix: str | None = None
    policy: Policy = DEFAULT_POLICY
    offer: Offer = "always"
    tools: Mapping[str, ToolRule] = field(default_factory=lambda: _NO_RULES)
    limits: Limits = NO_LIMITS
    origin: Callable[..., str] = lambda *_: DEFAULT_ORIGIN

    @property
    def id(self) -> str:
        """The id, which is unique in a tenant."""
        return self.name.id

    @property
    def url(self) -> str:
        """Its endpoint; empty for a command."""
        return self.transport.url if isinstance(self.transport, Endpoint) else ""

    @property
    def user_auth(self) -> UserAuth | None:
        """How callers act as themselves at it; None if they do not."""
        return self.transport.user_auth if isinstance(self.transport, Endpoint) else None

    def rule(self, tool: str) -> ToolRule:
        return self.tools.get(tool, NO_RULE)

    def offer_for(self, tool: str) -> Offered:
        """Return how models are offered one tool."""
        of_all = ALWAYS if self.offer == "always" else Offered(self.offer, self.origin("offer"))
        return self.rule(tool).offer_for(lambda key: self.origin("tools", tool, key), of_all)

    def policy_of(self, tool: str) -> Policy:
        """Return the effective policy of one tool."""
        return self.rule(tool).policy or self.policy


def config_hash(server: Server, key: bytes) -> str:
    """Return a hash that is equal for configurations which start or reach the same server.

    It reveals no secret without the key. The order of variables and headers, rules, limits, timeouts and `enabled` do
    not change it (docs/reference/discovery.md).
    """
    transport = server.transport
    if isinstance(transport, Command):
        cwd = None if transport.cwd is None else str(transport.cwd)
        reached: list[object] = ["stdio", transport.command, list(transport.args), dict(transport.env), cwd]
    else:
        headers = {name.lower(): value for name, value in transport.headers.items()}
        oauth = None if transport.oauth is None else asdict(transport.oauth)
        reached = ["http", transport.url, headers, oauth]
    return hmac.digest(key, canonical(reached), "sha256").hex()
