"""The tree of a YAML document: nodes with marks, paths to them, the values of plain scalars, and what builds it.

It is built from the events of a parser, in one pass and with bounded work. Aliases, merge keys, tags and keys are
resolved here, not by the parser: the expanded size and depth of each node are known when it ends, so a bomb is refused
before anything is expanded. `yaml.compose` would crash on a deep document.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar, TypeAlias

import yaml

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


def value_of(node: Node) -> Value:
    """Return the node as new plain values."""
    match node:
        case ScalarNode():
            return node.value
        case ListNode():
            return [value_of(item) for item in node.items]
        case MappingNode():
            return {key: value_of(entry.node) for key, entry in node.entries.items()}


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

_CORE = "tag:yaml.org,2002:"
_SCALAR_TAGS = {"str": str, "int": int, "float": float, "bool": bool, "null": type(None)}


class YamlRefused(Exception):
    """Raised to stop reading; the problem is reported already."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Key:
    """A key whose value is not read yet. `name` is None for an invalid key, whose value is dropped."""

    name: str | None
    mark: Mark
    merges: bool = False


@dataclass(slots=True, kw_only=True)
class _Open:
    """A collection whose end is not read yet; `weight`, `depth` and `nodes` as in `ListNode`."""

    path: KeyPath
    mark: Mark
    anchor: str | None
    is_mapping: bool
    weight: int = 2
    depth: int = 1
    nodes: int = 1
    items: list[Node] = field(default_factory=list[Node])
    pairs: list[tuple[_Key, Node]] = field(default_factory=list[tuple[_Key, Node]])
    key_marks: dict[str, Mark] = field(default_factory=dict[str, Mark])
    key: _Key | None = None

    def next_path(self) -> KeyPath:
        if not self.is_mapping:
            return (*self.path, len(self.items))
        return self.path if self.key is None or self.key.name is None else (*self.path, self.key.name)


