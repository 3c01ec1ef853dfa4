"""The tree of a YAML document: nodes with marks, paths to them, and the values of plain scalars."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, NamedTuple, TypeAlias

from toolplug.errors import Problem

KeyPath: TypeAlias = tuple[str | int, ...]

_BARE = re.compile(r"[\w/@+-]+")


def shown_path(path: KeyPath) -> str:
    """Write a path as `auth.api_keys[0].key`; a key that is not a plain word is quoted."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            word = part if _BARE.fullmatch(part) else json.dumps(part)
            text += f".{word}" if text else word
    return text


ScalarValue: TypeAlias = str | int | float | bool | None
Value: TypeAlias = "ScalarValue | list[Value] | dict[str, Value]"


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """A position in a file; `line` and `column` count from 1."""

    line: int
    column: int


NOWHERE = Mark(line=0, column=0)


def problem_at(file: str, mark: Mark, code: str, message: str, hint: str = "", path: KeyPath = ()) -> Problem:
    """Return a problem at a position of the file, of the value at `path`."""
    return Problem(
        code=code, message=message, file=file, line=mark.line, column=mark.column, path=shown_path(path), hint=hint
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalarNode:
    """A scalar. `plain`: it has neither quotes nor a tag, so its text decides its type. `weight` in bytes."""

    value: ScalarValue
    plain: bool
    mark: Mark
    weight: int
    depth: ClassVar[int] = 0
    nodes: ClassVar[int] = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ListNode:
    """A sequence. With every alias written out it has about `weight` bytes, `depth` levels and `nodes` nodes."""

    items: tuple[Node, ...]
    mark: Mark
    weight: int
    depth: int
    nodes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A key of a mapping: its position and its value."""

    key_mark: Mark
    node: Node


@dataclass(frozen=True, slots=True, kw_only=True)
class MappingNode:
    """A mapping in file order, merge keys resolved. `weight`, `depth` and `nodes` as in `ListNode`."""

    entries: Mapping[str, Entry]
    mark: Mark
    weight: int
    depth: int
    nodes: int


Node: TypeAlias = ScalarNode | ListNode | MappingNode


class Composed(NamedTuple):
    """What a text was read as: its root, None without one, its problems, and whether all of it was read."""

    root: Node | None
    problems: list[Problem]
    whole: bool


def value_of(node: Node) -> Value:
    """Return the node as new plain values."""
    match node:
        case ScalarNode():
            return node.value
        case ListNode():
            return [value_of(item) for item in node.items]
        case MappingNode():
            return {key: value_of(entry.node) for key, entry in node.entries.items()}


def node_of(value: Value, mark: Mark) -> Node:
    """Return a value as a node that is wholly at one position, each text in quotes."""
    match value:
        case dict():
            entries = {key: Entry(key_mark=mark, node=node_of(item, mark)) for key, item in value.items()}
            return MappingNode(entries=entries, mark=mark, weight=0, depth=0, nodes=0)
        case list():
            items = tuple(node_of(item, mark) for item in value)
            return ListNode(items=items, mark=mark, weight=0, depth=0, nodes=0)
        case _:
            return ScalarNode(value=value, plain=not isinstance(value, str), mark=mark, weight=0)


def child_of(value: Value, part: str | int) -> Value:
    """Return the child at a key or a non-negative index. Raises `LookupError`."""
    match value, part:
        case dict(), str():
            return value[part]
        case list(), int() if part >= 0:
            return value[part]
        case _:
            raise LookupError(part)


# Plain scalars follow the core schema of YAML 1.2 (https://yaml.org/spec/1.2.2/#103-core-schema), with one exception: a
# number with a leading zero (`010`) is text, because half of its readers take it for 8 and half for 10. Forms of YAML
# 1.1 are text too: `yes`, `off`, `1_000`, `60:30`, `2026-11-01`.

_NULLS = frozenset(("", "~", "null", "Null", "NULL"))
_BOOLS = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
# A number of more than 300 digits is text: no setting could hold it, and it is slow to convert.
_INT = re.compile(r"[-+]?(?:0|[1-9][0-9]{0,299})")
_BASED = re.compile(r"0o[0-7]{1,300}|0x[0-9a-fA-F]{1,300}")
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|(?:0|[1-9][0-9]*)(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_INFINITY = re.compile(r"([-+]?)\.(?:inf|Inf|INF)")
_NANS = frozenset((".nan", ".NaN", ".NAN"))


def resolve_scalar(text: str) -> ScalarValue:
    """Return the value of an unquoted scalar: the text itself unless it is a null, a boolean or a number."""
    if text in _NULLS:
        return None
    if text in _BOOLS:
        return _BOOLS[text]
    if _INT.fullmatch(text):
        return int(text)
    if _BASED.fullmatch(text):
        return int(text, 0)
    if infinity := _INFINITY.fullmatch(text):
        return float(f"{infinity[1]}inf")
    if text in _NANS:
        return float("nan")
    if len(text) <= 300 and _FLOAT.fullmatch(text):
        return float(text)
    return text


def write_scalar(value: ScalarValue) -> str:
    """Return the value as messages show it: text in Python's quotes, everything else as YAML writes it."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    return repr(value)


MAX_DEPTH = 64
MAX_PROBLEMS = 100
MAX_NODES = 50_000
"""Keys and values, with every alias written out; a document of this many takes about 0.3 s."""
MAX_EXPANDED_BYTES = 10 * 1024 * 1024
