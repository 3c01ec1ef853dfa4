"""Builds the tree of a YAML document from the events of a parser, in one pass and with bounded work.

Aliases, merge keys, tags and keys are resolved here, not by the parser: the expanded size and depth of each node are
known when it ends, so a bomb is refused before anything is expanded. `yaml.compose` would crash on a deep document.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

import yaml

from toolplug.config.yaml_tree import (
    MAX_DEPTH,
    MAX_EXPANDED_BYTES,
    MAX_NODES,
    MAX_PROBLEMS,
    Composed,
    Entry,
    KeyPath,
    ListNode,
    MappingNode,
    Mark,
    Node,
    ScalarNode,
    ScalarValue,
    problem_at,
    resolve_scalar,
    write_scalar,
)
from toolplug.errors import Problem

_ODD_SPACE = re.compile("^ *\u00a0|[:-]\u00a0")
"""No-break spaces where YAML wants plain ones, which look the same."""
# Without libyaml the same events come from PyYAML's own parser, only slower.
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

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


def compose(text: str, file: str) -> Composed:
    """Read a text as the file of this name."""
    composer = Composer(file)
    whole = False
    try:
        for event in _events(text):
            composer.feed(event)
        whole = True
    except YamlRefused:
        pass
    except yaml.YAMLError as error:
        composer.problems.append(syntax_problem(error, text=text, file=file))
    return Composed(composer.root, composer.problems, whole)


def _events(text: str) -> Iterator[yaml.Event]:
    return yaml.parse(text, Loader=_LOADER)  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]  # untyped in its stubs


def syntax_problem(error: yaml.YAMLError, *, text: str, file: str) -> Problem:
    """Return the parser's error as a problem. The parser's texts name characters, never values."""
    if not isinstance(error, yaml.MarkedYAMLError) or error.problem_mark is None:
        return Problem(code="syntax", message="not valid YAML", file=file)
    mark, begun = error.problem_mark, error.context_mark
    lines = text.splitlines()
    line = lines[mark.line] if mark.line < len(lines) else ""
    code, message, hint = "syntax", f"not valid YAML: {error.problem}", ""
    if error.context:
        message += f" {error.context}"
        if begun is not None and begun.line != mark.line:
            message += f" that begins on line {begun.line + 1}"
    before = line[: mark.column + 1]
    if "\t" in before and not before.strip():
        code, message, hint = "tab", "a tab cannot indent YAML", "indent with spaces"
    elif odd := [number for number, written in enumerate(lines[: mark.line + 1], 1) if _ODD_SPACE.search(written)]:
        hint = f"line {odd[-1]} has a no-break space, as pages and chats have; write a plain one"
    elif "escape character" in (error.problem or ""):
        hint = "in double quotes a backslash begins an escape; write the text in single quotes"
    elif (error.problem or "").startswith(("did not find expected key", "did not find expected '-'")):
        hint = "the keys of a mapping, and the dashes of a list, begin in the same column"
    elif (error.problem or "").startswith("mapping values are not allowed"):
        hint = "write a text with a colon in quotes, and a key on a line of its own"
    elif (error.problem or "").startswith("found character that cannot start any token"):
        hint = f"write a text that begins with {line[mark.column]} in quotes"
    elif "${" in line:
        hint = 'inside { } and [ ] a reference is written in quotes: "${NAME}"'
    return problem_at(file, Mark(line=mark.line + 1, column=mark.column + 1), code, message, hint)
