"""Schema Objects of OpenAPI 3.0 and 3.1 as JSON Schema 2020-12, each with the definitions that it needs.

A reference becomes one to `$defs`, so that a recursive schema stays finite. What a caller may not send (`readOnly`) or
does not get (`writeOnly`) is left out. A part that cannot be written (a reference that leads nowhere, a schema that is
none) becomes any value, and is noted. Keywords are judged later, by toolplug's check of foreign definitions, which also
converts those of other drafts, such as the boolean bounds of OpenAPI 3.0.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Literal, cast

from toolplug_openapi.document import Document, Node, OperationRefused, as_list, as_object

MAX_SCHEMA_NODES = 20_000
"""Schemas that are looked at for one operation; far more than a tool's definition may hold."""
MAX_SCHEMA_DEPTH = 64
MAX_NOTES = 20

_BY_NAME = frozenset({"properties", "patternProperties", "dependentSchemas"})
_LISTS = frozenset({"allOf", "anyOf", "oneOf", "prefixItems"})
_SINGLE = frozenset(
    {"items", "additionalProperties", "not", "contains", "if", "then", "else", "propertyNames"}
    | {"unevaluatedItems", "unevaluatedProperties"}
)
_DROPPED = frozenset(
    {"discriminator", "xml", "externalDocs", "example", "nullable", "$id", "$anchor", "$schema", "id"}
    | {"$recursiveAnchor"}
)
_NO_NAME = re.compile(r"[^A-Za-z0-9_.-]+")

Direction = Literal["request", "response"]


class SchemaWriter:
    """Writes the schemas of one operation.

    `defs` are the definitions that they refer to; those which more than `most_steps` references lead to are any value,
    and so is what nests deeper than `most_depth`.
    `notes` has a line for each part that became any value because it cannot be written.
    """

    def __init__(
        self,
        document: Document,
        direction: Direction,
        *,
        most_steps: int = MAX_SCHEMA_NODES,
        most_depth: int = MAX_SCHEMA_DEPTH,
    ) -> None:
        self.defs: Node = {}
        self.notes: list[str] = []
        self._document = document
        self._most_steps = most_steps
        self._most_depth = most_depth
        self._hidden = "readOnly" if direction == "request" else "writeOnly"
        self._names: dict[str, str] = {}
        self._pointers: list[str] = []
        self._taken: Counter[str] = Counter()
        self._left = MAX_SCHEMA_NODES
        self._root = ""

    def write(self, raw: object) -> Node:
        """Return the schema; `defs` holds what it refers to."""
        waiting, steps = len(self._pointers), 0
        written = self._schema(raw, 0)
        while waiting < len(self._pointers):
            steps, end = steps + 1, len(self._pointers)
            for pointer in self._pointers[waiting:end]:
                self._root = self._names[pointer]
                found = self._document.target(pointer) if steps <= self._most_steps else True
                self.defs[self._root] = self._schema(found, 0)
            waiting = end
        self._root = ""
        return written

    def _schema(self, raw: object, depth: int) -> Node:
        self._left -= 1
        if self._left < 0 or depth > self._most_depth:
            return self._anything("its schemas are too large or nest too deep; what is beyond is any value")
        if isinstance(raw, bool):
            return {} if raw else {"not": {}}
        if not isinstance(raw, dict):
            return self._anything(f"a schema is no object but {raw!r:.60}; it is any value")
        given = cast("Node", raw)
        written: Node = {}
        for key, value in given.items():
            if key in _DROPPED or key.startswith("x-"):
                continue
            if key == "$ref":
                try:
                    written[key] = f"#/$defs/{self._name(value)}"
                except OperationRefused as error:
                    self._anything(f"{error}; it is any value")
            elif key == "$recursiveRef" and self._root:  # of 2019-09: the schema that the document names
                written["$ref"] = f"#/$defs/{self._root}"
            elif key in ("$dynamicRef", "$recursiveRef"):
                self._anything(f"its schemas use {key}, which is not supported; it is any value")
            else:
                written[key] = self._keyword(key, value, depth + 1)
        self._drop_hidden(given, written)
        return self._from_30(given, written) if self._document.is_30 else written

    def _anything(self, why: str) -> Node:
        """Note why a part is written as any value, once."""
        if why not in self.notes and len(self.notes) < MAX_NOTES:
            self.notes.append(why)
        return {}

    def _keyword(self, key: str, value: object, depth: int) -> object:
        write: Callable[[object], Node] = lambda inner: self._schema(inner, depth)  # noqa: E731
        if key in _BY_NAME and isinstance(value, dict):
            return {name: write(inner) for name, inner in as_object(cast("object", value)).items()}
        if (key in _LISTS or key == "items") and isinstance(value, list):
            return [write(inner) for inner in as_list(cast("object", value))]
        if key in _SINGLE and not isinstance(value, bool):
            return write(value)
        return value

    def _drop_hidden(self, given: Mapping[str, object], written: Node) -> None:
        properties = as_object(given.get("properties")).items()
        hidden = [name for name, inner in properties if as_object(inner).get(self._hidden) is True]
        if hidden:
            kept = as_object(written["properties"]).items()
            written["properties"] = {name: inner for name, inner in kept if name not in hidden}
            written["required"] = [name for name in as_list(written.get("required")) if name not in hidden]

    def _from_30(self, given: Mapping[str, object], written: Node) -> Node:
        """Convert what OpenAPI 3.0 alone has: `nullable`, and no keywords next to `$ref`."""
        if "$ref" in written:
            return {"$ref": written["$ref"]}
        if given.get("nullable") is not True:
            return written
        if isinstance(written.get("type"), str):
            written["type"] = [written["type"], "null"]
            if values := as_list(written.get("enum")):
                written["enum"] = [*values, *([] if None in values else [None])]
            return written
        return {"anyOf": [written, {"type": "null"}]} if written else written

    def _name(self, reference: object) -> str:
        """Return the name of a definition: the last part of its pointer, with a number if that is taken."""
        self._document.target(reference)
        pointer = cast("str", reference)
        if pointer not in self._names:
            base = name = _NO_NAME.sub("_", pointer.rpartition("/")[2])[:60] or "schema"
            while name in self._taken:
                self._taken[base] += 1
                name = f"{base}_{self._taken[base]}"
            self._taken[name] += 1
            self._names[pointer] = name
            self._pointers.append(pointer)
        return self._names[pointer]
