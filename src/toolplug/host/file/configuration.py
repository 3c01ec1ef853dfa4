"""Reading providers.yaml, or a mapping of its shape, into settings and entries; reports all problems at once."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from importlib import import_module
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple, TypeGuard

from pydantic import ValidationError

from toolplug.catalog.call import HOST_SCOPES
from toolplug.config.document import Document, expanded_keys, parse_document, read_document
from toolplug.config.nearest import name_hint
from toolplug.config.problems import problems_of, read_secret_files, without_faults
from toolplug.config.yaml_tree import MAX_PROBLEMS, NOWHERE, KeyPath, MappingNode, Value, node_of
from toolplug.crashes import outline_error
from toolplug.errors import ConfigError, Problem, StoreMisused
from toolplug.host.file.part_sections import (
    built_in,
    foreign_sections,
    part_problems,
    parts_of_plugins,
    plugin_paths,
    settings_model,
    with_defaults,
    with_free_routes,
    with_named_plugins,
)
from toolplug.host.file.plugin_hooks import check_plugin_hooks
from toolplug.host.file.provider_entries import ProviderEntries
from toolplug.host.file.settings import ApiKey, HostSettings, same_keys
from toolplug.host.file.store_entry import ConfiguredStore, read_store
from toolplug.host.file.tool_servers import NO_ENTRIES, ServerEntries, server_kind
from toolplug.host.file.tool_servers import SECTION as SERVERS
from toolplug.host.file.toolset_entries import ToolsetEntries, prefixes_of, unknown_toolsets
from toolplug.host.file.user_auth_entries import user_auth_problems
from toolplug.packages.entry_points import Installed
from toolplug.part_protocols.host_part import HostPart, SectionFacts
from toolplug.providers.entry import DesiredProvider, ProviderEntry, ProviderState
from toolplug.stores.open import open_store

USER_FILE = Path(".config") / "toolplug" / "providers.yaml"
"""Below the user's home: MCP servers for every project of this user (docs/reference/configuration.md)."""
CONSOLE = "console"
"""The type of the plugin with the console, and the key of its entry: `serve` has it by default."""


@dataclass(frozen=True, slots=True)
class ConfigFiles:
    """A configuration file, with the user's own file of MCP servers, which it may replace; usable as a path.

    `defaults`: plugins that run with these settings and public routes where they are installed, no entry names them,
    and the file has no `auth`.
    """

    file: Path
    user: Path | None = None
    defaults: Mapping[str, Mapping[str, Value]] = field(default_factory=dict[str, Mapping[str, Value]], hash=False)

    def below(self, folder: Path) -> ConfigFiles:
        """Return the same files, with a relative path below this folder."""
        return replace(self, file=folder / self.file)

    def __fspath__(self) -> str:
        return os.fspath(self.file)

    def __str__(self) -> str:
        return str(self.file)


Source = str | os.PathLike[str] | Mapping[str, object]
"""A configuration file, with or without the user's own, or a mapping of the same shape."""

MAPPING_FILE = "<settings>"


class Coded(NamedTuple):
    """What the host's own code adds to its configuration: prefixes of toolsets by id, providers by key, and agents.

    `hooks` are those that it specifies for plugins, with their arguments.
    """

    prefixes: Mapping[str, str] = MappingProxyType({})
    providers: Mapping[str, DesiredProvider] = MappingProxyType({})
    agents: frozenset[str] = frozenset()
    hooks: Mapping[str, Sequence[str]] = MappingProxyType({})


NOTHING_CODED = Coded()
_UNKNOWN = "unknown_key"
_BY_ENTRY = frozenset({"toolsets", "agents"})
"""Sections whose entries are validated one by one."""

