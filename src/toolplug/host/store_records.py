"""What the host itself keeps in its store: records of tenants, one for each name, a key for hashes, and the host's id.

Running hosts and the command line share the records of tenants.

`mcp-hash-key`  32 random bytes, the key for hashes of values that must not be guessed
"""

from __future__ import annotations

import hashlib
import logging
import secrets
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Generic, NamedTuple, TypeVar

from pydantic import BaseModel

from toolplug.errors import StoreConflict
from toolplug.stores.store import Store, every_key, name_digest

_LOG = logging.getLogger("toolplug.host")

R = TypeVar("R", bound=BaseModel)


class Written(NamedTuple):
    """The key of a record that was written or deleted, and its revision then."""

    key: str
    revision: int


class TenantRecords(Generic[R]):
    """Reads and writes the records of one model under one prefix.

    A name has one or more parts, a tenant among them. Every method but `key` and `load` may raise `StoreError`.
    """

    def __init__(self, store: Store, prefix: str, model: type[R]) -> None:
        self.prefix: str = prefix
        self._store = store
        self._model = model

    def key(self, *name: str | None) -> str:
        """Return the key of a record: the prefix and a hash, since a tenant's name may hold any character."""
        return self.prefix + name_digest(*name)

    async def load(self, value: bytes) -> R:
        """Return the record that a value of the store holds. Raises `ValueError`."""
        return self._model.model_validate_json(value)

    async def every(self) -> AsyncIterator[R]:
        """Yield every record, of all tenants, but for those that cannot be read, which are logged."""
        async for key in every_key(self._store, self.prefix):
            try:
                record, _ = await self.at(key)
            except ValueError as error:
                _LOG.error("record %s cannot be read and is not used: %s", key, error)
                continue
            if record is not None:
                yield record

    async def at(self, key: str) -> tuple[R | None, int]:
        """Return the record at a key and its revision; None and 0 if there is none. Raises `ValueError`."""
        found = await self._store.read(key)
        return (None, 0) if found is None else (await self.load(found.value), found.revision)

    async def save(self, record: R, *name: str | None, expected: int | None = None) -> Written:
        """Write the record of a name. Raises `StoreConflict` if its revision is not `expected`."""
        key = self.key(*name)
        value = record.model_dump_json(exclude_defaults=True).encode()
        return Written(key, await self._store.commit(key, value, expected=expected))

    async def delete(self, *name: str | None) -> Written:
        key = self.key(*name)
        return Written(key, await self._store.commit(key, None))


_HASH_KEY = "mcp-hash-key"
_KEY_BYTES = 32
_HOST_ID = 16


async def hash_key(store: Store) -> bytes:
    """Return the store's key for hashes of configurations, made by the first caller. Raises `StoreError`."""
    with suppress(StoreConflict):
        # Of all processes that start at once the first one makes it; the others read it below.
        await store.commit(_HASH_KEY, secrets.token_bytes(_KEY_BYTES), expected=0)
    found = await store.read(_HASH_KEY)
    assert found is not None, "this record is never deleted"
    return found.value


def host_id(key: bytes) -> str:
    """Return the id of the host whose store has this key for hashes: the same in each of its processes."""
    return hashlib.sha256(b"host id " + key).hexdigest()[:_HOST_ID]
