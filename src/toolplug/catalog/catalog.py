"""Catalogs: immutable, ordered maps from name to tool, and the functions that reshape them.

    prefixed(prefix)      every name as `prefix.name`
    where(keep)           the tools that a predicate keeps
    ordered(names)        some tools first, in this order
    annotated(notes)      notes by name
    with_descriptions(texts)  other descriptions by name
    offered(offer)        how models are offered those that do not say it themselves
    renamed(names)        other names for some
    planned(change)       another plan for each
    visible_to(principal) without what a hiding gate keeps from this principal
    merged(catalogs)      one after another; the first of a name wins
    layer_catalogs(*catalogs)  the same, without copying the parts (`layered_catalog`)

Each is a pure function: it changes definitions and plans and never wraps a call, so depth costs nothing at a call. If
nothing changes, it returns the same object.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, ValuesView
from dataclasses import replace
from typing import NamedTuple

from toolplug.catalog.call import Principal
from toolplug.catalog.definition import SEARCH_SOURCE, SEARCH_TOOLS, Note, Offered, ToolDefinition
from toolplug.catalog.plan import Gate, Plan, Tool
from toolplug.catalog.render import Dialect, listing
from toolplug.errors import InvalidDefinition
from toolplug.runtime.lru import LeastRecentlyUsed

_PREFIX = re.compile(r"[a-z][a-z0-9_-]{0,31}")


def no_provider(name: str) -> str:
    """Return the error text for a name that no provider's tool has, or only a hidden one (docs/reference/names.md)."""
    return f'no builtin provider handles tool "{name}"'


class CatalogDiff(NamedTuple):
    """The differences between two catalogs, as names in listing order; false if there are none.

    `modified` tools list differently; `reordered`: the names in both catalogs have another order.
    """

    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    modified: tuple[str, ...] = ()
    reordered: bool = False

    def __bool__(self) -> bool:
        return bool(self.added or self.removed or self.modified or self.reordered)


class Conflict(NamedTuple):
    """Two tools of one name, or of one wire name: `winner` is listed, `loser` is not."""

    name: str
    winner: ToolDefinition
    loser: ToolDefinition


