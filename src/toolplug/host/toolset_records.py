"""Allowlists and toolsets that came over HTTP, as records of the store."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator
from typing import TypeVar

from toolplug.host.part import Part
from toolplug.stores.store import Store

_ALLOWLIST = "allowlist/"
_BINDING = "toolset/"
_PAGE = 1000


class AllowlistRecord(Part):
    """The toolsets of a tenant's agent, and whose request put them there."""

    tenant: str
    agent: str
    toolsets: list[str]
    by: str


class BindingRecord(Part):
    """A toolset of one tenant; `source` is written as in the configuration."""

    tenant: str
    id: str
    prefix: str
    source: str
    by: str


_Record = TypeVar("_Record", bound=Part)


class ToolsetRecords:
    """Reads and writes them; every method may raise `StoreError`."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def allowlists(self) -> list[AllowlistRecord]:
        """Those of every tenant."""
        return [record async for record in self._every(_ALLOWLIST, AllowlistRecord)]

    async def bindings(self) -> list[BindingRecord]:
        """Those of every tenant."""
        return [record async for record in self._every(_BINDING, BindingRecord)]

    async def keep_allowlist(self, record: AllowlistRecord) -> None:
        """Keep it in place of the agent's last one."""
        await self._store.commit(_key(_ALLOWLIST, record.tenant, record.agent), _bytes(record))

    async def keep_binding(self, record: BindingRecord) -> None:
        """Keep it in place of the last one of its id."""
        await self._store.commit(_key(_BINDING, record.tenant, record.id), _bytes(record))

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
