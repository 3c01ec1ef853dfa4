"""The `providers:` section: the provider of each entry, its settings, and installed packages without an entry."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from importlib import import_module
from types import MappingProxyType
from typing import NamedTuple

from pydantic import ValidationError

from toolplug.config.document import Document, Section, expand, expanded_keys, read_document, section_keys
from toolplug.config.nearest import name_hint
from toolplug.config.problems import NOTHING, Shapes, problems_of, shapes_of, validate_section, without_faults
from toolplug.config.run_settings import names_engine
from toolplug.config.yaml_tree import MAX_PROBLEMS, KeyPath, MappingNode, ScalarNode, Value, shown_path
from toolplug.crashes import outline_error
from toolplug.errors import ConfigError, NoSuchProvider, Problem, ProviderError
from toolplug.host.file.packages import (
    find_there,
    installed_elsewhere,
    is_elsewhere,
    known_package,
    own_python,
    python_path,
    run_of,
)
from toolplug.host.file.settings import (
    MCP,
    PROVIDER,
    PROVIDER_KEY,
    RESERVED_KEYS,
    HostSettings,
    ProviderSettings,
    split_source,
)
from toolplug.packages.entry_points import Installed, InstalledProvider, check_wanted, find_installed
from toolplug.packages.entry_settings import configure_entry, mapping_of, mask
from toolplug.packages.loading import ProviderType, load, names_file, provider_file
from toolplug.providers.entry import (
    DesiredProvider,
    Place,
    ProviderEntry,
    ProviderRecord,
    ProviderState,
    failed_record,
    record_of,
)
from toolplug.providers.planning import unknown_tools

SECTION = "providers"

_APART = "toolplug.apart.entries"
"""Runs providers in processes of their own; imported for those who have one."""
_DIALLED = "toolplug.apart.workers.entries"
"""Runs providers in workers that dial in; imported for those who have one."""

_Found = InstalledProvider | ProviderEntry
_SWITCHED_OFF = ("enabled is false", "remove enabled: false")


class LoadedEntry(NamedTuple):
    """An entry whose package was imported, with its provider type."""

    entry: ProviderEntry
    type: ProviderType

    def wrong_rules(self) -> Iterator[Problem]:
        """Yield a problem for each rule of an unknown tool, if the class tells its tools before it runs."""
        if "tools" not in self.type.unchecked:
            yield from map(self.entry.failure, unknown_tools(self.entry, self.type.tools))


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderEntries:
    """All entries in file order. Enabled ones are read whole; of disabled ones only `enabled` and `type` are.

    `loaded` holds the entries whose package was imported, `coded` the providers of the host's own code, with the rules
    of their entries if they have one; they come after the others in `wanted`.
    """

    document: Document
    environ: Mapping[str, str]
    settings: HostSettings
    installed: Installed
    types: dict[str, InstalledProvider]
    loaded: dict[str, LoadedEntry]
    wanted: Mapping[str, DesiredProvider]
    coded: Mapping[str, DesiredProvider]

    def without(self, failed: Mapping[str, ProviderError], problems: list[Problem]) -> ProviderEntries:
        """Return the entries, in which these have failed; the failure of a required one is added to `problems`."""
        wanted = dict(self.wanted)
        for key, error in failed.items():
            entry = self.loaded[key].entry
            if entry.required:
                problems.append(entry.failure(error))
            else:
                wanted[key] = DesiredProvider(entry, None, failed_record(entry, error))
        return replace(self, wanted=wanted)

    @classmethod
    def read(
        cls,
        document: Document,
        environ: Mapping[str, str],
        installed: Installed,
        settings: HostSettings,
        problems: list[Problem],
        coded: Mapping[str, DesiredProvider] = MappingProxyType({}),
    ) -> ProviderEntries:
        """Read every entry; problems are added to `problems`."""
        keys = section_keys(document, SECTION, "provider key", problems)
        types: dict[str, InstalledProvider] = {}
        loaded: dict[str, LoadedEntry] = {}
        reader = cls(
            document=document,
            environ=environ,
            settings=settings,
            installed=installed,
            types=types,
            loaded=loaded,
            wanted={},
            coded=coded,
        )
        wanted: dict[str, DesiredProvider] = {}
        off, limits = list[str](), settings.limits
        coded = {key: each._replace(entry=replace(each.entry, host_limits=limits)) for key, each in coded.items()}
        for key in keys:
            # Nobody reads more, and each further entry would import a package for it.
            if len(problems) >= MAX_PROBLEMS:
                break
            try:
                if reader._is_of_code(key):
                    coded[key], enabled = reader._rule(coded[key])
                    off += [] if enabled else [key]
                    continue
                types[key], enabled = reader._find_named(key)
                fix = f"set providers.{key}.enabled to true"
                wanted[key] = reader._read(key) if enabled else reader.switched_off(key, "enabled is not true", fix)
            except ConfigError as error:
                problems.extend(error.problems)
        wanted |= reader._read_linked(keys, problems)
        problems += reader._used_twice()
        for key in coded.keys() & types.keys():
            message = f"the host's own code gives a provider of the key {key!r}, too"
            hint = "give one of them another key"
            problems += [
                document.problem((SECTION, key), code="provider_twice", message=message, hint=hint, at_key=True)
            ]
        read = replace(reader, wanted={**wanted, **coded}, coded=coded)
        return replace(read, wanted={**read.wanted, **{key: read.switched_off(key, *_SWITCHED_OFF) for key in off}})

    @property
    def keys(self) -> tuple[str, ...]:
        """The keys of the section in file order, with those of invalid entries, then those of coded providers."""
        return tuple(dict.fromkeys((*self.document.keys((SECTION,)), *self.coded)))

    def switched_on(self, key: str) -> DesiredProvider:
        """Return the entry of a key as if it had `enabled: true`. Raises `NoSuchProvider` and `ConfigError`."""
        self.check_known(key)
        wanted = self.wanted[key]
        return wanted if wanted.build is not None else self.coded.get(key) or self._read(key)

    def switched_off(self, key: str, reason: str, fix: str) -> DesiredProvider:
        """Return the entry of a key as a disabled one; `fix` tells how to run it. Raises `NoSuchProvider`."""
        self.check_known(key)
        if key in self.coded:
            entry = self.coded[key].entry
            return DesiredProvider(entry, None, record_of(entry, ProviderState.DISABLED, reason, fix))
        found = self.types[key]
        record = ProviderRecord(
            key=key,
            type=found.type,
            state=ProviderState.DISABLED,
            reason=reason,
            fix=fix,
            distribution=found.distribution,
            version=found.version,
        )
        return DesiredProvider(ProviderEntry(key=key, type=found.type), None, record)

    def check_known(self, key: str) -> None:
        """Raise `NoSuchProvider` for a key that the configuration does not have."""
        if key not in self.types and key not in self.coded:
            raise NoSuchProvider(key, name_hint(key, (*self.types, *self.coded)))

    def _used_twice(self) -> Iterator[Problem]:
        """Yield a problem for each entry of a module or object that an earlier entry has."""
        first: dict[int, str] = {}
        for key, (_, kind) in self.loaded.items():
            if kind.single is not None and (owner := first.setdefault(id(kind.single), key)) != key:
                message = f"is the same module or object as provider {owner!r}, and that has one entry"
                hint = "remove one of them; a class or a function of (key, config) may have several entries"
                yield self.document.problem(
                    (SECTION, key), code="plugin_twice", message=message, hint=hint, at_key=True
                )

    def _is_of_code(self, key: str) -> bool:
        """Return whether an entry is the rules of a provider of the host's own code: it names no type."""
        node = self.document.node((SECTION, key))
        is_plain = isinstance(node, MappingNode) and "type" not in node.entries
        return is_plain and key in self.coded and key not in self.installed.types

    def _rule(self, coded: DesiredProvider) -> tuple[DesiredProvider, bool]:
        """Return a provider in code with the rules of its entry, and whether it runs. Raises `ConfigError`."""
        key, problems = coded.entry.key, list[Problem]()
        section = expand(self.document, (SECTION, key), self.environ)
        reserved, own = _divide(section, problems)
        rules = _rules(reserved, problems)
        for name in mapping_of(own.value):
            message = f"unknown key; the provider {key!r} and its settings are given in code"
            problems.append(own.problem((*own.path, name), code="unknown_key", message=message, at_key=True))
        if problems:
            raise ConfigError(problems)
        # The code gives it in order to run it; `enabled: true` would only be said again.
        runs = rules.enabled or "enabled" not in mapping_of(reserved.value)
        return coded._replace(entry=self._entry(section, coded.entry, rules)), runs

    def _find_named(self, key: str) -> tuple[InstalledProvider, bool]:
        """Return the provider type of an entry and whether it is enabled. Raises `ConfigError`.

        An entry with an invalid `enabled` counts as enabled, so that the rest of it is checked too.
        """
        path = (SECTION, key)
        document = self.document
        if not _KEY.fullmatch(key):
            message = f"{key!r} is no provider key; a lower-case letter, then up to 63 of a-z 0-9 _ are allowed"
            raise ConfigError([document.problem(path, code="wrong_key", message=message, at_key=True)])
        node = document.node(path)
        if not isinstance(node, MappingNode):
            is_empty = isinstance(node, ScalarNode) and node.value is None
            message = "should be a mapping; the entry is empty" if is_empty else "should be a mapping of settings"
            hint = f"write {key}: {{enabled: true}}"
            raise ConfigError([document.problem(path, code="wrong_value", message=message, hint=hint)])
        type_name, enabled = self._head(key, node)
        at = (*path, "type") if "type" in node.entries else path
        if enabled and self._runs_elsewhere(path):
            return import_module(_DIALLED).type_elsewhere(type_name), enabled
        if names_file(type_name):
            return self._file(key, type_name, at), enabled
        if own_python(self.document, path, self.environ):
            return installed_elsewhere(type_name), enabled
        found = list(self.installed.types.get(type_name, ()))
        if not found:
            message = f"unknown provider type {type_name!r}"
            hint = known_package(type_name, "packages", self.installed.types)
            unknown = document.problem(at, code="unknown_provider", message=message, hint=hint, at_key=at == path)
            raise ConfigError([unknown, *(self._wrong_rules(key) if enabled else ())])
        if len(found) > 1:
            owners = " and ".join(item.package for item in found)
            message = f"provider type {type_name!r} comes from {owners}"
            raise ConfigError(
                [document.problem(path, code="two_distributions", message=message, hint="uninstall one of them")]
            )
        return found[0], enabled

    def _runs_elsewhere(self, path: KeyPath) -> bool:
        """Return whether an entry runs in workers: its package is where they are."""
        run = run_of(self.document, path, self.environ)
        return run.get("worker") is True or names_engine(run)

    def _file(self, key: str, type_name: str, at: KeyPath) -> InstalledProvider:
        """Return the provider type of a file below the folder of the configuration. Raises `ConfigError`."""
        try:
            return provider_file(type_name, self.document.folder)
        except ProviderError as error:
            wrong = self.document.problem(at, code="unknown_provider", message=str(error), hint=error.fix)
            raise ConfigError([wrong, *self._wrong_rules(key)]) from None

    def _head(self, key: str, node: MappingNode) -> tuple[str, bool]:
        """Return `type` and `enabled`, the only keys that are read of a disabled entry. Raises `ConfigError`."""
        names = [name for name in ("enabled", "type") if name in node.entries]
        head = expanded_keys(self.document, (SECTION, key), names, self.environ)
        try:
            settings = validate_section(head, ProviderSettings)
        except ConfigError as error:
            if any(problem.path.endswith(".type") for problem in error.problems):
                raise ConfigError(self._wrong_rules(key)) from None
            return str(mapping_of(head.value).get("type", key)), True
        return settings.type or key, settings.enabled

    def _wrong_rules(self, key: str) -> list[Problem]:
        """Return the problems in the host's keys of an entry of an unknown type."""
        problems: list[Problem] = []
        reserved, _ = _divide(expand(self.document, (SECTION, key), self.environ), problems)
        _rules(reserved, problems)
        return problems

    def _read_linked(self, keys: Collection[str], problems: list[Problem]) -> dict[str, DesiredProvider]:
        """Return a provider with default settings for each plugin that only a toolset's `from: KIND:ADDRESS` names."""
        added: dict[str, DesiredProvider] = {}
        for name, toolset in self.settings.toolsets.items():
            source, address = split_source(toolset.source) or ("", "")
            kind, path = source[:-1], ("toolsets", name, "from")
            if source in (PROVIDER, MCP) or not kind:
                continue
            if kind not in self.loaded and kind not in added:
                found = self.installed.types.get(kind, ())
                if not found and kind not in keys:
                    message = f"unknown source {kind!r}; there are provider: and mcp:, and those of installed plugins"
                    hint = known_package(kind, "packages", self.installed.types)
                    problems.append(self.document.problem(path, code="unknown_source", message=message, hint=hint))
                    continue
                plugin = self.enabled_by_name(kind, path, f"toolset {name!r}", keys, problems)
                if plugin is not None:
                    added[kind] = plugin
            if kind in self.loaded:
                problems.extend(self._wrong_source(kind, address, path))
        return added

    def _wrong_source(self, kind: str, address: str, path: KeyPath) -> Iterator[Problem]:
        """Yield a problem if a plugin is no source of toolsets, or does not accept the address of one."""
        entry, loaded = self.loaded[kind]
        package = loaded.installed.package
        if "toolset_sources" not in loaded.hooks.names:
            message = f"the plugin {kind!r} ({package}) is no source of toolsets"
            hint = f"write from: provider:KEY for the tools of an entry of type {kind}"
            yield self.document.problem(path, code="unknown_source", message=message, hint=hint)
            return
        hook = "check_toolset_address"
        try:
            for function in loaded.implementing(hook):
                function(kind, address)
        except ValueError as error:
            yield self.document.problem(path, code="wrong_value", message=str(error))
        except BaseException as error:  # noqa: BLE001  the plugin's own code
            message = f"{package}: {hook}() raised {outline_error(error, entry.package)}"
            hint = f"update {loaded.installed.distribution}"
            yield self.document.problem(path, code="source_plugin", message=message, hint=hint)

    def enabled_by_name(
        self,
        kind: str,
        path: KeyPath,
        by: str,
        keys: Collection[str],
        problems: list[Problem],
        rules: Mapping[str, Value] = MappingProxyType({}),
    ) -> DesiredProvider | None:
        """Return the installed plugin of a type with default settings, which `by` at `path` names; None if it fails.

        `keys` are those of entries, of which none is the plugin's and enabled.
        """
        if kind in keys:
            message = f"{by} needs the plugin {kind!r}, whose entry is not enabled"
            hint = f"set providers.{kind}.enabled to true, or remove the entry"
            problems.append(self.document.problem(path, code="plugin_disabled", message=message, hint=hint))
            return None
        self.types[kind] = self.installed.types[kind][0]
        try:
            return self._read(kind, rules)
        except ConfigError as error:
            problems.extend(error.problems)
            return None

    def _read(self, key: str, given: Mapping[str, Value] = MappingProxyType({})) -> DesiredProvider:
        """Read an enabled entry: its rules, its package, which is imported, and its settings. Raises `ConfigError`.

        A plugin without an entry, which a toolset or the store names, has the default settings and what is `given`.
        """
        path = (SECTION, key)
        if key in self.document.keys((SECTION,)):
            section = expand(self.document, path, self.environ)
        else:
            section = Section(document=self.document, path=path, value=dict(given))
        problems: list[Problem] = []
        reserved, own = _divide(section, problems)
        found = self.types[key]
        rules = _rules(reserved, problems)
        entry = self._entry(section, found, rules)
        if problems and not (entry.python or entry.dialled) and is_elsewhere(found):
            raise ConfigError(problems)  # its `run` is not valid, so that nobody knows where the type is
        try:
            if entry.python and found.file is None:
                found = self.types[key] = find_there(entry, found.type)
                entry = self._entry(section, found, rules)
            if self.installed.check is not None:
                self.installed.check.check_package(entry, found)
            loaded = load(found) if not entry.run.apart else self._load_apart(entry, found, own, problems)
        except ProviderError as error:
            if rules.required:
                problems.append(entry.failure(error))
            if problems:
                raise ConfigError(problems) from None
            return DesiredProvider(entry, None, failed_record(entry, error))
        self.loaded[key] = LoadedEntry(entry, loaded)
        if entry.required:
            problems.extend(self.loaded[key].wrong_rules())
        entry = configure_entry(entry, own, loaded, _host_keys(own, key), problems)
        if problems:
            raise ConfigError(problems)
        build = partial(loaded.build, key, entry.settings)
        release: Callable[[], None] = getattr(loaded.build, "release", lambda: None)
        wanted = DesiredProvider(entry, build, single=loaded.single, scopes=loaded.scopes, release=release)
        list_data = partial(loaded.data_of, entry.settings, self.document.folder)
        return check_wanted(self.installed.check, wanted, list_data)

    def _load_apart(
        self, entry: ProviderEntry, found: InstalledProvider, own: Section, problems: list[Problem]
    ) -> ProviderType:
        """Return the type of a provider that runs in another process, which has imported it, or will."""
        if entry.dialled:
            return import_module(_DIALLED).load_dialled(entry, found, own, _host_keys(own, entry.key))
        return import_module(_APART).load_apart(entry, found, own, _host_keys(own, entry.key), problems)

    def _entry(self, section: Section, found: _Found, rules: ProviderSettings) -> ProviderEntry:
        root = section.path
        return ProviderEntry(
            key=str(root[-1]),
            type=found.type,
            required=rules.required,
            public_routes=rules.public_routes,
            offer=rules.offer,
            mount=rules.mount or "",
            on_failure=rules.on_failure,
            limits=rules.limits,
            host_limits=self.settings.limits,
            tools=rules.tools,
            run=rules.run.or_default(apart=isinstance(found, InstalledProvider) and found.apart),
            python=python_path(self.document, rules.run.python or ""),
            user_auth=rules.user_auth,
            distribution=found.distribution,
            version=found.version,
            package=found.package if isinstance(found, ProviderEntry) else found.module,
            place=lambda path: self._place((*root, *path)),
            host_place=lambda path: self._place(tuple(path)),
            masked=partial(mask, section.withheld),
        )

    def _place(self, path: tuple[str | int, ...]) -> Place:
        mark = self.document.key_mark(path)
        return Place(self.document.file, mark.line, mark.column)


