"""The tree of a YAML document: plain values, each with the place where it stands."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

ScalarValue: TypeAlias = str | int | float | bool | None
Value: TypeAlias = "ScalarValue | list[Value] | dict[str, Value]"


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """A place in a file; line and column count from 1."""

    line: int
    column: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalarNode:
    """One scalar. `plain`: it stands without quotes and without a tag, so its text decided its type."""

    value: ScalarValue
    plain: bool
    mark: Mark
    weight: int

    @property
    def depth(self) -> int:
        return 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ListNode:
    """A sequence. `weight` and `depth` are those of the sequence with every alias written out."""

    items: tuple[Node, ...]
    mark: Mark
    weight: int
    depth: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One key of a mapping: where the key stands, and its value."""

    key_mark: Mark
    node: Node


@dataclass(frozen=True, slots=True, kw_only=True)
class MappingNode:
    """A mapping in file order, merge keys resolved. `weight` and `depth` as in `ListNode`."""

    entries: Mapping[str, Entry]
    mark: Mark
    weight: int
    depth: int


Node: TypeAlias = ScalarNode | ListNode | MappingNode


def value_of(node: Node) -> Value:
    """Return the node as plain values that nobody else holds."""
    match node:
        case ScalarNode():
            return node.value
        case ListNode():
            return [value_of(item) for item in node.items]
        case MappingNode():
            return {key: value_of(entry.node) for key, entry in node.entries.items()}


def child_of(value: Value, part: str | int) -> Value:
    """Return what stands at a key or an index of the value; LookupError where nothing does."""
    match value, part:
        case dict(), str():
            return value[part]
        case list(), int() if part >= 0:
            return value[part]
        case _:
            raise LookupError(part)
