"""Saved toolsets, and which one each owner has equipped, as records of the store.

`saved-toolset/<owner>/<name>`  one document; its revision is what two writers at once are told apart by
`equipped-toolset/<owner>`      the owner and the name of the equipped one
`toolset-changes`               no value, but a log: whose choice has changed, for the other processes on the store
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
    """What an owner has equipped; `name` can be that of a deleted toolset."""

    owner: ToolsetOwner
    name: str


_TOOLSET = TypeAdapter(SavedToolset)
_OWNER = TypeAdapter(ToolsetOwner)
_CHOICE = TypeAdapter(Equipped)


class StoredRecord(NamedTuple):
    """A document and the revision of its record."""

    toolset: SavedToolset
    revision: int


class SavedRecords:
    """Reads and writes them; every method may raise `StoreError`."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def names(self, owner: ToolsetOwner) -> list[str]:
        """The names of an owner's toolsets, in alphabetical order."""
        prefix = _saved(owner, "")
        return [key.removeprefix(prefix) for key in await self._store.keys(prefix)]

    async def read(self, owner: ToolsetOwner, name: str) -> StoredRecord | None:
        """One document; None where there is none."""
        record = await self._store.read(_saved(owner, name))
        return None if record is None else StoredRecord(_TOOLSET.validate_json(record.value), record.revision)

    async def write(self, owner: ToolsetOwner, toolset: SavedToolset, *, expected: int) -> None:
        """Keep the document in place of the one of this revision. Raises `StoreConflict` where that is another."""
        await self._store.commit(_saved(owner, toolset.name), _TOOLSET.dump_json(toolset), expected=expected)

    async def delete(self, owner: ToolsetOwner, name: str) -> bool:
        """Delete the document; False where there is none."""
        return await self._store.commit(_saved(owner, name), None) != 0

    async def equipped(self, owner: ToolsetOwner) -> str | None:
        """The name of the toolset that the owner has equipped."""
        record = await self._store.read(f"{_EQUIPPED}/{owner.key}")
        return None if record is None else _CHOICE.validate_json(record.value).name

    async def equip(self, owner: ToolsetOwner, name: str | None) -> None:
        """Keep which toolset the owner has equipped; None: none."""
        value = None if name is None else _CHOICE.dump_json(Equipped(owner, name))
        await self._store.commit(f"{_EQUIPPED}/{owner.key}", value)

    async def every(self) -> AsyncGenerator[SavedToolset]:
        """The documents of every owner."""
        async for key in self._keys(f"{_SAVED}/"):
            record = await self._store.read(key)
            if record is not None:
                yield _TOOLSET.validate_json(record.value)

    async def every_equipped(self) -> AsyncGenerator[Equipped]:
        """What each owner has equipped."""
        async for key in self._keys(f"{_EQUIPPED}/"):
            record = await self._store.read(key)
            if record is not None:
                yield _CHOICE.validate_json(record.value)

    async def forget_session(self, session: str) -> None:
        """Delete everything that belongs to owners in this session."""
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
    """Whose choice has changed, as the log of changes has it."""
    return _OWNER.dump_json(owner)


def read_owner(change: bytes) -> ToolsetOwner:
    """The same, read again."""
    return _OWNER.validate_json(change)


def _saved(owner: ToolsetOwner, name: str) -> str:
    return f"{_SAVED}/{owner.key}/{name}"
