"""Reads a YAML file as values with positions, expands its references, and reports all its errors at once.

References are `${NAME}`, `${NAME:-default}`, and `$${` for a literal `${`. They are expanded after parsing, and only in
the requested sub-tree: a disabled entry may refer to variables that are not set. As in a shell, the default of `:-`
also replaces an empty value.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from itertools import islice
from pathlib import Path

from toolplug.config.units import DEFAULT_ORIGIN
from toolplug.config.yaml_tree import (
    MAX_PROBLEMS,
    NOWHERE,
    Composed,
    KeyPath,
    ListNode,
    MappingNode,
    Mark,
    Node,
    ScalarNode,
    ScalarValue,
    Value,
    problem_at,
    resolve_scalar,
    shown_path,
    value_of,
)
from toolplug.errors import ConfigError, Problem

# Plain scalars follow the core schema of YAML 1.2 (https://yaml.org/spec/1.2.2/#103-core-schema), with one exception: a
# number with a leading zero (`010`) is text, because half of its readers take it for 8 and half for 10. Forms of YAML
# 1.1 are text too: `yes`, `off`, `1_000`, `60:30`, `2026-11-01`.


MAX_DOCUMENT_BYTES = 1024 * 1024

_UNPRINTABLE = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x84\x86-\x9f\ud800-\udfff\ufffe\uffff]")
"""What YAML 1.2 does not print (section 5.1). Its complement, with astral ranges, takes 12 ms to compile, this 0.3."""

_MAX_UNPRINTABLE_REPORTS = 20


def decode_source(data: bytes, *, file: str) -> str:
    """Return the text without its byte order mark.

    Raises `ConfigError` for data over 1 MiB, data that is not UTF-8, control characters and the directive `%TAG`.
    """
    if len(data) > MAX_DOCUMENT_BYTES:
        raise ConfigError([Problem(code="too_large", message="the document is larger than 1 MiB", file=file)])
    try:
        text = data.decode("utf-8").removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        raise ConfigError([_not_utf8(data, error.start, file)]) from None
    if problems := [*_unprintable(text, file), *_tag_directives(text, file)]:
        raise ConfigError(problems)
    return text


def _not_utf8(data: bytes, offset: int, file: str) -> Problem:
    mark = _end_of(data[:offset].decode("utf-8"))
    message = f"not UTF-8: byte 0x{data[offset]:02x} at offset {offset}"
    return problem_at(file, mark, "not_utf8", message, "save the file as UTF-8")


def _end_of(text: str) -> Mark:
    """Return the position after the last character of the text."""
    return Mark(line=text.count("\n") + 1, column=len(text) - text.rfind("\n"))


def _unprintable(text: str, file: str) -> Iterator[Problem]:
    for found in islice(_UNPRINTABLE.finditer(text), _MAX_UNPRINTABLE_REPORTS):
        message = f"the control character U+{ord(found[0]):04X} is not allowed"
        hint = f'remove it, or write "\\u{ord(found[0]):04x}" in double quotes'
        yield problem_at(file, _end_of(text[: found.start()]), "control_character", message, hint)


def _tag_directives(text: str, file: str) -> Iterator[Problem]:
    """Report a `%TAG` line before the document: its tags are not allowed, and many such lines are slow to parse."""
    for number, line in enumerate(text.splitlines(), start=1):
        if line.startswith("%TAG"):
            mark, message = Mark(line=number, column=1), "the directive '%TAG' is not allowed"
            yield problem_at(file, mark, "tag", message, "remove the line; plain values need no tags")
            return
        if line and not line.isspace() and not line.lstrip().startswith(("#", "%")):
            return


_COMPOSER = "toolplug.config.composer"
"""Imports the parser of YAML, which a host without such a file does not need."""
_TOP = Mark(line=1, column=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """A document whose root is a mapping, with no reference expanded. `file` is its name in problems.

    One that is not `written` stands for a file that has no lines of it: every position in it is 0.

    ```python
    from toolplug.config import Document, parse_document

    document: Document = parse_document(b"name: tea", file="price.yaml")
    assert document.value == {"name": "tea"}
    ```
    """

    file: str
    root: MappingNode
    written: bool = True

    @property
    def folder(self) -> Path:
        """The absolute folder of the file, to which relative paths in the document refer."""
        return Path(self.file).absolute().parent

    @property
    def value(self) -> dict[str, Value]:
        """The whole document as new plain values."""
        return {key: value_of(entry.node) for key, entry in self.root.entries.items()}

    def node(self, path: KeyPath) -> Node:
        """Return the node at the path. Raises `KeyError`."""
        found = self._descend(path)
        if len(found) <= len(path):
            raise KeyError(shown_path(path))
        return found[-1][1]

    def keys(self, path: KeyPath) -> tuple[str, ...]:
        """Return the keys of the mapping at the path, in file order; none if there is no mapping."""
        found = self._descend(path)
        node = found[-1][1] if len(found) > len(path) else None
        return tuple(node.entries) if isinstance(node, MappingNode) else ()

    def position_of(self, path: KeyPath) -> Mark:
        """Return the position of the value; for a path that is not in the file, that of its nearest parent's key."""
        if not self.written:
            return NOWHERE
        found = self._descend(path)
        return found[-1][1].mark if len(found) > len(path) else found[-1][0]

    def key_mark(self, path: KeyPath) -> Mark:
        """Return the position of the value's key, or that of its nearest parent; an item of a list is its own key."""
        return self._descend(path)[-1][0] if self.written else NOWHERE

    def place(self, path: KeyPath) -> str:
        """Return `file:line` of the value's key, or of its nearest parent; the file alone if it has no line."""
        return f"{self.file}:{self.key_mark(path).line}" if self.written else self.file

    def origin_of(self, path: KeyPath) -> str:
        """Return the place of a path as `file:line`; `DEFAULT_ORIGIN` for one that the document does not have."""
        try:
            self.node(path)
        except KeyError:
            return DEFAULT_ORIGIN
        return self.place(path)

    def problem(self, path: KeyPath, *, code: str, message: str, hint: str = "", at_key: bool = False) -> Problem:
        """Return a problem at the position of the value, or of its key."""
        mark = self.key_mark(path) if at_key else self.position_of(path)
        return problem_at(self.file, mark, code, message, hint, path)

    def _descend(self, path: KeyPath) -> list[tuple[Mark, Node]]:
        """Return the root and each node on the path that is in the file, with the position of its key."""
        node: Node = self.root
        found: list[tuple[Mark, Node]] = [(node.mark, node)]
        for part in path:
            match node, part:
                case MappingNode(), str() if part in node.entries:
                    entry = node.entries[part]
                    mark, node = entry.key_mark, entry.node
                case ListNode(), int() if 0 <= part < len(node.items):
                    node = node.items[part]
                    mark = node.mark
                case _:
                    break
            found.append((mark, node))
        return found


