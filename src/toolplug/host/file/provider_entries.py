"""The `providers:` section: the provider of each entry, its settings, and installed packages without an entry."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from pydantic import ValidationError

from toolplug.config.composer import MAX_PROBLEMS
from toolplug.config.document import Document, Section, read_document
from toolplug.config.environment import expand
from toolplug.config.masking import mask_secrets
from toolplug.config.model_shape import Shapes, shapes_of
from toolplug.config.nearest import name_hint
from toolplug.config.problems import NOTHING, key_hint, problems_of, secrets_of, validate_section, without_faults
from toolplug.config.secrets import read_secret_files
from toolplug.config.yaml_tree import KeyPath, MappingNode, ScalarNode, Value, shown_path
from toolplug.crashes import outline_error
from toolplug.errors import ConfigError, NoSuchProvider, Problem, ProviderError
from toolplug.execution.limits.resolved_limits import DEFAULT_ORIGIN
from toolplug.host.file.packages import known_package
from toolplug.host.file.settings import (
    MCP,
    PROVIDER,
    PROVIDER_KEY,
    RESERVED_KEYS,
    HostSettings,
    ProviderSettings,
    split_source,
)
from toolplug.providers.entry import (
    DesiredProvider,
    Place,
    ProviderEntry,
    ProviderRecord,
    ProviderState,
    failed_record,
    record_of,
)
from toolplug.providers.entry_points import Installed, InstalledProvider, find_installed
from toolplug.providers.loading import ProviderType, load, names_file, provider_file
from toolplug.providers.planning import unknown_tools
from toolplug.providers.routes import DeclaredRoutes, route_problems

SECTION = "providers"


def section_keys(document: Document, section: str, of: str, problems: list[Problem]) -> tuple[str, ...]:
    """Return the keys of a section in file order; one that is not a mapping is a problem."""
    entry = document.root.entries.get(section)
    if entry is None or isinstance(entry.node, MappingNode):
        return document.keys((section,))
    if not (isinstance(entry.node, ScalarNode) and entry.node.value is None):
        message = f"should be a mapping from {of} to settings"
        problems.append(document.problem((section,), code="wrong_value", message=message))
    return ()


def origin_of(document: Document, path: KeyPath) -> str:
    """Return the place of a path as `file:line`; `default` for one that the document does not have."""
    try:
        document.node(path)
    except KeyError:
        return DEFAULT_ORIGIN
    return f"{document.file}:{document.key_mark(path).line}"


def expanded_keys(document: Document, path: KeyPath, keys: Iterable[str], environ: Mapping[str, str]) -> Section:
    """Return the section of some keys of a mapping, with every reference expanded."""
    parts = {key: expand(document, (*path, key), environ) for key in keys}
    return Section(
        document=document,
        path=path,
        value={key: part.value for key, part in parts.items()},
        problems=tuple(problem for part in parts.values() for problem in part.problems),
        broken=frozenset(item for part in parts.values() for item in part.broken),
        withheld=frozenset(item for part in parts.values() for item in part.withheld),
    )


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

    `loaded` holds the entries whose package was imported, `coded` the providers of the host's own code, which come
    after the others in `wanted`.
    """

    document: Document
    environ: Mapping[str, str]
    settings: HostSettings
    installed: Installed
    types: dict[str, InstalledProvider]
    loaded: dict[str, LoadedEntry]
    wanted: Mapping[str, DesiredProvider]
    coded: Mapping[str, DesiredProvider]

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
        for key in keys:
            # Nobody reads more, and each further entry would import a package for it.
            if len(problems) >= MAX_PROBLEMS:
                break
            try:
                types[key], enabled = reader._find_named(key)
                fix = f"set providers.{key}.enabled to true"
                wanted[key] = reader._read(key) if enabled else reader.switched_off(key, "enabled is not true", fix)
            except ConfigError as error:
                problems.extend(error.problems)
        wanted |= reader._read_linked(keys, problems)
        for problem in route_problems(DeclaredRoutes(entry, kind.routes) for entry, kind in loaded.values()):
            problems.append(problem)
            # Its path is `providers.KEY` and more.
            wanted.pop(problem.path.split(".")[1], None)
        problems += reader._used_twice()
        for key in coded.keys() & keys:
            message = f"the host's own code gives a provider of the key {key!r}, too"
            hint = "give one of them another key"
            problems.append(
                document.problem((SECTION, key), code="provider_twice", message=message, hint=hint, at_key=True)
            )
        added = {
            key: item._replace(entry=replace(item.entry, host_limits=settings.limits)) for key, item in coded.items()
        }
        return replace(reader, wanted={**wanted, **added})

    @property
    def keys(self) -> tuple[str, ...]:
        """The keys of the section in file order, with those of invalid entries, then those of coded providers."""
        return (*self.document.keys((SECTION,)), *self.coded)

    def switched_on(self, key: str) -> DesiredProvider:
        """Return the entry of a key as if it had `enabled: true`. Raises `NoSuchProvider` and `ConfigError`."""
        self.check_known(key)
        wanted = self.wanted[key]
        return wanted if wanted.build is not None else self._read(key)

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
        if names_file(type_name):
            return self._file(key, type_name, at), enabled
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

    def _file(self, key: str, type_name: str, at: KeyPath) -> InstalledProvider:
        """Return the provider type of a file below the folder of the configuration. Raises `ConfigError`."""
        try:
            return provider_file(type_name, Path(self.document.file).absolute().parent)
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
            return str(_mapping(head.value).get("type", key)), True
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
        self, kind: str, path: KeyPath, by: str, keys: Collection[str], problems: list[Problem]
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
            return self._read(kind)
        except ConfigError as error:
            problems.extend(error.problems)
            return None

    def _read(self, key: str) -> DesiredProvider:
        """Read an enabled entry: its rules, its package, which is imported, and its settings. Raises `ConfigError`.

        A plugin without an entry, which a toolset or the store names, has the default settings.
        """
        path = (SECTION, key)
        if key in self.document.keys((SECTION,)):
            section = expand(self.document, path, self.environ)
        else:
            section = Section(document=self.document, path=path, value={})
        problems: list[Problem] = []
        reserved, own = _divide(section, problems)
        found = self.types[key]
        rules = _rules(reserved, problems)
        entry = self._entry(section, found, rules)
        try:
            loaded = load(found)
        except ProviderError as error:
            if rules.required:
                problems.append(entry.failure(error))
            if problems:
                raise ConfigError(problems) from None
            return DesiredProvider(entry, None, failed_record(entry, error))
        self.loaded[key] = LoadedEntry(entry, loaded)
        if entry.required:
            problems.extend(self.loaded[key].wrong_rules())
        entry = self._configure_entry(entry, own, loaded, problems)
        if problems:
            raise ConfigError(problems)
        build = partial(loaded.build, key, entry.settings)
        return DesiredProvider(entry, build, single=loaded.single, scopes=loaded.scopes)

    def _entry(self, section: Section, found: InstalledProvider, rules: ProviderSettings) -> ProviderEntry:
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
            distribution=found.distribution,
            version=found.version,
            package=found.module,
            place=lambda path: self._place((*root, *path)),
            host_place=lambda path: self._place(tuple(path)),
            masked=partial(_mask, section.withheld),
        )

    def _place(self, path: tuple[str | int, ...]) -> Place:
        mark = self.document.key_mark(path)
        return Place(self.document.file, mark.line, mark.column)

    def _configure_entry(
        self, entry: ProviderEntry, own: Section, loaded: ProviderType, problems: list[Problem]
    ) -> ProviderEntry:
        """Return the entry with the provider's own settings, checked by its Config model if it has one."""
        model = loaded.config
        # Under `settings` a key of the host is a wrong key like any other.
        host_keys = _HOST_KEYS if own.path == (SECTION, entry.key) else NOTHING
        if model is None:
            problems.extend(own.problems)
            problems.extend(islice(_wrong_without_model(own, loaded, host_keys), MAX_PROBLEMS))
            return replace(entry, settings=_mapping(own.value))
        own = read_secret_files(own, model)
        secrets = secrets_of(own, model)
        try:
            config = validate_section(own, model, host_keys)
        except ConfigError as error:
            problems.extend(error.problems)
            return entry
        except (Exception, SystemExit) as error:  # noqa: BLE001  a validator is the package's own code
            said = _mask(secrets, f"{type(error).__name__}: {error}")
            message = f"the Config of {loaded.installed.package} raised {said}; only a ValueError says what is wrong"
            hint = f"change the settings, or update {loaded.installed.distribution}"
            problems.append(entry.problem("config_invalid", message, hint))
            return entry
        return replace(entry, settings=config, masked=partial(_mask, secrets))


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
    value = _mapping(section.value)
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


def _wrong_without_model(own: Section, loaded: ProviderType, host_keys: Mapping[str, Shapes]) -> Iterator[Problem]:
    """Yield a problem for each setting of a provider without a Config model; `host_keys` are the host's keys."""
    if not isinstance(own.value, dict):
        yield own.problem(own.path, code="wrong_value", message="should be a mapping of settings")
    elif not loaded.open_settings:
        for name in own.value:
            message = f"unknown key {name!r}; {loaded.installed.package} takes no settings"
            hint = key_hint(name, host_keys)
            yield own.problem((*own.path, name), code="unknown_key", message=message, hint=hint, at_key=True)


def _top(problem: Problem, section: Section) -> str:
    """Return the top key of the section under which a problem is."""
    rest = problem.path.removeprefix(shown_path(section.path)).lstrip(".")
    return re.split(r"[.\[]", rest, maxsplit=1)[0]


def _mask(secrets: frozenset[str], text: str) -> str:
    return mask_secrets(text, secrets)


def _mapping(value: Value) -> dict[str, Value]:
    return value if isinstance(value, dict) else {}
