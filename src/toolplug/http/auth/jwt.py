"""JSON Web Tokens as credentials. The only file that imports PyJWT (extra `auth`).

The algorithms are those of the configuration, never the token's; `iss`, `aud` and `exp` must be there and right.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from contextlib import suppress
from functools import partial
from time import monotonic
from typing import Any, cast

import jwt
from jwt.types import Options
from starlette.authentication import AuthenticationError
from starlette.requests import HTTPConnection

from toolplug.catalog.call import ANONYMOUS, Principal
from toolplug.execution.threads import in_own_thread
from toolplug.host.file.settings import DEFAULT_SCOPES, Jwt
from toolplug.http.auth.authentication import bearer

FETCH_S = 5.0
KEPT_S = 300.0
PAUSE_S = 5.0
"""After a fetch that failed, nobody waits for another one so long."""

_DOTS = 2
_OPTIONS: Options = {"require": ["exp", "iss", "aud"]}


class KeySetDown(Exception):
    """The key set cannot be fetched, or holds no key: no token can be verified."""


class KeySet:
    """The issuer's public keys, fetched when first needed and kept for five minutes."""

    def __init__(self, url: str) -> None:
        self._client = jwt.PyJWKClient(url, timeout=FETCH_S, lifespan=KEPT_S)
        self._fetching = asyncio.Lock()
        self._down_until = 0.0

    async def key(self, key_id: object) -> jwt.PyJWK:
        """The key of this id. Raises `AuthenticationError` where there is none, `KeySetDown` where none is known."""
        if not isinstance(key_id, str):
            raise AuthenticationError("the token names no key")
        return self._kept(key_id) or await self._fetched(key_id)

    def _kept(self, key_id: str) -> jwt.PyJWK | None:
        keys = self._key_set()
        return None if keys is None else self._client.match_kid(keys.keys, key_id)

    async def _fetched(self, key_id: str) -> jwt.PyJWK:
        """Fetch once for all that wait; an id that is not there is looked for again at most twice a minute."""
        async with self._fetching:
            found = self._kept(key_id)
            if found is not None:
                return found
            if monotonic() < self._down_until:
                raise KeySetDown("the key set could not be fetched a moment ago")
            try:
                return await in_own_thread(partial(self._client.get_signing_key, key_id))
            except (jwt.PyJWTError, ValueError, OSError) as error:
                if isinstance(error, jwt.PyJWKClientConnectionError) or self._key_set() is None:
                    self._down_until = monotonic() + PAUSE_S
                    raise KeySetDown(type(error).__name__) from error
                raise AuthenticationError("the token's key is not in the key set") from None

    def _key_set(self) -> jwt.PyJWKSet | None:
        cache = self._client.jwk_set_cache
        return None if cache is None else cache.get()


class Tokens:
    """Authenticates bearer tokens that have the form of a JWT; abstains for others.

    Raises `ValueError` where the configured public key is none for any of the algorithms.
    """

    def __init__(self, settings: Jwt) -> None:
        self._settings = settings
        self._keys = None if settings.jwks_url is None else KeySet(settings.jwks_url)
        pem = settings.public_key
        self._public_key = None if pem is None else _read_key(pem.get_secret_value(), settings.algorithms)

    async def __call__(self, connection: HTTPConnection) -> Principal | None:
        """The token's principal. Raises `AuthenticationError` for a bad token, `KeySetDown` without keys."""
        token = bearer(dict(connection.scope["headers"]))
        if token is None or token.count(b".") != _DOTS:
            return None
        try:
            key = await self._key(token)
            claims: Mapping[str, object] = jwt.decode(
                token,
                key,
                algorithms=list(self._settings.algorithms),
                audience=self._settings.audience,
                issuer=self._settings.issuer,
                options=_OPTIONS,
            )
        except (jwt.PyJWTError, ValueError, TypeError, RecursionError):
            raise AuthenticationError("the token is not valid") from None
        return self._principal(claims)

    async def _key(self, token: bytes) -> Any:
        if self._keys is None:
            return self._public_key
        return await self._keys.key(jwt.get_unverified_header(token).get("kid"))

    def _principal(self, claims: Mapping[str, object]) -> Principal:
        settings = self._settings
        scopes = _names(claims.get(settings.scopes_claim))
        return Principal(
            subject=_text(claims.get("sub")) or ANONYMOUS.subject,
            tenant=_text(claims.get(settings.tenant_claim)) or ANONYMOUS.tenant,
            scopes=frozenset(DEFAULT_SCOPES) if scopes is None else scopes,
            agents=_names(claims.get(settings.agents_claim)),
        )


def _read_key(text: str, algorithms: Iterable[str]) -> Any:
    """The configured public key, read once; its type is the business of `cryptography`."""
    for name in algorithms:
        with suppress(jwt.PyJWTError, ValueError, TypeError):
            return jwt.get_algorithm_by_name(name).prepare_key(text)
    raise ValueError("auth.jwt.public_key is no PEM text of a public key for its algorithms")


def _text(claim: object) -> str | None:
    """A claim that is a text; raises `AuthenticationError` where it is something else."""
    if claim is None or isinstance(claim, str):
        return claim
    raise AuthenticationError("a claim that should be a text is none")


def _names(claim: object) -> frozenset[str] | None:
    """A claim that is a list of names, or a text of names with spaces in between; None where there is none."""
    if claim is None:
        return None
    names = claim.split() if isinstance(claim, str) else claim
    if isinstance(names, list):
        found = cast("list[object]", names)
        if all(isinstance(name, str) for name in found):
            return frozenset(cast("list[str]", found))
    raise AuthenticationError("a claim that should be a list of names is none")