class Catalog(Mapping[str, Tool]):
    """An immutable, ordered map from canonical name to tool. It lists and looks up tools, but does not call them.

    Names and wire names are unique: use `merged` or `layer_catalogs` for parts that may clash.

    * `prefixes`: the prefixes of its toolsets, also of those without a tool
    * `unavailable`: tools whose source is down, or that a request leaves out, None for none. They are not in the map;
      a call of one is answered by its own plan, with the reason. Every reshaping applies to them too.

    ```python
    import asyncio

    from toolplug import Catalog, FunctionRegistry, tool

    @tool
    def price(item: str) -> str:
        "Say what an item costs."
        return f"{item}: 3.50 EUR"

    async def main():
        async with FunctionRegistry([price]) as registry:
            catalog: Catalog = registry.catalog.prefixed("shop")
            assert list(catalog) == ["shop.price"]
            assert catalog.find("shop__price") is catalog["shop.price"]  # the name on model APIs

    asyncio.run(main())
    ```
    """

    __slots__ = (
        "_deferred",
        "_etag",
        "_gates",
        "_kept_roots",
        "_listings",
        "_rendered",
        "_shown",
        "_tools",
        "_verdicts",
        "_wire",
        "prefixes",
        "unavailable",
    )

    def __init__(
        self, tools: Iterable[Tool] = (), *, prefixes: frozenset[str] = frozenset(), unavailable: Catalog | None = None
    ) -> None:
        self._tools = {tool.definition.name: tool for tool in tools}
        self.prefixes: frozenset[str] = prefixes
        # An empty catalog is falsy, so that "nothing is unavailable" has one form.
        self.unavailable: Catalog | None = unavailable or None
        # Made at the first call by a wire name: most catalogs are only listed, or derived from once more.
        self._wire: dict[str, Tool] | None = None
        self._listings: dict[Dialect, bytes] = {}
        self._rendered: dict[tuple[Dialect, bool], bytes] = {}
        self._deferred: int | None = None
        self._shown: Catalog | None = None
        self._etag = ""
        self._verdicts: dict[tuple[bool, ...], Catalog] = {}
        self._gates: tuple[Gate, ...] | None = None
        self._kept_roots: frozenset[str] | None = None

    def __getitem__(self, name: str) -> Tool:
        return self._tools[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._tools)

    def __len__(self) -> int:
        return len(self._tools)

    def __contains__(self, name: object) -> bool:
        return name in self._tools

    def __repr__(self) -> str:
        return f"Catalog({', '.join(self)})"

    def values(self) -> ValuesView[Tool]:
        """Return every tool, in listing order."""
        return self._tools.values()

    def find(self, name: str) -> Tool | None:
        """Return the tool of this canonical name, else the one of this wire name; None if there is none."""
        tool = self._tools.get(name)
        if tool is not None:
            return tool
        wire = self._wire
        if wire is None:
            wire = self._wire = {
                tool.definition.wire: tool
                for tool in self._tools.values()
                # Most names are their own wire names, and `_tools` finds those already.
                if tool.definition.wire != tool.definition.name
            }
        return wire.get(name)

    def unknown(self, name: str) -> str:
        """Return the error text for a name that is not in the catalog."""
        prefix, dot, rest = name.partition(".")
        if dot and (not prefix or not rest or prefix not in self.prefixes):
            return f"Toolset not found for {name}"
        return no_provider(name)

    def definitions(self) -> Iterator[ToolDefinition]:
        """Return every definition, in listing order."""
        return (tool.definition for tool in self.values())

    def render(self, dialect: Dialect) -> bytes:
        """Return the tools as JSON in a model API's dialect, encoded once. Raises `ValueError` for an unknown one.

        If the catalog is `searchable`, deferred tools are left out, or marked where the API searches itself.
        """
        kept = self._listings.get(dialect)
        if kept is None:
            kept = self._listings[dialect] = self.rendered(dialect, self.searchable)
        return kept

    def rendered(self, dialect: Dialect, searchable: bool) -> bytes:
        """Return what `render` does for a catalog that is, or is part of, a searchable one or not."""
        try:
            return self._rendered[dialect, searchable]
        except KeyError:
            kept = self._rendered[dialect, searchable] = listing(self.definitions(), dialect, searchable=searchable)
            return kept

    @property
    def parts(self) -> tuple[Catalog, ...]:
        """The catalogs that this one is layered of; itself if it is not."""
        return (self,)

    @property
    def deferred(self) -> int:
        """The number of tools that are offered only once a search has found them."""
        if self._deferred is None:
            self._deferred = sum(item.deferred for item in self.definitions())
        return self._deferred

    @property
    def searchable(self) -> bool:
        """True if the catalog has the tool that finds deferred ones; without it all tools are rendered."""
        tool = self.find(SEARCH_TOOLS)
        return tool is not None and tool.definition.ref.source == SEARCH_SOURCE

    @property
    def shown(self) -> Catalog:
        """The tools that a model sees before it has searched; the same object if none is deferred."""
        return self.undeferred() if self.searchable else self

    def undeferred(self) -> Catalog:
        """Return the catalog without its deferred tools; always the same object."""
        if self._shown is None:
            self._shown = self.where(lambda tool: not tool.definition.deferred)
        return self._shown

    @property
    def etag(self) -> str:
        """A tag of 32 hexadecimal digits; two equal ones mean equal listings in every dialect.

        Catalogs with equal listings have equal tags if they are divided into layers alike.
        """
        if not self._etag:
            # `repr`, not JSON: a signature has tuples and named tuples, and the text need not be read again.
            names = repr([item.signature for item in self.definitions()])
            self._etag = hashlib.sha256(names.encode("utf-8", "surrogatepass")).hexdigest()[:32]
        return self._etag

    def prefixed(self, prefix: str) -> Catalog:
        """Return the catalog with every name as `prefix.name`. Raises `InvalidDefinition` for an invalid prefix."""
        if not _PREFIX.fullmatch(prefix):
            raise InvalidDefinition(
                f"{prefix!r} is no toolset prefix; a lower-case letter, then up to 31 of a-z 0-9 _ - are allowed"
            )
        tools = (_with_field(tool, "name", f"{prefix}.{name}") for name, tool in self._tools.items())
        unavailable = self.unavailable and self.unavailable.prefixed(prefix)
        return Catalog(tools, prefixes=frozenset({prefix}), unavailable=unavailable)

    def where(self, keep: Callable[[Tool], bool]) -> Catalog:
        """Return the catalog of the tools for which `keep` returns True."""
        kept = [tool for tool in self._tools.values() if keep(tool)]
        unavailable = self.unavailable and self.unavailable.where(keep)
        # The same object where nothing changes: caches by identity (`CachedValue`, encoded listings) then stay valid.
        if len(kept) == len(self) and unavailable is self.unavailable:
            return self
        return Catalog(kept, prefixes=self.prefixes, unavailable=unavailable)

    def ordered(self, names: Sequence[str]) -> Catalog:
        """Return the catalog with these tools first, in this order; unknown names are ignored."""
        first = [self[name] for name in dict.fromkeys(names) if name in self]
        moved = {tool.definition.name for tool in first}
        tools = [*first, *(tool for tool in self.values() if tool.definition.name not in moved)]
        return self._as_if(tools, self.unavailable and self.unavailable.ordered(names))

    def annotated(self, notes: Mapping[str, Sequence[Note]]) -> Catalog:
        """Return the catalog with these notes, by canonical name, instead of the tools' own."""
        return self._with(
            lambda tool: _with_field(tool, "notes", tuple(notes.get(tool.definition.name, tool.definition.notes))),
            self.unavailable and self.unavailable.annotated(notes),
        )

    def with_descriptions(self, texts: Mapping[str, str]) -> Catalog:
        """Return the catalog with other descriptions, by canonical name. Raises `InvalidDefinition` for a long one.

        What a tool is stays the same: its digest is that of its own description.
        """
        return self._with(
            lambda tool: _with_field(tool, "description", texts.get(tool.definition.name, tool.definition.description)),
            self.unavailable,
        )

    def offered(self, offered: Offered) -> Catalog:
        """Return the catalog with its tools offered like this, except those whose own rules say how."""

        def change(tool: Tool) -> Tool:
            # The rule of the tool itself is nearer than that of the toolset, and wins.
            return tool if tool.definition.offered.of_tool else _with_field(tool, "offered", offered)

        return self._with(change, self.unavailable and self.unavailable.offered(offered))

    def renamed(self, names: Mapping[str, str]) -> Catalog:
        """Return the catalog with new names by old ones. Raises `InvalidDefinition` if two tools would share a name."""
        unavailable = self.unavailable and self.unavailable.renamed(names)
        changed = self._with(
            lambda tool: _with_field(tool, "name", names.get(tool.definition.name, tool.definition.name)), unavailable
        )
        # The map has fallen together: two tools have the same key.
        if len(changed) != len(self):
            raise InvalidDefinition("renaming gives two tools one name")
        return changed

    def planned(self, change: Callable[[ToolDefinition, Plan], Plan]) -> Catalog:
        """Return the catalog with the plan that `change` returns for each tool."""

        def planned(tool: Tool) -> Tool:
            plan = change(tool.definition, tool.plan)
            return tool if plan is tool.plan else Tool(tool.definition, plan)

        return self._with(planned, self.unavailable and self.unavailable.planned(change))

    def visible_to(self, principal: Principal) -> Catalog:
        """Return the catalog without the tools that are hidden from this principal.

        Principals to whom the same gates are open get the same object.
        """
        gates = self._hiding_gates()
        if not gates:
            return self
        verdict = tuple(gate.refusal(principal) is None for gate in gates)
        if all(verdict):
            return self
        seen = self._verdicts.get(verdict)
        if seen is None:
            # By identity: gates hold functions of providers and need not be hashable.
            closed = {id(gate) for gate, admits in zip(gates, verdict, strict=True) if not admits}
            left = [tool for tool in self._tools.values() if not any(id(gate) in closed for gate in tool.plan.gates)]
            prefixes = self.prefixes - (self._roots() - _roots_of(left))  # a prefix goes with its last tool
            unavailable = self.unavailable and self.unavailable.visible_to(principal)
            seen = self._verdicts[verdict] = Catalog(left, prefixes=prefixes, unavailable=unavailable)
        return seen

    def diff(self, newer: Catalog) -> CatalogDiff:
        """Return the differences from this catalog to a newer one."""
        if newer is self:
            return CatalogDiff()
        kept = [name for name in self if name in newer]
        return CatalogDiff(
            added=tuple(name for name in newer if name not in self),
            removed=tuple(name for name in self if name not in newer),
            modified=tuple(
                name
                for name in kept
                # The first comparison is the fast one: a catalog that was reshaped shares all tools that did not
                # change.
                if newer[name] is not self[name] and newer[name].definition.signature != self[name].definition.signature
            ),
            reordered=kept != [name for name in newer if name in self],
        )

    def _roots(self) -> frozenset[str]:
        """Return the text before the first dot of each listed name."""
        if self._kept_roots is None:
            self._kept_roots = _roots_of(self._tools.values())
        return self._kept_roots

    def _with(self, change: Callable[[Tool], Tool], unavailable: Catalog | None) -> Catalog:
        return self._as_if([change(tool) for tool in self._tools.values()], unavailable)

    def _as_if(self, tools: Sequence[Tool], unavailable: Catalog | None) -> Catalog:
        """Return it with these tools, one for each of its own; the same object if they are the same objects."""
        if unavailable is self.unavailable and all(new is old for new, old in zip(tools, self.values(), strict=True)):
            return self
        return Catalog(tools, prefixes=self.prefixes, unavailable=unavailable)

    def _hiding_gates(self) -> tuple[Gate, ...]:
        if self._gates is None:
            tools = (*self.values(), *(self.unavailable or EMPTY_CATALOG).values())
            unique = {id(gate): gate for tool in tools for gate in tool.plan.gates if gate.hides}
            self._gates = tuple(unique.values())
        return self._gates


