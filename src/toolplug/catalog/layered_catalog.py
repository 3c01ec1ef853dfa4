"""Layered catalogs: several catalogs read as one, so that many layered ones can share a part.

Each of ten thousand sessions has the tools of the registry and its own: two references. No map is copied, and what a
part caches (encoded listings, look-up by wire name, catalogs by principal) is cached once for all.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence, ValuesView
from itertools import chain

from toolplug.catalog.call import Principal
from toolplug.catalog.catalog import Catalog, CatalogDiff
from toolplug.catalog.definition import Note, Offered, ToolDefinition
from toolplug.catalog.plan import Plan, Tool
from toolplug.catalog.render import Dialect


def layer_catalogs(*catalogs: Catalog) -> Catalog:
    """Return the catalogs as one, as `merged` does, but sharing them: the first of a name or wire name wins.

    Only a part that loses tools is copied. Building takes a look-up for each tool of the later parts, whatever the size
    of the first. A single part that is not empty is returned itself. The etag is derived from those of the parts.
    """
    given = [catalog for catalog in catalogs if catalog or catalog.prefixes or catalog.unavailable]
    parts: list[Catalog] = []
    for catalog in given:
        # Flat: layers of layers would make each look-up walk a tree.
        parts += _flat(_remaining(catalog, parts) if parts else catalog)
    if len(given) == 1:
        return given[0]
    prefixes = frozenset[str]().union(*[catalog.prefixes for catalog in given])
    unavailable = [catalog.unavailable for catalog in given if catalog.unavailable]
    return _stack(parts, prefixes, layer_catalogs(*unavailable) if unavailable else None)


class _Layers(Catalog):
    """Catalogs without a common name or wire name, none of them layered, read as one.

    `prefixes` and `unavailable` are its own; those of the parts are ignored.
    """

    __slots__ = ("_parts",)

    def __init__(self, parts: tuple[Catalog, ...], *, prefixes: frozenset[str], unavailable: Catalog | None) -> None:
        super().__init__(prefixes=prefixes, unavailable=unavailable)
        self._parts = parts

    @property
    def parts(self) -> tuple[Catalog, ...]:
        return self._parts

    def __getitem__(self, name: str) -> Tool:
        # Linear in the parts, of which there are two or three; a joined map would be a copy for each session.
        for part in self._parts:
            if name in part:
                return part[name]
        raise KeyError(name)

    def __iter__(self) -> Iterator[str]:
        return chain.from_iterable(self._parts)

    def __len__(self) -> int:
        return sum(map(len, self._parts))

    def __contains__(self, name: object) -> bool:
        return any(name in part for part in self._parts)

    def values(self) -> ValuesView[Tool]:
        return ValuesView(self)

    def find(self, name: str) -> Tool | None:
        for part in self._parts:
            tool = part.find(name)
            if tool is not None:
                return tool
        return None

    def render(self, dialect: Dialect) -> bytes:
        """Join the arrays of the parts at each call: every session has a catalog of its own."""
        return self.rendered(dialect, self.searchable)

    def rendered(self, dialect: Dialect, searchable: bool) -> bytes:
        """Join the arrays of the parts, which cache them."""
        # Without the brackets; an empty part leaves nothing between two commas.
        arrays = [part.rendered(dialect, searchable)[1:-1] for part in self._parts]
        return b"[%b]" % b",".join([array for array in arrays if array])

    @property
    def deferred(self) -> int:
        return sum(part.deferred for part in self._parts)

    def undeferred(self) -> Catalog:
        if self._shown is None:
            self._shown = self._each(lambda part: part.undeferred(), self.prefixes)
        return self._shown

    @property
    def etag(self) -> str:
        if not self._etag:
            tags = [part.etag for part in self._parts]
            self._etag = tags[0] if len(tags) == 1 else hashlib.sha256(" ".join(tags).encode()).hexdigest()[:32]
        return self._etag

    def prefixed(self, prefix: str) -> Catalog:
        return self._each(lambda part: part.prefixed(prefix), frozenset({prefix}))

    def where(self, keep: Callable[[Tool], bool]) -> Catalog:
        return self._each(lambda part: part.where(keep), self.prefixes)

    def annotated(self, notes: Mapping[str, Sequence[Note]]) -> Catalog:
        return self._each(lambda part: part.annotated(notes), self.prefixes)

    def with_descriptions(self, texts: Mapping[str, str]) -> Catalog:
        return self._each(lambda part: part.with_descriptions(texts), self.prefixes)

    def offered(self, offered: Offered) -> Catalog:
        return self._each(lambda part: part.offered(offered), self.prefixes)

    def planned(self, change: Callable[[ToolDefinition, Plan], Plan]) -> Catalog:
        return self._each(lambda part: part.planned(change), self.prefixes)

    def renamed(self, names: Mapping[str, str]) -> Catalog:
        """Rename in one map, since new names may clash between two parts."""
        # The only reshaping that needs a copy: the names of all parts have to be compared.
        flat = Catalog(self.values(), prefixes=self.prefixes, unavailable=self.unavailable)
        changed = flat.renamed(names)
        return self if changed is flat else changed

    def visible_to(self, principal: Principal) -> Catalog:
        """Return the visible part of each part, which caches it."""
        seen = self._each(lambda part: part.visible_to(principal), self.prefixes)
        # A prefix without a visible tool goes too: the text for unknown names would tell that it exists.
        hidden = (self._roots() - seen._roots()) & self.prefixes
        return _stack(_flat(seen), self.prefixes - hidden, seen.unavailable) if hidden else seen

    def diff(self, newer: Catalog) -> CatalogDiff:
        """Compare part by part, unless a name has moved from one part to another."""
        if not isinstance(newer, _Layers) or len(newer.parts) != len(self._parts):
            return super().diff(newer)
        diffs = [part.diff(other) for part, other in zip(self._parts, newer.parts, strict=True)]
        added = [name for diff in diffs for name in diff.added]
        removed = [name for diff in diffs for name in diff.removed]
        # A name that has moved between parts would count as added and as removed.
        if not set(added).isdisjoint(removed):
            return super().diff(newer)
        return CatalogDiff(
            added=tuple(added),
            removed=tuple(removed),
            modified=tuple(name for diff in diffs for name in diff.modified),
            reordered=any(diff.reordered for diff in diffs),
        )

    def _roots(self) -> frozenset[str]:
        return frozenset[str]().union(*(part._roots() for part in self._parts))

    def _each(self, change: Callable[[Catalog], Catalog], prefixes: frozenset[str]) -> Catalog:
        """Change each part and the unavailable tools; the change must not bring a name of one part into another."""
        parts = [change(part) for part in self._parts]
        unavailable = self.unavailable and change(self.unavailable)
        if unavailable is self.unavailable and all(new is old for new, old in zip(parts, self._parts, strict=True)):
            return self
        return _stack(parts, prefixes, unavailable)


def _flat(catalog: Catalog) -> tuple[Catalog, ...]:
    return catalog.parts if isinstance(catalog, _Layers) else (catalog,)


def _remaining(catalog: Catalog, earlier: Sequence[Catalog]) -> Catalog:
    """Return the catalog without the tools whose name or wire name an earlier one has."""
    lost = {
        id(tool)
        for tool in catalog.values()
        for name in {tool.definition.name, tool.definition.wire}
        if any(part.find(name) is not None for part in earlier)
    }
    return catalog.where(lambda tool: id(tool) not in lost) if lost else catalog


def _stack(parts: Sequence[Catalog], prefixes: frozenset[str], unavailable: Catalog | None) -> Catalog:
    """Return one catalog of parts that do not clash and are not layered."""
    kept = tuple([part for part in parts if part])
    if not kept:
        return Catalog(prefixes=prefixes, unavailable=unavailable)
    if len(kept) == 1 and kept[0].prefixes == prefixes and kept[0].unavailable is (unavailable or None):
        return kept[0]
    return _Layers(kept, prefixes=prefixes, unavailable=unavailable)
