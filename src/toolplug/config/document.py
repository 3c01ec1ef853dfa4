"""Read a YAML file as plain values with places, and report everything that is wrong with it at once."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import yaml

from toolplug.config.composer import Composer, Refused
from toolplug.config.key_path import KeyPath, shown_path
from toolplug.config.node import ListNode, MappingNode, Mark, Node, ScalarNode, Value, value_of
from toolplug.config.source_text import MAX_DOCUMENT_BYTES, decode_source
from toolplug.config.syntax import syntax_problem
from toolplug.errors import ConfigError, Problem

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
    except Refused:
        pass
    except yaml.YAMLError as error:
        found.append(syntax_problem(error, text=text, file=file))
    root = composer.root
    if root is None or (isinstance(root, ScalarNode) and root.plain and root.value is None):
        root = MappingNode(entries={}, mark=_TOP, weight=0, depth=0)
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
