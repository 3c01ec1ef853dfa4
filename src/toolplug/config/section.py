"""A sub-tree of a document, ready to be validated."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from toolplug.config.document import Document
from toolplug.config.key_path import KeyPath
from toolplug.config.node import Value
from toolplug.errors import Problem


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
