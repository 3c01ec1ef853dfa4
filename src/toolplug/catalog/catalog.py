"""The immutable, ordered map from name to tool, and the algebra that reshapes it.

    prefixed(prefix)      every name as `prefix.name`
    where(keep)           the tools that a predicate keeps
    ordered(names)        some tools first, in this order
    annotated(notes)      notes by name
    renamed(names)        other names for some
    planned(change)       another plan for each
    visible_to(principal) without what a hiding gate keeps from this principal
    merged(catalogs)      one after another; the first of a name wins
    layered(*catalogs)    the same, of parts that stay what they are (`layers`)

Each is a pure function: it changes definitions and plans and never wraps a call, so depth is free. Where nothing
changes, the answer is the same object.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, ValuesView
from dataclasses import replace
from typing import NamedTuple

from toolplug.catalog.access import Gate
from toolplug.catalog.call import Principal
from toolplug.catalog.definition import Note, ToolDefinition
from toolplug.catalog.plan import Plan, Tool
from toolplug.catalog.render import Dialect, listing
from toolplug.errors import InvalidDefinition
from toolplug.runtime.lru import LeastRecentlyUsed

_PREFIX = re.compile(r"[a-z][a-z0-9_-]{0,31}")


def no_provider(name: str) -> str:
    """The text for a name that no provider's tool has, hidden ones included (docs/reference/names.md)."""
    return f'no builtin provider handles tool "{name}"'


