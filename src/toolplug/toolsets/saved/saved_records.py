"""Saved toolsets, and each owner's equipped one, as records of the store.

`saved-toolset/<owner>/<name>`  one document; its revision detects concurrent writers
`equipped-toolset/<owner>`      the owner and the name of the equipped toolset, written again when that changes
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import NamedTuple

from pydantic import TypeAdapter

from toolplug.stores.store import Store, every_key
from toolplug.toolsets.saved.saved_toolset import SavedToolset, ToolsetOwner

EQUIPPED = "equipped-toolset/"

_SAVED = "saved-toolset/"


class Equipped(NamedTuple):
    """An owner's equipped toolset; `name` may be that of a deleted one."""

    owner: ToolsetOwner
    name: str


class EquippedChoice(NamedTuple):
    """An owner with the equipped toolset; None for a deleted one."""

    owner: ToolsetOwner
    toolset: SavedToolset | None


_TOOLSET = TypeAdapter(SavedToolset)
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
        prefix = _saved_key(owner, "")
        return [key.removeprefix(prefix) for key in await self._store.keys(prefix)]

    async def read(self, owner: ToolsetOwner, name: str) -> StoredRecord | None:
        """Return one document; None if there is none."""
        record = await self._store.read(_saved_key(owner, name))
        return None if record is None else StoredRecord(_TOOLSET.validate_json(record.value), record.revision)

    async def write(self, owner: ToolsetOwner, toolset: SavedToolset, *, expected: int) -> None:
        """Store the document in place of the one of this revision. Raises `StoreConflict` if that has changed."""
        await self._store.commit(_saved_key(owner, toolset.name), _TOOLSET.dump_json(toolset), expected=expected)

    async def delete(self, owner: ToolsetOwner, name: str) -> bool:
        """Delete the document; return False if there is none."""
        return await self._store.commit(_saved_key(owner, name), None) != 0

    async def equipped_name(self, owner: ToolsetOwner) -> str | None:
        """Return the name of the owner's equipped toolset, None if there is none."""
        name, _ = await self.choice(owner)
        return name

    async def choice(self, owner: ToolsetOwner) -> tuple[str | None, int]:
        """Return the name of the owner's equipped toolset and the revision of its record; None and 0 if none is."""
        record = await self._store.read(equipped_key(owner))
        return (None, 0) if record is None else (_CHOICE.validate_json(record.value).name, record.revision)

    async def load_choice(self, value: bytes) -> EquippedChoice:
        """Return the owner of a record of `EQUIPPED`, with the toolset. Raises `ValueError`."""
        owner, name = _CHOICE.validate_json(value)
        kept = await self.read(owner, name)
        return EquippedChoice(owner, None if kept is None else kept.toolset)

    async def equip(self, owner: ToolsetOwner, name: str | None, *, expected: int | None = None) -> int:
        """Store the name of the owner's equipped toolset, None for none, and return the revision of its record.

        Raises `StoreConflict` if that is not `expected`.
        """
        value = None if name is None else _CHOICE.dump_json(Equipped(owner, name))
        return await self._store.commit(equipped_key(owner), value, expected=expected)

    async def every(self) -> AsyncGenerator[SavedToolset]:
        """Yield the documents of all owners."""
        async for key in every_key(self._store, _SAVED):
            record = await self._store.read(key)
            if record is not None:
                yield _TOOLSET.validate_json(record.value)

    async def forget_session(self, session: str) -> None:
        """Delete all records of owners in this session."""
        for kind in (_SAVED, EQUIPPED):
            async for key in every_key(self._store, f"{kind}session/{session}/"):
                await self._store.commit(key, None)


def equipped_key(owner: ToolsetOwner) -> str:
    """Return the key of the record that names the owner's equipped toolset."""
    return f"{EQUIPPED}{owner.key}"


def _saved_key(owner: ToolsetOwner, name: str) -> str:
    return f"{_SAVED}{owner.key}/{name}"
