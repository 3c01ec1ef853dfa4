"""JSON Web Tokens as credentials. The only file that imports PyJWT (extra `auth`).

The algorithms are those of the configuration, never the token's; `iss`, `aud` and `exp` must be there and right.
"""

from __future__ import annotations

import asyncio
import re
import ssl
from collections.abc import Iterable, Mapping
from contextlib import suppress
from hmac import compare_digest
from time import monotonic
from typing import Any, cast

import httpx2
import jwt
import orjson
from jwt.types import Options
from starlette.authentication import AuthenticationError
from starlette.requests import HTTPConnection

from toolplug.catalog.call import ANONYMOUS, Principal
from toolplug.host.file.settings import DEFAULT_SCOPES, Jwt
from toolplug.http.auth.authentication import NotVerified, bearer, credential_digest

FETCH_S = 5.0
"""The timeout of a whole fetch in seconds, however slowly the server sends."""
MAX_KEY_SET = 1024 * 1024
KEPT_S = 300.0
PAUSE_S = 5.0
"""Seconds after a failed fetch in which no other one is tried."""
EARLY_EVERY_S = 5.0
"""Seconds from a fetch to one for an unknown key id while the set is fresh: anyone can send such an id."""

_DOTS = 2
_OPTIONS: Options = {"require": ["exp", "iss", "aud"]}


class KeySetDown(Exception):
    """No token can be verified: the key set cannot be fetched, or holds no key."""


class KeySet:
    """The issuer's public keys, fetched when first needed and kept for five minutes.

    PyJWT's `PyJWKClient` is not used: its timeout begins again with every read, it reads a set of any size, and an
    unknown key id keeps a new key out for half a minute after every fetch.
    """

    def __init__(self, url: str) -> None:
        self._url = url
        self._keys: Mapping[str, jwt.PyJWK] = {}
        self._fetching = asyncio.Lock()
        self._kept_until = self._down_until = self._early_from = 0.0

    async def key(self, key_id: object) -> jwt.PyJWK:
        """Return the key of this id.

        Raises `AuthenticationError` if there is none, `NotVerified` if it may be in a newer set than the one that was
        fetched a moment ago, and `KeySetDown` without a set.
        """
        if not isinstance(key_id, str):
            raise AuthenticationError("the token names no key")
        return self._find_kept(key_id) or await self._fetch(key_id)

    def _find_kept(self, key_id: str) -> jwt.PyJWK | None:
        return self._keys.get(key_id) if monotonic() < self._kept_until else None

    async def _fetch(self, key_id: str) -> jwt.PyJWK:
        """Fetch the set once for all that wait; for an unknown id again, `EARLY_EVERY_S` seconds later at the soonest.

        Whether a token is wrong is known only after a fetch for it. Until then nobody behind the same address is made
        to wait for it, and a key that was just rotated is accepted within seconds whatever strangers send.
        """
        async with self._fetching:
            found = self._find_kept(key_id)
            if found is not None:
                return found
            now = monotonic()
            early = now < self._kept_until
            if early and now < self._early_from:
                raise NotVerified("the token's key is not in the key set that was fetched a moment ago")
            if now < self._down_until:
                raise KeySetDown("the key set could not be fetched a moment ago")
            if early:
                self._early_from = now + EARLY_EVERY_S
            try:
                self._keys = await self._read()
            except (httpx2.HTTPError, jwt.PyJWTError, ssl.SSLError, ValueError, OSError) as error:
                self._down_until = monotonic() + PAUSE_S
                raise KeySetDown(type(error).__name__) from error
            self._kept_until = monotonic() + KEPT_S
        found = self._keys.get(key_id)
        if found is None:
            raise AuthenticationError("the token's key is not in the key set")
        return found

    async def _read(self) -> Mapping[str, jwt.PyJWK]:
        """Fetch the set. Raises `TimeoutError` (an `OSError`), and `ValueError` for an invalid answer."""
        plain = {"Accept": "application/json", "Accept-Encoding": "identity"}
        async with (
            asyncio.timeout(FETCH_S),
            httpx2.AsyncClient(verify=ssl.create_default_context(), timeout=None, headers=plain) as client,
            client.stream("GET", self._url) as response,
        ):
            if not response.is_success or "content-encoding" in response.headers:
                raise ValueError(f"status {response.status_code}, or compressed")
            body = bytearray()
            async for chunk in response.aiter_raw():
                body += chunk
                if len(body) > MAX_KEY_SET:
                    raise ValueError(f"over {MAX_KEY_SET} bytes")
        return _key_set(bytes(body))


