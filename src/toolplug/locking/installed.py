"""What is installed for an interpreter now, in the form of a lock, and what it finds, and where.

That is its distributions, its modules, and what runs at each of its starts. The host asks its own import system; of
another environment the folders are searched, and nothing of it runs.
"""

from __future__ import annotations

import hashlib
import os
import re
import site
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from importlib.machinery import EXTENSION_SUFFIXES, ModuleSpec, PathFinder
from importlib.metadata import Distribution, distributions
from pathlib import Path
from typing import Any, NamedTuple

from packaging.markers import default_environment
from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from toolplug.apart.permissions import FILE as PERMISSIONS
from toolplug.apart.permissions import parse_permissions
from toolplug.errors import InvalidDefinition
from toolplug.locking.files import (
    COMPILED,
    FilesUnreadable,
    ForeignFiles,
    PackageFiles,
    hash_file,
    hash_folders,
    hash_installed,
    read_record,
    top_of,
)
from toolplug.locking.lock_file import LockedEnvironment, LockedPackage, shorten
from toolplug.packages.entry_points import is_editable
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


_OF_METADATA = ("METADATA", "entry_points.txt", "top_level.txt")
_ONE_FILE = (".py", ".pyc", *EXTENSION_SUFFIXES)


@dataclass(frozen=True, slots=True, kw_only=True)
class PackageNow:
    """A distribution as it is installed: `locked` is what a lock would have of it.

    `misplaced` says, in words, from where an import would take something else than its files.
    """

    locked: LockedPackage
    files: PackageFiles
    misplaced: tuple[str, ...] = ()


class _InstalledMetadata(NamedTuple):
    """What the metadata of a distribution say; they are parsed once, which takes 0.3 ms each."""

    distribution: Distribution
    name: str
    version: str
    requirements: tuple[Requirement, ...]


@dataclass(eq=False, kw_only=True)
class InstalledPackages:
    """The distributions of one interpreter, each read once. `python` is its name in the configuration."""

    python: str
    path: SearchPath
    _read: dict[str, PackageNow | None] = field(default_factory=dict[str, "PackageNow | None"])
    _parsed: dict[str, _InstalledMetadata | None] = field(default_factory=dict[str, "_InstalledMetadata | None"])
    _needed: dict[str, dict[str, frozenset[str]]] = field(default_factory=dict[str, dict[str, frozenset[str]]])

    def package(self, name: str) -> PackageNow | None:
        """Return a distribution; None if it is not installed. Raises `FilesUnreadable`."""
        name = canonicalize_name(name)
        if name not in self._read:
            metadata = self._metadata(name)
            self._read[name] = None if metadata is None else self._look(metadata)
        return self._read[name]

    def closure(self, name: str) -> list[PackageNow]:
        """Return a distribution with all that it needs, those that are installed. Raises `FilesUnreadable`."""
        names = self._names(canonicalize_name(name))
        return [found for each in names if (found := self.package(each)) is not None]

    def environment(self, known: Iterable[str] = ()) -> LockedEnvironment:
        """Return what an interpreter runs at its start, and its modules without a distribution.

        `known` are top-level names that need not be looked for in the RECORDs of all.
        """
        tops = {top for found in self._read.values() if found is not None for top in found.files.tops}
        return LockedEnvironment(
            python=self.python,
            version=self.path.version,
            at_start=self.path.run_at_start(),
            loose={**self.path.loose_modules({*tops, *known}), **self._hiding()},
        )

    def _hiding(self) -> dict[str, str]:
        return {place: hashlib.sha256(place.encode()).hexdigest() for place in self.path.hides_standard().values()}

    def _names(self, name: str) -> list[str]:
        """Return the names of a distribution and of all that it needs, extras included, in the order of their need."""
        asked: dict[str, set[str]] = {}
        waiting = [(name, frozenset[str]())]
        while waiting:
            each, extras = waiting.pop()
            new = extras - asked[each] if each in asked else extras | {""}
            asked.setdefault(each, set()).update(new)
            waiting += [*self._requirements(each, new).items()] if new else []
        return [*asked]

    def _requirements(self, name: str, extras: frozenset[str] | set[str]) -> Mapping[str, frozenset[str]]:
        """Return the names of what a distribution needs for these extras, with the extras of each."""
        key = f"{name}[{','.join(sorted(extras))}]"
        if key not in self._needed:
            metadata, found = self._metadata(name), dict[str, frozenset[str]]()
            for requirement in () if metadata is None else metadata.requirements:
                marker = requirement.marker
                if marker is None or any(marker.evaluate({**self.path.markers, "extra": extra}) for extra in extras):
                    other = canonicalize_name(requirement.name)
                    found[other] = found.get(other, frozenset()) | requirement.extras
            self._needed[key] = found
        return self._needed[key]

    def _metadata(self, name: str) -> _InstalledMetadata | None:
        """Return what the metadata of a distribution say; None if it is not installed."""
        if name not in self._parsed:
            distribution = self.path.distribution(name)
            self._parsed[name] = None if distribution is None else _parse(name, distribution)
        return self._parsed[name]

    def _look(self, metadata: _InstalledMetadata) -> PackageNow:
        distribution = metadata.distribution
        editable = is_editable(distribution)
        record = None if editable else read_record(distribution)
        if record is None:
            files = self._look_at_folders(metadata)
        else:
            files = hash_installed(Path(str(distribution.locate_file(""))), record, self.path.foreign)
        locked = LockedPackage(
            name=metadata.name,
            version=metadata.version,
            python=self.python,
            editable=editable,
            digest=files.digest,
            requires=tuple(sorted(self._requirements(metadata.name, {""}))),
            permissions=_read_permissions(files),
            files=shorten(files.digests),
        )
        return PackageNow(locked=locked, files=files, misplaced=tuple(self._find_misplaced(files)))

    def _look_at_folders(self, metadata: _InstalledMetadata) -> PackageFiles:
        """Hash what an import of an editable distribution finds, and its metadata."""
        distribution = metadata.distribution
        texts = {
            f"METADATA/{each}": hashlib.sha256(text.encode()).hexdigest()
            for each in _OF_METADATA
            if (text := distribution.read_text(each)) is not None
        }
        places = [place for name in sorted(_top_names(distribution)) if (place := _place(self.path.find(name)))]
        if not places:
            raise FilesUnreadable(f"{metadata.name} {metadata.version} has no RECORD, and none of its modules is found")
        return hash_folders(places, texts)

    def _find_misplaced(self, files: PackageFiles) -> Iterator[str]:
        """Yield where an import of a top-level name leads to another file than the distribution's own."""
        for name in files.tops:
            spec = self.path.find(name)
            if spec is None:
                yield f"{name} cannot be imported"
                continue
            places = [*(spec.submodule_search_locations or ())] if spec.origin is None else [spec.origin]
            if not places or not _is_own(places[0], files, name):
                yield f"{name} is imported from {places[0] if places else spec.origin}, which is not a file of it"


