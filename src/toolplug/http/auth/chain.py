"""The chain of authenticators: the first that knows the caller decides (CONTRACT.md section 5, *Auth*)."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from hashlib import sha256
from hmac import compare_digest
from typing import Protocol, cast

from starlette.authentication import AuthenticationBackend, AuthenticationError, BaseUser
from starlette.requests import HTTPConnection

from toolplug.catalog.call import Principal
from toolplug.host.file.settings import ApiKey
from toolplug.http.exchange import Exchange
from toolplug.http.problem import HttpProblem
from toolplug.http.routing import EVERY_SCOPE

_SCHEME = b"bearer "


def bearer(headers: Mapping[bytes, bytes]) -> bytes | None:
    """The bearer token, or None."""
    value = headers.get(b"authorization")
    if value is None or value[: len(_SCHEME)].lower() != _SCHEME:
        return None
    return value[len(_SCHEME) :].strip() or None


def credential(headers: Mapping[bytes, bytes]) -> bytes | None:
    """The bearer token, else the API key, or None."""
    return bearer(headers) or headers.get(b"x-api-key")


# One way to tell who a request comes from.
#
# An authenticator is `async (connection) -> Principal | None`: None abstains, so that the next one is asked, and
# `starlette.authentication.AuthenticationError` rejects the credentials. Anything else that it raises means that it
# cannot tell now: the request is refused with 503. A Starlette `AuthenticationBackend` is one as well.

Authenticator = Callable[[HTTPConnection], Awaitable[Principal | None]]
Authentication = Authenticator | AuthenticationBackend


def as_authenticator(given: Authentication) -> Authenticator:
    """The authenticator itself, or one that asks the backend."""
    return _asking(given) if isinstance(given, AuthenticationBackend) else given


def _asking(backend: AuthenticationBackend) -> Authenticator:
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

    def holder(self, headers: Mapping[bytes, bytes]) -> Principal | None:
        """Who holds the key that the request carries; None for no key and for an unknown one."""
        for key in (bearer(headers), headers.get(b"x-api-key")):
            if key is not None:
                found = self._find(sha256(key).digest())
                if found is not None:
                    return found
        return None

    def _find(self, digest: bytes) -> Principal | None:
        """Compares with every key, also after a match."""
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
