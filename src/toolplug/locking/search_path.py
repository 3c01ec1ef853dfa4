"""What an interpreter finds, and where: its distributions, its modules, and what runs at each of its starts.

The host asks its own import system; of another environment the folders are searched, and nothing of it runs.
"""

from __future__ import annotations

import hashlib
import os
import site
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib.machinery import EXTENSION_SUFFIXES, ModuleSpec, PathFinder
from importlib.metadata import Distribution, distributions
from typing import Any

from packaging.markers import default_environment
from packaging.utils import canonicalize_name

from toolplug.locking.files import COMPILED, ForeignFiles, hash_file, top_of
from toolplug.packages.environments import read_environment, read_links

AT_START = ("sitecustomize", "usercustomize")
"""Modules that Python imports at each start where there are any."""
_METADATA = (".dist-info", ".egg-info")
_MAX_LOOSE = 2_000
"""Files of one module that no RECORD lists which are hashed; more make another digest by their number."""


@dataclass(frozen=True, eq=False, kw_only=True)
class SearchPath:
    """The search path of one interpreter: that of the host, or, with `python`, of an environment of its own.

    * `version`: of Python, `3.11.7`
    * `path`: the folders of modules, in the order in which an import looks; `folders`: those with distributions
    * `find`: returns where an import of a top-level name leads, without importing it
    * `level`, `tag`: of the compiled files that it loads
    """

    python: str
    version: str
    path: tuple[str, ...]
    folders: tuple[str, ...]
    find: Callable[[str], ModuleSpec | None]
    tag: str
    level: int

    @property
    def name(self) -> str:
        """The interpreter, in words."""
        return self.python or "this Python"

    @cached_property
    def markers(self) -> dict[str, Any]:
        """The values of the markers in requirements."""
        short = ".".join(self.version.split(".")[:2])
        return {**default_environment(), "python_version": short, "python_full_version": self.version}

    @cached_property
    def foreign(self) -> ForeignFiles:
        """What the RECORDs of all distributions list."""
        return ForeignFiles(list(distributions(path=list(self.folders))))

    def distribution(self, name: str) -> Distribution | None:
        """Return the distribution that an import of its metadata finds, the first on the path."""
        return next(iter(distributions(name=canonicalize_name(name), path=list(self.folders))), None)

    def run_at_start(self) -> dict[str, str]:
        """Return the digest of each file that runs at every start: `.pth` files and modules for that."""
        found: dict[str, str] = {}
        for folder in self.folders:
            for name in _names(folder):
                if name.endswith(".pth"):
                    found.setdefault(name, hash_file(os.path.join(folder, name)))
        for name in AT_START:
            spec = self.find(name)
            if spec is not None and spec.origin is not None:
                found[name] = hash_file(spec.origin)
        return found

    def loose_modules(self, tops: Iterable[str]) -> dict[str, str]:
        """Return the digest of each module next to distributions that no RECORD lists, `tops` being known ones."""
        known, found = set(tops), dict[str, str]()
        for folder in self.folders:
            for name in _names(folder):
                top = top_of(name) or (name if name.isidentifier() and name != COMPILED else "")
                full = os.path.join(folder, name)
                if not top or top in known or self.foreign.has_top(name) or not (top_of(name) or _has_modules(full)):
                    continue
                found[name] = _digest_of_all(full)
        return found

    def hides_standard(self) -> dict[str, str]:
        """Return the modules that come before those of the standard library, by name, with their place."""
        found: dict[str, str] = {}
        for folder in self.path:
            if os.path.exists(os.path.join(folder, "os.py")):
                break
            for name in _names(folder):
                top = top_of(name) or (name if _has_modules(os.path.join(folder, name)) else "")
                if top in sys.stdlib_module_names:
                    found.setdefault(top, os.path.join(folder, name))
        return found


def host_path() -> SearchPath:
    path = tuple(os.path.abspath(each) if each else os.getcwd() for each in sys.path)
    site_folders = {*site.getsitepackages(), site.getusersitepackages()}
    return SearchPath(
        python="",
        version=".".join(map(str, sys.version_info[:3])),
        path=path,
        # At the start of Python each of these is searched for `.pth` files, also one without a distribution.
        folders=tuple(dict.fromkeys((*_with_distributions(path), *(each for each in path if each in site_folders)))),
        find=_find_here,
        tag=sys.implementation.cache_tag or "",
        level=sys.flags.optimize,
    )


def path_of(python: str) -> SearchPath:
    """Return the search path of an interpreter with an environment of its own. Raises `ProviderError`."""
    found = read_environment(python)
    path = [*found.standard, *found.folders, *read_links(found.folders)]
    return SearchPath(
        python=python,
        version=found.version,
        path=tuple(path),
        folders=_with_distributions(found.folders),
        find=lambda name: PathFinder.find_spec(name, path),
        tag=found.tag,
        level=0,
    )


def _find_here(name: str) -> ModuleSpec | None:
    """Return where an import in this process leads; `sys.modules` says only where it has led."""
    for finder in sys.meta_path:
        if (spec := finder.find_spec(name, None)) is not None:
            return spec
    return None


def _with_distributions(path: Sequence[str]) -> tuple[str, ...]:
    """Return the folders in which `importlib.metadata` finds something, of whatever age and case."""
    return tuple(
        folder for folder in dict.fromkeys(path) if any(name.lower().endswith(_METADATA) for name in _names(folder))
    )


def _names(folder: str) -> list[str]:
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return []


def _has_modules(folder: str) -> bool:
    """Return whether a folder has a module, or one below it has: a package needs no `__init__.py`."""
    for count, (_, inner, names) in enumerate(os.walk(folder)):
        inner[:] = [name for name in inner if name != COMPILED and name.isidentifier()]
        if count > _MAX_LOOSE or any(name.endswith((".py", ".pyc", *EXTENSION_SUFFIXES)) for name in names):
            return True
    return False


def _digest_of_all(path: str) -> str:
    """Return a digest of a module, or of a folder with those below it."""
    if not os.path.isdir(path):
        return hash_file(path)
    total, count = hashlib.sha256(), 0
    for folder, inner, names in os.walk(path):
        inner[:] = sorted(name for name in inner if name != COMPILED)
        for name in sorted(names):
            count += 1
            if count <= _MAX_LOOSE:
                full = os.path.join(folder, name)
                total.update(f"{os.path.relpath(full, path)}\0{hash_file(full)}\n".encode("utf-8", "surrogatepass"))
    total.update(str(count).encode())
    return total.hexdigest()


def changed_or_new(before: Mapping[str, str], now: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield what is new or has changed since, with the word for it; what is gone harms nobody."""
    for name, digest in now.items():
        if before.get(name) != digest:
            yield name, "has changed" if name in before else "is new"
