"""The chain of authenticators: the first that knows the caller decides (CONTRACT.md section 5, *Auth*)."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Protocol

from starlette.authentication import AuthenticationError
from starlette.requests import HTTPConnection

from toolplug.catalog.call import Principal
from toolplug.http.auth.api_keys import ApiKeys
from toolplug.http.auth.authenticator import Authenticator
from toolplug.http.exchange import Exchange
from toolplug.http.problem import HttpProblem
from toolplug.http.scopes import EVERY_SCOPE

_LOG = logging.getLogger("toolplug.http")

ANYBODY = Principal(scopes=EVERY_SCOPE)
"""The caller of a host without `auth`."""


class Gatekeeper(Protocol):
    """Tells who a request comes from."""

    async def principal(self, exchange: Exchange) -> Principal:
        """The caller. Raises `HttpProblem`."""
        ...


class OpenDoor:
    """Lets anybody in: the doors have seen to it that it is somebody of this machine, or the operator wants it so."""

    async def principal(self, exchange: Exchange) -> Principal:
        """The anonymous caller, with every scope."""
        return ANYBODY


class ShutDoor:
    """Lets nobody in: what the configuration asks for could not be set up."""

    async def principal(self, exchange: Exchange) -> Principal:
        """Nobody. Raises `HttpProblem`."""
        raise auth_unavailable()


class Chain:
    """API keys first, then the others in their order."""

    def __init__(self, keys: ApiKeys, others: Iterable[Authenticator]) -> None:
        self._keys = keys
        self._others = tuple(others)

    async def principal(self, exchange: Exchange) -> Principal:
        """The caller. Raises `HttpProblem`: 401 for nobody and for anybody wrong, 503 where it cannot be told."""
        found = self._keys.holder(exchange.headers)
        if found is None and self._others:
            found = await self._asked(HTTPConnection(exchange.scope))
        if found is None:
            raise authentication_required()
        return found

    async def _asked(self, connection: HTTPConnection) -> Principal | None:
        for authenticate in self._others:
            try:
                found = await authenticate(connection)
            except AuthenticationError:
                return None
            except Exception as error:
                _LOG.error("an authenticator raised %s; the request is refused", type(error).__name__)
                raise auth_unavailable() from error
            if found is not None:
                return found
        return None


def authentication_required() -> HttpProblem:
    """One answer for missing and for wrong credentials."""
    message = "no valid credentials; send Authorization: Bearer KEY, or X-API-Key: KEY"
    return HttpProblem(401, "authentication_required", message, headers=[(b"www-authenticate", b"Bearer")])


def auth_unavailable() -> HttpProblem:
    """Credentials cannot be checked now."""
    return HttpProblem(503, "auth_unavailable", "credentials cannot be checked now; try again in a moment")


def insufficient_scope(scope: str) -> HttpProblem:
    """The caller is known, and may not do this."""
    message = f"the credential lacks the scope {scope!r}; use one that has it, or have it added"
    return HttpProblem(403, "insufficient_scope", message, param=scope)