class Composer:
    """Builds one tree from the events of one stream: `root`, None without a document, and all `problems`."""

    def __init__(self, file: str) -> None:
        self.problems: list[Problem] = []
        self.root: Node | None = None
        self._file = file
        self._documents = 0
        self._open: list[_Open] = []
        # None while the anchored collection is open: an alias to it would be endless.
        self._anchors: dict[str, Node | None] = {}
        self._anchor_marks: dict[str, Mark] = {}

    def feed(self, event: yaml.Event) -> None:
        """Take the next event. Raises `YamlRefused` after a problem that makes the rest useless."""
        match event:
            case yaml.ScalarEvent():
                self._scalar(event)
            case yaml.SequenceStartEvent() | yaml.MappingStartEvent():
                self._start_collection(event)
            case yaml.SequenceEndEvent() | yaml.MappingEndEvent():
                self._end_collection()
            case yaml.AliasEvent():
                self._alias(event)
            case yaml.DocumentStartEvent():
                self._start_document(event)
            case _:
                pass

    def _report(self, code: str, mark: Mark, message: str, hint: str = "") -> None:
        if len(self.problems) == MAX_PROBLEMS:
            raise YamlRefused
        path = self._open[-1].next_path() if self._open else ()
        self.problems.append(problem_at(self._file, mark, code, message, hint, path))

    def _start_document(self, event: yaml.DocumentStartEvent) -> None:
        self._documents += 1
        if self._documents > 1:
            message = "a second document begins here; the file must hold one"
            self._report("several_documents", _position_of(event), message, "remove the line '---' and what follows it")
            raise YamlRefused

    def _alias(self, event: yaml.AliasEvent) -> None:
        mark = _position_of(event)
        if event.anchor not in self._anchors:
            self._report("unknown_alias", mark, f"alias '*{event.anchor}' has no anchor '&{event.anchor}' before it")
            node = None
        else:
            node = self._anchors[event.anchor]
            if node is None:
                self._report("recursive_alias", mark, f"alias '*{event.anchor}' refers to a node that contains it")
        # A null in its place, so that the rest of the document is still checked.
        self._add(node or ScalarNode(value=None, plain=True, mark=mark, weight=1), mark)

    def _scalar(self, event: yaml.ScalarEvent) -> None:
        mark = _position_of(event)
        text: str = event.value
        plain = not event.style and event.tag is None
        node = ScalarNode(
            value=resolve_scalar(text) if plain else self._tag(event.tag, text, mark),
            plain=plain,
            mark=mark,
            weight=1 + (len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))),
        )
        if not plain and not text.isascii() and any("\ud800" <= character <= "\udfff" for character in text):
            self._report("not_text", mark, "an escape gives half of a surrogate pair, which is no character")
        self._anchor(event.anchor, mark)
        self._close_anchor(event.anchor, node)
        self._add(node, mark)

    def _tag(self, tag: str | None, text: str, mark: Mark) -> ScalarValue:
        if tag is None or tag in {"!", f"{_CORE}str"}:
            return text
        wanted = _SCALAR_TAGS.get(tag.removeprefix(_CORE)) if tag.startswith(_CORE) else None
        if wanted is None:
            self._refuse_tag(tag, mark)
            return text
        value = resolve_scalar(text)
        if wanted is float and type(value) is int:
            value = float(value)
        if type(value) is not wanted:
            self._report("tag", mark, f"the value does not fit its tag '!!{tag.removeprefix(_CORE)}'", "remove the tag")
        return value

    def _refuse_tag(self, tag: str, mark: Mark) -> None:
        name = f"!!{tag.removeprefix(_CORE)}" if tag.startswith(_CORE) else tag
        self._report("tag", mark, f"the tag {name[:80]!r} is not allowed", "remove the tag; plain values need none")

    def _start_collection(self, event: yaml.SequenceStartEvent | yaml.MappingStartEvent) -> None:
        mark = _position_of(event)
        is_mapping = isinstance(event, yaml.MappingStartEvent)
        if event.tag not in {None, "!", f"{_CORE}{'map' if is_mapping else 'seq'}"}:
            self._refuse_tag(event.tag, mark)
        self._check_depth(len(self._open) + 1, mark)
        self._anchor(event.anchor, mark)
        path = self._open[-1].next_path() if self._open else ()
        self._open.append(_Open(path=path, mark=mark, anchor=event.anchor, is_mapping=is_mapping))

    def _check_depth(self, depth: int, mark: Mark) -> None:
        if depth > MAX_DEPTH:
            self._report("too_deep", mark, f"collections nest more than {MAX_DEPTH} deep")
            raise YamlRefused

    def _end_collection(self) -> None:
        done = self._open[-1]
        mark, weight, depth, nodes = done.mark, done.weight, done.depth, done.nodes
        node: Node
        if done.is_mapping:
            node = MappingNode(entries=self._merge(done), mark=mark, weight=weight, depth=depth, nodes=nodes)
        else:
            node = ListNode(items=tuple(done.items), mark=mark, weight=weight, depth=depth, nodes=nodes)
        self._open.pop()
        self._close_anchor(done.anchor, node)
        self._add(node, mark)

    def _merge(self, done: _Open) -> dict[str, Entry]:
        """Merge the mappings of `<<` with the own keys: an own key wins, then the first mapping."""
        entries: dict[str, Entry] = {}
        for key, node in done.pairs:
            if key.name is not None and not key.merges:
                entries[key.name] = Entry(key_mark=key.mark, node=node)
            elif key.merges:
                for source in node.items if isinstance(node, ListNode) else (node,):
                    if not isinstance(source, MappingNode):
                        hint = 'write "<<" in quotes for a key of that name'
                        self._report("merge", key.mark, "'<<' merges mappings only", hint)
                        break
                    for name, entry in source.entries.items():
                        if name not in done.key_marks:
                            entries.setdefault(name, entry)
        return entries

    def _anchor(self, anchor: str | None, mark: Mark) -> None:
        if anchor is None:
            return
        first = self._anchor_marks.setdefault(anchor, mark)
        if first is not mark:
            self._report("duplicate_anchor", mark, f"anchor '&{anchor}' is set already on line {first.line}")
        else:
            self._anchors[anchor] = None

    def _close_anchor(self, anchor: str | None, node: Node) -> None:
        if anchor is not None and self._anchors[anchor] is None:
            self._anchors[anchor] = node

    def _add(self, node: Node, mark: Mark) -> None:
        if not self._open:
            self.root = node
            return
        parent = self._open[-1]
        parent.weight += node.weight
        parent.nodes += node.nodes
        parent.depth = max(parent.depth, node.depth + 1)
        if parent.weight > MAX_EXPANDED_BYTES:
            self._refuse_size(mark, "passes 10 MiB")
        if parent.nodes > MAX_NODES:
            self._refuse_size(mark, f"has more than {MAX_NODES:,} keys and values")
        # An alias brings the whole depth of its node to this level.
        self._check_depth(len(self._open) + node.depth, mark)
        if not parent.is_mapping:
            parent.items.append(node)
        elif parent.key is None:
            parent.key = self._read_key(parent, node, mark)
        else:
            parent.pairs.append((parent.key, node))
            parent.key = None

    def _refuse_size(self, mark: Mark, what: str) -> None:
        message = f"with its aliases written out, the document {what}"
        self._report("too_large", mark, message, "shorten it, or use fewer aliases of aliases")
        raise YamlRefused

    def _read_key(self, parent: _Open, node: Node, mark: Mark) -> _Key:
        if not isinstance(node, ScalarNode):
            self._report("key_not_text", mark, "a key must be text, not a collection")
        elif not isinstance(node.value, str):
            self._report("key_not_text", mark, f"the key {write_scalar(node.value)} is not text", "write it in quotes")
        else:
            name = node.value
            first = parent.key_marks.setdefault(name, mark)
            if first is mark:
                return _Key(name=name, mark=mark, merges=node.plain and name == "<<")
            parent.key = _Key(name=name, mark=mark)  # for the path of the problem
            message = f"duplicate key {name!r} (lines {first.line} and {mark.line})"
            self._report("duplicate_key", mark, message, "keep one of them")
        return _Key(name=None, mark=mark)


def _position_of(event: yaml.Event) -> Mark:
    return Mark(line=event.start_mark.line + 1, column=event.start_mark.column + 1)