def read_providers(path: str | os.PathLike[str], environ: Mapping[str, str] | None = None) -> list[DesiredProvider]:
    """Read the `providers` section of a file alone, for `FunctionRegistry.from_yaml`. Raises `ConfigError`."""
    problems: list[Problem] = []
    document = read_document(path, problems)
    environ = os.environ if environ is None else environ
    entries = ProviderEntries.read(document, environ, find_installed(), HostSettings(), problems)
    if problems:
        raise ConfigError(problems[:MAX_PROBLEMS])
    return [*entries.wanted.values()]


_KEY = re.compile(PROVIDER_KEY)
_FIELDS = ProviderSettings.model_fields
_HOST_KEYS = {key: shapes_of(_FIELDS[key].annotation) if key in _FIELDS else () for key in sorted(RESERVED_KEYS)}


def _divide(section: Section, problems: list[Problem]) -> tuple[Section, Section]:
    """Return the host's keys of an entry, and the provider's own, which are flat or under `settings`."""
    value = mapping_of(section.value)
    reserved = {name: item for name, item in value.items() if name in RESERVED_KEYS and name != "settings"}
    flat = {name: item for name, item in value.items() if name not in RESERVED_KEYS}
    mine, theirs = section.problems, section.problems
    if "settings" not in value:
        mine = tuple(item for item in mine if _top(item, section) in RESERVED_KEYS)
        theirs = tuple(item for item in theirs if _top(item, section) not in RESERVED_KEYS)
        return replace(section, value=reserved, problems=mine), replace(section, value=flat, problems=theirs)
    path = (*section.path, "settings")
    if flat:
        message = f"settings and the keys {', '.join(map(repr, flat))} next to it mean the same; keep one of them"
        problems.append(section.problem(path, code="settings_twice", message=message, at_key=True))
    own = value["settings"]
    mine = tuple(item for item in mine if _top(item, section) != "settings")
    theirs = tuple(item for item in theirs if _top(item, section) == "settings")
    nested = replace(section, path=path, value={} if own is None else own, problems=theirs)
    return replace(section, value=reserved, problems=mine), nested


def _rules(reserved: Section, problems: list[Problem]) -> ProviderSettings:
    """Return the host's keys of an entry; invalid ones are added to the problems and left out."""
    try:
        return ProviderSettings.model_validate(reserved.value)
    except ValidationError as error:
        problems.extend(problems_of(error, section=reserved, model=ProviderSettings))
        return ProviderSettings.model_validate(without_faults(reserved.value, error, by_entry=("tools",)))
    finally:
        problems.extend(reserved.problems)


def _host_keys(own: Section, key: str) -> Mapping[str, Shapes]:
    """Return the host's keys at the place of a provider's own; under `settings` one of them is wrong like any other."""
    return _HOST_KEYS if own.path == (SECTION, key) else NOTHING


def _top(problem: Problem, section: Section) -> str:
    """Return the top key of the section under which a problem is."""
    rest = problem.path.removeprefix(shown_path(section.path)).lstrip(".")
    return re.split(r"[.\[]", rest, maxsplit=1)[0]
