"""The toolset that each owner has equipped, and the executors that follow it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from weakref import WeakSet

from toolplug.catalog.catalog import CachedValue, Catalog
from toolplug.catalog.definition import Note
from toolplug.catalog.plan import Tool
from toolplug.execution.live import Derive, LiveCatalog, MergedExecutor
from toolplug.execution.run import UnknownCalls
from toolplug.toolsets.saved.saved_toolset import SavedToolset, ToolsetOwner

Stays = Callable[[Tool], bool]
"""Returns whether a tool is listed whatever is equipped, such as the one that changes the choice."""


def equip(catalog: Catalog, toolset: SavedToolset, stays: Stays) -> Catalog:
    """Return the document's tools that are in the catalog, in its order and with its notes; then those that `stays`.

    The result is a subset: it never has a tool that the owner could not call before.
    """
    chosen = frozenset(toolset.tools)
    kept = catalog.where(lambda tool: tool.definition.name in chosen or stays(tool))
    notes = {item.tool: [Note(note.name, note.text) for note in item.notes] for item in toolset.notes}
    return kept.annotated(notes).ordered(toolset.tools)


def chosen_only(tool: Tool) -> bool:
    """Keep no tools besides those of the document."""
    return False


class EquippedToolsets:
    """The equipped toolsets in memory, kept current by `put`, so that lookups do no I/O.

    `unknown` counts calls of unlisted names; `stays` tells which tools are listed besides those of the document.
    """

    def __init__(self, unknown: UnknownCalls, stays: Stays) -> None:
        self._unknown = unknown
        self._stays = stays
        self._chosen: dict[ToolsetOwner, _Chosen] = {}
        self._views: WeakSet[_OwnersView] = WeakSet()

    @property
    def owners(self) -> tuple[ToolsetOwner, ...]:
        return tuple(self._chosen)

    def of(self, owner: ToolsetOwner) -> SavedToolset | None:
        """Return the equipped toolset of an owner, None if there is none."""
        chosen = self._chosen.get(owner)
        return None if chosen is None else chosen.toolset

    def put(self, owner: ToolsetOwner, toolset: SavedToolset | None) -> None:
        """Set the owner's equipped toolset; the owner's executors follow from the next call on."""
        if self.of(owner) == toolset:
            return
        if toolset is None:
            del self._chosen[owner]
        else:
            self._chosen[owner] = _Chosen(toolset, self._stays)
        for view in [view for view in self._views if view.owner == owner]:
            view.choose(self._chosen.get(owner))

    def view(
        self, owner: ToolsetOwner, parts: Sequence[LiveCatalog], session: str | None, derive: Derive
    ) -> LiveCatalog:
        """Return an executor of these parts, in order, limited to the owner's choice at any time, and reshaped last."""
        view = _OwnersView(self._unknown, owner, parts, session, derive)
        chosen = self._chosen.get(owner)
        if chosen is not None:
            view.choose(chosen)
        self._views.add(view)
        return view


class _Chosen:
    """A function from a catalog to its equipped tools, which caches its last results."""

    def __init__(self, toolset: SavedToolset, stays: Stays) -> None:
        self.toolset = toolset
        self._reshaped = CachedValue(lambda catalog: equip(catalog, toolset, stays))

    def __call__(self, catalog: Catalog) -> Catalog:
        return self._reshaped(catalog)


class _OwnersView(MergedExecutor):
    """The tools of an executor, or the equipped ones among them."""

    __slots__ = ("_parts", "owner")

    def __init__(
        self,
        unknown: UnknownCalls,
        owner: ToolsetOwner,
        parts: Sequence[LiveCatalog],
        session: str | None,
        derive: Derive,
    ) -> None:
        super().__init__(unknown, *parts, session=session, derive=derive)
        self.owner = owner
        self._parts = tuple(parts)

    def choose(self, chosen: _Chosen | None) -> None:
        if chosen is None:
            self.join(*self._parts)
        else:
            self.join(MergedExecutor(self._unknown, *self._parts, session=self._session).view(chosen))
