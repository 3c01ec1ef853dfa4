"""Which package to install for an unknown provider type, and which installed ones have no entry."""

from __future__ import annotations

import tomllib
from collections.abc import Collection, Iterable, Iterator
from importlib.resources import files

from toolplug.config.nearest import name_hint, nearest
from toolplug.providers.entry import ProviderRecord, ProviderState
from toolplug.providers.entry_points import Installed, InstalledProvider


def known_package(type_name: str, table: str, known: Collection[str]) -> str:
    """Return the hint for an unknown type: the nearest known one, or the package of this project that provides it.

    `table` is that of `known_packages.toml`: `packages` for all, `stores` for the schemes of stores.
    """
    packages = tomllib.loads(files("toolplug.host.file").joinpath("known_packages.toml").read_text("utf-8"))[table]
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
