"""Reading a configuration with its lock: what differs is refused before anything of it is imported."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from toolplug.catalog.definition import ToolDefinition
from toolplug.errors import ConfigError, ProviderError
from toolplug.host.file.configuration import Coded, Configuration, Source, read_configuration
from toolplug.locking.comparison import compare_data, compare_environment, compare_package, compare_tools
from toolplug.locking.files import FilesUnreadable, top_of
from toolplug.locking.installed import InstalledPackages, PackageNow
from toolplug.locking.lock_file import LOCK_FILE, Lock, LockedProvider, read_lock
from toolplug.locking.search_path import host_path, path_of
from toolplug.locking.verified import VerifiedCompiled
from toolplug.packages.entry_points import Installed, InstalledProvider
from toolplug.providers.entry import ProviderEntry, ProviderState

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
