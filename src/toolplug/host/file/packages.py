"""Packages of providers: what to install for an unknown type, what has no entry, and those of another interpreter."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator, Mapping
from importlib import import_module
from importlib.metadata import EntryPoint
from importlib.resources import files

from toolplug.config.document import Document, Section, expanded_keys
from toolplug.config.nearest import name_hint, nearest
from toolplug.config.yaml_tree import KeyPath, MappingNode
from toolplug.packages.entry_points import GROUP, Installed, InstalledProvider
from toolplug.packages.entry_settings import mapping_of
from toolplug.providers.entry import ProviderEntry, ProviderRecord, ProviderState


def known_package(type_name: str, table: str, known: Collection[str]) -> str:
    """Return the hint for an unknown type: the nearest known one, or the package of this project that provides it.

    `table` is that of `known_packages.toml`: `packages` for all, `stores` for the schemes of stores.
    """
    module, colon, name = type_name.partition(":")
    if colon and table == "packages":
        return f"a class in a file is written as ./{module.replace('.', '/').strip('/')}.py:{name}"
    text = files("toolplug.host.file").joinpath("known_packages.toml").read_text("utf-8")
    packages: dict[str, str] = import_module("tomllib").loads(text)[table]
    if type_name in packages:
        return f"pip install {packages[type_name]}"
    near = nearest(type_name, (*known, *packages))
    if near is not None and near not in known:
        return f"nearest: {near!r} (pip install {packages[near]})"
    return name_hint(type_name, known)


def only_installed(installed: Installed, entries: Iterable[InstalledProvider]) -> Iterator[ProviderRecord]:
    """Yield a record for each installed provider that no entry has, with the lines that enable it."""
    named = {found.type for found in entries}
    for type_name, packages in installed.types.items():
        if type_name not in named:
            yield from map(_record, packages)


def _record(found: InstalledProvider) -> ProviderRecord:
    excluded = f"it requires {found.excluded_by}" if found.excluded_by else ""
    return ProviderRecord(
        key=found.type,
        type=found.type,
        state=ProviderState.INCOMPATIBLE if excluded else ProviderState.INSTALLED_NOT_ENABLED,
        reason=excluded or "the package is installed, and the configuration has no entry for it",
        fix=f"add to the configuration:\nproviders:\n  {found.type}:\n    enabled: true",
        distribution=found.distribution,
        version=found.version,
    )


_ENVIRONMENTS = "toolplug.packages.environments"
"""Finds packages in environments of their own; imported for those who have one."""


def host_keys(document: Document, path: KeyPath, names: Iterable[str], environ: Mapping[str, str]) -> Section:
    """Return those of some keys that the entry at a path has."""
    node = document.node(path)
    there = node.entries if isinstance(node, MappingNode) else ()
    return expanded_keys(document, path, [name for name in names if name in there], environ)


def run_of(document: Document, path: KeyPath, environ: Mapping[str, str]) -> Mapping[str, object]:
    """Return `run` of the entry at a path, empty if it has none that is a mapping; it is checked with the entry."""
    return mapping_of(mapping_of(host_keys(document, path, ["run"], environ).value).get("run"))


def own_python(document: Document, path: KeyPath, environ: Mapping[str, str]) -> str:
    """Return the interpreter that the entry at a path names, as the file has it; empty if none."""
    python = run_of(document, path, environ).get("python")
    return python if isinstance(python, str) else ""


def python_path(document: Document, python: str) -> str:
    """Return the path of an interpreter that the file names; empty for none.

    Links stay: that of an environment leads to the interpreter that it was made with.
    """
    return os.path.abspath(document.folder / python) if python else ""


def types_elsewhere(document: Document, environ: Mapping[str, str]) -> dict[str, str]:
    """Return the interpreter of each type that an entry looks up in an environment of its own."""
    found: dict[str, str] = {}
    for key in document.keys(("providers",)):
        path = ("providers", key)
        if python := own_python(document, path, environ):
            named = mapping_of(host_keys(document, path, ["type"], environ).value).get("type")
            found[named if isinstance(named, str) else key] = python_path(document, python)
    return found


def installed_elsewhere(type_name: str) -> InstalledProvider:
    """Return a type of another interpreter, which is looked up when its entry is read."""
    point = EntryPoint(name=type_name, value=type_name, group=GROUP)
    return InstalledProvider(type=type_name, entry_point=point, distribution="", version="")


def is_elsewhere(found: InstalledProvider) -> bool:
    """Return whether a type is one of another interpreter that is not looked up yet."""
    return found.file is None and not found.distribution


def find_there(entry: ProviderEntry, type_name: str) -> InstalledProvider:
    """Return the type as the interpreter of an entry has it. Raises `ProviderError`."""
    return import_module(_ENVIRONMENTS).find_provider(entry.python, type_name, entry.key)
