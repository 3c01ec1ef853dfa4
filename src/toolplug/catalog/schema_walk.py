"""Walking a JSON Schema: the keywords that hold schemas, the values they are applied to, JSON pointers, and references.

Sanitising, counting references and pricing all use these tables, so that none of them overlooks a keyword.

How far references expand is checked before anything validates: a validator compiles in no time and then walks every
expansion: 20 definitions that each name the next one twice are a million. Recursion, a reference that leads back to a
schema around it, expands once here. Where `$id` gives a schema several roots, a reference counts for each that it may
mean: how a validator resolves it depends on the draft, and a count that is too low would let a bomb pass.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple, cast
from urllib.parse import unquote

from toolplug.errors import InvalidDefinition

Node = Mapping[str, object]
Path = tuple[str, ...]
SchemaObject = dict[str, object]
"""A schema that is an object."""

SCHEMAS_BY_NAME = frozenset({"properties", "patternProperties", "$defs", "definitions", "dependentSchemas"})
SCHEMA_LISTS = frozenset({"allOf", "anyOf", "oneOf", "prefixItems"})
SCHEMAS = frozenset(
    {"additionalProperties", "unevaluatedProperties", "propertyNames", "additionalItems", "unevaluatedItems"}
    | {"contains", "not", "if", "then", "else", "contentSchema"}
)
REFERENCES = frozenset({"$ref", "$dynamicRef", "$recursiveRef"})

SAME_VALUE = frozenset({"allOf", "anyOf", "oneOf", "not", "if", "then", "else", "dependentSchemas", "dependencies"})
"""Keywords whose schemas are applied to the value itself."""
BELOW_VALUE = frozenset(
    {"properties", "patternProperties", "additionalProperties", "unevaluatedProperties", "propertyNames"}
    | {"items", "prefixItems", "additionalItems", "unevaluatedItems", "contains"}
)
"""Keywords whose schemas are applied to the parts of the value."""

NO_VALUE: Node = {"not": {}}
"""What the schema `false` means, for the parts of the code that know objects only."""

_INDEX = re.compile("[0-9]{1,4}")


def subschemas(schema: Node) -> Iterator[tuple[str, Path, object]]:
    """Yield every value directly under a keyword that holds schemas: the keyword, the path to the value, the value.

    The path begins with the keyword. The value may be of any type.
    """
    for keyword, value in schema.items():
        if keyword in SCHEMAS_BY_NAME or keyword == "dependencies":
            if isinstance(value, Mapping):
                for name, inner in cast("Node", value).items():
                    yield keyword, (keyword, name), inner
        elif isinstance(value, list):
            if keyword in SCHEMA_LISTS or keyword == "items":
                for index, inner in enumerate(cast("list[object]", value)):
                    yield keyword, (keyword, str(index)), inner
        elif keyword in SCHEMAS or keyword == "items":
            yield keyword, (keyword,), value


class SchemaPlace(NamedTuple):
    """A schema inside a document, and its path."""

    schema: SchemaObject
    at: Path


def walk_schemas(document: SchemaObject, at: Path) -> Iterator[SchemaPlace]:
    """Yield every schema of the document, itself first."""
    waiting = [SchemaPlace(document, at)]
    while waiting:
        place = waiting.pop()
        yield place
        waiting.extend(
            SchemaPlace(cast("SchemaObject", inner), (*place.at, *path))
            for _, path, inner in subschemas(place.schema)
            if isinstance(inner, dict)
        )


def references(schema: Node) -> Iterator[object]:
    """Return the references of the schema itself, without those of schemas inside it; each may be of any type."""
    return (schema[keyword] for keyword in REFERENCES if keyword in schema)


def pointer_part(key: object) -> str:
    """Return a key or index as a part of a JSON pointer, with its `/` (RFC 6901)."""
    return "/" + str(key).replace("~", "~0").replace("/", "~1")


def at_pointer(root: object, pointer: str) -> object:
    """Return the part of a document that a JSON pointer (RFC 6901) names; None if there is none."""
    node = root
    for part in pointer.split("/")[1:]:
        name = part.replace("~1", "/").replace("~0", "~")
        if isinstance(node, Mapping):
            node = cast("Node", node).get(name)
        elif isinstance(node, list):
            items = cast("list[object]", node)
            node = items[int(name)] if _INDEX.fullmatch(name) and int(name) < len(items) else None
        else:
            return None
    return node


MAX_EXPANDED_REFERENCES = 10_000


class CircularReferences(InvalidDefinition):
    """References that lead back to themselves without going deeper into the value; `holders` are their schemas."""

    def __init__(self, holders: Sequence[Node]) -> None:
        super().__init__("the schema has a $ref that leads back to itself without going into the value")
        self.holders: Sequence[Node] = holders


class References:
    """The schemas of one document that its references may name.

    Raises `InvalidDefinition` if the references expand more than 10,000 times, and `CircularReferences` if some lead
    back to themselves without going deeper into the value: validating would not end.
    """

    def __init__(self, schema: Node) -> None:
        self._roots: list[tuple[str | None, Node]] = [(None, schema)]
        self._anchors: dict[str, list[Node]] = {}
        self._name_places(schema)
        targets, in_place = self._number_links(schema)
        if holders := _circular(in_place):
            raise CircularReferences(holders)
        expanded = [0] * len(targets)
        # Each group comes after all that it reaches, so that their counts are there.
        for group in _components(targets):
            count = sum(1 + expanded[target] for node in group for target in targets[node])
            for node in group:
                expanded[node] = count
        # Number 0 is the document itself, which all others are reached from.
        if expanded[0] > MAX_EXPANDED_REFERENCES:
            raise _too_many_references()

    def _name_places(self, schema: Node) -> None:
        """Collect the roots that `$id` makes, and the anchors."""
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

    def _number_links(self, schema: Node) -> tuple[list[list[int]], list[dict[int, list[Node]]]]:
        """Number the schemas that references reach from this one, 0; return the targets of each one's references.

        The second value has only those references that are applied to the same value as the numbered schema: by target.
        """
        numbers = {id(schema): 0}
        reached = [schema]
        targets: list[list[int]] = []
        in_place: list[dict[int, list[Node]]] = []
        for number, node in enumerate(reached):
            targets.append([])
            in_place.append({})
            applied = [
                (each, inner, same_value) for inner, same_value in _walk_applied(node) for each in references(inner)
            ]
            for reference, inner, same_value in applied:
                for target in self.find_schemas(reference):
                    if id(target) not in numbers:
                        numbers[id(target)] = len(reached)
                        reached.append(target)
                    targets[number].append(numbers[id(target)])
                    if same_value:
                        in_place[number].setdefault(numbers[id(target)], []).append(inner)
                if len(targets[number]) > MAX_EXPANDED_REFERENCES:
                    raise _too_many_references()
        return targets, in_place

    def find_schemas(self, reference: object) -> Iterator[Node]:
        """Yield every schema that the reference may mean; none for a remote one, which is refused when compiled."""
        if not isinstance(reference, str):
            return
        # Decoded before it is divided, as some validators do: rather one schema too many than one too few.
        address, _, fragment = unquote(reference).partition("#")
        if fragment and not fragment.startswith("/"):
            yield from self._anchors.get(fragment, ())
            return
        for identifier, root in self._roots:
            found = at_pointer(root, fragment) if _may_name(address, identifier) else None
            if isinstance(found, Mapping):
                yield cast("Node", found)
            elif found is False:
                yield NO_VALUE


def _may_name(address: str, identifier: str | None) -> bool:
    """Return True if the address may name the root with this `$id` (None: the document), by the ends of both."""
    if not address or identifier is None:
        return not address
    return not identifier or identifier.endswith(_tail(address))


def _tail(address: str) -> str:
    """Return the last part of an address; empty for `.` and `..`, which lead elsewhere."""
    last = unquote(address).rstrip("#/").rpartition("/")[2]
    return "" if last in (".", "..") else last


def _walk_applied(schema: Node) -> Iterator[tuple[Node, bool]]:
    """Yield the schema and those inside it that are applied, each with True if it is applied to the same value."""
    stack = [(schema, True)]
    while stack:
        node, same_value = stack.pop()
        yield node, same_value
        for keyword, _, inner in subschemas(node):
            if isinstance(inner, Mapping) and (keyword in SAME_VALUE or keyword in BELOW_VALUE):
                stack.append((cast("Node", inner), same_value and keyword in SAME_VALUE))


def _too_many_references() -> InvalidDefinition:
    return InvalidDefinition(f"the schema's references expand more than {MAX_EXPANDED_REFERENCES} times")


def _circular(in_place: Sequence[Mapping[int, list[Node]]]) -> list[Node]:
    """Return the schemas whose reference is a part of a circle."""
    group_of = {node: group for group in _components([list(each) for each in in_place]) for node in group}
    return [
        holder
        for number, named in enumerate(in_place)
        for target, holders in named.items()
        if target in group_of[number]
        for holder in holders
    ]


def _components(targets: Sequence[Sequence[int]]) -> Iterator[tuple[int, ...]]:
    """Yield the groups of nodes that reach one another, each after all that it reaches (Tarjan, without recursion)."""
    found: dict[int, int] = {}
    lowest: dict[int, int] = {}
    waiting: list[int] = []
    done: set[int] = set()
    for start in range(len(targets)):
        # A stack of iterators in place of recursion: the schema decides how deep it is.
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
                    # All that was found since this node and belongs to no group yet: the strongly connected ones.
                    group = tuple(waiting[waiting.index(node) :])
                    del waiting[-len(group) :]
                    done.update(group)
                    yield group
