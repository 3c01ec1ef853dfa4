"""Tokens for which the JWT of a caller is exchanged (RFC 8693): once for all its calls, and not beyond the JWT's life.

The JWT is that of the HTTP request of the call. It is sent to the endpoint of the entry alone, and never stored.
"""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple
from urllib.parse import quote

from pydantic import BaseModel, ValidationError

from toolplug.catalog.call import CREDENTIAL_NEEDED, NO_CREDENTIALS, SIGN_IN_NEEDED, CallContext, Credentials, Principal
from toolplug.errors import StoreConflict, ToolUnavailable
from toolplug.execution.user_auth import AuthOwner, TokenExchange
from toolplug.host.file.settings import Auth
from toolplug.http.auth.authentication import ApiKeys, bearer
from toolplug.net.issuer_answers import InvalidAnswer, IssuedTokens, read_tokens
from toolplug.parts.credentials.oauth import (
    ASK_S,
    CACHED_S,
    JUST_S,
    LEASE_S,
    MAX_CACHED,
    POLL_S,
    OAuthCredentials,
    loop_time,
)
from toolplug.parts.credentials.records import KeptConnection, UserConnection, UserTokens, user_key
from toolplug.runtime.keyed_locks import KeyedLocks
from toolplug.runtime.lru import LeastRecentlyUsed
from toolplug.runtime.threads import import_in_thread
from toolplug.stores.store import name_digest

GRANT = "urn:ietf:params:oauth:grant-type:token-exchange"
ACCESS_TOKEN = "urn:ietf:params:oauth:token-type:access_token"
_NO_LIFE_S = 60.0
"""The life of a token whose issuer says none: it is exchanged again a minute later."""
_AGAIN_S = 5.0
_NOTHING = ("", 0.0)
_DOTS = 2


class _Claims(BaseModel):
    iss: str
    sub: str
    exp: float


class CallerJwt(NamedTuple):
    """The JWT by which a caller was authenticated, and until when it holds, in epoch seconds."""

    text: str
    expires_at: float


def jwt_of(context: CallContext, auth: Auth | None) -> CallerJwt | None:
    """Return the JWT by which the caller of this call was authenticated; None for another credential, or none.

    A request may have a key as well, which then counts; and one that is delegated is for another subject.
    """
    if auth is None or auth.jwt is None or not isinstance(context.credentials, Credentials):
        return None
    headers = context.credentials.request
    token = bearer(headers)
    if token is None or token.count(b".") != _DOTS or ApiKeys(auth.api_keys).holder(headers) is not None:
        return None
    payload = token.split(b".")[1]
    try:
        # The signature was verified when the request was let in.
        claims = _Claims.model_validate_json(base64.urlsafe_b64decode(payload + b"=" * (-len(payload) % 4)))
    except (ValidationError, ValueError):
        return None
    if claims.iss != auth.jwt.issuer or claims.sub != context.principal.subject:
        return None
    return CallerJwt(token.decode("ascii"), claims.exp)


