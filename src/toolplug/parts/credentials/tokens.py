"""Tokens of users, sealed in the store, and their renewal by one process at a time.

`credentials/token/<tenant>/<user and entry>`  one line of JSON about the connection, then the sealed tokens
`credentials/lease/<the same>`                 while a process asks for a new token, or exchanges; it ends by itself

A refresh token is shown to its issuer once: one that is shown again may revoke all that came of it. So the record is
marked before the issuer is asked, under a lease. A mark without a lease is of a process that has died in between: its
user signs in again. While a JWT is exchanged the record has no token, and `connected_at` 0: to delete it is to have the
token of that exchange not stored.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from typing import NamedTuple

from pydantic import BaseModel, TypeAdapter

from toolplug.catalog.call import Principal
from toolplug.errors import Unsealable
from toolplug.execution.user_auth import AuthOwner
from toolplug.host.keys import Sealer
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
