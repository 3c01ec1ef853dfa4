"""Records of tenants in the store, one for each name, which running hosts and the command line share."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator
from typing import Generic, TypeVar

from pydantic import BaseModel

from toolplug.stores.store import Store

_PAGE = 1000

R = TypeVar("R", bound=BaseModel)


class TenantRecords(Generic[R]):
    """Reads and writes the records of one model under one prefix; every method but `key` may raise `StoreError`.

    A name has one or more parts, a tenant among them.
    """

    def __init__(self, store: Store, prefix: str, model: type[R]) -> None:
        self.prefix: str = prefix
        self._store = store
        self._model = model

    def key(self, *name: str | None) -> str:
        """Return the key of a record: the prefix and a hash, since a tenant's name may hold any character."""
        return self.prefix + hashlib.sha256(ascii(name).encode()).hexdigest()

    async def every(self) -> AsyncIterator[R]:
        """Yield every record, of all tenants."""
        async for key in every_key(self._store, self.prefix):
            record, _ = await self.at(key)
            if record is not None:
                yield record

    async def at(self, key: str) -> tuple[R | None, int]:
        """Return the record at a key and its revision; None and 0 if there is none."""
        found = await self._store.read(key)
        return (None, 0) if found is None else (self._model.model_validate_json(found.value), found.revision)

    async def save(self, record: R, *name: str | None, expected: int | None = None) -> bytes:
        """Write the record of a name and return its key. Raises `StoreConflict` if its revision is not `expected`."""
        key = self.key(*name)
        await self._store.commit(key, record.model_dump_json(exclude_defaults=True).encode(), expected=expected)
        return key.encode()

    async def delete(self, *name: str | None) -> bytes:
        """Delete the record of a name and return its key."""
        key = self.key(*name)
        await self._store.commit(key, None)
        return key.encode()


async def every_key(store: Store, prefix: str) -> AsyncIterator[str]:
    """Yield the keys of live records with a prefix. Raises `StoreError`."""
    after = ""
    while keys := await store.keys(prefix, after=after, limit=_PAGE):
        for key in keys:
            yield key
        after = keys[-1]
