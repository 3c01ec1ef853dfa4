"""Reading an OpenAPI document with bounded work, and following its references.

A document is a stranger's text. openapi-spec-validator 0.9 takes 2.2 s for 1,000 operations, raises RecursionError at
300 nested schemas and judges the document as a whole. Here each operation is read by itself; a wrong one costs nothing
else.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import cast
from urllib.parse import unquote

import yaml

from toolplug.errors import InvalidDefinition
from toolplug.runtime import first_repeated

MAX_JSON_BYTES = 16 * 1024 * 1024
MAX_YAML_BYTES = 4 * 1024 * 1024
MAX_NODES = 1_000_000
"""Keys and values of a YAML document with every alias written out."""
MAX_JSON_NODES = 2_000_000
"""Values of a JSON document; they are counted before they are built."""
MAX_DEPTH = 100
MAX_REFERENCES = 16
"""References that lead to one another before anything else."""

Node = dict[str, object]


def as_object(value: object) -> Node:
    """Return the value if it is an object, else an empty one."""
    return cast("Node", value) if isinstance(value, dict) else {}


def as_list(value: object) -> list[object]:
    """Return the value if it is a list, else an empty one."""
    return cast("list[object]", value) if isinstance(value, list) else []


def as_text(value: object) -> str:
    """Return the value if it is a text, else an empty one."""
    return value if isinstance(value, str) else ""


class DocumentRefused(InvalidDefinition):
    """A document, or a setting about it, that cannot be used; the text says where, why, and how to fix it."""


class OperationRefused(Exception):
    """An operation that cannot become a tool; the text says why."""


class Document:
    """An OpenAPI document 3.0 or 3.1. Raises `DocumentRefused` for anything else."""

    def __init__(self, data: bytes, where: str) -> None:
        root = _read(data, where)
        if not isinstance(root, dict):
            raise DocumentRefused(f"{where} holds no mapping, so it is no OpenAPI document")
        self.root = cast("Node", root)
        version = self.root.get("openapi")
        if not isinstance(version, str) or not re.match(r"3\.[01](\.|$)", version):
            old = "; convert it to 3.0 first" if "swagger" in self.root else ""
            found = f"openapi: {version!r:.40}" if version is not None else "no key 'openapi'"
            raise DocumentRefused(f"{where} has {found}; OpenAPI 3.0 and 3.1 are read{old}")
        self.is_30 = version.startswith("3.0")
        if not isinstance(self.root.get("paths"), dict):
            raise DocumentRefused(f"{where} has no mapping 'paths', so it has no operations")

    def resolve(self, node: object, what: str) -> Node:
        """Return the object that a reference names, or the object itself. Raises `OperationRefused`."""
        for _ in range(MAX_REFERENCES):
            if not isinstance(node, dict):
                raise OperationRefused(f"{what} is no object")
            found = cast("Node", node)
            if "$ref" not in found:
                return found
            node = self.target(found["$ref"])
        raise OperationRefused(f"{what} has a $ref that leads on for more than {MAX_REFERENCES} steps, or in a circle")

    def target(self, reference: object) -> object:
        """Return the value that a reference within the document names. Raises `OperationRefused` for any other."""
        if not isinstance(reference, str) or not reference.startswith("#/"):
            raise OperationRefused(
                f"the $ref {reference!r:.120} leads out of the document; bundle the document into one file"
            )
        node: object = self.root
        for part in reference[2:].split("/"):
            key = unquote(part).replace("~1", "/").replace("~0", "~")
            if isinstance(node, list):
                node = (
                    dict(enumerate(as_list(cast("object", node)))).get(int(key))
                    if re.fullmatch("[0-9]{1,7}", key)
                    else None
                )
            else:
                node = as_object(node).get(key)
            if node is None:
                raise OperationRefused(f"the $ref {reference!r:.120} leads nowhere")
        return node


def _read(data: bytes, where: str) -> object:
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise DocumentRefused(f"{where} is not UTF-8 text (byte {error.start})") from None
    is_json = text.lstrip()[:1] == "{"
    most = MAX_JSON_BYTES if is_json else MAX_YAML_BYTES
    if len(data) > most:
        kind = "JSON" if is_json else "YAML (convert it to JSON, which is read up to 16 MiB)"
        raise DocumentRefused(f"{where} has {len(data):,} bytes; at most {most:,} are read of {kind}")
    if is_json and text.count(",") + text.count("{") + text.count("[") > MAX_JSON_NODES:
        raise DocumentRefused(f"{where} has more than {MAX_JSON_NODES:,} values")
    try:
        if not is_json:
            return _read_yaml(text)
        return json.loads(text, object_pairs_hook=_without_duplicates, parse_constant=_no_constant)
    except yaml.MarkedYAMLError as error:
        line = f" in line {error.problem_mark.line + 1}" if error.problem_mark else ""
        raise DocumentRefused(f"{where} is neither JSON nor YAML{line}: {error.problem}") from None
    except (yaml.YAMLError, ValueError) as error:
        raise DocumentRefused(f"{where} cannot be read: {error}") from None
    except RecursionError:
        raise DocumentRefused(f"{where} nests too deep to be an OpenAPI document") from None


def _without_duplicates(pairs: list[tuple[str, object]]) -> Node:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError(f"duplicate key {first_repeated(key for key, _ in pairs)!r:.80}; keep one of them")
    return found


def _no_constant(name: str) -> object:
    raise ValueError(f"{name} is no JSON")


@dataclass(slots=True)
class _Open:
    """A collection whose end has not been read. `nodes` counts its keys and values, aliases written out."""

    value: Node | list[object]
    anchor: str | None
    line: int
    key: str | None = None
    nodes: int = 1
    merged: set[str] = field(default_factory=set[str])


_PARSER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_events = cast("Callable[..., Iterable[yaml.Event]]", yaml.parse)  # pyright: ignore[reportUnknownMemberType]
_INT = re.compile(r"[-+]?(0|[1-9][0-9]{0,299})")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_WORDS = {"": None, "~": None, "null": None, "true": True, "false": False}


def _read_yaml(text: str) -> object:
    """Build the value of a document from the parser's events. Raises `ValueError` and `yaml.YAMLError`.

    PyYAML's own loader would read `no` as false, `2026-11-01` as a date and `404` as a number where it is a key, has no
    limit for aliases of aliases, and crashes the process on deep documents.
    """
    opened: list[_Open] = []
    anchors: dict[str, tuple[object, int]] = {}
    root: object = None
    for event in _events(text, Loader=_PARSER):
        line = event.start_mark.line + 1
        anchor: str | None = getattr(event, "anchor", None)
        parent = opened[-1] if opened else None
        is_key = parent is not None and isinstance(parent.value, dict) and parent.key is None
        nodes = 1
        match event:
            case yaml.MappingStartEvent() | yaml.SequenceStartEvent():
                if is_key or len(opened) == MAX_DEPTH:
                    raise ValueError(
                        f"line {line}: {'a key must be text' if is_key else 'the document nests too deep'}"
                    )
                opened.append(_Open({} if isinstance(event, yaml.MappingStartEvent) else [], anchor, line))
                continue
            case yaml.AliasEvent():
                if anchor not in anchors:
                    raise ValueError(f"line {line}: the alias *{anchor} names nothing, or a part that contains it")
                value, nodes = anchors[anchor]
                anchor = None
            case yaml.ScalarEvent():
                plain = not event.style and event.tag is None and not is_key
                value = _scalar(event.value) if plain else event.value
            case yaml.MappingEndEvent() | yaml.SequenceEndEvent():
                done = opened.pop()
                value, nodes, anchor, line = done.value, done.nodes, done.anchor, done.line
                parent = opened[-1] if opened else None
            case yaml.DocumentStartEvent() if root is not None:
                raise ValueError(f"a second document begins in line {line}")
            case _:
                continue
        if anchor is not None:
            anchors[anchor] = (value, nodes)
        if parent is None:
            root = value
        else:
            _add(parent, value, nodes, line)
    return root


def _add(parent: _Open, value: object, nodes: int, line: int) -> None:
    parent.nodes += nodes
    if parent.nodes > MAX_NODES:
        raise ValueError(f"line {line}: with its aliases written out it has more than {MAX_NODES:,} keys and values")
    if isinstance(parent.value, list):
        parent.value.append(value)
    elif parent.key is None:
        if not isinstance(value, str):
            raise ValueError(f"line {line}: a key must be text")
        if value in parent.value and value not in parent.merged:
            raise ValueError(f"line {line}: duplicate key {value!r:.80}; keep one of them")
        parent.key = value
    elif parent.key == "<<":
        for source in as_list(value) or [value]:
            added = {key: inner for key, inner in as_object(source).items() if key not in parent.value}
            parent.merged.update(added)
            parent.value.update(added)
        parent.key = None
    else:
        parent.value[parent.key] = value
        parent.key = None


def _scalar(text: str) -> object:
    """Return the value of an unquoted scalar in the core schema of YAML 1.2."""
    if text in _WORDS:
        return _WORDS[text]
    if _INT.fullmatch(text):
        return int(text)
    return float(text) if len(text) < 300 and _FLOAT.fullmatch(text) else text
