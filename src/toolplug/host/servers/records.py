"""MCP servers that were added while a host ran, and what was changed of those of the file, as records of the store.

`mcp-server/<hash of tenant and id>`  a server of one tenant, or a change of one of the file, which holds for everybody
`mcp-server-changes`                  no value, but a log: the keys of records that have changed, for every process
`mcp-hash-key`                        32 random bytes, with which values are hashed that must not be guessed
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Annotated

from pydantic import BeforeValidator

from toolplug.discovery.known_server import ServerName
from toolplug.errors import StoreConflict
from toolplug.execution.tool_rule import Policy, ToolRule
from toolplug.host.file.part import Part
from toolplug.host.file.tool_rules import rule
from toolplug.stores.store import Store

CHANGES = "mcp-server-changes"

_HASH_KEY = "mcp-hash-key"
_SERVER = "mcp-server/"
_PAGE = 1000
_KEY_BYTES = 32

Rules = dict[str, Annotated[ToolRule, BeforeValidator(rule)]]


class ServerRecord(Part):
    """One record. With a `tenant` it is a server of that tenant, else a change of the file's server of this id.

    What is None was not said.
    """

    id: str
    tenant: str | None = None
    url: str | None = None
    headers: dict[str, str] = {}  # noqa: RUF012  pydantic copies it, and the model is frozen
    enabled: bool | None = None
    policy: Policy | None = None
    tools: Rules | None = None
    discovery_timeout_s: float | None = None
    by: str

    @property
    def name(self) -> ServerName:
        """The server that it is of."""
        return ServerName(self.id, self.tenant)


class ServerRecords:
    """Reads and writes them; every method may raise `StoreError`. Those that write give the key that has changed."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def every(self) -> list[ServerRecord]:
        """All of them, whosever."""
        return [record async for record in self._every()]

    async def changed(self, change: bytes) -> ServerRecord | None:
        """What is at a key that the log of changes names; None where nothing is any more."""
        kept = await self._store.read(change.decode())
        return None if kept is None else ServerRecord.model_validate_json(kept.value)

    async def keep(self, record: ServerRecord) -> bytes:
        """Keep it in place of the last one of its server."""
        key = key_of(record.name)
        await self._store.commit(key, record.model_dump_json(exclude_defaults=True).encode())
        return key.encode()

    async def drop(self, name: ServerName) -> bytes:
        """Delete the record of a server."""
        key = key_of(name)
        await self._store.commit(key, None)
        return key.encode()

    async def hash_key(self) -> bytes:
        """The key of this store; made by whoever asks first."""
        with suppress(StoreConflict):
            await self._store.commit(_HASH_KEY, secrets.token_bytes(_KEY_BYTES), expected=0)
        kept = await self._store.read(_HASH_KEY)
        assert kept is not None, "this record is never deleted"
        return kept.value

    async def _every(self) -> AsyncIterator[ServerRecord]:
        after = ""
        while keys := await self._store.keys(_SERVER, after=after, limit=_PAGE):
            for key in keys:
                record = await self._store.read(key)
                if record is not None:
                    yield ServerRecord.model_validate_json(record.value)
            after = keys[-1]


def key_of(name: ServerName) -> str:
    """Where the record of a server is; a tenant may be called anything, so that its name stands in the record."""
    return _SERVER + hashlib.sha256(ascii(tuple(name)).encode()).hexdigest()