class ExchangedTokens:
    """The exchanged tokens, which all processes have by the store. `auth` returns the present section of the file."""

    def __init__(self, tokens: OAuthCredentials, auth: Callable[[], Auth | None]) -> None:
        self._tokens = tokens
        self._auth = auth
        self._cache: LeastRecentlyUsed[str, tuple[str, float]] = LeastRecentlyUsed(MAX_CACHED)
        self._locks: KeyedLocks[str] = KeyedLocks()

    async def credential(self, owner: AuthOwner, exchange: TokenExchange, context: CallContext, refused: str) -> str:
        """Return a token for this caller, another one than the `refused`. Raises `ToolUnavailable`."""
        who = context.principal
        # Two clients of one user, or one with fewer scopes, have tokens of their own.
        allows = name_digest(who.credential, *sorted(who.scopes))[:32]
        user = f"{user_key(owner, who)}-{allows}"
        if (found := self._get_cached(user, refused)) is not None:
            return found
        async with self._locks.of(user):  # a thousand first calls of one user ask the store once
            if (found := self._get_cached(user, refused)) is not None:
                return found
            access, expires_at = await self._find_or_exchange(user, owner, exchange, context, refused)
            self._cache.put(user, (access, loop_time() + min(CACHED_S, expires_at - self._tokens.now())))
            return access

    async def forget(self, owner: AuthOwner, who: Principal) -> bool:
        """Forget the tokens of a user, those of exchanges that run too, and return whether there were some."""
        records = self._tokens.records
        users = await records.list_exchanged(user_key(owner, who))
        for user in users:
            await records.forget(user)
            self._cache.put(user, _NOTHING)
        return bool(users)

    def _get_cached(self, user: str, refused: str) -> str | None:
        cached = self._cache.get(user)
        if cached is None or cached[0] == refused or loop_time() >= cached[1]:
            return None
        return cached[0]

    async def _find_or_exchange(
        self, user: str, owner: AuthOwner, exchange: TokenExchange, context: CallContext, refused: str
    ) -> tuple[str, float]:
        """Return the token that the store has, or exchange the JWT, unless another process does: then wait for it."""
        records, jwt = self._tokens.records, jwt_of(context, self._auth())
        while True:
            found = await self._usable(user, owner, await records.read(user, owner), refused)
            if found is not None:
                return found
            if jwt is None:
                raise _no_jwt(owner, context)
            try:
                await records.lease(user, LEASE_S)
                break
            except StoreConflict:
                # The lease of a process that has died ends by itself: it exchanges anew, which harms nobody.
                await asyncio.sleep(POLL_S)
        try:
            # Another one may have exchanged before the lease was taken.
            found = await self._usable(user, owner, await records.read(user, owner), refused)
            return found or await self._fetch_token(user, owner, exchange, context, jwt)
        finally:
            await records.release(user)

    async def _usable(
        self, user: str, owner: AuthOwner, kept: KeptConnection | None, refused: str
    ) -> tuple[str, float] | None:
        if kept is None or kept.tokens is None or kept.connection.expires_at <= self._tokens.now():
            return None  # one of an exchange that runs has ended, too
        if kept.tokens.access != refused:
            return kept.tokens.access, kept.connection.expires_at
        self._cache.put(user, _NOTHING)
        try:
            await self._tokens.records.forget(user, expected=kept.revision)
        except StoreConflict:
            return None  # another process has exchanged again
        if self._tokens.now() - kept.connection.connected_at < JUST_S:
            reason = f"{owner.key} refuses the token for which the caller's was exchanged"
            raise ToolUnavailable(reason, code=CREDENTIAL_NEEDED, metadata={"credential": {"reason": reason}})
        return None

    async def _fetch_token(
        self, user: str, owner: AuthOwner, exchange: TokenExchange, context: CallContext, jwt: CallerJwt
    ) -> tuple[str, float]:
        records, who = self._tokens.records, context.principal
        asking = UserConnection(
            tenant=who.tenant,
            subject=who.subject,
            kind=owner.kind,
            key=owner.key,
            issuer=exchange.endpoint,
            connected_at=0.0,
        )
        # Who disconnects meanwhile deletes it, and what comes of the exchange is then not stored.
        revision = await records.write(user, owner, asking, UserTokens(access=""), expected=None, ttl_s=LEASE_S)
        try:
            answer = await self._ask(owner, exchange, jwt)
        except ToolUnavailable:
            await self._drop(user, revision)
            raise
        now = self._tokens.now()
        left_s = min(answer.expires_in or _NO_LIFE_S, jwt.expires_at - now)
        if left_s <= 0:
            await self._drop(user, revision)
            return answer.access, now
        times = {"connected_at": now, "expires_at": now + left_s, "scope": answer.scope or ""}
        connection, tokens = asking.model_copy(update=times), UserTokens(access=answer.access)
        try:
            await records.write(user, owner, connection, tokens, expected=revision, ttl_s=left_s)
        except StoreConflict:
            return answer.access, now  # for this call alone, which had begun before its user disconnected
        return answer.access, connection.expires_at

    async def _drop(self, user: str, revision: int) -> None:
        """Delete the record of an exchange that has no token to keep."""
        with suppress(StoreConflict):
            await self._tokens.records.forget(user, expected=revision)

    async def _ask(self, owner: AuthOwner, exchange: TokenExchange, jwt: CallerJwt) -> IssuedTokens:
        form = {
            "grant_type": GRANT,
            "subject_token": jwt.text,
            "subject_token_type": ACCESS_TOKEN,
            "requested_token_type": ACCESS_TOKEN,
            **({"audience": exchange.audience} if exchange.audience else {}),
            **({"scope": " ".join(exchange.scopes)} if exchange.scopes else {}),
        }
        headers = {"accept": "application/json"}
        if exchange.client_secret is None:
            form["client_id"] = exchange.client_id
        else:  # RFC 6749, section 2.3.1
            pair = f"{quote(exchange.client_id, safe='')}:{quote(exchange.client_secret.get_secret_value(), safe='')}"
            headers["authorization"] = f"Basic {base64.b64encode(pair.encode()).decode()}"
        httpx2 = await import_in_thread("httpx2")
        try:
            async with asyncio.timeout(ASK_S), self._tokens.http(owner, exchange.endpoint) as http:
                answer = await http.post(exchange.endpoint, data=form, headers=headers)
        except (httpx2.HTTPError, TimeoutError) as error:
            reason = f"the endpoint that exchanges its caller's token does not answer ({type(error).__name__})"
            raise ToolUnavailable(reason, code="issuer_down", retry_after_s=_AGAIN_S) from None
        if not answer.is_success:
            raise _refuse_exchange(f"the endpoint answers HTTP {answer.status_code} without a token")
        try:
            return read_tokens(answer.content)
        except InvalidAnswer as error:
            raise _refuse_exchange(str(error)) from None


def _refuse_exchange(why: str) -> ToolUnavailable:
    reason = f"the caller's token is not exchanged: {why}"
    return ToolUnavailable(reason, code=CREDENTIAL_NEEDED, metadata={"credential": {"reason": reason}})


def _no_jwt(owner: AuthOwner, context: CallContext) -> ToolUnavailable:
    """Return the refusal of a caller whose token there is none of: of a key, or in the background."""
    request = context.credentials.request if isinstance(context.credentials, Credentials) else NO_CREDENTIALS.request
    if b"host" in request and not request.keys() & {b"authorization", b"x-api-key"}:
        reason = f"it acts as its caller at {owner.key}, whose token is kept for its request only; call it in one first"
        return ToolUnavailable(reason, code=SIGN_IN_NEEDED, metadata={"sign_in": {"server": owner.key}})
    reason = f"it acts as its caller at {owner.key}, for which the caller's own JWT is exchanged; call with a JWT"
    return ToolUnavailable(reason, code=CREDENTIAL_NEEDED, metadata={"credential": {"reason": reason}})
