"""From the events of a YAML parser to a tree with places, in one pass and with bounded work.

The parser only tokenises. Aliases, merge keys, tags and keys are decided here, where the weight and the depth of a
node with every alias written out are known when it closes: a bomb is refused before anything is expanded.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import yaml

from toolplug.config.yaml_tree import (
    Entry,
    KeyPath,
    ListNode,
    MappingNode,
    Mark,
    Node,
    ScalarNode,
    ScalarValue,
    resolve_scalar,
    shown_path,
    write_scalar,
)
from toolplug.errors import Problem

MAX_DEPTH = 64
MAX_PROBLEMS = 100
MAX_NODES = 50_000
"""Keys and values with every alias written out: what a document of so many costs, some 0.3 s, is the most it may."""
MAX_EXPANDED_BYTES = 10 * 1024 * 1024

_CORE = "tag:yaml.org,2002:"
_SCALAR_TAGS = {"str": str, "int": int, "float": float, "bool": bool, "null": type(None)}


class YamlRefused(Exception):
    """The rest of the stream is not worth reading; its problem is in the list already."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Key:
    """A key whose value has not been read yet. `name` is None where the key is wrong: its value is dropped."""

    name: str | None
    mark: Mark
    merges: bool = False


@dataclass(slots=True, kw_only=True)
class _Open:
    """A collection whose end has not been read yet."""

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
    """Builds one tree from the events of one stream. `root` is None for a stream without a document.

    `feed` raises `YamlRefused` where reading on is useless; `problems` holds all that was found.
    """

    def __init__(self, file: str) -> None:
        self.problems: list[Problem] = []
        self.root: Node | None = None
        self._file = file
        self._documents = 0
        self._open: list[_Open] = []
        # None while the anchored collection is open: an alias to it would never end.
        self._anchors: dict[str, Node | None] = {}
        self._anchor_marks: dict[str, Mark] = {}
        self._handlers: dict[type[yaml.Event], Callable[..., None]] = {
            yaml.DocumentStartEvent: self._start_document,
            yaml.AliasEvent: self._alias,
            yaml.ScalarEvent: self._scalar,
            yaml.SequenceStartEvent: self._start_collection,
            yaml.MappingStartEvent: self._start_collection,
            yaml.SequenceEndEvent: self._end_list,
            yaml.MappingEndEvent: self._end_mapping,
        }

    def feed(self, event: yaml.Event) -> None:
        """Take the next event."""
        handler = self._handlers.get(type(event))
        if handler is not None:
            handler(event)

    def _report(self, code: str, mark: Mark, message: str, hint: str = "") -> None:
        if len(self.problems) == MAX_PROBLEMS:
            raise YamlRefused
        self.problems.append(
            Problem(
                code=code,
                message=message,
                file=self._file,
                line=mark.line,
                column=mark.column,
                path=shown_path(self._open[-1].next_path()) if self._open else "",
                hint=hint,
            )
        )

    def _start_document(self, event: yaml.DocumentStartEvent) -> None:
        self._documents += 1
        if self._documents > 1:
            self._report(
                "several_documents",
                _mark(event),
                "a second document begins here; the file must hold one",
                "remove the line '---' and what follows it",
            )
            raise YamlRefused

    def _alias(self, event: yaml.AliasEvent) -> None:
        mark = _mark(event)
        if event.anchor not in self._anchors:
            self._report("unknown_alias", mark, f"alias '*{event.anchor}' has no anchor '&{event.anchor}' before it")
            node = None
        else:
            node = self._anchors[event.anchor]
            if node is None:
                self._report("recursive_alias", mark, f"alias '*{event.anchor}' refers to a node that contains it")
        self._add(node or ScalarNode(value=None, plain=True, mark=mark, weight=1), mark)

    def _scalar(self, event: yaml.ScalarEvent) -> None:
        mark = _mark(event)
        text: str = event.value
        plain = not event.style and event.tag is None
        node = ScalarNode(
            value=resolve_scalar(text) if plain else self._tagged(event.tag, text, mark),
            plain=plain,
            mark=mark,
            weight=1 + (len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))),
        )
        if not plain and not _encodes(text):
            self._report("not_text", mark, "an escape gives half of a surrogate pair, which is no character")
        self._anchor(event.anchor, mark)
        self._close_anchor(event.anchor, node)
        self._add(node, mark)

    def _tagged(self, tag: str | None, text: str, mark: Mark) -> ScalarValue:
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
        mark = _mark(event)
        is_mapping = isinstance(event, yaml.MappingStartEvent)
        if event.tag not in {None, "!", f"{_CORE}{'map' if is_mapping else 'seq'}"}:
            self._refuse_tag(event.tag, mark)
        if len(self._open) == MAX_DEPTH:
            self._refuse_depth(mark)
        self._anchor(event.anchor, mark)
        path = self._open[-1].next_path() if self._open else ()
        self._open.append(_Open(path=path, mark=mark, anchor=event.anchor, is_mapping=is_mapping))

    def _refuse_depth(self, mark: Mark) -> None:
        self._report("too_deep", mark, f"collections nest more than {MAX_DEPTH} deep")
        raise YamlRefused

    def _end_list(self, event: yaml.SequenceEndEvent) -> None:
        done = self._open.pop()
        node = ListNode(items=tuple(done.items), mark=done.mark, weight=done.weight, depth=done.depth, nodes=done.nodes)
        self._close_anchor(done.anchor, node)
        self._add(node, done.mark)

    def _end_mapping(self, event: yaml.MappingEndEvent) -> None:
        done = self._open[-1]
        entries = self._merged(done)
        self._open.pop()
        node = MappingNode(entries=entries, mark=done.mark, weight=done.weight, depth=done.depth, nodes=done.nodes)
        self._close_anchor(done.anchor, node)
        self._add(node, done.mark)

    def _merged(self, done: _Open) -> dict[str, Entry]:
        """Lay merge keys and own keys together: an own key wins, then the mapping that is merged first."""
        entries: dict[str, Entry] = {}
        for key, node in done.pairs:
            if key.name is not None and not key.merges:
                entries[key.name] = Entry(key_mark=key.mark, node=node)
            elif key.merges:
                for source in node.items if isinstance(node, ListNode) else (node,):
                    if not isinstance(source, MappingNode):
                        self._report(
                            "merge",
                            key.mark,
                            "'<<' merges mappings only",
                            'write "<<" in quotes for a key of that name',
                        )
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
        if len(self._open) + node.depth > MAX_DEPTH:
            self._refuse_depth(mark)
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
            return _Key(name=None, mark=mark)
        if not isinstance(node.value, str):
            self._report("key_not_text", mark, f"the key {write_scalar(node.value)} is not text", "write it in quotes")
            return _Key(name=None, mark=mark)
        name = node.value
        first = parent.key_marks.setdefault(name, mark)
        if first is not mark:
            parent.key = _Key(name=name, mark=mark)
            self._report(
                "duplicate_key",
                mark,
                f"duplicate key {name!r} (lines {first.line} and {mark.line})",
                "keep one of them",
            )
            return _Key(name=None, mark=mark)
        return _Key(name=name, mark=mark, merges=node.plain and name == "<<")


def _mark(event: yaml.Event) -> Mark:
    return Mark(line=event.start_mark.line + 1, column=event.start_mark.column + 1)


def _encodes(text: str) -> bool:
    return text.isascii() or not any("\ud800" <= character <= "\udfff" for character in text)
