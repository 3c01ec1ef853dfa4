"""What a store keeps of the host that it belongs to: a key for hashes, and the host's id.

`mcp-hash-key`  32 random bytes, the key for hashes of values that must not be guessed
"""

from __future__ import annotations

import hashlib
import secrets
from contextlib import suppress

from toolplug.errors import StoreConflict
from toolplug.stores.store import Store

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