def _key_set(body: bytes) -> Mapping[str, jwt.PyJWK]:
    """Return the keys for signatures, by id. Raises `ValueError` and `PyJWTError`, also where there is none."""
    found = orjson.loads(body)
    listed: object = cast("dict[str, object]", found).get("keys") if isinstance(found, dict) else None
    if not isinstance(listed, list) or not all(isinstance(item, dict) for item in cast("list[object]", listed)):
        raise ValueError("no key set")
    keys = jwt.PyJWKSet(cast("list[dict[str, Any]]", listed)).keys
    named = {key.key_id: key for key in keys if key.key_id and key.public_key_use in ("sig", None)}
    if not named:
        raise ValueError("no key for signatures")
    return named


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
        """Return the token's principal; None for other credentials.

        Raises `AuthenticationError` for an invalid token, `KeySetDown` without keys.
        """
        token = bearer(dict(connection.scope["headers"]))
        if token is None or token.count(b".") != _DOTS:
            return None
        return self._principal(await self._claims(token))

    async def principal_of_id_token(self, token: str, nonce: str) -> Principal | None:
        """Return whose ID token it is; None for an invalid one, or one for another request (`nonce`) or client."""
        try:
            claims = await self._claims(token.encode())
            given = claims.get("nonce")
            own = isinstance(given, str) and compare_digest(given.encode(), nonce.encode())
            # OpenID Connect Core, section 3.1.3.7: of several audiences one has asked for it.
            own = own and (claims.get("azp") or self._settings.audience) == self._settings.audience
            return self._principal(claims) if own else None
        except (AuthenticationError, KeySetDown, ValueError):
            return None

    async def _claims(self, token: bytes) -> Mapping[str, object]:
        try:
            key = await self._key(token)
            return jwt.decode(
                token,
                key,
                algorithms=list(self._settings.algorithms),
                audience=self._settings.audience,
                issuer=self._settings.issuer,
                options=_OPTIONS,
            )
        except (jwt.PyJWTError, ValueError, TypeError, RecursionError):
            raise AuthenticationError("the token is not valid") from None

    async def _key(self, token: bytes) -> Any:
        if self._keys is None:
            return self._public_key
        return await self._keys.key(jwt.get_unverified_header(token).get("kid"))

    def _principal(self, claims: Mapping[str, object]) -> Principal:
        settings = self._settings
        scopes = _names(claims.get(settings.scopes_claim))
        subject, tenant = _text(claims.get("sub")), _text(claims.get(settings.tenant_claim))
        if not subject or (not tenant and settings.tenant_is_required):
            raise AuthenticationError("the token names no subject, or no tenant")
        client = claims.get("azp") or claims.get("client_id")
        return Principal(
            subject=subject,
            tenant=tenant or ANONYMOUS.tenant,
            scopes=frozenset(DEFAULT_SCOPES) if scopes is None else scopes,
            agents=_names(claims.get(settings.agents_claim)),
            credential=credential_digest("token", settings.issuer, subject, client if isinstance(client, str) else ""),
        )


def _read_key(text: str, algorithms: Iterable[str]) -> Any:
    """Return the public key as an object of `cryptography`. Raises `ValueError`."""
    for name in algorithms:
        with suppress(jwt.PyJWTError, ValueError, TypeError):
            return jwt.get_algorithm_by_name(name).prepare_key(text)
    raise ValueError("auth.jwt.public_key is no PEM text of a public key for its algorithms")


def _text(claim: object) -> str | None:
    """Return the claim; None if it is absent. Raises `AuthenticationError` if it is not text."""
    if claim is None or isinstance(claim, str):
        return claim
    raise AuthenticationError("a claim that should be a text is none")


_NAME = re.compile(r"[\x21\x23-\x5b\x5d-\x7e]+")
"""RFC 6749 section 3.3, *scope-token*: an issuer that lets a client choose a name takes any other text as one name."""


def _names(claim: object) -> frozenset[str] | None:
    """Return the names of a claim (a list, or text separated by U+0020 alone); None if it is absent.

    Raises `AuthenticationError` for any other value.
    """
    if claim is None:
        return None
    names = [name for name in claim.split(" ") if name] if isinstance(claim, str) else claim
    if isinstance(names, list):
        found = cast("list[object]", names)
        if all(isinstance(name, str) and _NAME.fullmatch(name) for name in found):
            return frozenset(cast("list[str]", found))
    raise AuthenticationError("a claim that should be a list of names is none")
