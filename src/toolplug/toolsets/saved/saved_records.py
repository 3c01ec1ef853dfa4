"""Saved toolsets, and each owner's equipped one, as records of the store.

`saved-toolset/<owner>/<name>`  one document; its revision detects concurrent writers
`equipped-toolset/<owner>`      the owner and the name of the equipped toolset
`toolset-changes`               no value; its log names owners with changes, for the other processes on the store
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import NamedTuple

from pydantic import TypeAdapter

from toolplug.stores.store import Store
from toolplug.toolsets.saved.saved_toolset import SavedToolset, ToolsetOwner

CHANGES = "toolset-changes"

_SAVED = "saved-toolset"
_EQUIPPED = "equipped-toolset"
_PAGE = 1000


class Equipped(NamedTuple):
    """An owner's equipped toolset; `name` may be that of a deleted one."""

    owner: ToolsetOwner
    name: str


_TOOLSET = TypeAdapter(SavedToolset)
_OWNER = TypeAdapter(ToolsetOwner)
_CHOICE = TypeAdapter(Equipped)


class StoredRecord(NamedTuple):
    """A document with the revision of its record."""

    toolset: SavedToolset
    revision: int


class SavedRecords:
    """Reads and writes the records. Each method may raise `StoreError`."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def names(self, owner: ToolsetOwner) -> list[str]:
        """Return the names of an owner's toolsets, in alphabetical order."""
        prefix = _saved(owner, "")
        return [key.removeprefix(prefix) for key in await self._store.keys(prefix)]

    async def read(self, owner: ToolsetOwner, name: str) -> StoredRecord | None:
        """Return one document; None if there is none."""
        record = await self._store.read(_saved(owner, name))
        return None if record is None else StoredRecord(_TOOLSET.validate_json(record.value), record.revision)

    async def write(self, owner: ToolsetOwner, toolset: SavedToolset, *, expected: int) -> None:
        """Store the document in place of the one of this revision. Raises `StoreConflict` if that has changed."""
        await self._store.commit(_saved(owner, toolset.name), _TOOLSET.dump_json(toolset), expected=expected)

    async def delete(self, owner: ToolsetOwner, name: str) -> bool:
        """Delete the document; return False if there is none."""
        return await self._store.commit(_saved(owner, name), None) != 0

    async def equipped(self, owner: ToolsetOwner) -> str | None:
        """Return the name of the owner's equipped toolset, None if there is none."""
        record = await self._store.read(f"{_EQUIPPED}/{owner.key}")
        return None if record is None else _CHOICE.validate_json(record.value).name

    async def equip(self, owner: ToolsetOwner, name: str | None) -> None:
        """Store the name of the owner's equipped toolset, None for none."""
        value = None if name is None else _CHOICE.dump_json(Equipped(owner, name))
        await self._store.commit(f"{_EQUIPPED}/{owner.key}", value)

    async def every(self) -> AsyncGenerator[SavedToolset]:
        """Yield the documents of all owners."""
        async for key in self._keys(f"{_SAVED}/"):
            record = await self._store.read(key)
            if record is not None:
                yield _TOOLSET.validate_json(record.value)

    async def every_equipped(self) -> AsyncGenerator[Equipped]:
        """Yield the equipped toolset of each owner."""
        async for key in self._keys(f"{_EQUIPPED}/"):
            record = await self._store.read(key)
            if record is not None:
                yield _CHOICE.validate_json(record.value)

    async def forget_session(self, session: str) -> None:
        """Delete all records of owners in this session."""
        for kind in (_SAVED, _EQUIPPED):
            async for key in self._keys(f"{kind}/session/{session}/"):
                await self._store.commit(key, None)

    async def _keys(self, prefix: str) -> AsyncGenerator[str]:
        after = ""
        while keys := await self._store.keys(prefix, after=after, limit=_PAGE):
            for key in keys:
                yield key
            after = keys[-1]


def owner_bytes(owner: ToolsetOwner) -> bytes:
    """Return the entry of the log of changes for an owner."""
    return _OWNER.dump_json(owner)


def read_owner(change: bytes) -> ToolsetOwner:
    """Return the owner of an entry that `owner_bytes` has encoded."""
    return _OWNER.validate_json(change)


def _saved(owner: ToolsetOwner, name: str) -> str:
    return f"{_SAVED}/{owner.key}/{name}"
