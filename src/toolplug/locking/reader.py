"""Reading a configuration with its lock: what differs is refused before anything of it is imported.

Compiled files are compared with their sources once: compiling again is slow, so that what was right is remembered. What
this process has imported already is not compared: it is toolplug itself and what that needs, which do the comparing.

The difference between a lock and what is there now, in words that name what has changed.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from toolplug.catalog.definition import ToolDefinition
from toolplug.errors import ConfigError, ProviderError
from toolplug.host.file.configuration import Coded, Configuration, Source, read_configuration
from toolplug.locking import compiled
from toolplug.locking.compiled import check_compiled
from toolplug.locking.files import COMPILED, FilesUnreadable, PackageFiles, hash_file, top_of
from toolplug.locking.installed import InstalledPackages, PackageNow, SearchPath, changed_or_new, host_path, path_of
from toolplug.locking.lock_file import (
    LOCK_FILE,
    SHORT,
    Lock,
    LockedEnvironment,
    LockedPackage,
    LockedProvider,
    read_lock,
)
from toolplug.packages.entry_points import Installed, InstalledProvider
from toolplug.providers.entry import ProviderEntry, ProviderState

_NAMED = 8
"""Files that are named; of more their number: who replaces a package changes all of them."""


def compare_package(before: LockedPackage | None, locked: LockedPackage, unlisted: Iterable[str] = ()) -> list[str]:
    """Return what is different about a distribution; empty if nothing is. `unlisted`: files that no RECORD lists."""
    owner = f"{locked.name} {locked.version}"
    if before is None:
        return [f"{owner} is not in the lock"]
    found: list[str] = []
    if before.version != locked.version:
        found.append(f"{locked.name} is version {locked.version}, and the lock has {before.version}")
    if before.editable is not locked.editable:
        words = ("a working copy", "an installed package")
        found.append(f"{owner} is {words[not locked.editable]} now, and was {words[locked.editable]}")
    found += [f"{owner} {line}" for line in compare_permissions(before.permissions, locked.permissions)]
    found += [f"{owner} {line}" for line in _compare_requirements(before, locked)]
    if before.digest != locked.digest:
        lines = list(_compare_files(before.files, locked.files, unlisted))
        # Digests are cut in the lock; whoever makes another file with the same first digits is found by the whole one.
        found += [f"{owner}: {line}" for line in lines] or [f"{owner}: its files have changed"]
    return found


def compare_permissions(before: Mapping[str, object], now: Mapping[str, object]) -> Iterator[str]:
    """Yield what a package asks for that it did not before, and what it asks for no longer."""
    for name in dict.fromkeys((*before, *now)):
        old, new = _words(before.get(name)), _words(now.get(name))
        if added := [word for word in new if word not in old]:
            yield f"asks for more: {name}: {', '.join(added)}"
        if gone := [word for word in old if word not in new]:
            yield f"asks no longer for {name}: {', '.join(gone)}"


def compare_environment(before: LockedEnvironment | None, now: LockedEnvironment) -> Iterator[str]:
    """Yield what is different about an interpreter: what runs at its start, and modules without a distribution."""
    whose = now.python or "this Python"
    if before is None:
        yield f"{whose} is not in the lock"
        return
    if before.version.split(".")[:2] != now.version.split(".")[:2]:
        yield f"{whose} is Python {now.version}, and the lock has {before.version}"
    for name, what in changed_or_new(before.at_start, now.at_start):
        yield f"{name} {what}; it runs at each start of {whose}"
    for name, what in changed_or_new(before.loose, now.loose):
        yield f"the module {name} {what}, and no RECORD lists it"


def compare_data(before: Mapping[str, str], now: Mapping[str, str]) -> Iterator[str]:
    """Yield what is different about the data files of an entry; their digests are whole."""
    yield from _compare_files(before, now, (), digits=None)


def compare_tools(owner: str, before: Mapping[str, str], now: Mapping[str, str]) -> Iterator[str]:
    """Yield what is different about the tools of a provider or server, a line for each tool."""
    for name, digest in now.items():
        if name not in before:
            yield f"{owner}: its tool {name!r} is new"
        elif before[name] != digest:
            yield f"{owner}: its tool {name!r} has another description, or takes other arguments"
    for name in before:
        if name not in now:
            yield f"{owner}: its tool {name!r} is gone"


def _compare_requirements(before: LockedPackage, now: LockedPackage) -> Iterator[str]:
    for name in now.requires:
        if name not in before.requires:
            yield f"needs {name} now"
    for name in before.requires:
        if name not in now.requires:
            yield f"needs {name} no longer"


def _compare_files(
    before: Mapping[str, str], now: Mapping[str, str], unlisted: Iterable[str], digits: int | None = SHORT
) -> Iterator[str]:
    unlisted = set(unlisted)
    lines = [f"{path} has changed" for path, text in now.items() if before.get(path, text[:digits]) != text[:digits]]
    lines += [
        f"{path} is new{', and no RECORD lists it' if path in unlisted else ''}" for path in now if path not in before
    ]
    lines += [f"{path} is gone" for path in before if path not in now]
    yield from lines[:_NAMED]
    if len(lines) > _NAMED:
        yield f"{len(lines) - _NAMED} more files are different"


def _words(value: object) -> list[str]:
    if isinstance(value, list | tuple):
        return [str(each) for each in value]  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
    return [] if value is None else [str(value).lower() if isinstance(value, bool) else str(value)]


_ANSWER_S = 600.0
"""Seconds for the compiled files of one environment. A thousand take five."""


class VerifiedCompiled:
    """The compiled files that were right, by path, with the digests of them and of their sources, kept in a file.

    The file is the host's own, as its store: who can write it needs no compiled file.
    """

    def __init__(self, file: Path) -> None:
        self._file = file
        self._right: dict[str, str] = {}
        with suppress(OSError, ValueError):
            found: Any = json.loads(file.read_bytes())
            if isinstance(found, dict):
                self._right = {str(path): str(digests) for path, digests in found.items()}  # pyright: ignore
        self._changed = False

    def wrong(self, path: SearchPath, files: PackageFiles) -> Iterator[str]:
        """Yield each compiled file of a package that is wrong, with what is wrong with it."""
        asked: list[tuple[str, str, int]] = []
        digests: list[str] = []
        for name, source in _loaded_files(path, files):
            both = f"{hash_file(str(files.root / name))} {files.digests[source]}"
            if self._right.get(str(files.root / name)) != both:
                asked.append((str(files.root / name), str(files.root / source), path.level))
                digests.append(both)
        for (name, _, _), both, what in zip(asked, digests, _check(path, asked), strict=True):
            if what:
                yield f"{Path(name).relative_to(files.root)} {what}"
            else:
                self._right[name] = both
                self._changed = True

    def save(self) -> None:
        """Keep what was right, where the folder can be written."""
        if not self._changed:
            return
        part = self._file.with_name(f"{self._file.name}.part")
        with suppress(OSError):
            self._file.parent.mkdir(mode=0o700, exist_ok=True)
            part.write_text(json.dumps(self._right), "utf-8", newline="\n")
            part.replace(self._file)
            self._changed = False


def _loaded_files(path: SearchPath, files: PackageFiles) -> Iterator[tuple[str, str]]:
    """Yield the compiled files that the interpreter would load, with their sources, but for what it has loaded."""
    ending = f".{path.tag}{f'.opt-{path.level}' if path.level else ''}.pyc"
    for name in files.compiled:
        folder, _, own = name.rpartition(f"{COMPILED}/")
        source = f"{folder}{own.removesuffix(ending)}.py"
        if not own.endswith(ending) or source not in files.digests:
            continue
        module = source.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
        if path.python or module not in sys.modules:
            yield name, source


def _check(path: SearchPath, asked: Iterable[tuple[str, str, int]]) -> list[str]:
    """Compare with this interpreter, or with the other one if its version is another; it imports nothing of its own."""
    asked = list(asked)
    if not asked:
        return []
    if path.tag == sys.implementation.cache_tag:
        return [check_compiled(*each) for each in asked]
    command = [path.python, "-I", "-S", str(Path(compiled.__file__))]
    try:
        done = subprocess.run(
            command, input=json.dumps(asked).encode(), capture_output=True, timeout=_ANSWER_S, check=True
        )
        answer: list[str] = json.loads(done.stdout)
    except (OSError, subprocess.SubprocessError, ValueError):
        return ["cannot be compared with its source"] * len(asked)
    return answer


_COMPILED = Path(".toolplug") / "compiled.json"


def lock_of(source: Source) -> Path:
    """Return the lock of a configuration: next to its file, or in the working directory."""
    return (Path() if isinstance(source, Mapping) else Path(source).parent) / LOCK_FILE


def read_locked(source: Source, environ: Mapping[str, str], installed: Installed, coded: Coded) -> Configuration:
    """Read a configuration as `read_configuration` does, and refuse what is not as its lock has it.

    Raises `ConfigError`, with a problem for each thing that is different.
    """
    return read_configuration(source, environ, with_lock(source, installed), coded)


def with_lock(source: Source, installed: Installed) -> Installed:
    """Return the installed providers with the lock of a configuration as their check. Raises `ConfigError`."""
    file = lock_of(source)
    return replace(installed, check=LockCheck(read_lock(file), file.parent))


class _Drift(NamedTuple):
    """What is different about something that several entries need, with the key of the first of them."""

    first: str
    lines: list[str]

    def lines_for(self, key: str, name: str) -> list[str]:
        """Return the lines for the first entry, and for another one where they are."""
        if key == self.first or not self.lines:
            return self.lines
        return [f"{name}, which it needs, is not as it was locked: see providers.{self.first}"]


class LockCheck:
    """Compares what is installed, and what it offers, with a lock; each distribution is read once."""

    def __init__(self, lock: Lock, folder: Path) -> None:
        self._lock = lock
        self._folder = folder
        self._packages: dict[str, InstalledPackages] = {}
        self._found: dict[tuple[str, str], _Drift] = {}
        self._environments: dict[str, _Drift] = {}
        self._compiled = VerifiedCompiled(folder / _COMPILED)

    def check_package(self, entry: ProviderEntry, found: InstalledProvider) -> None:
        """Raise `ConfigError` for a package that is not as it was locked, or that needs one that is not."""
        locked = self._lock.provider(entry.key)
        if locked is None:
            raise ConfigError([entry.problem("not_locked", f"is not in {LOCK_FILE}", _update(entry))])
        try:
            lines = self._compare(locked, entry, found)
        except (FilesUnreadable, ProviderError) as error:
            lines = [str(error)]
        finally:
            self._compiled.save()
        _refuse(entry, lines)

    def check_data(self, entry: ProviderEntry, list_data: Callable[[], Mapping[str, str]]) -> None:
        """Raise `ConfigError` for data files that are not as they were locked, or that cannot be read."""
        locked = self._lock.provider(entry.key)
        try:
            lines = [*compare_data({} if locked is None else locked.data, list_data())]
        except ProviderError as error:
            lines = [str(error)]
        _refuse(entry, lines)

    def check_tools(self, entry: ProviderEntry, tools: Iterable[ToolDefinition]) -> None:
        """Raise `ProviderError` for tools that are not as they were locked."""
        locked = self._lock.provider(entry.key)
        before = {} if locked is None else locked.tools
        lines = [*compare_tools(str(entry.owner), before, {each.name: each.ref.digest for each in tools})]
        if lines:
            fix = f"look at them, then: toolplug lock --update {entry.key}"
            raise ProviderError("; ".join(lines), state=ProviderState.INCOMPATIBLE, fix=fix)

    def server_tools(self, server: str) -> Mapping[str, str]:
        """Return the digests of the tools of a server as they were locked."""
        locked = self._lock.server(server)
        return {} if locked is None else locked.tools

    def _compare(self, locked: LockedProvider, entry: ProviderEntry, found: InstalledProvider) -> list[str]:
        """Return what is different about an entry's package, its file or its environment."""
        if locked.type != found.type:
            return [f"its type is {found.type!r}, and {LOCK_FILE} has {locked.type!r}"]
        python = name_python(entry.python, self._folder)
        if locked.python != python:
            return [f"it runs in {python or 'this Python'}, and {LOCK_FILE} has {locked.python or 'this Python'}"]
        if found.file is not None:
            digest = hashlib.sha256(found.code).hexdigest()
            return [] if digest == locked.digest else [f"{found.type} has changed"]
        if entry.dialled:
            return []  # the package is where the worker is; its tools are compared
        packages = packages_of(self._packages, python, entry.python)
        own = packages.closure(found.distribution)
        lines: list[str] = []
        if own and locked.package != own[0].locked.name:
            lines.append(f"its package is {own[0].locked.name}, and {LOCK_FILE} has {locked.package}")
        for each in own:
            if each.locked.key not in self._found:
                self._found[each.locked.key] = _Drift(entry.key, self._compare_package(packages, each))
            lines += self._found[each.locked.key].lines_for(entry.key, f"{each.locked.name} {each.locked.version}")
        for _, name in sorted(locked.keys - {each.locked.key for each in own}):
            there = packages.path.distribution(name) is not None
            lines.append(f"{name} is {'needed no longer' if there else 'not installed'}")
        if python not in self._environments:
            # Those of the lock: where an import of one leads is looked at with its package.
            known = {top_of(path) for each in self._lock.packages if each.python == python for path in each.files}
            now = packages.environment(known)
            drift = [*compare_environment(self._lock.environment(python), now)]
            self._environments[python] = _Drift(entry.key, drift)
        return [*lines, *self._environments[python].lines_for(entry.key, python or "this Python")]

    def _compare_package(self, packages: InstalledPackages, now: PackageNow) -> list[str]:
        """Return what is different about one distribution."""
        owner = f"{now.locked.name} {now.locked.version}"
        found = compare_package(self._lock.package(*now.locked.key), now.locked, now.files.unlisted)
        found += [f"{owner}: {line}" for line in now.misplaced]
        # Of a source that is another one, nobody needs to know what it was compiled to.
        return found or [f"{owner}: {line}" for line in self._compiled.wrong(packages.path, now.files)]


def _refuse(entry: ProviderEntry, lines: Iterable[str]) -> None:
    """Raise `ConfigError` with a problem for each line, if there is one."""
    problems = [entry.problem("lock_drift", line, _update(entry)) for line in lines]
    if problems:
        raise ConfigError(problems)


def _update(entry: ProviderEntry) -> str:
    return f"look at it, then: toolplug lock --update {entry.key}"


def packages_of(known: dict[str, InstalledPackages], name: str, python: str) -> InstalledPackages:
    """Return the packages of an interpreter, from those that are known. Raises `ProviderError`."""
    if name not in known:
        known[name] = InstalledPackages(python=name, path=path_of(python) if python else host_path())
    return known[name]


def name_python(python: str, folder: Path) -> str:
    """Return the name of an interpreter in a lock: relative to its folder where it is below it."""
    if not python:
        return ""
    relative = os.path.relpath(python, folder)
    return python if relative.startswith("..") else Path(relative).as_posix()