class CatalogDiff(NamedTuple):
    """The names that came, went and changed from one catalog to the next, in listing order."""

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
    """An immutable, ordered map from canonical name to tool. It lists and resolves; it does not execute.

    `prefixes` are the toolset prefixes that it knows, also those without a tool. Names are unique, wire names too:
    build one from parts that may clash with `merged` or `layered`.

    `unavailable` are tools whose source is down, or that a request leaves out. They are neither in the map nor listed,
    but a call of a name that only they have is answered by their own plan, which says why and reaches nobody. Every
    reshaping changes them along; None for none.
    """

    __slots__ = (
        "_etag",
        "_gates",
        "_kept_roots",
        "_rendered",
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
        self.unavailable: Catalog | None = unavailable or None
        self._wire: dict[str, Tool] | None = None
        self._rendered: dict[str, bytes] = {}
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
        """Every tool, in listing order."""
        return self._tools.values()

    def find(self, name: str) -> Tool | None:
        """The listed tool of a canonical name, else the one of a wire name, else None."""
        tool = self._tools.get(name)
        if tool is not None:
            return tool
        wire = self._wire
        if wire is None:
            wire = self._wire = {
                tool.definition.wire: tool
                for tool in self._tools.values()
                if tool.definition.wire != tool.definition.name
            }
        return wire.get(name)

    def unknown(self, name: str) -> str:
        """The text for a name that is not listed; depends on the name and this catalog only."""
        prefix, dot, rest = name.partition(".")
        if dot and (not prefix or not rest or prefix not in self.prefixes):
            return f"Toolset not found for {name}"
        return no_provider(name)

    def definitions(self) -> Iterator[ToolDefinition]:
        """Every definition, in listing order."""
        return (tool.definition for tool in self.values())

    def render(self, dialect: Dialect) -> bytes:
        """The tools as a JSON array in a model API's dialect; kept, but for a layered catalog."""
        try:
            return self._rendered[dialect]
        except KeyError:
            kept = self._rendered[dialect] = listing(self.definitions(), dialect)
            return kept

    @property
    def etag(self) -> str:
        """Equal only for catalogs that list alike in every dialect, and for all of these that are layered alike."""
        if not self._etag:
            names = repr([item.signature for item in self.definitions()])
            self._etag = hashlib.sha256(names.encode("utf-8", "surrogatepass")).hexdigest()[:32]
        return self._etag

    def prefixed(self, prefix: str) -> Catalog:
        """Every name as `prefix.name`; raises `InvalidDefinition` for a prefix that is empty, dotted or illegal."""
        if not _PREFIX.fullmatch(prefix):
            raise InvalidDefinition(
                f"{prefix!r} is no toolset prefix; a lower-case letter, then up to 31 of a-z 0-9 _ - are allowed"
            )
        tools = (_renamed(tool, f"{prefix}.{name}") for name, tool in self._tools.items())
        unavailable = self.unavailable and self.unavailable.prefixed(prefix)
        return Catalog(tools, prefixes=frozenset({prefix}), unavailable=unavailable)

    def where(self, keep: Callable[[Tool], bool]) -> Catalog:
        """The tools that `keep` is true for."""
        kept = [tool for tool in self._tools.values() if keep(tool)]
        unavailable = self.unavailable and self.unavailable.where(keep)
        if len(kept) == len(self) and unavailable is self.unavailable:
            return self
        return Catalog(kept, prefixes=self.prefixes, unavailable=unavailable)

    def ordered(self, names: Sequence[str]) -> Catalog:
        """The tools of these names first, in this order, then the others in theirs."""
        first = [self[name] for name in dict.fromkeys(names) if name in self]
        moved = {tool.definition.name for tool in first}
        tools = [*first, *(tool for tool in self.values() if tool.definition.name not in moved)]
        return self._as_if(tools, self.unavailable and self.unavailable.ordered(names))

    def annotated(self, notes: Mapping[str, Sequence[Note]]) -> Catalog:
        """The same tools with these notes (by canonical name) in place of their own."""
        return self._with(lambda tool: _annotated(tool, notes), self.unavailable and self.unavailable.annotated(notes))

    def renamed(self, names: Mapping[str, str]) -> Catalog:
        """The same tools, some under other names; raises `InvalidDefinition` when two would share one."""
        unavailable = self.unavailable and self.unavailable.renamed(names)
        changed = self._with(
            lambda tool: _renamed(tool, names.get(tool.definition.name, tool.definition.name)), unavailable
        )
        if len(changed) != len(self):
            raise InvalidDefinition("renaming gives two tools one name")
        return changed

    def planned(self, change: Callable[[ToolDefinition, Plan], Plan]) -> Catalog:
        """The same tools with other plans."""
        unavailable = self.unavailable and self.unavailable.planned(change)
        return self._with(lambda tool: _planned(tool, change(tool.definition, tool.plan)), unavailable)

    def visible_to(self, principal: Principal) -> Catalog:
        """Without the tools that a hiding gate keeps from this principal; one catalog for each distinct verdict."""
        gates = self._hiding_gates()
        if not gates:
            return self
        verdict = tuple(gate.refusal(principal) is None for gate in gates)
        if all(verdict):
            return self
        seen = self._verdicts.get(verdict)
        if seen is None:
            closed = {id(gate) for gate, admits in zip(gates, verdict, strict=True) if not admits}
            seen = self._without(closed, self.unavailable and self.unavailable.visible_to(principal))
            self._verdicts[verdict] = seen
        return seen

    def diff(self, newer: Catalog) -> CatalogDiff:
        """What a reader of this catalog must hear about the newer one."""
        if newer is self:
            return CatalogDiff()
        kept = [name for name in self if name in newer]
        return CatalogDiff(
            added=tuple(name for name in newer if name not in self),
            removed=tuple(name for name in self if name not in newer),
            modified=tuple(
                name
                for name in kept
                if newer[name] is not self[name] and newer[name].definition.signature != self[name].definition.signature
            ),
            reordered=kept != [name for name in newer if name in self],
        )

    def _roots(self) -> frozenset[str]:
        """What stands before the first dot of each listed name."""
        if self._kept_roots is None:
            self._kept_roots = _roots_of(self._tools.values())
        return self._kept_roots

    def _without(self, closed: set[int], unavailable: Catalog | None) -> Catalog:
        """Without the tools behind these gates, and without the prefixes of which nothing is left to see."""
        seen = [tool for tool in self._tools.values() if not any(id(gate) in closed for gate in tool.plan.gates)]
        return Catalog(seen, prefixes=self.prefixes - (self._roots() - _roots_of(seen)), unavailable=unavailable)

    def _with(self, change: Callable[[Tool], Tool], unavailable: Catalog | None) -> Catalog:
        return self._as_if([change(tool) for tool in self._tools.values()], unavailable)

    def _as_if(self, tools: Sequence[Tool], unavailable: Catalog | None) -> Catalog:
        """With these, as many as there are, in place of its own."""
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
    """One catalog of many, in their order. The first of a name or wire name wins; the others are reported."""
    parts = [catalog for catalog in catalogs if catalog or catalog.prefixes or catalog.unavailable]
    tools: list[Tool] = []
    taken: dict[str, Tool] = {}
    conflicts: list[Conflict] = []
    for part in parts:
        for tool in part.values():
            definition = tool.definition
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


def _renamed(tool: Tool, name: str) -> Tool:
    if tool.definition.name == name:
        return tool
    return Tool(replace(tool.definition, name=name), tool.plan)


def _annotated(tool: Tool, notes: Mapping[str, Sequence[Note]]) -> Tool:
    given = notes.get(tool.definition.name)
    if given is None or tuple(given) == tool.definition.notes:
        return tool
    return Tool(replace(tool.definition, notes=tuple(given)), tool.plan)


def _planned(tool: Tool, plan: Plan) -> Tool:
    return tool if plan is tool.plan else Tool(tool.definition, plan)


_NEWEST = 64


class CachedValue:
    """A pure function of a catalog; asked twice about one catalog, it gives the same object, for the newest few."""

    def __init__(self, function: Callable[[Catalog], Catalog]) -> None:
        self._function = function
        self._answers: LeastRecentlyUsed[int, tuple[Catalog, Catalog]] = LeastRecentlyUsed(_NEWEST)

    def __call__(self, catalog: Catalog) -> Catalog:
        kept = self._answers.get(id(catalog))
        if kept is None:
            kept = (catalog, self._function(catalog))
            self._answers.put(id(catalog), kept)
        return kept[1]
