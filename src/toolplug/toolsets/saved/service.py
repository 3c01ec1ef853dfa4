"""The operations on saved toolsets: build, equip, annotate, export. HTTP routes, tools and commands use them."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Collection, Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from typing import Self

from toolplug.catalog.catalog import Catalog
from toolplug.catalog.definition import Note
from toolplug.catalog.text import clean_text
from toolplug.cluster.followed import FollowedRecords
from toolplug.cluster.processes import ProcessRequests
from toolplug.config.yaml_tree import Value
from toolplug.errors import ApiError, StoreConflict, StoreError, ToolplugError
from toolplug.execution.accounting import audit
from toolplug.runtime.keyed_locks import KeyedLocks
from toolplug.runtime.tasks import BackgroundTasks
from toolplug.runtime.threads import FairThreads
from toolplug.stores.store import Store
from toolplug.toolsets.saved.document import Document, document_fields, import_toolset, yaml_fields
from toolplug.toolsets.saved.equipped import EquippedToolsets, chosen_only, equip
from toolplug.toolsets.saved.saved_records import EQUIPPED, EquippedChoice, SavedRecords, StoredRecord, equipped_key
from toolplug.toolsets.saved.saved_toolset import (
    Caller,
    NotesAdded,
    NotesRemoved,
    SavedToolset,
    ShownToolset,
    ToolReference,
    ToolsetLine,
    ToolsetOwner,
    check_saved,
    is_toolset_name,
    noted_tool,
    resolve_reference,
    with_notes,
    without_notes,
)

MAX_TOOLSETS = 100
"""Of one owner."""
_READERS = 4

_LOG = logging.getLogger("toolplug.toolsets")

CatalogOf = Callable[[Caller], Awaitable[Catalog]]
"""What a caller could call if nothing were equipped. Raises `AccessError`."""


class SavedToolsets:
    """The saved toolsets of all owners on one store; used inside `async with`, on one event loop.

    Each method may raise `StoreError`, and those that need the caller's tools `AccessError`; then nothing has changed.
    Changes are effective when the method returns, in every process of the store.

    ```python
    from toolplug import Caller, CallContext, FunctionProvider, ProviderContext, SavedToolsets, tool

    class Chooser(FunctionProvider):
        async def start(self, site: ProviderContext) -> None:
            self.toolsets = site.service(SavedToolsets)

        @tool
        async def work_with(self, name: str, context: CallContext) -> list[str]:
            "Work with the tools of one saved toolset."
            shown = await self.toolsets.equip(Caller.of(context), name)
            return list(shown.toolset.tools)
    ```
    """

    def __init__(
        self, store: Store, equipment: EquippedToolsets, catalog_of: CatalogOf, requests: ProcessRequests
    ) -> None:
        self._records = SavedRecords(store)
        self._equipment = equipment
        self._catalog_of = catalog_of
        # Held in this order: by owner for a change, by record while the choice in the store and its copy may differ.
        self._changing = KeyedLocks[ToolsetOwner]()
        self._choosing = KeyedLocks[str]()
        self._forgetting = BackgroundTasks()
        self._choices = FollowedRecords(store, EQUIPPED, self._records.load_choice, self._use, self._choosing.of)
        self._owners: dict[str, ToolsetOwner] = {}
        self._threads = FairThreads("toolsets", _READERS)
        self._requests = requests
        requests.apply(self._choices)

    async def __aenter__(self) -> Self:
        await self._choices.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._choices.aclose()
        await self._forgetting.wait()
        self._threads.close()

    async def available(self, caller: Caller) -> Catalog:
        """Return the catalog that the caller can choose from."""
        return await self._catalog_of(caller)

    async def saved(self, caller: Caller) -> list[ToolsetLine]:
        """Return the owner's toolsets, in alphabetical order."""
        owner = caller.owner
        chosen = await self._records.equipped_name(owner)
        kept = [await self._records.read(owner, name) for name in await self._records.names(owner)]
        mine = [await self._reachable(caller, item.toolset) for item in kept if item is not None]
        return [ToolsetLine(toolset, toolset.name == chosen) for toolset in mine]

    async def show(self, caller: Caller, name: str) -> ShownToolset:
        """Return one toolset compared with the current tools. Raises `ApiError` (`toolset_not_found`)."""
        kept = await self._find_record(caller.owner, name)
        return await self._show(caller, kept.toolset)

    async def active(self, caller: Caller) -> ShownToolset | None:
        """Return the equipped toolset; None if there is none."""
        toolset = self._equipment.of(caller.owner)
        return None if toolset is None else await self._show(caller, toolset)

    async def active_catalog(self, caller: Caller) -> Catalog:
        """Return the available tools of the equipped toolset, with notes; empty if none is equipped."""
        toolset = self._equipment.of(caller.owner)
        return Catalog() if toolset is None else equip(await self._catalog_of(caller), toolset, chosen_only)

    async def document(self, caller: Caller, name: str) -> dict[str, object]:
        """Return a toolset as a document for `import_document`. Raises `ApiError`."""
        kept = await self._find_record(caller.owner, name)
        return document_fields(await self._reachable(caller, kept.toolset))

    async def build(
        self, caller: Caller, name: str, tools: Sequence[ToolReference], *, description: str = ""
    ) -> ShownToolset:
        """Save a new toolset of available tools. Raises `ApiError`."""
        catalog = await self._catalog_of(caller)

        def make_toolset() -> SavedToolset:
            names = tuple(resolve_reference(tool, catalog) for tool in tools)
            check_saved(name, names)
            return SavedToolset(name=name, tools=names, description=clean_text(description).strip())

        return await self._save_new("toolset.create", caller, name, catalog, make_toolset)

    async def read_yaml(self, caller: Caller, text: bytes) -> dict[str, Value]:
        """Return the values of a YAML document for `import_document`. Raises `ConfigError`.

        A mebibyte of small parts takes a second: it is read in a thread, two of a tenant at a time.
        """
        return await self._threads.run(caller.principal.tenant, partial(yaml_fields, text, file="body"))

    async def import_document(self, caller: Caller, document: Document) -> ShownToolset:
        """Save a new toolset from a document, whose tools need not be available. Raises `ApiError`."""
        catalog = await self._catalog_of(caller)
        return await self._save_new(
            "toolset.import", caller, document.name, catalog, lambda: import_toolset(document, catalog)
        )

    async def delete(self, caller: Caller, name: str) -> None:
        """Delete a toolset, and unequip it if it is equipped. Raises `ApiError`."""
        async with self._changing.of(caller.owner):
            with _audit("toolset.delete", caller, name):
                owner = caller.owner
                await self._find_record(owner, name)
                # Unequipped first: a failure in between leaves a toolset that is not equipped, not a choice without its
                # toolset.
                if await self._records.equipped_name(owner) == name:
                    await self._choose(owner, None)
                await self._records.delete(owner, name)
        await self._chosen_everywhere(caller)

    async def equip(self, caller: Caller, name: str) -> ShownToolset:
        """Equip this toolset instead of any other. Raises `ApiError`."""
        catalog = await self._catalog_of(caller)
        async with self._changing.of(caller.owner):
            with _audit("toolset.equip", caller, name):
                kept = await self._find_record(caller.owner, name)
                await self._choose(caller.owner, name)
        await self._chosen_everywhere(caller)
        return ShownToolset(await self._reachable(caller, kept.toolset), True, catalog)

    async def unequip(self, caller: Caller) -> str | None:
        """Unequip the toolset, so that all tools are listed; return its name, None if there was none."""
        async with self._changing.of(caller.owner):
            before = await self._equipped_now(caller.owner)
            if before is None:
                return None
            with _audit("toolset.unequip", caller, before):
                await self._choose(caller.owner, None)
        await self._chosen_everywhere(caller)
        return before

    async def add_notes(
        self,
        caller: Caller,
        tool: ToolReference,
        notes: Sequence[Note],
        *,
        toolset: str | None = None,
        replace_existing: bool = False,
    ) -> NotesAdded:
        """Add notes to a tool of a toolset, by default the equipped one. Raises `ApiError`, and then adds no note."""
        catalog = await self._catalog_of(caller)
        async with self._changing.of(caller.owner):
            owner = caller.owner
            name = await self._choose_name(owner, toolset)
            with _audit("notes.add", caller, name):
                kept = await self._find_record(owner, name)
                definition = catalog[resolve_reference(tool, catalog, kept.toolset.tools)].definition
                made: list[NotesAdded] = []

                def change(before: SavedToolset) -> SavedToolset:
                    made.append(with_notes(before, definition, notes, replace=replace_existing))
                    return made[-1].toolset

                await self._rewrite(owner, name, change)
        await self._chosen_everywhere(caller)
        return made[-1]

    async def remove_notes(
        self, caller: Caller, toolset: str, tool: ToolReference, names: Collection[str]
    ) -> NotesRemoved:
        """Remove notes from a tool, which may be unavailable. Raises `ApiError`."""
        catalog = await self._catalog_of(caller)
        async with self._changing.of(caller.owner):
            owner = caller.owner
            with _audit("notes.remove", caller, toolset):
                kept = await self._find_record(owner, toolset)
                wanted = noted_tool(tool, kept.toolset, catalog)
                changed = await self._rewrite(owner, toolset, lambda before: without_notes(before, wanted, names))
        await self._chosen_everywhere(caller)
        return NotesRemoved(changed, wanted, tuple(dict.fromkeys(names)))

    def end(self, session: str) -> None:
        """Start to delete the toolsets of a session that has ended."""
        for owner in self._equipment.owners:
            if owner.session == session:
                self._equipment.put(owner, None)
        self._forgetting.start(self._forget(session), "toolplug-toolset-forget")

    async def _forget(self, session: str) -> None:
        try:
            await self._records.forget_session(session)
        except StoreError as error:
            _LOG.warning("saved toolsets of a session that is over stay in the store: %s", error)

    async def _save_new(
        self, event: str, caller: Caller, name: str, catalog: Catalog, make: Callable[[], SavedToolset]
    ) -> ShownToolset:
        async with self._changing.of(caller.owner):
            with _audit(event, caller, name):
                toolset, owner = make(), caller.owner
                # Under the owner's lock of this process: another process may save one more at the same time.
                names = await self._records.names(owner)
                if name not in names and len(names) >= MAX_TOOLSETS:
                    message = f"{MAX_TOOLSETS} toolsets are saved; delete one first"
                    raise ApiError("too_many_toolsets", message, "name")
                try:
                    await self._records.write(owner, toolset, expected=0)
                except StoreConflict:
                    raise ApiError(
                        "toolset_exists", f"there is a toolset {name!r} already; give another name", "name"
                    ) from None
        return ShownToolset(toolset, False, catalog)

    async def _rewrite(
        self, owner: ToolsetOwner, name: str, change: Callable[[SavedToolset], SavedToolset]
    ) -> SavedToolset:
        """Change a document; after a concurrent change, try again with the newer one."""
        while True:
            kept = await self._find_record(owner, name)
            changed = change(kept.toolset)
            # Nothing was added: no new version.
            if changed is kept.toolset:
                return changed
            try:
                await self._records.write(owner, changed, expected=kept.revision)
            except StoreConflict:
                continue
            await self._show_changed(owner, changed)
            return changed

    async def _choose(self, owner: ToolsetOwner, name: str | None, *, expected: int | None = None) -> None:
        """Equip the toolset of this name, None: none. Raises `StoreConflict` unless the choice has this revision."""
        key = equipped_key(owner)
        async with self._choosing.of(key):
            revision = await self._records.equip(owner, name, expected=expected)
            # Read after the choice is written: a process that changes the document later finds it equipped.
            kept = None if name is None else await self._records.read(owner, name)
            self._choices.put(key, revision, None if kept is None else EquippedChoice(owner, kept.toolset))

    async def _equipped_now(self, owner: ToolsetOwner) -> str | None:
        """Return the name of the equipped toolset in the store; if there is none, none is used here either."""
        key = equipped_key(owner)
        async with self._choosing.of(key):
            name = await self._records.equipped_name(owner)
            if name is None:
                self._choices.put(key, 0, None)
            return name

    async def _show_changed(self, owner: ToolsetOwner, changed: SavedToolset) -> None:
        """Use a changed document where it is equipped; the choice is written again, for the other processes."""
        now = self._equipment.of(owner)
        if now is not None and now.name == changed.name:
            self._equipment.put(owner, changed)
        try:
            while (choice := await self._records.choice(owner))[0] == changed.name:
                # The choice has changed in between: it is read again, and left alone if it is of another toolset now.
                with suppress(StoreConflict):
                    await self._choose(owner, changed.name, expected=choice[1])
                    return
        except StoreError as error:
            _LOG.warning("other processes do not hear of a changed toolset: %s", error)

    async def _chosen_everywhere(self, caller: Caller) -> None:
        """Wait until every process uses what the owner has equipped now."""
        await self._requests.wait_until_applied(equipped_key(caller.owner))

    async def _choose_name(self, owner: ToolsetOwner, toolset: str | None) -> str:
        """Return the given name, which may be of no toolset, or that of the equipped one."""
        name = toolset if toolset is not None else await self._records.equipped_name(owner)
        if name is None:
            raise ApiError(
                "no_toolset_equipped", "no toolset is equipped; equip the one whose tools the notes are for", "toolRef"
            )
        return name

    async def _find_record(self, owner: ToolsetOwner, name: str) -> StoredRecord:
        kept = await self._records.read(owner, name) if is_toolset_name(name) else None
        if kept is None:
            raise ApiError("toolset_not_found", f"there is no toolset {name[:50]!r}", "name")
        return kept

    async def _show(self, caller: Caller, toolset: SavedToolset) -> ShownToolset:
        now = self._equipment.of(caller.owner)
        is_equipped = now is not None and now.name == toolset.name
        return ShownToolset(await self._reachable(caller, toolset), is_equipped, await self._catalog_of(caller))

    async def _reachable(self, caller: Caller, toolset: SavedToolset) -> SavedToolset:
        """Return the toolset as the caller may see it; a credential with agents sees only tools of its agent."""
        if caller.principal.agents is None:
            return toolset
        catalog = await self._catalog_of(caller)
        notes = tuple(item for item in toolset.notes if item.tool in catalog)
        return replace(toolset, tools=tuple(tool for tool in toolset.tools if tool in catalog), notes=notes)

    def _use(self, changed: Mapping[str, EquippedChoice | None]) -> None:
        for key, choice in changed.items():
            if choice is not None:
                self._owners[key] = choice.owner
                self._equipment.put(choice.owner, choice.toolset)
            elif (owner := self._owners.pop(key, None)) is not None:
                self._equipment.put(owner, None)


@contextmanager
def _audit(event: str, caller: Caller, name: str) -> Generator[None]:
    """Write one audit line for the change or its refusal."""
    target = name if is_toolset_name(name) else "_unknown"
    try:
        yield
    except ToolplugError:
        audit(event, "refused", caller.principal, target, caller.request_id)
        raise
    audit(event, "done", caller.principal, target, caller.request_id)