def merged(catalogs: Iterable[Catalog]) -> tuple[Catalog, tuple[Conflict, ...]]:
    """Return the tools of all catalogs as one, in order; the first of a name or wire name wins.

    The second value reports the tools that are left out.
    """
    parts = [catalog for catalog in catalogs if catalog or catalog.prefixes or catalog.unavailable]
    tools: list[Tool] = []
    taken: dict[str, Tool] = {}
    conflicts: list[Conflict] = []
    for part in parts:
        for tool in part.values():
            definition = tool.definition
            # Both names: a model may call `a__b`, which must not be the wire name of one tool and the name of another.
            winner = taken.get(definition.name) or taken.get(definition.wire)
            if winner is not None:
                conflicts.append(Conflict(definition.name, winner.definition, definition))
                continue
            taken[definition.name] = taken[definition.wire] = tool
            tools.append(tool)
    if len(parts) == 1 and not conflicts:
        return parts[0], ()
    prefixes = frozenset[str]().union(*(part.prefixes for part in parts))
    unavailable = [part.unavailable for part in parts if part.unavailable]
    return Catalog(tools, prefixes=prefixes, unavailable=merged(unavailable)[0] if unavailable else None), tuple(
        conflicts
    )


EMPTY_CATALOG = Catalog()


def _roots_of(tools: Iterable[Tool]) -> frozenset[str]:
    return frozenset(tool.definition.name.partition(".")[0] for tool in tools)


def _with_field(tool: Tool, name: str, value: object) -> Tool:
    """Return the tool with this value of a field of its definition; the same object if that is equal."""
    if getattr(tool.definition, name) == value:
        return tool
    return Tool(replace(tool.definition, **{name: value}), tool.plan)


_NEWEST = 64


class CachedValue:
    """A cache of a pure function of a catalog: the same object for the same catalog, of the 64 used last."""

    def __init__(self, function: Callable[[Catalog], Catalog]) -> None:
        self._function = function
        # The catalog itself is kept beside the answer: an id is used again as soon as its object is gone.
        self._answers: LeastRecentlyUsed[int, tuple[Catalog, Catalog]] = LeastRecentlyUsed(_NEWEST)

    def __call__(self, catalog: Catalog) -> Catalog:
        kept = self._answers.get(id(catalog))
        if kept is None:
            kept = (catalog, self._function(catalog))
            self._answers.put(id(catalog), kept)
        return kept[1]
