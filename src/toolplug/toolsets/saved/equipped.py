"""The toolset that each owner has equipped, and the executors that follow it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from weakref import WeakSet

from toolplug.catalog.catalog import CachedValue, Catalog
from toolplug.catalog.definition import Note
from toolplug.catalog.plan import CallCounters, Tool
from toolplug.execution.live import LiveCatalog, MergedExecutor, merged_executor
from toolplug.toolsets.saved.saved_toolset import SavedToolset, ToolsetOwner

Stays = Callable[[Tool], bool]
"""Returns whether a tool is listed whatever is equipped, such as the one that changes the choice."""


def equipped(catalog: Catalog, toolset: SavedToolset, stays: Stays) -> Catalog:
    """The tools of the document that the catalog has, in its order and with its notes; then those that stay.

    It only leaves out: what the owner could not call before is not in it.
    """
    chosen = frozenset(toolset.tools)
    kept = catalog.where(lambda tool: tool.definition.name in chosen or stays(tool))
    notes = {item.tool: [Note(note.name, note.text) for note in item.notes] for item in toolset.notes}
    return kept.annotated(notes).ordered(toolset.tools)


def chosen_only(tool: Tool) -> bool:
    """No tool stays that the document does not name."""
    return False


class EquippedToolsets:
    """Asking it does no I/O: whoever loads or changes what is equipped puts it here.

    `unknown` counts the calls of names that nobody lists, `stays` says which tools no choice leaves out.
    """

    def __init__(self, unknown: CallCounters, stays: Stays) -> None:
        self._unknown = unknown
        self._stays = stays
        self._chosen: dict[ToolsetOwner, _Chosen] = {}
        self._views: WeakSet[_OwnersView] = WeakSet()

    @property
    def owners(self) -> tuple[ToolsetOwner, ...]:
        """Everybody who has something equipped."""
        return tuple(self._chosen)

    def of(self, owner: ToolsetOwner) -> SavedToolset | None:
        """The equipped toolset of an owner."""
        chosen = self._chosen.get(owner)
        return None if chosen is None else chosen.toolset

    def put(self, owner: ToolsetOwner, toolset: SavedToolset | None) -> None:
        """Make this the owner's equipped toolset; the next call of every executor of theirs goes by it."""
        if self.of(owner) == toolset:
            return
        if toolset is None:
            del self._chosen[owner]
        else:
            self._chosen[owner] = _Chosen(toolset, self._stays)
        for view in [view for view in self._views if view.owner == owner]:
            view.choose(self._chosen.get(owner))

    def view(self, owner: ToolsetOwner, parts: Sequence[LiveCatalog], session: str | None) -> LiveCatalog:
        """The tools of these parts, in order, as the owner has chosen among them, now and after each change."""
        view = _OwnersView(self._unknown, owner, parts, session)
        chosen = self._chosen.get(owner)
        if chosen is not None:
            view.choose(chosen)
        self._views.add(view)
        return view


class _Chosen:
    """An equipped toolset as a function of catalogs, which keeps its newest answers."""

    def __init__(self, toolset: SavedToolset, stays: Stays) -> None:
        self.toolset = toolset
        self._reshaped = CachedValue(lambda catalog: equipped(catalog, toolset, stays))

    def __call__(self, catalog: Catalog) -> Catalog:
        return self._reshaped(catalog)


class _OwnersView(MergedExecutor):
    """All the tools, or the chosen ones among them."""

    __slots__ = ("_parts", "owner")

    def __init__(
        self, unknown: CallCounters, owner: ToolsetOwner, parts: Sequence[LiveCatalog], session: str | None
    ) -> None:
        super().__init__(unknown, *parts, session=session)
        self.owner = owner
        self._parts = tuple(parts)

    def choose(self, chosen: _Chosen | None) -> None:
        if chosen is None:
            self.join(*self._parts)
        else:
            self.join(merged_executor(self._unknown, *self._parts, session=self._session).view(chosen))