def read_document(path: str | os.PathLike[str], problems: list[Problem] | None = None) -> Document:
    """Read and parse a file. Raises `ConfigError` with all its problems; `problems` as for `parse_document`."""
    file = os.fspath(path)
    try:
        with Path(file).open("rb") as stream:
            # One byte more tells that the file is too large, without reading all of it.
            data = stream.read(MAX_DOCUMENT_BYTES + 1)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise ConfigError([Problem(code="unreadable", message=f"cannot be read: {reason}", file=file)]) from None
    return parse_document(data, file=file, problems=problems)


def parse_document(data: bytes, *, file: str, problems: list[Problem] | None = None) -> Document:
    """Parse UTF-8 text; empty text is an empty mapping. Raises `ConfigError` with all its problems.

    If `problems` is given, those that leave the rest readable, such as a duplicate key, are added to it instead; the
    document has the first of two equal keys.
    """
    text = decode_source(data, file=file)
    composed: Composed = import_module(_COMPOSER).compose(text, file)
    root, found, whole = composed
    if root is None or (isinstance(root, ScalarNode) and root.plain and root.value is None):
        root = MappingNode(entries={}, mark=_TOP, weight=0, depth=0, nodes=0)
    elif not isinstance(root, MappingNode):
        message = f"the document must be a mapping, not {'a list' if isinstance(root, ListNode) else 'one value'}"
        found.append(problem_at(file, root.mark, "not_a_mapping", message, "begin with a line such as 'providers:'"))
    if not isinstance(root, MappingNode) or (found and not (whole and problems is not None)):
        raise ConfigError(sorted(found, key=lambda problem: (problem.line, problem.column)))
    if problems is not None:
        problems.extend(found)
    return Document(file=file, root=root)


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """The values at a path, with references to the environment and to secret files replaced. The caller owns `value`.

    `problems`: of the replacement. `broken`: paths without a value, about which errors of a model say nothing.
    `withheld`: texts from the environment or a file, which no message may show. `moved`: for the path of each secret
    the path of the key that names its file.
    """

    document: Document
    path: KeyPath
    value: Value
    problems: tuple[Problem, ...] = ()
    broken: frozenset[KeyPath] = frozenset()
    withheld: frozenset[str] = frozenset()
    moved: Mapping[KeyPath, KeyPath] = field(default_factory=dict[KeyPath, KeyPath])

    def problem(self, path: KeyPath, *, code: str, message: str, hint: str = "", at_key: bool = False) -> Problem:
        """Return a problem of the value at a path from the document's root; for a secret, at its file's name."""
        source = self.moved.get(path, path)
        return self.document.problem(source, code=code, message=message, hint=hint, at_key=at_key)


def section_keys(document: Document, section: str, of: str, problems: list[Problem]) -> tuple[str, ...]:
    """Return the keys of a section in file order; one that is not a mapping is a problem."""
    entry = document.root.entries.get(section)
    if entry is None or isinstance(entry.node, MappingNode):
        return document.keys((section,))
    if not (isinstance(entry.node, ScalarNode) and entry.node.value is None):
        message = f"should be a mapping from {of} to settings"
        hint = "write each without a dash, as NAME: {…}" if isinstance(entry.node, ListNode) else ""
        problems.append(document.problem((section,), code="wrong_value", message=message, hint=hint))
    return ()


