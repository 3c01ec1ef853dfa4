"""The credential of one caller for one entry with `user_auth`, from where the entry says."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from importlib import import_module
from typing import Any, Self

from toolplug.catalog.call import CREDENTIAL_NEEDED, CallContext
from toolplug.errors import ToolUnavailable
from toolplug.execution.user_auth import AuthOwner, HostCredentials, UserAuth, url_for_browsers
from toolplug.host.file.user_auth_entries import list_user_auth
from toolplug.part_protocols.host_part import PartServices, RunningPart
from toolplug.parts.credentials.settings import CredentialSettings

HEADER = "X-Toolplug-Credential-"
"""What a header begins with that carries a caller's credential; its name follows."""
PURPOSE = "credentials"
"""For what the host's key seals."""


class RunningCredentials(RunningPart[CredentialSettings]):
    """The credentials of a host."""

    def __init__(self, services: PartServices) -> None:
        self.credentials: HostCredentials | None = self
        self._configuration = services.configuration
        self._services = services

    @classmethod
    async def open(cls, services: PartServices) -> Self:
        """Return the credentials. Raises `HostKeyError` where users sign in and the host has no key."""
        made = cls(services)
        if any(not auth.given_name for _, auth in made.entries().values()):
            await services.sealing(PURPOSE)
        return made

    @cached_property
    def tokens(self) -> Any:
        """The tokens, a `TokenService`, as `toolplug.parts.credentials.service.tokens_of` returns it."""
        return import_module("toolplug.parts.credentials.service").TokenService(self._services)

    def configure(self, settings: CredentialSettings | None) -> None:
        """Do nothing: the settings are read for each sign-in."""

    async def aclose(self) -> None:
        """Let renewals end; connections to issuers are closed after each use."""
        if "tokens" in self.__dict__:  # loaded at its first use
            await self.tokens.oauth.aclose()

    def entries(self) -> Mapping[str, tuple[AuthOwner, UserAuth]]:
        """Return every entry with `user_auth` by its name: those of providers first, then servers."""
        current = self._configuration()
        return list_user_auth(current.providers, current.servers)

    async def credential(self, owner: AuthOwner, auth: UserAuth, context: CallContext, refused: str = "") -> str:
        """Return the credential of this caller. Raises `ToolUnavailable`, which says what the caller has to do."""
        if auth.given_name:
            return _find_brought(owner, auth, context, refused)
        token: str = await self.tokens.credential(owner, auth, context, self.base_of(context.credentials), refused)
        return token

    def base_of(self, credentials: Mapping[str, str]) -> str:
        """Return the URL that the browser of a caller finds the host by; empty if that is not known."""
        return url_for_browsers(self._configuration().settings.http.public_url, credentials)


def _find_brought(owner: AuthOwner, auth: UserAuth, context: CallContext, refused: str) -> str:
    name = auth.given_name
    header = f"{HEADER}{name}"
    given = context.credentials.get(name, "")
    if given and given != refused and given.isascii() and given.isprintable() and given == given.strip():
        return given
    if not given:
        reason = f"it acts as its caller, who has to send a credential as the header {header}"
    elif given == refused:
        reason = f"{owner.key} refuses the credential of the header {header}; send another one"
    else:
        reason = f"the header {header} cannot be passed on: only printable ASCII can, and no blanks at its ends"
    raise ToolUnavailable(reason, code=CREDENTIAL_NEEDED, metadata={"credential": {"header": header}})
