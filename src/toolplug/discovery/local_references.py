"""References that stay in their schema; what another one stands in becomes a schema that admits anything."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple, cast
from urllib.parse import unquote, urldefrag, urljoin

from toolplug.discovery.cuts import Cuts, Path
from toolplug.discovery.schema_keywords import REFERENCES, SCHEMA_LISTS, SCHEMAS, SCHEMAS_BY_NAME

_PASSES = 8
"""What is emptied may have held what others name; after so many times whatever compiles the schema tells."""

_INDEX = re.compile("[0-9]{1,4}")

Node = dict[str, object]


class _Place(NamedTuple):
    schema: Node
    at: Path


def empty_foreign_references(document: Node, at: Path, cuts: Cuts) -> None:
    """Empty each schema in the document, itself too, with a reference that does not lead to a place in it."""
    for _ in range(_PASSES):
        places = list(_places(document, at))
        holders = [place for place in places if not REFERENCES.isdisjoint(place.schema)]
        names = _Names(document, [place.schema for place in places])
        foreign = [place for place in holders if not all(map(names.lead_somewhere, _references(place.schema)))]
        for place in foreign:
            cuts.add(place.at, "a reference that leads out of the schema, or nowhere")
            place.schema.clear()
        if not foreign:
            break


class _Names:
    """What references of one document may name."""

    def __init__(self, document: Node, schemas: list[Node]) -> None:
        self._document = document
        self._base = _text(document.get("$id"))
        identifiers = [_text(schema.get("$id")) for schema in schemas if schema is not document]
        self._several_roots = any(identifiers)
        self._addresses = {self._absolute(address) for address in [self._base, *identifiers] if address}
        self._anchors = {schema.get(key) for schema in schemas for key in ("$anchor", "$dynamicAnchor")}

    def lead_somewhere(self, reference: object) -> bool:
        if not isinstance(reference, str):
            return False
        address, _, fragment = reference.partition("#")
        fragment = unquote(fragment)
        if address or self._several_roots:
            return not address or self._absolute(address) in self._addresses
        if fragment.startswith("/"):
            return _found(self._document, fragment)
        return not fragment or fragment in self._anchors

    def _absolute(self, address: str) -> str:
        try:
            return urldefrag(urljoin(self._base, address)).url
        except ValueError:
            return ""


def _places(document: Node, at: Path) -> Iterator[_Place]:
    """Every schema in the document, itself first."""
    waiting = [_Place(document, at)]
    while waiting:
        place = waiting.pop()
        yield place
        for keyword, value in place.schema.items():
            waiting.extend(
                _Place(cast("Node", inner), (*place.at, *path))
                for path, inner in _inside(keyword, value)
                if isinstance(inner, dict)
            )


def _inside(keyword: str, value: object) -> Iterator[tuple[Path, object]]:
    """What stands under a keyword that holds schemas."""
    if keyword in SCHEMAS_BY_NAME or keyword == "dependencies":
        for name, inner in cast("Node", value).items():
            yield (keyword, name), inner
    elif isinstance(value, list):
        if keyword in SCHEMA_LISTS or keyword == "items":
            for index, inner in enumerate(cast("list[object]", value)):
                yield (keyword, str(index)), inner
    elif keyword in SCHEMAS or keyword == "items":
        yield (keyword,), value


def _references(schema: Node) -> list[object]:
    return [schema[keyword] for keyword in REFERENCES if keyword in schema]


def _found(document: Node, pointer: str) -> bool:
    node = cast("object", document)
    for part in pointer.split("/")[1:]:
        name = part.replace("~1", "/").replace("~0", "~")
        if isinstance(node, dict):
            node = cast("Node", node).get(name)
        elif isinstance(node, list) and _INDEX.fullmatch(name) and int(name) < len(cast("list[object]", node)):
            node = cast("list[object]", node)[int(name)]
        else:
            return False
    return isinstance(node, dict | bool)


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""