def _is_own(place: str, files: PackageFiles, name: str) -> bool:
    """Return whether a file is one of a distribution's, or a folder the one of its namespace."""
    for found, root in ((place, str(files.root)), (os.path.realpath(place), os.path.realpath(files.root))):
        path = os.path.relpath(found, root).replace(os.sep, "/")
        if path in files.digests or (path == name and os.path.isdir(found)):
            return True
    return False


def _place(spec: ModuleSpec | None) -> Path | None:
    """Return the folder of a package, or the file of a module."""
    if spec is None:
        return None
    if spec.submodule_search_locations:
        return Path(next(iter(spec.submodule_search_locations)))
    return Path(spec.origin) if spec.origin is not None and spec.origin.endswith(_ONE_FILE) else None


def _top_names(distribution: Distribution) -> set[str]:
    found = set((distribution.read_text("top_level.txt") or "").split())
    found |= {point.module.partition(".")[0] for point in distribution.entry_points}
    return found or {re.sub(r"[-.]+", "_", distribution.name)}


def _parse(name: str, distribution: Distribution) -> _InstalledMetadata:
    fields = distribution.metadata
    requirements: list[Requirement] = []
    # Those of an egg are in a file of their own.
    for text in fields.get_all("Requires-Dist") or distribution.requires or ():
        with suppress(InvalidRequirement):  # pip would not have installed it; nobody can say what it needs
            requirements.append(Requirement(text))
    return _InstalledMetadata(distribution, name, fields["Version"], tuple(requirements))


def _read_permissions(files: PackageFiles) -> dict[str, Any]:
    """Return what a package asks for, by the file among its own; the reason where that is not valid."""
    path = next((each for each in files.digests if each.rpartition("/")[2] == PERMISSIONS), None)
    if path is None:
        return {}
    try:
        return parse_permissions(files.root / path).model_dump(mode="json", exclude_defaults=True)
    except InvalidDefinition as error:
        return {"unreadable": str(error)}
