"""What is installed for an interpreter now, in the form of a lock."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from importlib.machinery import EXTENSION_SUFFIXES, ModuleSpec
from importlib.metadata import Distribution
from pathlib import Path
from typing import Any, NamedTuple

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from toolplug.apart.permissions import FILE as PERMISSIONS
from toolplug.apart.permissions import parse_permissions
from toolplug.errors import InvalidDefinition
from toolplug.locking.files import FilesUnreadable, PackageFiles, hash_folders, hash_installed, read_record
from toolplug.locking.lock_file import LockedEnvironment, LockedPackage, shorten
from toolplug.locking.search_path import SearchPath
from toolplug.packages.entry_points import is_editable

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
