"""What the store has of users: their tokens, which one process at a time renews, and the links with which they sign in.

`credentials/token/<tenant>/<user and entry>`      one line of JSON about the connection, then the sealed tokens
`credentials/lease/<the same>`                     while a process asks for a new token, or exchanges; ends by itself
`credentials/link/<digest of the link's secret>`   who is to sign in where; until it is pressed, at most ten minutes
`credentials/state/<digest of the state>`          what was sent to the issuer, and which browser has pressed

A refresh token is shown to its issuer once: one that is shown again may revoke all that came of it. So the record is
marked before the issuer is asked, under a lease. A mark without a lease is of a process that has died in between: its
user signs in again. While a JWT is exchanged the record has no token, and `connected_at` 0: to delete it is to have the
token of that exchange not stored.

A call that needs a token makes a link, which is pressed in a browser and answered by the issuer. Links and states are
sealed, and used once. The state is another secret than the link: who has sent a link to a user knows neither the state
nor the cookie of the browser.
"""

from __future__ import annotations

import secrets
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from typing import NamedTuple

from pydantic import BaseModel, TypeAdapter

from toolplug.catalog.call import Principal
from toolplug.errors import StoreConflict, Unsealable
from toolplug.execution.user_auth import AuthOwner
from toolplug.host.keys.host_key import Sealer
from toolplug.runtime.lru import LeastRecentlyUsed
from toolplug.stores.store import Record, Store, key_pages, name_digest, tenant_digest

TOKENS = "credentials/token/"
LEASES = "credentials/lease/"


class UserConnection(BaseModel, frozen=True):
    """What is known of a connection without its tokens. Times are in seconds since the epoch, 0 for unknown."""

    tenant: str
    subject: str
    kind: str
    key: str
    issuer: str
    scope: str = ""
    connected_at: float
    expires_at: float = 0.0
    renewing: str = ""


class UserTokens(BaseModel, frozen=True):
    """The tokens of one user at one entry, and where they are renewed and revoked."""

    access: str
    refresh: str = ""
    client_id: str = ""
    client_secret: str = ""
    auth_method: str = "none"
    token_endpoint: str = ""
    refresh_endpoint: str = ""
    revocation_endpoint: str = ""
    resource: str = ""
    renewed_at: float = 0.0


class KeptConnection(NamedTuple):
    """A record as it was read; `tokens` is None where the host's keys no longer open it."""

    connection: UserConnection
    tokens: UserTokens | None
    revision: int


def user_key(owner: AuthOwner, principal: Principal) -> str:
    """Return what the keys of records end with: of one user at one entry, with its URL."""
    tenant = tenant_digest(principal.tenant)
    return f"{tenant}/{name_digest(principal.subject, owner.kind, owner.key, owner.url)[:32]}"


class TokenRecords:
    """The records of all users. `sealer` returns what seals them. Methods raise `StoreError` and `HostKeyError`."""

    def __init__(self, store: Store, sealer: Callable[[], Awaitable[Sealer]]) -> None:
        self._store = store
        self._sealer = sealer

    async def read(self, user: str, owner: AuthOwner) -> KeptConnection | None:
        """Return the record of a user, None for none."""
        record = await self._store.read(TOKENS + user)
        if record is None:
            return None
        head, _, sealed = record.value.partition(b"\n")
        connection = UserConnection.model_validate_json(head)
        try:
            opened = (await self._sealer()).unseal(sealed, _bound(user, connection, owner))
        except Unsealable:
            return KeptConnection(connection, None, record.revision)
        return KeptConnection(connection, UserTokens.model_validate_json(opened), record.revision)

    async def write(
        self,
        user: str,
        owner: AuthOwner,
        connection: UserConnection,
        tokens: UserTokens,
        *,
        expected: int | None,
        ttl_s: float | None = None,
    ) -> int:
        """Write a record and return its revision. Raises `StoreConflict` too."""
        sealed = (await self._sealer()).seal(
            tokens.model_dump_json(exclude_defaults=True).encode(), _bound(user, connection, owner)
        )
        head = connection.model_dump_json(exclude_defaults=True).encode()
        return await self._store.commit(TOKENS + user, head + b"\n" + sealed, expected=expected, ttl_s=ttl_s)

    async def forget(self, user: str, *, expected: int | None = None) -> None:
        """Delete a record. Raises `StoreConflict` too."""
        await self._store.commit(TOKENS + user, None, expected=expected)

    async def list_exchanged(self, user: str) -> Sequence[str]:
        """Return what the keys of the records of a user end with, of which there is one for each of its credentials."""
        return [key.removeprefix(TOKENS) for key in await self._store.keys(f"{TOKENS}{user}-")]

    async def has_exchanged(self, user: str) -> bool:
        """Return whether a user has a token for which its JWT was exchanged."""
        for each in await self.list_exchanged(user):
            record = await self._store.read(TOKENS + each)
            if record is not None and _head_of(record).connected_at:
                return True
        return False

    async def lease(self, user: str, seconds: float) -> None:
        """Take the lease of a renewal or exchange. Raises `StoreConflict` while another process has it."""
        await self._store.commit(LEASES + user, b"1", expected=0, ttl_s=seconds)

    async def is_leased(self, user: str) -> bool:
        """Return whether a process has the lease."""
        return await self._store.read(LEASES + user) is not None

    async def release(self, user: str) -> None:
        """Give the lease back."""
        await self._store.commit(LEASES + user, None)


