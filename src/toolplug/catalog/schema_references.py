"""How far the references of a JSON Schema expand, before anything validates with it.

A validator compiles in no time and then walks every expansion: 20 definitions that each name the next one twice are a
million. A reference that leads back to where it stands is recursion: it expands once here, and at a call as far as the
value is deep (`applied_to`). Where `$id` gives a schema several roots, a reference counts for each that it may mean:
how a validator resolves it depends on the draft, and a count that is too low would let a bomb pass.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple, cast
from urllib.parse import unquote

from toolplug.catalog.schema_walk import BELOW_VALUE, SAME_VALUE, Node, at_pointer, references, subschemas
from toolplug.errors import InvalidDefinition

MAX_EXPANDED_REFERENCES = 10_000


class _Edge(NamedTuple):
    """One reference: to which schema, and how many levels deeper into the value it stands."""

    target: int
    levels: int


class References:
    """The schemas of one document that references reach, and the references between them.

    Raises `InvalidDefinition` when they expand more than 10,000 times, or lead back to themselves without going
    deeper into the value, which no validator can end.
    """

    def __init__(self, schema: Node) -> None:
        self._roots: list[tuple[str | None, Node]] = [(None, schema)]
        self._anchors: dict[str, list[Node]] = {}
        self._name_places(schema)
        self._edges: list[tuple[_Edge, ...]] = []
        self._sizes: list[int] = []
        self._link(schema)
        in_place = [tuple(edge.target for edge in edges if not edge.levels) for edges in self._edges]
        self._inner_first = tuple(_components(in_place))
        if any(not set(group).isdisjoint(in_place[node]) for group in self._inner_first for node in group):
            raise InvalidDefinition("the schema has a $ref that leads back to itself without going into the value")
        if self._expanded() > MAX_EXPANDED_REFERENCES:
            raise InvalidDefinition(f"the schema's references expand more than {MAX_EXPANDED_REFERENCES} times")

    def applied_to(self, depth: int, limit: int) -> int:
        """At most so many schemas are applied to a value of this depth; a count over the limit is not finished."""
        by_level: list[list[int]] = []
        for level in range(depth + 1):
            counts = self._sizes.copy()
            by_level.append(counts)
            for (node,) in self._inner_first:
                counts[node] += sum(
                    by_level[level - edge.levels][edge.target] for edge in self._edges[node] if edge.levels <= level
                )
            if counts[0] > limit:
                break
        return by_level[-1][0]

    def _expanded(self) -> int:
        """How many references stand in the schema when each is replaced by what it names; recursion once."""
        total = [0] * len(self._edges)
        for group in _components([tuple(edge.target for edge in edges) for edges in self._edges]):
            count = sum(1 + total[edge.target] for node in group for edge in self._edges[node])
            for node in group:
                total[node] = count
        return total[0]

    def _name_places(self, schema: Node) -> None:
        """Find what references may begin at: the document, what an `$id` makes a root, and anchors."""
        stack: list[object] = [schema]
        while stack:
            node = stack.pop()
            if isinstance(node, list):
                stack.extend(cast("list[object]", node))
            elif isinstance(node, Mapping):
                place = cast("Node", node)
                stack.extend(place.values())
                identifiers = [name for name in (place.get("$id"), place.get("id")) if isinstance(name, str)]
                self._roots.extend((_tail(name), place) for name in identifiers if not name.startswith("#"))
                anchors = [name[1:] for name in identifiers if name.startswith("#")]
                for anchor in (*anchors, place.get("$anchor"), place.get("$dynamicAnchor")):
                    if isinstance(anchor, str):
                        self._anchors.setdefault(anchor, []).append(place)

    def _link(self, schema: Node) -> None:
        """Follow the references from the schema outwards; number what they reach in that order."""
        numbers = {id(schema): 0}
        reached = [schema]
        for node in reached:
            edges: list[_Edge] = []
            applied = tuple(_applied(node))
            for reference, levels in ((each, levels) for inner, levels in applied for each in references(inner)):
                for target in self.named(reference):
                    if id(target) not in numbers:
                        numbers[id(target)] = len(reached)
                        reached.append(target)
                    edges.append(_Edge(numbers[id(target)], levels))
                if len(edges) > MAX_EXPANDED_REFERENCES:
                    raise InvalidDefinition(f"the schema's references expand more than {MAX_EXPANDED_REFERENCES} times")
            self._edges.append(tuple(edges))
            self._sizes.append(len(applied))

    def named(self, reference: object) -> Iterator[Node]:
        """Every schema that the reference may mean; none for a remote one, which is refused when it is compiled."""
        if not isinstance(reference, str):
            return
        address, _, fragment = unquote(reference).partition("#")
        if fragment and not fragment.startswith("/"):
            yield from self._anchors.get(fragment, ())
            return
        for identifier, root in self._roots:
            found = at_pointer(root, fragment) if _may_name(address, identifier) else None
            if isinstance(found, Mapping):
                yield cast("Node", found)


def _may_name(address: str, identifier: str | None) -> bool:
    """May the address name the root of this identifier (None: the document); decided by the ends of both."""
    if not address or identifier is None:
        return not address
    return not identifier or identifier.endswith(_tail(address))


def _tail(address: str) -> str:
    """The last part of an address, or nothing where it leads elsewhere."""
    last = unquote(address).rstrip("#/").rpartition("/")[2]
    return "" if last in (".", "..") else last


def _applied(schema: Node) -> Iterator[tuple[Node, int]]:
    """The schema and those inside it that a validator applies, each with how deep in the value."""
    stack = [(schema, 0)]
    while stack:
        node, levels = stack.pop()
        yield node, levels
        for keyword, _, inner in subschemas(node):
            if isinstance(inner, Mapping):
                if keyword in SAME_VALUE:
                    stack.append((cast("Node", inner), levels))
                elif keyword in BELOW_VALUE:
                    stack.append((cast("Node", inner), levels + 1))


def _components(targets: Sequence[tuple[int, ...]]) -> Iterator[tuple[int, ...]]:
    """The groups of nodes that reach one another, each after all that it reaches (Tarjan, without recursion)."""
    found: dict[int, int] = {}
    lowest: dict[int, int] = {}
    waiting: list[int] = []
    done: set[int] = set()
    for start in range(len(targets)):
        path = [] if start in found else [(start, iter(targets[start]))]
        while path:
            node, rest = path[-1]
            if node not in found:
                found[node] = lowest[node] = len(found)
                waiting.append(node)
            for target in rest:
                if target not in found:
                    path.append((target, iter(targets[target])))
                    break
                if target not in done:
                    lowest[node] = min(lowest[node], lowest[target])
            else:
                path.pop()
                if path:
                    above = path[-1][0]
                    lowest[above] = min(lowest[above], lowest[node])
                if lowest[node] == found[node]:
                    group = tuple(waiting[waiting.index(node) :])
                    del waiting[-len(group) :]
                    done.update(group)
                    yield group
