"""The store that `store:` names: a built-in one, or that of a plugin."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import cast

from toolplug.config.masking import mask_secrets
from toolplug.config.nearest import name_hint
from toolplug.crashes import outline_error
from toolplug.errors import Problem, StoreMisused
from toolplug.host.file.packages import known_package
from toolplug.host.file.provider_entries import LoadedEntry, ProviderEntries
from toolplug.providers.entry import ProviderState
from toolplug.stores.open import BUILT_IN, StoreOpener, open_store, store_file, store_scheme
from toolplug.stores.store import Store

HOOK = "stores"
SECTION = "store"
STATE_FOLDER = ".toolplug"
"""Below the folder of the configuration: the files of providers on this machine, if the store is on the network."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfiguredStore:
    """The store of a configuration, whose `folder` is the one for relative paths; `opens` is a plugin's function.

    `shared`: several processes open it, whether or not the URL says so. The URL may hold a password: no message and no
    `repr` has it.
    """

    url: str = field(repr=False)
    folder: Path
    opens: StoreOpener | None = None
    shared: bool = False

    @property
    def scheme(self) -> str:
        """What kind of store it is, such as `sqlite` or `redis`."""
        return store_scheme(self.url)

    @property
    def file(self) -> Path | None:
        """The path of the store's file, which may not exist yet; None for a store without one."""
        return store_file(self.url, folder=self.folder)

    @property
    def in_memory(self) -> bool:
        """Whether the records are in the memory of the process that serves them, so that no other one has them."""
        return self.scheme == "memory"

    @property
    def on_network(self) -> bool:
        """Whether processes on several machines may use it, which have no folder in common."""
        return self.file is None and not self.in_memory

    @property
    def state_folder(self) -> Path | None:
        """The folder of this machine in which providers keep files; None for a store in memory.

        That of the store's file; with a store on the network `.toolplug` next to the configuration.
        """
        if self.in_memory:
            return None
        return self.folder / STATE_FOLDER if self.file is None else self.file.parent

    def open(self) -> Store:
        """Return the store, which `async with` opens. Raises `StoreMisused`."""
        if self.opens is None:
            return open_store(self.url, folder=self.folder, shared=self.shared)
        return self.opens(self.url, folder=self.folder)


def read_store(
    entries: ProviderEntries, folder: Path, problems: list[Problem]
) -> tuple[ConfiguredStore, ProviderEntries]:
    """Return the store that the settings name, and the entries with its plugin; problems are added to `problems`.

    Enabled plugins are asked first. Else the installed plugin of the scheme's name is enabled with default settings.
    """
    store = ConfiguredStore(url=entries.settings.store, folder=folder)
    if store.scheme in BUILT_IN:
        return store, entries
    opens, broken = _find_offered(store, entries.loaded.values(), problems)
    if opens is None and not broken:
        entries, key = _with_plugin(store, entries, problems)
        loaded = entries.loaded.get(key)
        if loaded is not None:
            opens, broken = _find_offered(store, [loaded], problems)
            if opens is None and not broken:
                message = f"the plugin {store.scheme!r} ({loaded.type.installed.package}) has no store of that scheme"
                problems.append(_problem(entries, message, name_hint(store.scheme, BUILT_IN)))
    store = replace(store, opens=opens)
    if opens is not None:
        _check_url(store, entries, problems)
    return store, entries


def unused_stores(store: ConfiguredStore, entries: ProviderEntries) -> Iterator[Problem]:
    """Yield a warning for each entry that enables a plugin of stores while `store:` names a built-in one."""
    for entry, kind in entries.loaded.values() if store.scheme in BUILT_IN else ():
        if kind.implementing(HOOK):
            message = f"keeps no records: 'store' is a URL of the scheme {store.scheme!r}"
            hint = f"write store: {entry.type}://…, which enables it without an entry; or remove the entry"
            yield entry.problem("unused_store", message, hint)


def _find_offered(
    store: ConfiguredStore, plugins: Collection[LoadedEntry], problems: list[Problem]
) -> tuple[StoreOpener | None, bool]:
    """Return the function of the first plugin that has a store of the scheme, and whether a plugin failed."""
    broken = False
    for entry, kind in plugins:
        try:
            for function in kind.implementing(HOOK):
                found = cast("Mapping[str, StoreOpener]", function())
                if store.scheme in found:
                    return found[store.scheme], False
        except BaseException as error:  # noqa: BLE001  the plugin's own code
            # Remembered, since the plugin that failed may be the one with this scheme: "unknown store scheme" would
            # mislead.
            broken = True
            message = f"{kind.installed.package}: {HOOK}() raised {outline_error(error, entry.package)}"
            problems.append(entry.problem("store_plugin", message, f"update {kind.installed.distribution}"))
    return None, broken


def _with_plugin(
    store: ConfiguredStore, entries: ProviderEntries, problems: list[Problem]
) -> tuple[ProviderEntries, str]:
    """Return the entries with the installed plugin of the scheme's name, and the key of its entry."""
    scheme = store.scheme
    found = entries.installed.types.get(scheme, ())
    if not found:
        message = f"unknown store scheme {scheme!r}"
        problems.append(_problem(entries, message, known_package(scheme, HOOK, BUILT_IN)))
        return entries, scheme
    # An alias is another entry point of the same plugin.
    plugin = found[0].entry_point.value
    for key in [key for key, item in entries.types.items() if item.entry_point.value == plugin]:
        record = entries.wanted[key].record if key in entries.wanted else None
        if record is not None and record.state is not ProviderState.DISABLED:
            message = f"the store needs the plugin {key!r}, which failed: {record.reason}"
            problems.append(_problem(entries, message, record.fix))
        if record is None or record.state is not ProviderState.DISABLED:
            return entries, key
        scheme = key
    added = entries.enabled_by_name(scheme, (SECTION,), "the store", entries.types, problems)
    return (entries if added is None else replace(entries, wanted={**entries.wanted, scheme: added})), scheme


def _check_url(store: ConfiguredStore, entries: ProviderEntries, problems: list[Problem]) -> None:
    """Add a problem if the plugin does not accept the URL, which no message contains."""
    try:
        # Made, not entered: nothing is connected to yet.
        store.open()
    except StoreMisused as error:
        problems.append(_problem(entries, mask_secrets(str(error), [store.url]), ""))
    except Exception as error:  # noqa: BLE001  the plugin's own code
        message = f"the store of scheme {store.scheme!r} cannot be made from its URL: {outline_error(error)}"
        problems.append(_problem(entries, message, "check the URL, or update the plugin"))


def _problem(entries: ProviderEntries, message: str, hint: str) -> Problem:
    return entries.document.problem((SECTION,), code="store_url", message=message, hint=hint)
