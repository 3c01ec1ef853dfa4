"""The operator's own files: which ones the configuration names."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from toolplug_file_search.documents.formats import SUFFIXES

_MAGIC = frozenset("*?[")


class Pattern(NamedTuple):
    """A path of the configuration: a folder, and which of its files; `everything`: those with a known suffix.

    `start` is where a relative path of the configuration begins.
    """

    start: Path
    root: Path
    glob: str
    everything: bool

    def show(self, path: Path) -> str:
        """The path as the configuration begins it."""
        return (path.relative_to(self.start) if path.is_relative_to(self.start) else path).as_posix()


class LocalFile(NamedTuple):
    """A file on the operator's disk. `name` is how it is shown: the path as the configuration begins it.

    `supported`: it is named itself, or has a suffix that can be searched.
    """

    name: str
    path: Path
    supported: bool = True


def pattern(path: str, start: Path) -> Pattern:
    """Read one path: a folder, a file, or a glob such as `docs/**/*.md`; a relative one begins at `start`.

    Raises `ValueError` naming what is not there.
    """
    given = Path(os.path.expanduser(path))
    start, parts = Path() if given.is_absolute() else start, (start / given).parts
    magic = next((index for index, part in enumerate(parts) if _MAGIC & set(part)), len(parts))
    root, rest = Path(*parts[:magic]), parts[magic:]
    if ".." in rest:
        raise ValueError(f"{path!r} leaves its own folder with '..' after a wildcard")
    if not root.exists():
        raise ValueError(f"{str(root)!r} does not exist")
    if rest:
        if not root.is_dir():
            raise ValueError(f"{str(root)!r} is no folder, so nothing in it can match {'/'.join(rest)!r}")
        return Pattern(start, root, "/".join(rest), everything=False)
    if root.is_dir():
        return Pattern(start, root, "**/*", everything=True)
    return Pattern(start, root.parent, root.name, everything=False)


def local_files(patterns: Sequence[Pattern]) -> Iterator[LocalFile]:
    """Each file once, in the order of the configuration; none that is hidden, compiled by Python or behind a link."""
    seen: set[Path] = set()
    for wanted in patterns:
        root = wanted.root.resolve()
        for path in sorted(wanted.root.glob(wanted.glob)):
            inner = path.relative_to(wanted.root)
            if any(part.startswith(".") or part == "__pycache__" for part in inner.parts):
                continue
            supported = not wanted.everything or path.suffix.lower() in SUFFIXES
            whole = root / inner
            if whole in seen or not path.is_file() or path.resolve() != whole:
                continue
            seen.add(whole)
            yield LocalFile(wanted.show(path), whole, supported)
