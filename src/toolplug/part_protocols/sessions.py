"""Sessions as the host sees them: at the code of one, a caller has further tools, which an application lends.

One part of the host has them, as `RunningPart.sessions`; without it a host has `NO_SESSIONS`. Codes and tokens are the
part's, apart from the form of a code (`toolplug.catalog.call.check_code`).
"""

from __future__ import annotations

from typing import Protocol

from toolplug.catalog.call import Principal, check_code
from toolplug.errors import SessionNotFound
from toolplug.execution.live import LiveCatalog

AWAY = "the application that lends it is not connected (plugin_gone)"
"""Why a call of a tool is refused whose application has gone."""


class HostSession(Protocol):
    """A live session."""

    @property
    def code(self) -> str:
        """The code, which is an address and no credential."""
        ...

    @property
    def tenant(self) -> str:
        """The tenant whose callers may use it."""
        ...

    @property
    def executor(self) -> LiveCatalog:
        """The session's own tools, which come after the host's: the same object while somebody uses it."""
        ...


class SessionWithToken(Protocol):
    """A new session, with the token of its application, which is not shown again."""

    @property
    def session(self) -> HostSession:
        """The session."""
        ...

    @property
    def token(self) -> str:
        """The token with which its application registers tools."""
        ...


class HostSessions(Protocol):
    """The sessions of one host. `AccessError` has one class for each reason why there is none for a caller.

    What is written here is how a host without sessions answers: every code is unknown, and no credential is a token.
    """

    @property
    def token_prefixes(self) -> tuple[str, ...]:
        """What the tokens of applications begin with; no credential of a caller does."""
        return ()

    async def create(
        self, principal: Principal, *, plugin_type: str = "", ttl_s: float | None = None, request_id: str = ""
    ) -> SessionWithToken:
        """Create a session of the principal's tenant. Raises `ApiError` and `StoreError`."""
        raise LookupError("this host has no sessions")

    def known_session(self, code: str, tenant: str) -> HostSession:
        """Return a live session of this tenant that this process has, without I/O. Raises `AccessError`."""
        check_code(code)
        raise SessionNotFound(code)

    async def find(self, code: str, tenant: str) -> HostSession:
        """Return a live session of this tenant, from then on known here. Raises `AccessError` and `StoreError`."""
        return self.known_session(code, tenant)

    async def bring(self, code: str) -> HostSession:
        """Return the live session of any tenant. Raises like `find`."""
        return self.known_session(code, "")

    def code_of_token(self, token: str) -> str | None:
        """Return the code of the session that a token of an application is for; None for a malformed token."""
        return None

    async def with_token(self, code: str, token: str) -> HostSession | None:
        """Return the live session of this code if this is its token, else None. Raises like `find`."""
        return self.known_session(code, "")


class NoSessions(HostSessions):
    """The sessions of a host without any."""


NO_SESSIONS: HostSessions = NoSessions()
