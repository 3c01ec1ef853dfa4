"""A host that starts what it can, for looking at a configuration that would not start."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from toolplug.errors import Problem
from toolplug.host.file.config_files import Source
from toolplug.host.file.configuration import Configuration, read_parts
from toolplug.host.host import Host
from toolplug.providers.entry import ProviderEntry, Wanted, recorded
from toolplug.providers.entry_points import Installed
from toolplug.providers.state import ProviderState

_STATES = {
    "import_failed": ProviderState.IMPORT_FAILED,
    "incompatible": ProviderState.INCOMPATIBLE,
}


def open_inspected(config: Source, problems: list[Problem], *, environ: Mapping[str, str] | None = None) -> Host:
    """A host like that of `open_host`, in which every provider ends in a state and none stops the others.

    What would stop a start is added to `problems` when the host is entered, but for providers that fail to start: their
    records say so. `Host.wrong_servers` are no part of it. Entering raises `ConfigError` only for a document that
    cannot be read at all.
    """

    def read(
        source: Source, environ: Mapping[str, str], installed: Installed, coded: Mapping[str, str]
    ) -> Configuration:
        found: list[Problem] = []
        configuration = read_parts(source, environ, installed, found, coded)
        problems.extend(found)
        return _tolerant(configuration, found)

    return Host(config, environ, read, serving=False)


def _tolerant(configuration: Configuration, problems: list[Problem]) -> Configuration:
    """Every entry of the file in its order: the wrong ones as records, the others free to fail at their start."""
    entries = configuration.providers
    wanted: dict[str, Wanted] = {}
    for key in entries.keys:
        item = entries.wanted.get(key)
        if item is None:
            wanted[key] = _refused(configuration, key, problems)
        else:
            wanted[key] = item._replace(entry=replace(item.entry, required=False))
    return replace(configuration, providers=replace(entries, wanted=wanted))


def _refused(configuration: Configuration, key: str, problems: list[Problem]) -> Wanted:
    mine = [item for item in problems if item.path == f"providers.{key}" or item.path.startswith(f"providers.{key}.")]
    found = configuration.providers.types.get(key)
    entry = ProviderEntry(
        key=key,
        type=found.type if found is not None else key,
        distribution=found.distribution if found is not None else "",
        version=found.version if found is not None else "",
    )
    state = next((_STATES[item.code] for item in mine if item.code in _STATES), ProviderState.CONFIG_INVALID)
    reason = "; ".join(str(item) for item in mine)
    return Wanted(entry, None, recorded(entry, state, reason, mine[0].hint if mine else ""))