RESULTS_TTL_S = 3600.0
"""How long results over their limit are kept where no part says."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Configuration:
    """A configuration as it was read; only its `servers` may have problems."""

    source: Source
    settings: HostSettings
    providers: ProviderEntries
    servers: ServerEntries
    toolsets: ToolsetEntries
    store: ConfiguredStore
    parts: Sequence[HostPart[Any]]

    @property
    def folder(self) -> Path:
        """The folder for relative paths: that of the file; for a mapping the working directory."""
        return self.store.folder

    def release(self) -> Configuration:
        """End the processes that have described its entries, and return it: nothing of it is to be started."""
        for wanted in self.providers.wanted.values():
            wanted.release()
        return self

    def plugin_paths(self, off: Collection[str] = ()) -> dict[str, ProviderEntry]:
        """Return the paths of the parts of plugins, as `part_sections.plugin_paths`."""
        return plugin_paths(self.parts, off)

    @property
    def facts(self) -> Mapping[str, SectionFacts]:
        """What the section of each part means to the host, by the name of the part."""
        sections = {part: part.settings_in(self.settings) for part in self.parts if part.entry is None}
        return {part.name: part.facts(section) for part, section in sections.items() if section is not None}

    @property
    def results_ttl_s(self) -> float:
        """How long results over their limit are kept."""
        return next((facts.results_ttl_s for facts in self.facts.values() if facts.results_ttl_s), RESULTS_TTL_S)

    @property
    def named_toolsets(self) -> Mapping[KeyPath, str]:
        """The ids of toolsets that sections of parts name, each with its place."""
        return {(name, key): each for name, facts in self.facts.items() for key, each in facts.toolsets.items()}

    def origin(self, *path: str) -> str:
        """Return the place of a path as `file:line`; `default` if the file does not have it."""
        return self.providers.document.origin_of(path)


@dataclass(slots=True, eq=False)
class CurrentConfiguration:
    """The present configuration, which a reload replaces."""

    configuration: Configuration

    def __call__(self) -> Configuration:
        return self.configuration

    def origin(self, *path: str) -> str:
        """Return the place of a path as `file:line`; `default` if the file does not have it."""
        return self.configuration.origin(*path)


def read_configuration(
    source: Source, environ: Mapping[str, str], installed: Installed, coded: Coded = NOTHING_CODED
) -> Configuration:
    """Read and check everything that can be checked without starting a provider.

    Imports the packages of enabled entries and nothing else. Raises `ConfigError` with every problem, in file order;
    problems of MCP servers alone do not raise, and are in `servers`.
    """
    problems: list[Problem] = []
    configuration = read_parts(source, environ, installed, problems, coded)
    if problems:
        configuration.release()
        raise _refusal([*problems, *configuration.servers.problems], alone=_is_code(source))
    return configuration


def read_beside_host(source: Source, environ: Mapping[str, str], installed: Installed) -> Configuration:
    """Read and check the configuration for a command that works on the store of a host without being that host.

    Toolsets and agents may name toolsets that only the host's code registers. Raises `ConfigError` with every other
    problem, except those of MCP servers.
    """
    problems: list[Problem] = []
    document = document_of(source, problems)
    settings, _, parts, providers = _sections(document, environ, installed, problems, NOTHING_CODED)
    store, providers = read_store(providers, _folder(source), problems)
    if problems:
        raise _refusal(problems, alone=_is_code(source))
    servers = _servers(parts, document, None, environ)
    toolsets = ToolsetEntries.read(document, settings, (), (), {}, [])
    return Configuration(
        source=source,
        settings=settings,
        providers=providers,
        servers=servers,
        toolsets=toolsets,
        store=store,
        parts=parts,
    )


def _refusal(problems: Sequence[Problem], *, alone: bool) -> ConfigError:
    """Return the error with at most `MAX_PROBLEMS` problems, in file order.

    A Python file that is served `alone` has no entry: its problems have no place in one, and name the file once.
    """
    if alone:
        problems = [
            replace(each, path="", message=each.message.removeprefix(f"{_type_of_code(each.file)}: "))
            for each in problems
        ]
    return ConfigError(sorted(problems, key=lambda item: (item.line, item.column))[:MAX_PROBLEMS])


def _is_code(source: Source) -> TypeGuard[str | os.PathLike[str]]:
    return not isinstance(source, Mapping) and os.fspath(source).endswith(".py")


def read_parts(
    source: Source,
    environ: Mapping[str, str],
    installed: Installed,
    problems: list[Problem],
    coded: Coded = NOTHING_CODED,
) -> Configuration:
    """Read like `read_configuration`, but add problems to `problems`; invalid parts keep their defaults.

    Raises `ConfigError` only for a document that cannot be read at all.
    """
    document = document_of(source, problems)
    settings, keys, parts, providers = _sections(document, environ, installed, problems, coded)
    if isinstance(source, ConfigFiles) and settings.auth is None:
        providers = with_defaults(providers, source.defaults)
    store, providers = read_store(providers, _folder(source), problems)
    user = source.user if isinstance(source, ConfigFiles) else None
    taken = prefixes_of(document, settings, coded.prefixes)
    servers = _servers(parts, document, user, environ, taken)
    servers = servers if installed.check is None else servers.lock(installed.check.server_tools)
    toolsets = ToolsetEntries.read(document, settings, providers.keys, servers.ids, coded.prefixes, problems)
    scopes = [scope for part in parts for scope in part.scopes]
    problems += _key_problems(document, keys, providers, scopes, coded.agents)
    configuration = Configuration(
        source=source,
        settings=settings,
        providers=providers,
        servers=servers,
        toolsets=toolsets,
        store=store,
        parts=parts,
    )
    problems += unknown_toolsets(document, configuration.named_toolsets, coded.prefixes)
    problems += user_auth_problems(document, settings, providers, servers, on_network=store.on_network)
    return configuration


def with_enabled(
    configuration: Configuration, keys: Collection[str], hooks: Mapping[str, Sequence[str]]
) -> Configuration:
    """Return the configuration as if the entries of these keys were enabled, with the parts that their plugins have.

    `hooks` are those that somebody specifies for plugins, with their arguments. The sections keep their values: one
    that needs its section in the file is off. Raises `NoSuchProvider` and `ConfigError`.
    """
    given, problems = configuration.providers, list[Problem]()
    entries = replace(given, loaded={**given.loaded}, types={**given.types})
    wanted = {key: entries.switched_on(key) for key in keys}
    entries = check_plugin_hooks(replace(entries, wanted={**entries.wanted, **wanted}), hooks, problems)
    added, entries = parts_of_plugins(entries, problems)
    settings, parts, before = configuration.settings, configuration.parts, {part.name for part in configuration.parts}
    if any(part.name not in before for part in added):
        parts = (*(part for part in parts if part.entry is None), *added)
        settings = settings_model(parts).model_construct(settings.model_fields_set, **dict(settings))
        parts = [_without_section(part, settings) for part in parts]
        problems += part_problems(entries.document, settings, [part for part in parts if part.name not in before])
        entries = replace(entries, settings=settings)
    if problems:
        raise ConfigError(problems)
    return replace(configuration, settings=settings, providers=entries, parts=parts)


def _servers(
    parts: Sequence[HostPart[Any]],
    document: Document,
    user: Path | None,
    environ: Mapping[str, str],
    taken: Mapping[str, str] = MappingProxyType({}),
) -> ServerEntries:
    """Return the entries of servers, none where no part has any; `taken` are the prefixes of toolsets."""
    kind = server_kind(parts)
    return NO_ENTRIES if kind is None else kind.read(document, user, environ, taken)


def _folder(source: Source) -> Path:
    """Return the folder for relative paths; absolute for a file, as a provider may change the working directory."""
    return Path() if isinstance(source, Mapping) else Path(source).absolute().parent


def document_of(source: Source, problems: list[Problem] | None = None) -> Document:
    """Return the document of a source; `problems` as in `parse_document`. Raises `ConfigError` if it is unreadable."""
    if _is_code(source):
        return _document_of_code(os.fspath(source))
    if not isinstance(source, Mapping):
        return read_document(source, problems)
    yaml = import_module("yaml")  # not needed for a Python file
    try:
        # Through YAML, so that a mapping gets the same checks, with the same places, as a file.
        text: str = yaml.safe_dump(dict(source), sort_keys=False, allow_unicode=True)
    except yaml.YAMLError as error:
        reason = str(error).split("\n", 1)[0]
        raise ConfigError([Problem(code="not_plain", message=f"the settings are not plain data: {reason}")]) from None
    return parse_document(text.encode(), file=MAPPING_FILE)


def _type_of_code(path: str) -> str:
    return f"./{Path(path).name}"


def _document_of_code(path: str) -> Document:
    """Return the configuration that a Python file alone stands for: one provider, with the name of the file."""
    key = re.sub(r"[^a-z0-9]+", "_", Path(path).stem.lower()).strip("_") or "file"
    root = node_of({"providers": {key: {"type": _type_of_code(path), "enabled": True}}}, NOWHERE)
    assert isinstance(root, MappingNode)
    return Document(file=path, root=root, written=False)


_ApiKeys = Mapping[int, ApiKey]
"""The API keys that are valid by themselves, by their place in the list."""


class _Sections(NamedTuple):
    settings: HostSettings
    keys: _ApiKeys
    parts: Sequence[HostPart[Any]]
    providers: ProviderEntries


def _sections(
    document: Document, environ: Mapping[str, str], installed: Installed, problems: list[Problem], coded: Coded
) -> _Sections:
    """Read the host's sections and the providers, then the sections of the parts that enabled plugins add."""
    parts, foreign = built_in(), foreign_sections(document)
    own: list[Problem] = []
    # Without the sections of plugins for now: which there are is known once the plugins are imported.
    settings, keys = _settings(document, environ, parts, own)
    found = [*own]
    providers = ProviderEntries.read(document, environ, installed, settings, found, coded.providers)
    providers = check_plugin_hooks(with_named_plugins(providers, foreign, found), coded.hooks, found)
    added, providers = parts_of_plugins(providers, found)
    if added:
        again: list[Problem] = []
        parts = (*parts, *added)
        settings, keys = _settings_of_plugins(document, environ, parts, again) or (settings, keys)
        providers = replace(providers, settings=settings)
        # The second reading finds what the first has found, and more.
        found[: len(own)] = again
    # A section whose plugin failed is unknown to the model; that its key is unknown would hide the reason.
    failed = {problem.path for problem in found if problem.code != _UNKNOWN and problem.path in foreign}
    problems += [problem for problem in found if not (problem.code == _UNKNOWN and problem.path in failed)]
    problems += part_problems(document, settings, parts)
    parts = [_without_section(part, settings) for part in parts]
    return _Sections(settings, keys, parts, with_free_routes(providers, parts, problems))