async def connections_of_tenant(store: Store, tenant: str) -> AsyncGenerator[UserConnection]:
    async for keys in key_pages(store, f"{TOKENS}{tenant_digest(tenant)}/"):
        for key in keys:
            record = await store.read(key)
            if record is not None and (connection := _head_of(record)).connected_at:
                yield connection


def _head_of(record: Record) -> UserConnection:
    """Return what a record says in clear."""
    return UserConnection.model_validate_json(record.value.partition(b"\n")[0])


_BOUND: TypeAdapter[tuple[str, ...]] = TypeAdapter(tuple[str, ...])


def _bound(user: str, connection: UserConnection, owner: AuthOwner) -> bytes:
    """Return whose tokens these are: what is sealed for another user, issuer or server is not opened.

    The key is in it, too: a record that someone has copied to the key of another user is not opened there.
    """
    return _BOUND.dump_json((user, connection.tenant, connection.subject, connection.issuer, *owner))


LINKS = "credentials/link/"
STATES = "credentials/state/"
LIFE_S = 600.0
"""Of a link, and of a sign-in at the issuer: a person finds a second factor in that time."""
_FRESH_S = 300.0
"""A link is given once more while it holds at least so long: a model repeats a call, and its user presses one link."""
MAX_FRESH = 10_000
_SECRET_BYTES = 32


class AskedSignIn(BaseModel, frozen=True):
    """Who is to sign in where. `base` is the URL of the host that the browser knows; `expires_at` in epoch seconds."""

    tenant: str
    subject: str
    kind: str
    key: str
    url: str = ""
    base: str
    expires_at: float

    @property
    def owner(self) -> AuthOwner:
        return AuthOwner(self.kind, self.key, self.url)

    @property
    def principal(self) -> Principal:
        return Principal(self.subject, self.tenant)


class BegunSignIn(BaseModel, frozen=True):
    """What was sent to the issuer, and the digest of the browser's cookie; `start` has the client, and no tokens.

    With a `nonce` it is the sign-in of the browser to the host itself, before that at the issuer of the server.
    `is_named`: the issuer's name is known, so that its answers have to name it.
    """

    asked: AskedSignIn
    start: UserTokens
    issuer: str
    metadata: str
    scope: str
    verifier: str
    browser: str
    nonce: str = ""
    is_named: bool = True


class SignInLink(NamedTuple):
    """A link for a user, and until when it holds, in epoch seconds."""

    url: str
    expires_at: float


class SignIns:
    """The links and states of all processes. Methods raise `StoreError` and `HostKeyError`."""

    def __init__(self, store: Store, sealer: Callable[[], Awaitable[Sealer]]) -> None:
        self._store = store
        self._sealer = sealer
        self._fresh: LeastRecentlyUsed[tuple[str, ...], tuple[str, AskedSignIn]] = LeastRecentlyUsed(MAX_FRESH)

    async def link(self, owner: AuthOwner, principal: Principal, base: str) -> SignInLink:
        """Return a link for this user, the last one if it has not been pressed."""
        who = (principal.tenant, principal.subject, *owner, base)
        fresh = self._fresh.get(who)
        if (
            fresh is None
            or fresh[1].expires_at - self._store.now() < _FRESH_S
            or await self.find_link(fresh[0]) is None
        ):
            expires_at = self._store.now() + LIFE_S
            user = {"tenant": principal.tenant, "subject": principal.subject, **owner._asdict()}
            asked = AskedSignIn(**user, base=base, expires_at=expires_at)
            fresh = secrets.token_urlsafe(_SECRET_BYTES), asked
            await self._write(LINKS, fresh[0], asked)
            self._fresh.put(who, fresh)
        return SignInLink(f"{base}/connect/{fresh[0]}", fresh[1].expires_at)

    async def find_link(self, secret: str) -> AskedSignIn | None:
        """Return what a link is for; None for an unknown, used or expired one."""
        found = await self._read(LINKS, secret)
        return None if found is None else AskedSignIn.model_validate_json(found[0])

    async def press(self, secret: str) -> AskedSignIn | None:
        """Use a link up, and return what it is for; None as `find_link`."""
        found = await self._read(LINKS, secret)
        if found is None or not await self._use(LINKS, secret, found[1]):
            return None
        return AskedSignIn.model_validate_json(found[0])

    async def begin(self, state: str, begun: BegunSignIn) -> None:
        """Keep what was sent to the issuer until its answer."""
        await self._write(STATES, state, begun)

    async def take_state(self, state: str, browser: str) -> BegunSignIn | None:
        """Use a state up, and return its sign-in; None for an unknown, used or expired one, or of another browser."""
        found = await self._read(STATES, state)
        if found is None:
            return None
        begun = BegunSignIn.model_validate_json(found[0])
        if not secrets.compare_digest(begun.browser, name_digest(browser)):
            return None
        return begun if await self._use(STATES, state, found[1]) else None

    async def _write(self, kind: str, secret: str, value: BaseModel) -> None:
        name = name_digest(secret)
        sealed = (await self._sealer()).seal(value.model_dump_json().encode(), f"{kind}{name}".encode())
        await self._store.commit(kind + name, sealed, expected=0, ttl_s=LIFE_S)

    async def _read(self, kind: str, secret: str) -> tuple[bytes, int] | None:
        name = name_digest(secret)
        record = await self._store.read(kind + name)
        if record is None:
            return None
        try:
            return (await self._sealer()).unseal(record.value, f"{kind}{name}".encode()), record.revision
        except Unsealable:
            return None

    async def _use(self, kind: str, secret: str, revision: int) -> bool:
        try:
            await self._store.commit(kind + name_digest(secret), None, expected=revision)
        except StoreConflict:
            return False
        return True
