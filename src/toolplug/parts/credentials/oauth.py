"""Tokens of users who have signed in: from memory, from the store, from the issuer, or a link to sign in."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from importlib.util import find_spec
from types import ModuleType
from typing import Any, NamedTuple

from pydantic import BaseModel, Field

from toolplug.catalog.call import CREDENTIAL_NEEDED, SIGN_IN_NEEDED, Principal
from toolplug.config.units import timestamp
from toolplug.errors import StoreConflict, ToolUnavailable, Unsealable
from toolplug.execution.user_auth import AuthOwner, UserOAuth
from toolplug.host.keys.host_key import Sealer
from toolplug.net.egress import Egress
from toolplug.parts.credentials.records import (
    AskedSignIn,
    BegunSignIn,
    KeptConnection,
    SignIns,
    TokenRecords,
    UserConnection,
    UserTokens,
    user_key,
)
from toolplug.providers.provider import SignInEndpoints
from toolplug.runtime.keyed_locks import KeyedLocks
from toolplug.runtime.lru import LeastRecentlyUsed
from toolplug.runtime.threads import import_in_thread
from toolplug.stores.store import Store, name_digest

CLIENTS = "credentials/client/"
MAX_CACHED = 10_000
"""Tokens in memory, a few hundred bytes each."""
CACHED_S = 2.0
"""A token is used so long without a look at the store: a connection that another process has deleted ends then."""
EARLY_S = 30.0
"""A token is renewed so long before its end: a call takes a while, and clocks differ."""
LEASE_S = 30.0
"""Of one renewal or exchange. Longer than the answer of an issuer may take."""
ASK_S = 20.0
"""How long an issuer may take for one answer."""
POLL_S = 0.05
"""How often a process looks whether another one has the token."""
_AGAIN_S = 5.0
_CLOSE_S = 5.0
JUST_S = 60.0
"""A token that is refused so soon after its renewal is not refused for its age: its user has to sign in again."""


class _Cached(NamedTuple):
    access: str
    until: float


class _HostClient(BaseModel, frozen=True):
    """The host as a client of an issuer; `auth_method` is the one that the issuer has registered it with."""

    id: str
    secret: str | None = Field(None, repr=False)
    auth_method: str | None = None


class OAuthCredentials:
    """The tokens of one process.

    `egress` returns the addresses that issuers may have, `endpoints` where a provider says that its callers sign in.
    """

    def __init__(
        self,
        store: Store,
        sealer: Callable[[], Awaitable[Sealer]],
        egress: Callable[[], Egress],
        endpoints: Callable[[AuthOwner], SignInEndpoints | None] = lambda _: None,
    ) -> None:
        self._store = store
        self.records: TokenRecords = TokenRecords(store, sealer)
        self.sign_ins: SignIns = SignIns(store, sealer)
        self._sealer = sealer
        self._egress = egress
        self._endpoints = endpoints
        self._cache: LeastRecentlyUsed[str, _Cached] = LeastRecentlyUsed(MAX_CACHED)
        self._locks: KeyedLocks[str] = KeyedLocks()
        self._renewals: set[asyncio.Task[bool]] = set()

    async def credential(self, owner: AuthOwner, oauth: UserOAuth, who: Principal, base: str, refused: str) -> str:
        """Return an access token of this user, another one than the `refused`.

        Raises `ToolUnavailable` with the link to sign in, or without one where the host has no URL for it.
        """
        user = user_key(owner, who)
        cached = self._cache.get(user)
        if cached is not None and cached.access != refused and loop_time() < cached.until:
            return cached.access
        async with self._locks.of(user):  # a thousand calls of one user ask the store, or the issuer, once
            cached = self._cache.get(user)
            if cached is not None and cached.access != refused and loop_time() < cached.until:
                return cached.access
            access = await self._present(user, owner, oauth, refused)
        if access is None:
            raise await self._sign_in(owner, who, base)
        self._cache.put(user, _Cached(access, loop_time() + CACHED_S))
        return access

    async def aclose(self) -> None:
        """Let the renewals end that have begun, for a while."""
        if self._renewals:
            await asyncio.wait(self._renewals, timeout=_CLOSE_S)

    def now(self) -> float:
        """Return the time of the store, which all processes share, in seconds since the epoch."""
        return self._store.now()

    async def link(self, owner: AuthOwner, who: Principal, base: str) -> dict[str, object]:
        """Return the link to sign in as `metadata.sign_in` has it."""
        link = await self.sign_ins.link(owner, who, base)
        return {"url": link.url, "server": owner.key, "expires_at": timestamp(link.expires_at)}

    async def _sign_in(self, owner: AuthOwner, who: Principal, base: str) -> ToolUnavailable:
        if not base:
            reason = "it acts as its caller, who has to sign in; the host has no http.public_url for the link"
            return ToolUnavailable(reason, code=CREDENTIAL_NEEDED, metadata={"credential": {"reason": reason}})
        link = await self.link(owner, who, base)
        reason = f"it acts as its caller, who has to sign in to {owner.key} first: {link['url']}"
        return ToolUnavailable(reason, code=SIGN_IN_NEEDED, metadata={"sign_in": link})

    async def _present(self, user: str, owner: AuthOwner, oauth: UserOAuth, refused: str) -> str | None:
        """Return the user's token, renewed if need be; None if the user has to sign in."""
        until, renewed = loop_time() + LEASE_S + _AGAIN_S, False
        while loop_time() < until:
            kept = await self.records.read(user, owner)
            if kept is None or kept.tokens is None:
                return None
            connection, tokens = kept.connection, kept.tokens
            if connection.renewing:
                if not await self.records.is_leased(user) and await self._is_unchanged(user, owner, kept):
                    # Its process has died, and the refresh token may be used up: to show it again could revoke all.
                    await self._forget(user, kept)
                    return None
                await asyncio.sleep(POLL_S)
                continue
            left_s = connection.expires_at - self._store.now() if connection.expires_at else None
            holds = left_s is None or left_s > (_early_s(connection, tokens) if tokens.refresh else 0.0)
            # One that was renewed for this call serves it, however soon its issuer lets it end.
            if (holds or renewed) and tokens.access != refused:
                return tokens.access
            if not tokens.refresh or renewed or (holds and self._store.now() - tokens.renewed_at < JUST_S):
                await self._forget(user, kept)
                return None
            # Of a task of its own: a call that is given up in the middle would cost its user a sign-in.
            renewal = asyncio.create_task(self._renew(user, owner, oauth, kept, tokens))
            self._renewals.add(renewal)
            renewal.add_done_callback(self._end_renewal)
            renewed = await asyncio.shield(renewal)
        raise ToolUnavailable("the token of its caller is being renewed", code="renewing", retry_after_s=_AGAIN_S)

    def _end_renewal(self, renewal: asyncio.Task[bool]) -> None:
        self._renewals.discard(renewal)
        if not renewal.cancelled():
            renewal.exception()  # it is that of the call, if that still waits

    async def _is_unchanged(self, user: str, owner: AuthOwner, kept: KeptConnection) -> bool:
        again = await self.records.read(user, owner)
        return again is not None and again.revision == kept.revision

    async def _forget(self, user: str, kept: KeptConnection) -> None:
        self._cache.put(user, _Cached("", 0.0))
        try:
            await self.records.forget(user, expected=kept.revision)
        except StoreConflict:
            return  # signed in again, or renewed, in this moment

    async def _renew(
        self, user: str, owner: AuthOwner, oauth: UserOAuth, kept: KeptConnection, tokens: UserTokens
    ) -> bool:
        """Ask the issuer for new tokens, unless another process does: then return False.

        The record has what has come of it.
        """
        try:
            await self.records.lease(user, LEASE_S)
        except StoreConflict:
            await asyncio.sleep(POLL_S)
            return False
        try:
            marked = kept.connection.model_copy(update={"renewing": secrets.token_hex(8)})
            revision = await self.records.write(user, owner, marked, tokens, expected=kept.revision)
            await self._ask_for_new(user, owner, oauth, kept.connection, tokens, revision)
        except StoreConflict:
            return False  # another one was faster: the record has its tokens
        finally:
            await self.records.release(user)
        return True

    async def _ask_for_new(
        self,
        user: str,
        owner: AuthOwner,
        oauth: UserOAuth,
        connection: UserConnection,
        tokens: UserTokens,
        revision: int,
    ) -> None:
        issuers = await issuers_module()
        try:
            async with asyncio.timeout(ASK_S), self.http(owner, oauth.issuer) as http:
                renewed, given = await issuers.refresh(http, tokens)
        except issuers.RefreshRefused:
            await self.records.forget(user, expected=revision)
            return
        except (issuers.SignInFailed, TimeoutError) as error:
            # The issuer was not reached, or is down: the next call asks again.
            await self.records.write(user, owner, connection, tokens, expected=revision)
            reason = f"the token of its caller cannot be renewed: {error or 'the issuer does not answer'}"
            raise ToolUnavailable(reason, code="issuer_down", retry_after_s=_AGAIN_S) from None
        expires_at = self._store.now() + given.expires_in if given.expires_in else 0.0
        scope = connection.scope if given.scope is None else given.scope
        changed = connection.model_copy(update={"expires_at": expires_at, "scope": scope})
        renewed = renewed.model_copy(update={"renewed_at": self._store.now()})
        try:
            await self.records.write(user, owner, changed, renewed, expected=revision)
        except StoreConflict:
            # Disconnected, or signed in again, meanwhile: who did so has revoked the former tokens alone.
            kept = await self.records.read(user, owner)
            if kept is None or kept.tokens is None or kept.tokens.access != renewed.access:
                await self._revoke(owner, oauth, renewed)
            raise

    async def begin(self, asked: AskedSignIn, oauth: UserOAuth, browser: str) -> str:
        """Return where the browser that has pressed a link is sent. Raises `SignInFailed` of the issuers."""
        issuers, owner, redirect_uri = await issuers_module(), asked.owner, f"{asked.base}/connect/callback"
        async with self.http(owner, oauth.issuer) as http:
            found = await issuers.find_issuer(http, owner, oauth, self._endpoints(owner))
            client = await self._client(issuers, http, found, oauth, asked.base, redirect_uri)
        metadata, state, secret = found.metadata, secrets.token_urlsafe(32), client.secret or ""
        start = UserTokens(
            access="",
            client_id=client.id,
            client_secret=secret,
            auth_method=issuers.method_of(secret, found, client.auth_method),
            token_endpoint=str(metadata.token_endpoint),
            refresh_endpoint=found.refresh_endpoint,
            revocation_endpoint=str(metadata.revocation_endpoint or ""),
            resource=found.resource,
        )
        code = issuers.ask_for_code(found, client.id, redirect_uri, state)
        begun = BegunSignIn(
            asked=asked,
            start=start,
            issuer=found.name,
            metadata=metadata.model_dump_json(exclude_none=True),
            scope=found.scope,
            verifier=code.verifier,
            browser=name_digest(browser),
            is_named=found.is_named,
        )
        await self.sign_ins.begin(state, begun)
        return code.url

    async def finish(self, begun: BegunSignIn, oauth: UserOAuth, code: str, iss: str | None) -> UserConnection:
        """Keep the tokens that the issuer gives for its code. Raises `SignInFailed` of the issuers."""
        issuers, owner, who = await issuers_module(), begun.asked.owner, begun.asked.principal
        issuers.check_issuer(issuers.OAuthMetadata.model_validate_json(begun.metadata), iss, is_named=begun.is_named)
        async with self.http(owner, oauth.issuer) as http:
            redirect_uri = f"{begun.asked.base}/connect/callback"
            try:
                tokens, given = await issuers.redeem(http, begun.start, code, begun.verifier, redirect_uri)
            except issuers.UnknownClient:
                # Registered again at the next sign-in: issuers lose their clients, too.
                await self._store.commit(_name_client(begun.issuer, redirect_uri, begun.scope), None)
                raise
        connection = UserConnection(
            tenant=who.tenant,
            subject=who.subject,
            kind=owner.kind,
            key=owner.key,
            issuer=begun.issuer,
            scope=begun.scope if given.scope is None else given.scope,
            connected_at=self._store.now(),
            expires_at=self._store.now() + given.expires_in if given.expires_in else 0.0,
        )
        await self.records.write(user_key(owner, who), owner, connection, tokens, expected=None)
        self._cache.put(user_key(owner, who), _Cached(tokens.access, 0.0))
        return connection

    async def disconnect(self, owner: AuthOwner, oauth: UserOAuth | None, who: Principal) -> tuple[bool, bool]:
        """Forget the tokens of a user, and return whether there were some, and whether the issuer has revoked them."""
        user = user_key(owner, who)
        async with self._locks.of(user):
            # Forgotten first: an issuer that does not answer keeps nobody connected here.
            kept = await self._forget_present(user, owner)
            if kept is None:
                return False, False
            self._cache.put(user, _Cached("", 0.0))
        return True, kept.tokens is not None and await self._revoke(owner, oauth, kept.tokens)

    async def _forget_present(self, user: str, owner: AuthOwner) -> KeptConnection | None:
        """Delete the record of a user as it is, and return it: its tokens, and no former ones, are to be revoked."""
        while (kept := await self.records.read(user, owner)) is not None:
            try:
                await self.records.forget(user, expected=kept.revision)
            except StoreConflict:
                continue  # renewed, or signed in again, in this moment
            return kept
        return None

    async def _revoke(self, owner: AuthOwner, oauth: UserOAuth | None, tokens: UserTokens) -> bool:
        """Have the issuer end tokens, and return whether it has."""
        issuers = await issuers_module()
        try:
            issuer = None if oauth is None else oauth.issuer
            async with asyncio.timeout(ASK_S), self.http(owner, issuer) as http:
                return await issuers.revoke(http, tokens)
        except TimeoutError:
            return False

    async def _client(
        self, issuers: Any, http: Any, found: Any, oauth: UserOAuth, base: str, redirect_uri: str
    ) -> _HostClient:
        """Return the host as a client of the issuer, registered once for all processes."""
        document = f"{base}/connect/client.json" if base.startswith("https://") else ""
        known = issuers.known_client(found, oauth.client, document)
        if known is not None:
            return _HostClient(id=known.id, secret=known.secret.get_secret_value() if known.secret else None)
        name = _name_client(found.name, redirect_uri, found.scope)
        record, bound = await self._store.read(name), name.removeprefix(CLIENTS).encode()
        if record is not None:
            try:
                return _HostClient.model_validate_json((await self._sealer()).unseal(record.value, bound))
            except Unsealable:
                pass  # registered under a key that is gone
        made = await issuers.register(http, found, redirect_uri)
        client = _HostClient(id=made.client_id, secret=made.client_secret, auth_method=made.token_endpoint_auth_method)
        left_s = made.client_secret_expires_at - self._store.now() if made.client_secret_expires_at else None
        if left_s is None or left_s > 0:
            value = (await self._sealer()).seal(client.model_dump_json().encode(), bound)
            await self._store.commit(name, value, ttl_s=left_s)
        return client

    @asynccontextmanager
    async def http(self, owner: AuthOwner, issuer: str | None) -> AsyncGenerator[Any]:
        """Open connections to the server and its issuer, for each of which the file allows its own address.

        `issuer` is that of the file: one that a server names has a public address, or one under `egress.allow`, each
        time that it is asked.
        """
        httpx2 = await import_in_thread("httpx2")
        transports = await import_in_thread("toolplug.net.checked_transport")
        trusted = [url for url in (owner.url, issuer) if url]
        transport = await transports.checked_transport(self._egress(), trusted=trusted)
        async with httpx2.AsyncClient(transport=transport, trust_env=False, timeout=ASK_S) as http:
            yield http


def _name_client(issuer: str, redirect_uri: str, scope: str) -> str:
    """Return the key of the record of the host as a registered client."""
    return CLIENTS + name_digest(issuer, redirect_uri, scope)


def _early_s(connection: UserConnection, tokens: UserTokens) -> float:
    """Return how long before its end a token is renewed: of one that lives for seconds only, in the middle of its life.

    It would be renewed without end otherwise: each new one is about to expire.
    """
    return min(EARLY_S, (connection.expires_at - (tokens.renewed_at or connection.connected_at)) / 2)


def loop_time() -> float:
    """Return the time of the running loop in seconds, by which tokens in memory end."""
    return asyncio.get_running_loop().time()


async def issuers_module() -> ModuleType:
    """Return `issuers`, which imports the SDK. Raises `ToolUnavailable` without it."""
    if find_spec("mcp") is None:
        raise ToolUnavailable("user_auth.oauth needs the extra: pip install 'toolplug[mcp]'", code="not_installed")
    return await import_in_thread("toolplug.parts.credentials.issuers", after="mcp")
