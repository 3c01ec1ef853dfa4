"""Reading providers.yaml, or a mapping like it, into settings and desired providers; reports all problems at once."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

import yaml
from pydantic import ValidationError

from toolplug.config.composer import MAX_PROBLEMS
from toolplug.config.document import Document, Section, parse_document, read_document
from toolplug.config.environment import expand
from toolplug.config.problems import problems_of, without_faults
from toolplug.config.secrets import read_secret_files
from toolplug.config.yaml_tree import Value
from toolplug.errors import ConfigError, Problem, StoreMisused
from toolplug.host.file.provider_entries import ProviderEntries
from toolplug.host.file.server_entries import SECTION as SERVERS
from toolplug.host.file.server_entries import ServerEntries
from toolplug.host.file.settings import HostSettings
from toolplug.host.file.toolset_entries import ToolsetEntries, prefixes_of
from toolplug.providers.entry_points import Installed
from toolplug.stores.open import open_store

USER_FILE = Path(".config") / "toolplug" / "providers.yaml"
"""Below the user's home: MCP servers for every project of this user (docs/reference/configuration.md)."""


@dataclass(frozen=True, slots=True)
class ConfigFiles:
    """A configuration file, and the user's own, whose servers it may replace; a path to whoever needs one."""

    file: Path
    user: Path | None = None

    def __fspath__(self) -> str:
        return os.fspath(self.file)

    def __str__(self) -> str:
        return str(self.file)


Source = str | os.PathLike[str] | Mapping[str, object]
"""A configuration file, with the user's own beside it or not, or a mapping of the same shape."""


MAPPING_FILE = "<settings>"

_NONE: Mapping[str, str] = MappingProxyType({})
_BY_ENTRY = frozenset({"toolsets", "agents"})
"""Sections whose entries are judged one by one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Configuration:
    """One reading of the configuration, without a problem but for those of its `servers`."""

    source: Source
    settings: HostSettings
    providers: ProviderEntries
    servers: ServerEntries
    toolsets: ToolsetEntries

    @property
    def folder(self) -> Path:
        """Where relative paths of the configuration start: its file's folder; for a mapping the working directory."""
        return Path() if isinstance(self.source, Mapping) else Path(self.source).absolute().parent

    def origin(self, *path: str) -> str:
        """The place of a path, as `explain` shows it; `default` where the file does not have it."""
        return self.providers.origin(path)


def read_configuration(
    source: Source, environ: Mapping[str, str], installed: Installed, coded: Mapping[str, str] = _NONE
) -> Configuration:
    """Read and check everything that can be checked without starting a provider.

    Imports the packages of enabled entries and nothing else. `coded`: the prefixes of the toolsets that the host's code
    registered, by id. Raises `ConfigError` with every problem, in file order; those of MCP servers alone do not keep a
    host from starting, and stand in `servers`.
    """
    problems: list[Problem] = []
    configuration = read_parts(source, environ, installed, problems, coded)
    if problems:
        raise _refusal([*problems, *configuration.servers.problems])
    return configuration


def read_beside_host(source: Source, environ: Mapping[str, str], installed: Installed) -> Configuration:
    """Read and check the configuration for a command that works in a host's store without being that host.

    Toolsets and agents may name what only the host's code registers. Raises `ConfigError` with every other problem, but
    for those of MCP servers.
    """
    problems: list[Problem] = []
    document = document_of(source, problems)
    settings = _settings(document, environ, problems)
    providers = ProviderEntries.read(document, environ, installed, settings, problems)
    if problems:
        raise _refusal(problems)
    servers = ServerEntries.read(document, None, environ)
    toolsets = ToolsetEntries.read(document, settings, (), (), {}, [])
    return Configuration(source=source, settings=settings, providers=providers, servers=servers, toolsets=toolsets)


def _refusal(problems: Sequence[Problem]) -> ConfigError:
    """The error of a configuration: the problems in file order, at most `MAX_PROBLEMS`."""
    return ConfigError(sorted(problems, key=lambda item: (item.line, item.column))[:MAX_PROBLEMS])


def read_parts(
    source: Source,
    environ: Mapping[str, str],
    installed: Installed,
    problems: list[Problem],
    coded: Mapping[str, str] = _NONE,
) -> Configuration:
    """The same, but what is wrong is added to `problems`; the parts that it concerns are left at their defaults.

    Raises `ConfigError` only where the document as a whole cannot be read.
    """
    document = document_of(source, problems)
    settings = _settings(document, environ, problems)
    providers = ProviderEntries.read(document, environ, installed, settings, problems)
    user = source.user if isinstance(source, ConfigFiles) else None
    servers = ServerEntries.read(document, user, environ, prefixes_of(document, settings, coded))
    toolsets = ToolsetEntries.read(document, settings, providers.keys, servers.ids, coded, problems)
    return Configuration(source=source, settings=settings, providers=providers, servers=servers, toolsets=toolsets)


def document_of(source: Source, problems: list[Problem] | None = None) -> Document:
    """The document of a source; raises `ConfigError` for one that cannot be read. `problems`: see `parse_document`."""
    if not isinstance(source, Mapping):
        return read_document(source, problems)
    try:
        text = yaml.safe_dump(dict(source), sort_keys=False, allow_unicode=True)
    except yaml.YAMLError as error:
        reason = str(error).split("\n", 1)[0]
        raise ConfigError([Problem(code="not_plain", message=f"the settings are not plain data: {reason}")]) from None
    return parse_document(text.encode(), file=MAPPING_FILE)


def _settings(document: Document, environ: Mapping[str, str], problems: list[Problem]) -> HostSettings:
    """The sections of the host itself; the defaults where one has problems, so that the rest is checked too."""
    section = _own_sections(document, environ, problems)
    section = read_secret_files(section, HostSettings)
    problems.extend(section.problems)
    try:
        settings = HostSettings.model_validate(section.value)
        if "store" not in settings.model_fields_set:
            _check_default_store(settings, document, problems)
        return settings
    except ValidationError as error:
        problems.extend(problems_of(error, section=section, model=HostSettings, also_known=["providers", SERVERS]))
        return HostSettings.model_validate(without_faults(section.value, error, by_entry=_BY_ENTRY))


def _check_default_store(settings: HostSettings, document: Document, problems: list[Problem]) -> None:
    """Add the problem of a configuration without `store` where the default one needs a package that is missing."""
    try:
        open_store(settings.store)
    except StoreMisused as error:
        problems.append(Problem(code="store_url", message=str(error), file=document.file, path="store"))


def _own_sections(document: Document, environ: Mapping[str, str], problems: list[Problem]) -> Section:
    """Every section but `providers` and `mcp_servers`, expanded; one that this version does not have is a problem."""
    value: dict[str, Value] = {}
    found: list[Section] = []
    for name in document.root.entries:
        if name in ("providers", SERVERS):
            continue
        part = expand(document, (name,), environ)
        value[name] = part.value
        found.append(part)
    return Section(
        document=document,
        path=(),
        value=value,
        problems=tuple(problem for part in found for problem in part.problems),
        broken=frozenset[tuple[str | int, ...]]().union(*(part.broken for part in found)),
        withheld=frozenset[str]().union(*(part.withheld for part in found)),
    )
