"""Allowlists and toolsets that tenants keep beside the configuration, as records of the store.

`allowlist/<tenant and agent>`  the toolsets of an agent
`toolset/<tenant and id>`       a toolset
`agent-changes`                 no value, but a log: the keys of records that have changed, for every process
"""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator
from typing import Literal, NamedTuple, TypeVar

from toolplug.host.file.part import Part
from toolplug.host.file.toolset_settings import Scope
from toolplug.stores.store import Store
from toolplug.toolsets.allowlists import Allowlist

CHANGES = "agent-changes"

_ALLOWLIST = "allowlist/"
_BINDING = "toolset/"
_PAGE = 1000

Way = Literal["http", "cli"]
_WAYS: dict[Way, str] = {"http": "PUT /api/agents/{}/toolsets by {}", "cli": "toolplug agents ({}) by {}"}


class AllowlistRecord(Part):
    """The toolsets of a tenant's agent, and who put them there in which way."""

    tenant: str
    agent: str
    toolsets: list[str]
    by: str
    way: Way = "http"

    @property
    def allowlist(self) -> Allowlist:
        """The same as executors go by it."""
        return Allowlist(tuple(self.toolsets), _WAYS[self.way].format(self.agent, self.by))


class BindingRecord(Part):
    """A toolset of one tenant; `source` is written as in the configuration."""

    tenant: str
    id: str
    prefix: str
    source: str
    scope: Scope = "shared"
    by: str


class KeptAllowlist(NamedTuple):
    """An agent's record and its revision; None and 0 where there is none."""

    record: AllowlistRecord | None
    revision: int


_Record = TypeVar("_Record", bound=Part)


class ToolsetRecords:
    """Reads and writes them; every method may raise `StoreError`. Those that write give the key that has changed."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def allowlists(self, tenant: str | None = None) -> list[AllowlistRecord]:
        """Those of a tenant, None: of every tenant."""
        every = self._every(_ALLOWLIST, AllowlistRecord)
        return [record async for record in every if tenant in (None, record.tenant)]

    async def bindings(self, tenant: str | None = None) -> list[BindingRecord]:
        """Those of a tenant, None: of every tenant."""
        return [record async for record in self._every(_BINDING, BindingRecord) if tenant in (None, record.tenant)]

    async def allowlist(self, tenant: str, agent: str) -> KeptAllowlist:
        """That of one agent."""
        kept = await self._store.read(_key(_ALLOWLIST, tenant, agent))
        if kept is None:
            return KeptAllowlist(None, 0)
        return KeptAllowlist(AllowlistRecord.model_validate_json(kept.value), kept.revision)

    async def changed(self, change: bytes) -> AllowlistRecord | BindingRecord | None:
        """What is at a key that the log of changes names; None where nothing is."""
        key = change.decode()
        kept = await self._store.read(key)
        if kept is None:
            return None
        model = AllowlistRecord if key.startswith(_ALLOWLIST) else BindingRecord
        return model.model_validate_json(kept.value)

    async def keep_allowlist(self, record: AllowlistRecord, *, expected: int | None = None) -> bytes:
        """Keep it in place of the agent's last one. Raises `StoreConflict` where that is not of this revision."""
        key = _key(_ALLOWLIST, record.tenant, record.agent)
        await self._store.commit(key, _bytes(record), expected=expected)
        return key.encode()

    async def keep_binding(self, record: BindingRecord) -> bytes:
        """Keep it in place of the last one of its id."""
        key = _key(_BINDING, record.tenant, record.id)
        await self._store.commit(key, _bytes(record))
        return key.encode()

    async def _every(self, prefix: str, model: type[_Record]) -> AsyncIterator[_Record]:
        after = ""
        while keys := await self._store.keys(prefix, after=after, limit=_PAGE):
            for key in keys:
                record = await self._store.read(key)
                if record is not None:
                    yield model.model_validate_json(record.value)
            after = keys[-1]


def _key(kind: str, tenant: str, name: str) -> str:
    """A tenant may be called anything; its name stands in the record."""
    return kind + hashlib.sha256(ascii((tenant, name)).encode()).hexdigest()


def _bytes(record: Part) -> bytes:
    return record.model_dump_json().encode()
