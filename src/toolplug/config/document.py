"""Reading a YAML file as plain values with positions; reports all syntax errors of it at once."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import yaml

from toolplug.config.composer import Composer, YamlRefused
from toolplug.config.yaml_tree import (
    KeyPath,
    ListNode,
    MappingNode,
    Mark,
    Node,
    ScalarNode,
    Value,
    shown_path,
    value_of,
)
from toolplug.errors import ConfigError, Problem


def syntax_problem(error: yaml.YAMLError, *, text: str, file: str) -> Problem:
    """Return the problem; the parser's own words name characters and never values."""
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
    elif "${" in line:
        hint = 'inside { } and [ ] a reference is written in quotes: "${NAME}"'
    return Problem(code=code, message=message, file=file, line=mark.line + 1, column=mark.column + 1, hint=hint)


MAX_DOCUMENT_BYTES = 1024 * 1024

_UNPRINTABLE = re.compile(r"[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_MAX_UNPRINTABLE_REPORTS = 20


def decode_source(data: bytes, *, file: str) -> str:
    """Return the text without its byte order mark, or raise ConfigError: too large, not UTF-8, not printable."""
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
    before = data[:offset]
    return Problem(
        code="not_utf8",
        message=f"not UTF-8: byte 0x{data[offset]:02x} at offset {offset}",
        file=file,
        line=before.count(b"\n") + 1,
        column=len(before[before.rfind(b"\n") + 1 :].decode("utf-8")) + 1,
        hint="save the file as UTF-8",
    )


def _unprintable(text: str, file: str) -> Iterator[Problem]:
    for count, found in enumerate(_UNPRINTABLE.finditer(text)):
        if count == _MAX_UNPRINTABLE_REPORTS:
            return
        before = text[: found.start()]
        yield Problem(
            code="control_character",
            message=f"the control character U+{ord(found[0]):04X} is not allowed",
            file=file,
            line=before.count("\n") + 1,
            column=len(before) - before.rfind("\n"),
            hint=f'remove it, or write "\\u{ord(found[0]):04x}" in double quotes',
        )


def _tag_directives(text: str, file: str) -> Iterator[Problem]:
    """Find a `%TAG` line before the document: its tags would be refused, and many such lines are slow to parse."""
    for number, line in enumerate(text.splitlines(), start=1):
        if line.startswith("%TAG"):
            yield Problem(
                code="tag",
                message="the directive '%TAG' is not allowed",
                file=file,
                line=number,
                column=1,
                hint="remove the line; plain values need no tags",
            )
            return
        if line and not line.isspace() and not line.lstrip().startswith(("#", "%")):
            return


# Without libyaml the same events come from PyYAML's own parser, only slower.
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_TOP = Mark(line=1, column=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """A document whose root is a mapping; `file` is its name in problems. Nothing in it is expanded yet."""

    file: str
    root: MappingNode

    @property
    def folder(self) -> Path:
        """Where relative paths of the document start: the folder of its file."""
        return Path(self.file).absolute().parent

    @property
    def value(self) -> dict[str, Value]:
        """The whole document as plain values; each call makes new ones."""
        return {key: value_of(entry.node) for key, entry in self.root.entries.items()}

    def node(self, path: KeyPath) -> Node:
        """Return the node at the path, or raise KeyError."""
        found = self._descend(path)
        if len(found) <= len(path):
            raise KeyError(shown_path(path))
        return found[-1][1]

    def keys(self, path: KeyPath) -> tuple[str, ...]:
        """Return the keys of the mapping at the path, in file order; none where there is no mapping."""
        found = self._descend(path)
        node = found[-1][1] if len(found) > len(path) else None
        return tuple(node.entries) if isinstance(node, MappingNode) else ()

    def mark(self, path: KeyPath) -> Mark:
        """Return where the value stands; for a path that is not in the file, where its nearest parent's key stands."""
        found = self._descend(path)
        return found[-1][1].mark if len(found) > len(path) else found[-1][0]

    def key_mark(self, path: KeyPath) -> Mark:
        """Return where the key of the value stands (an item of a list: the item), or that of its nearest parent."""
        return self._descend(path)[-1][0]

    def problem(self, path: KeyPath, *, code: str, message: str, hint: str = "", at_key: bool = False) -> Problem:
        """Return a problem of the value at the path, or of its key."""
        mark = self.key_mark(path) if at_key else self.mark(path)
        return Problem(
            code=code,
            message=message,
            file=self.file,
            line=mark.line,
            column=mark.column,
            path=shown_path(path),
            hint=hint,
        )

    def _descend(self, path: KeyPath) -> list[tuple[Mark, Node]]:
        """Return place of key and node for the root and every part of the path that is in the file."""
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
    """Read a file, or raise ConfigError with every problem that its text has; `problems` as for `parse_document`."""
    file = os.fspath(path)
    try:
        with Path(file).open("rb") as stream:
            data = stream.read(MAX_DOCUMENT_BYTES + 1)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise ConfigError([Problem(code="unreadable", message=f"cannot be read: {reason}", file=file)]) from None
    return parse_document(data, file=file, problems=problems)


def parse_document(data: bytes, *, file: str, problems: list[Problem] | None = None) -> Document:
    """Parse UTF-8 text, or raise ConfigError with every problem that it has; empty text is an empty mapping.

    Where `problems` are given, those that leave the rest readable, such as a key that stands twice, are added to them
    and raise nothing: the document is as if they were mended, the first of two keys counts.
    """
    text = decode_source(data, file=file)
    composer = Composer(file)
    found = composer.problems
    whole = False
    try:
        for event in _events(text):
            composer.feed(event)
        whole = True
    except YamlRefused:
        pass
    except yaml.YAMLError as error:
        found.append(syntax_problem(error, text=text, file=file))
    root = composer.root
    if root is None or (isinstance(root, ScalarNode) and root.plain and root.value is None):
        root = MappingNode(entries={}, mark=_TOP, weight=0, depth=0, nodes=0)
    elif not isinstance(root, MappingNode):
        found.append(_not_a_mapping(root, file))
    if not isinstance(root, MappingNode) or (found and not (whole and problems is not None)):
        raise ConfigError(sorted(found, key=lambda problem: (problem.line, problem.column)))
    if problems is not None:
        problems.extend(found)
    return Document(file=file, root=root)


def _events(text: str) -> Iterator[yaml.Event]:
    return yaml.parse(text, Loader=_LOADER)  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]  # untyped in its stubs


def _not_a_mapping(root: ScalarNode | ListNode, file: str) -> Problem:
    return Problem(
        code="not_a_mapping",
        message=f"the document must be a mapping, not {'a list' if isinstance(root, ListNode) else 'one value'}",
        file=file,
        line=root.mark.line,
        column=root.mark.column,
        hint="begin with a line such as 'providers:'",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """The values at a path once environment and secret files had their say; `value` belongs to the holder.

    `problems` were found on the way. `broken` are the paths whose value could not be had: what a model says about them
    is noise. `withheld` are texts that came from the environment or from a file, which no message may show. `moved`
    maps the path of a secret to the path of the key that named its file.
    """

    document: Document
    path: KeyPath
    value: Value
    problems: tuple[Problem, ...] = ()
    broken: frozenset[KeyPath] = frozenset()
    withheld: frozenset[str] = frozenset()
    moved: Mapping[KeyPath, KeyPath] = field(default_factory=dict[KeyPath, KeyPath])

    def problem(self, path: KeyPath, *, code: str, message: str, hint: str = "", at_key: bool = False) -> Problem:
        """Return a problem of the value at the path (from the document's root), placed where the file has it."""
        source = self.moved.get(path, path)
        return self.document.problem(source, code=code, message=message, hint=hint, at_key=at_key)