_REFERENCE = re.compile(r"\$\$\{|\$\{(?P<body>[^}]*)(?P<end>\}?)")
_BODY = re.compile(r"(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?::-(?P<default>(?:(?!\$\{).)*))?", re.DOTALL)
"""A default cannot contain a reference: its end would be ambiguous."""


def expand(document: Document, path: KeyPath, environ: Mapping[str, str]) -> Section:
    """Return the values at the path with every reference expanded. Raises `KeyError` for a path not in the file."""
    expansion = _Expansion(document=document, environ=environ)
    return expansion.section(path, expansion.expand(document.node(path), path))


def has_reference(text: str) -> bool:
    """Return whether the text contains a reference, valid or not."""
    return any(found["body"] is not None for found in _REFERENCE.finditer(text))


def list_variables(node: Node) -> list[str]:
    """Return the names of the variables to which the node and what is below it refer, each once, in file order."""
    found: dict[str, None] = {}
    waiting = [node]
    while waiting:
        match waiting.pop():
            case ScalarNode(value=str(text)):
                bodies = (_BODY.fullmatch(each["body"] or "") for each in _REFERENCE.finditer(text))
                found |= dict.fromkeys(body["name"] for body in bodies if body is not None)
            case ListNode(items=items):
                waiting += reversed(items)
            case MappingNode(entries=entries):
                waiting += reversed([entry.node for entry in entries.values()])
            case _:
                pass
    return [*found]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Expansion:
    """The expansion of one sub-tree, and its results."""

    document: Document
    environ: Mapping[str, str]
    problems: list[Problem] = field(default_factory=list[Problem])
    broken: set[KeyPath] = field(default_factory=set[KeyPath])
    withheld: set[str] = field(default_factory=set[str])

    def section(self, path: KeyPath, value: Value) -> Section:
        return Section(
            document=self.document,
            path=path,
            value=value,
            problems=tuple(self.problems),
            broken=frozenset(self.broken),
            withheld=frozenset(self.withheld),
        )

    def expand(self, node: Node, path: KeyPath) -> Value:
        match node:
            # The look for the two characters first: most scalars have none, and the pattern is slower.
            case ScalarNode(value=str(text)) if "${" in text:
                return self._scalar(text, path, plain=node.plain)
            case ScalarNode():
                return node.value
            case ListNode():
                return [self.expand(item, (*path, index)) for index, item in enumerate(node.items)]
            case MappingNode():
                return {key: self.expand(entry.node, (*path, key)) for key, entry in node.entries.items()}

    def _scalar(self, text: str, path: KeyPath, *, plain: bool) -> ScalarValue:
        expanded = _REFERENCE.sub(lambda found: self._replacement(found, path), text)
        if path in self.broken:
            return None
        # `port: ${PORT}` becomes a number, as if it had been written there; a part of a longer text stays text.
        whole = _REFERENCE.fullmatch(text)
        return resolve_scalar(expanded) if plain and whole and whole["body"] is not None else expanded

    def _replacement(self, found: re.Match[str], path: KeyPath) -> str:
        if found["body"] is None:
            return "${"
        body = _BODY.fullmatch(found["body"])
        if body is None or not found["end"]:
            hint = "write ${NAME} or ${NAME:-default}; '$${' is a literal '${'"
            return self._break(path, "bad_reference", "'${' does not begin a reference", hint)
        name, default = body["name"], body["default"]
        value = self.environ.get(name)
        # An empty value counts as unset here, as with `:-` in a shell.
        if default is not None and not value:
            return default
        if value is None:
            hint = f"set it, or write ${{{name}:-default}}"
            return self._break(path, "unset_variable", f"the environment variable {name!r} is not set", hint)
        # Python decodes bytes that are no UTF-8 as surrogates, which nothing can be written with.
        if not value.isprintable() and any("\ud800" <= character <= "\udfff" for character in value):
            return self._break(path, "not_text", f"the environment variable {name!r} is not UTF-8 text", "")
        if value:
            # Every value of the environment is masked in messages: which of them are secrets nobody can say.
            self.withheld.add(value)
        return value

    def _break(self, path: KeyPath, code: str, message: str, hint: str) -> str:
        self.broken.add(path)
        if len(self.problems) < MAX_PROBLEMS:
            self.problems.append(self.document.problem(path, code=code, message=message, hint=hint))
        return ""


def expanded_keys(document: Document, path: KeyPath, keys: Iterable[str], environ: Mapping[str, str]) -> Section:
    """Return the section of some keys of a mapping, with every reference expanded."""
    expansion = _Expansion(document=document, environ=environ)
    value: Value = {key: expansion.expand(document.node((*path, key)), (*path, key)) for key in keys}
    return expansion.section(path, value)
