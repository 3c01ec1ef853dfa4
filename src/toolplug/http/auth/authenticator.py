"""One way to tell who a request comes from.

An authenticator is `async (connection) -> Principal | None`: None abstains, so that the next one is asked, and
`starlette.authentication.AuthenticationError` rejects the credentials. Anything else that it raises means that it
cannot tell now: the request is refused with 503. A Starlette `AuthenticationBackend` is one as well.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import cast

from starlette.authentication import AuthenticationBackend, BaseUser
from starlette.requests import HTTPConnection

from toolplug.catalog.call import Principal

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
        return _principal(user, credentials.scopes) if user.is_authenticated else None

    return authenticate


def _principal(user: BaseUser, scopes: Iterable[str]) -> Principal:
    """The backend's user: `identity` is the subject; `tenant` and `agents` count where the user has them."""
    agents = cast("Iterable[str] | None", getattr(user, "agents", None))
    return Principal(
        subject=user.identity,
        tenant=getattr(user, "tenant", "default"),
        scopes=frozenset(scopes),
        agents=None if agents is None else frozenset(agents),
    )
