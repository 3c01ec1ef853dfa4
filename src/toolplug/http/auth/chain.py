"""The chain of authenticators: the first that knows the caller decides (CONTRACT.md section 5, *Auth*)."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable
from hashlib import sha256
from hmac import compare_digest
from typing import Any, Protocol, cast

from starlette.authentication import AuthenticationBackend, AuthenticationError, BaseUser
from starlette.datastructures import Headers
from starlette.requests import HTTPConnection

from toolplug.catalog.call import Principal
from toolplug.host.file.settings import ApiKey
from toolplug.http.errors import HttpProblem
from toolplug.http.routing import EVERY_SCOPE

_SCHEME = "bearer "


def bearer(headers: Headers) -> str | None:
    """The bearer token, or None."""
    value = headers.get("authorization")
    if value is None or value[: len(_SCHEME)].lower() != _SCHEME:
        return None
    return value[len(_SCHEME) :].strip(" \t") or None


def credential(headers: Headers) -> str | None:
    """The bearer token, else the API key, or None."""
    return bearer(headers) or headers.get("x-api-key")


AuthFunction = Callable[[HTTPConnection], Awaitable[Principal | None]]
"""Authenticates a request: `async (connection) -> Principal | None`.

None abstains, so that the next function is called; `starlette.authentication.AuthenticationError` rejects the
credentials. Any other exception means that they cannot be checked now: the request is refused with 503.
"""

Authentication = AuthFunction | AuthenticationBackend


def as_auth_function(given: Authentication) -> AuthFunction:
    """The function itself, or one that calls the backend."""
    return _from_backend(given) if isinstance(given, AuthenticationBackend) else given


def _from_backend(backend: AuthenticationBackend) -> AuthFunction:
    async def authenticate(connection: HTTPConnection) -> Principal | None:
        found = await backend.authenticate(connection)
        if found is None:
            return None
        credentials, user = found
        return _user_principal(user, credentials.scopes) if user.is_authenticated else None

    return authenticate


def _user_principal(user: BaseUser, scopes: Iterable[str]) -> Principal:
    """The backend's user: `identity` is the subject; `tenant` and `agents` count where the user has them."""
    agents = cast("Iterable[str] | None", getattr(user, "agents", None))
    return Principal(
        subject=user.identity,
        tenant=getattr(user, "tenant", "default"),
        scopes=frozenset(scopes),
        agents=None if agents is None else frozenset(agents),
    )


class ApiKeys:
    """The keys of the configuration and their holders."""

    def __init__(self, keys: Iterable[ApiKey]) -> None:
        self._holders = tuple((key.digest, _key_principal(key)) for key in keys)

    def holder(self, headers: Headers) -> Principal | None:
        """The holder of the key that the request carries; None for no key and for an unknown one."""
        return self._find(bearer(headers)) or self._find(headers.get("x-api-key"))

    def _find(self, key: str | None) -> Principal | None:
        """Compares with every key, also after a match."""
        if key is None:
            return None
        digest = sha256(key.encode("latin-1")).digest()
        found = None
        for known, principal in self._holders:
            if compare_digest(known, digest):
                found = principal
        return found


def _key_principal(key: ApiKey) -> Principal:
    return Principal(
        subject=key.subject,
        tenant=key.tenant,
        scopes=frozenset(key.scopes),
        agents=None if key.agents is None else frozenset(key.agents),
    )


_LOG = logging.getLogger("toolplug.http")

ANYBODY = Principal(scopes=EVERY_SCOPE)
"""The caller of a host without `auth`."""


class Authenticator(Protocol):
    """Authenticates requests."""

    async def authenticate(self, connection: HTTPConnection[Any]) -> Principal:
        """The caller. Raises `HttpProblem`."""
        ...


class AllowAll:
    """Authenticates everyone: only loopback is served, or the operator allowed more."""

    async def authenticate(self, connection: HTTPConnection[Any]) -> Principal:
        """The anonymous caller, with every scope."""
        return ANYBODY


class DenyAll:
    """Authenticates nobody: the configured authentication could not be set up."""

    async def authenticate(self, connection: HTTPConnection[Any]) -> Principal:
        """Raise `HttpProblem`."""
        raise auth_unavailable()


class Chain:
    """API keys first, then the other functions in their order."""

    def __init__(self, keys: ApiKeys, others: Iterable[AuthFunction]) -> None:
        self._keys = keys
        self._others = tuple(others)

    async def authenticate(self, connection: HTTPConnection[Any]) -> Principal:
        """The caller. Raises `HttpProblem`: 401 without valid credentials, 503 where they cannot be checked."""
        found = self._keys.holder(connection.headers)
        if found is None and self._others:
            found = await self._asked(HTTPConnection(connection.scope))
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
    return HttpProblem(401, "authentication_required", message, headers={"WWW-Authenticate": "Bearer"})


def auth_unavailable() -> HttpProblem:
    """Credentials cannot be checked now."""
    return HttpProblem(503, "auth_unavailable", "credentials cannot be checked now; try again in a moment")


def insufficient_scope(scope: str) -> HttpProblem:
    """The caller is known, and may not do this."""
    message = f"the credential lacks the scope {scope!r}; use one that has it, or have it added"
    return HttpProblem(403, "insufficient_scope", message, param=scope)