def _settings_of_plugins(
    document: Document, environ: Mapping[str, str], parts: Sequence[HostPart[Any]], problems: list[Problem]
) -> tuple[HostSettings, _ApiKeys] | None:
    """Return the settings with the sections of plugins; None, with a problem, if a validator of them raises."""
    try:
        return _settings(document, environ, parts, problems)
    except (Exception, SystemExit) as error:  # noqa: BLE001  a validator is the plugin's own code
        names = " or ".join(repr(part.name) for part in parts if part.entry is not None)
        message = f"reading the section {names} raised {outline_error(error)}; only a ValueError says what is wrong"
        problems.append(Problem(code="config_invalid", message=message, file=document.file))
        return None


def _without_section(part: HostPart[Any], settings: HostSettings) -> HostPart[Any]:
    """Return the part of a plugin without its routes if the file does not have its section."""
    if part.entry is None or part.settings is None or part.settings_in(settings) is not None:
        return part
    return replace(part, routes=tuple, paths=(), shared=())


def _settings(
    document: Document, environ: Mapping[str, str], parts: Sequence[HostPart[Any]], problems: list[Problem]
) -> tuple[HostSettings, _ApiKeys]:
    """Return the host's own sections, and the API keys; invalid parts have their defaults, so that the rest is checked.

    The keys are those that are valid even if their section is not.
    """
    model = settings_model(parts)
    # These are read entry by entry, each with its own model.
    by_entry = ("providers", *(() if server_kind(parts) is None else (SERVERS,)))
    names = [name for name in document.root.entries if name not in by_entry]
    section = expanded_keys(document, (), names, environ)
    section = read_secret_files(section, model)
    problems.extend(section.problems)
    try:
        settings = model.model_validate(section.value)
        if "store" not in settings.model_fields_set:
            _check_default_store(settings, document, problems)
        return settings, dict(enumerate(settings.auth.api_keys if settings.auth is not None else ()))
    except ValidationError as error:
        others: dict[str, tuple[str, ...]] = dict.fromkeys(by_entry, ())
        problems.extend(problems_of(error, section=section, model=model, also_known=others))
        keys = _valid_keys(section.value)
        # The model compares the keys only if all are valid.
        same = same_keys(keys)
        if same and all(problem.message != same for problem in problems):
            problems.append(document.problem(("auth",), code="wrong_value", message=same))
        return _valid_part(section.value, error, model), keys


