"""How a server is reached, as its configuration says."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

_NONE: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """A process that is started and spoken to over its standard input and output.

    `env` is added to the few variables that every child gets; `cwd` None: the folder of the configuration.
    """

    command: str
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=lambda: _NONE, repr=False)
    cwd: Path | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientCredentials:
    """How a token for a server is fetched: OAuth 2.1, grant `client_credentials`.

    `issuer` None: the authorization server that the MCP server names.
    """

    client_id: str
    client_secret: str = field(repr=False)
    scope: str | None = None
    issuer: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """A server that is reached over Streamable HTTP.

    `headers` go with every request; nothing of a caller's own credentials ever does. A URL that is `trusted` stands in
    the operator's file and is allowed as written; any other must be public, or listed under `egress.allow`.
    """

    url: str
    headers: Mapping[str, str] = field(default_factory=lambda: _NONE, repr=False)
    oauth: ClientCredentials | None = None
    trusted: bool = False


Transport = Command | Endpoint
