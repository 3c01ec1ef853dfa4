"""The credential of one caller for one entry with `user_auth`, from where the entry says."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Self

from toolplug.catalog.call import CallContext, Credentials
from toolplug.errors import CREDENTIAL_NEEDED, ToolUnavailable
from toolplug.execution.user_auth import AuthOwner, HostCredentials, UserAuth
from toolplug.host.file.configuration import Configuration
from toolplug.host.file.tool_servers import KIND as SERVER
from toolplug.net.egress import Egress
from toolplug.parts.credentials.oauth import OAuthCredentials
from toolplug.providers.host_part import PartServices, RunningPart
from toolplug.providers.planning import KIND as PROVIDER

HEADER = "X-Toolplug-Credential-"
"""What a header begins with that carries a caller's credential; its name follows."""
PURPOSE = "credentials"
"""For what the host's key seals."""


class RunningCredentials(RunningPart[None]):
    """The credentials of a host."""

    def __init__(self, services: PartServices) -> None:
        self.credentials: HostCredentials | None = self
        self._configuration = services.configuration
        self.oauth: OAuthCredentials = OAuthCredentials(services.store, lambda: services.sealing(PURPOSE), self._egress)

    @classmethod
    async def open(cls, services: PartServices) -> Self:
        """Return the credentials. Raises `HostKeyError` where users sign in and the host has no key."""
        if any(auth.oauth is not None for _, auth in entries_of(services.configuration()).values()):
            await services.sealing(PURPOSE)
        return cls(services)

    def configure(self, settings: None) -> None:
        """Do nothing: it has no settings."""

    async def aclose(self) -> None:
        """Close nothing: connections to issuers are closed after each use."""

    def _egress(self) -> Egress:
        return Egress(self._configuration().settings.egress.allow)

    def entries(self) -> Mapping[str, tuple[AuthOwner, UserAuth]]:
        """Return every entry with `user_auth` by its name: those of providers first, then servers."""
        return entries_of(self._configuration())

    async def credential(self, owner: AuthOwner, auth: UserAuth, context: CallContext, refused: str = "") -> str:
        """Return the credential of this caller. Raises `ToolUnavailable`, which says what the caller has to do."""
        if auth.oauth is None:
            return _find_brought(owner, auth, context, refused)
        base = self.base_of(context.credentials)
        return await self.oauth.credential(owner, auth.oauth, context.principal, base, refused)

    def base_of(self, credentials: Mapping[str, str]) -> str:
        """Return the URL that the browser of a caller finds the host by; empty if that is not known.

        `http.public_url`, else the port of a request that has come over the loopback.
        """
        public = self._configuration().settings.http.public_url
        if public is not None:
            return public
        asked = credentials.request.get(b"host", b"").decode("latin-1") if isinstance(credentials, Credentials) else ""
        name, _, port = asked.rpartition(":")
        return f"http://127.0.0.1:{port}" if port.isdecimal() and name in _LOOPBACK else ""


def entries_of(configuration: Configuration) -> Mapping[str, tuple[AuthOwner, UserAuth]]:
    """Return every entry with `user_auth` by its name: those of providers, then those of MCP servers."""
    found: dict[str, tuple[AuthOwner, UserAuth]] = {}
    for key, wanted in configuration.providers.wanted.items():
        if wanted.build is not None and wanted.entry.user_auth is not None:
            found[key] = AuthOwner(PROVIDER, key), wanted.entry.user_auth
    for key, server in configuration.servers.servers.items():
        auth = server.user_auth
        if server.enabled and auth is not None:
            found.setdefault(key, (AuthOwner(SERVER, key, server.url), auth))
    return found


_LOOPBACK = {"localhost", "127.0.0.1", "[::1]"}


def _find_brought(owner: AuthOwner, auth: UserAuth, context: CallContext, refused: str) -> str:
    name = auth.given_name
    header = f"{HEADER}{name}"
    given = context.credentials.get(name, "")
    if given and given != refused and given.isascii() and given.isprintable():
        return given
    if not given:
        reason = f"it acts as its caller, who has to send a credential as the header {header}"
    elif given == refused:
        reason = f"{owner.key} refuses the credential of the header {header}; send another one"
    else:
        reason = f"the header {header} has characters that cannot be passed on: printable ASCII can"
    raise ToolUnavailable(reason, code=CREDENTIAL_NEEDED, metadata={"credential": {"header": header}})