def _valid_part(value: Value, error: ValidationError, model: type[HostSettings]) -> HostSettings:
    """Return the settings without invalid keys; of a section that is invalid without them too, the defaults."""
    kept = without_faults(value, error, by_entry=model.model_fields)
    try:
        return model.model_validate(kept)
    except ValidationError as rest:
        return model.model_validate(without_faults(kept, rest, by_entry=_BY_ENTRY))


def _valid_keys(value: Value) -> _ApiKeys:
    auth = value.get("auth") if isinstance(value, dict) else None
    given = auth.get("api_keys") if isinstance(auth, dict) else None
    valid: dict[int, ApiKey] = {}
    for index, key in enumerate(given if isinstance(given, list) else ()):
        with suppress(ValidationError):
            valid[index] = ApiKey.model_validate(key)
    return valid


def _check_default_store(settings: HostSettings, document: Document, problems: list[Problem]) -> None:
    """Add a problem if the configuration has no `store` and the default one needs a missing package."""
    try:
        open_store(settings.store)
    except StoreMisused as error:
        problems.append(Problem(code="store_url", message=str(error), file=document.file, path="store"))


def _key_problems(
    document: Document,
    keys: _ApiKeys,
    providers: ProviderEntries,
    scopes_of_parts: Collection[str],
    coded_agents: Collection[str],
) -> Iterator[Problem]:
    """Yield a problem for each scope that nothing asks for, and each agent that is not configured.

    A misspelt one fails closed, and so would be found by its holder only. `coded_agents` are those of the host's code.
    """
    if not keys:
        return
    scopes, agents = _known_scopes(providers, scopes_of_parts), [*document.keys(("agents",)), *coded_agents]
    # Only a start can tell the scopes of what `routes()` returns: those whose first word nothing else has.
    made = any("routes" in loaded.type.unchecked for loaded in providers.loaded.values())
    words = {scope.partition(":")[0] for scope in scopes or ()}
    for index, key in keys.items():
        path: KeyPath = ("auth", "api_keys", index)
        for number, scope in enumerate(key.scopes if scopes is not None else ()):
            word, colon, _ = scope.partition(":")
            if scope not in (scopes or ()) and not (made and colon and word not in words):
                message = f"neither the host nor a route of an enabled provider asks for the scope {scope!r}"
                hint = name_hint(scope, scopes or ())
                yield document.problem((*path, "scopes", number), code="unknown_scope", message=message, hint=hint)
        for number, agent in enumerate(key.agents or ()):
            if agent not in agents:
                message = f"there is no agent {agent!r} under agents"
                hint = name_hint(agent, agents) or f"add it: agents: {{{agent}: {{toolsets: []}}}}"
                yield document.problem((*path, "agents", number), code="unknown_agent", message=message, hint=hint)


def _known_scopes(providers: ProviderEntries, of_parts: Collection[str]) -> Collection[str] | None:
    """Return the scopes that the host and the routes of enabled providers ask for.

    None if they are not known: of a provider that could not be read, and of one that a function makes at the start.
    """
    known = [*HOST_SCOPES, *of_parts]
    for key in providers.keys:
        wanted = providers.wanted.get(key)
        if wanted is not None and wanted.record is not None and wanted.record.state is ProviderState.DISABLED:
            continue
        if wanted is None or wanted.scopes is None:
            return None
        known += sorted(wanted.scopes)
    return known


def seen_from(folder: Path, source: Source) -> Source:
    """Return the source with its path below the folder, if a provider has changed the working directory since then."""
    if isinstance(source, Mapping):
        return source
    try:
        # The working directory may be gone.
        unchanged = Path.cwd() == folder
    except OSError:
        unchanged = False
    if unchanged:
        return source
    return source.below(folder) if isinstance(source, ConfigFiles) else folder / source
