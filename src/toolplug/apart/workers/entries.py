"""Entries with `run: {worker: true}`: what a worker that dials in is to run, whose package this host need not have."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from importlib.metadata import EntryPoint

from toolplug.apart.confinement.confinement import Confinement, ConfinementRefusal
from toolplug.apart.entries import refuse_unconfined, target_of
from toolplug.apart.processes import ProcessTarget
from toolplug.apart.workers.provider import DialledProvider, Engine, make_engine
from toolplug.config.document import Section
from toolplug.packages.entry_points import GROUP, InstalledProvider
from toolplug.packages.loading import ProviderType, names_file
from toolplug.providers.entry import ProviderEntry
from toolplug.providers.provider import FunctionProvider

_UNCONFINED = ConfinementRefusal(
    "its workers dial in, and the host cannot confine them", "confine them where they run: a container"
)


def type_elsewhere(type_name: str) -> InstalledProvider:
    """Return a type that is looked up where the worker runs."""
    # Its module is not known here; a file has no name that could be one.
    point = EntryPoint(type_name, "elsewhere" if names_file(type_name) else type_name, GROUP)
    return InstalledProvider(type=type_name, entry_point=point, distribution="", version="")


def load_dialled(
    entry: ProviderEntry, found: InstalledProvider, own: Section, host_keys: Iterable[str]
) -> ProviderType:
    """Return a provider's type of which only a worker can tell more; it checks the settings, too.

    Raises `ProviderError` for one that must be confined.
    """
    confinement = Confinement(run=entry.run, refusal=_UNCONFINED if entry.run.confined else None)
    refuse_unconfined(str(entry.owner), confinement)
    return ProviderType(
        installed=found,
        config=None,
        open_settings=True,
        build=partial(
            _build,
            target_of(entry, found, own, host_keys, confinement),
            make_engine(str(entry.owner), entry.key, entry.run),
        ),
        plugin=DialledProvider,
        unchecked=("tools", "routes"),
    )


def _build(target: ProcessTarget, engine: Engine | None, key: str, config: object) -> FunctionProvider:
    return DialledProvider(target, engine)
