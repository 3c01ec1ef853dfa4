"""The provider packages that are installed and that the configuration does not name."""

from __future__ import annotations

from collections.abc import Iterator

from toolplug.host.file.provider_entries import ProviderEntries
from toolplug.providers.entry_points import InstalledProvider
from toolplug.providers.state import ProviderRecord, ProviderState


def only_installed(entries: ProviderEntries) -> Iterator[ProviderRecord]:
    """A record for each, by type, with the lines to paste."""
    named = {found.type for found in entries.types.values()}
    for type_name, packages in entries.installed.types.items():
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
