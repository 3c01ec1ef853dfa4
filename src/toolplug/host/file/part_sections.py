"""The sections that parts add to the file: the parts that come with toolplug, and those of enabled plugins."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache, lru_cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any, cast

from pydantic import BaseModel, create_model

from toolplug.catalog.call import HOST_SCOPES
from toolplug.config.document import Document
from toolplug.config.yaml_tree import Value
from toolplug.crashes import outline_error
from toolplug.errors import InvalidDefinition, Problem, ProviderError
from toolplug.host.file.provider_entries import SECTION, ProviderEntries
from toolplug.host.file.settings import HostSettings
from toolplug.host.file.tool_servers import SECTION as SERVERS
from toolplug.packages.loading import ProviderType
from toolplug.part_protocols.host_part import HostPart
from toolplug.providers.entry import DesiredProvider, ProviderEntry, ProviderState
from toolplug.providers.routes import OF_PARTS, DeclaredRoutes, is_reserved, route_problems

HOOK = "host_part"

# A plugin that nobody named keeps the others neither from starting nor from ending.
_DEFAULT_RULES: Mapping[str, Value] = {"public_routes": True, "required": False, "limits": {"drain": 0}}

_MODELS = 8
"""Models that are kept: a reload reads a file with the parts that it had before."""


def settings_model(parts: Sequence[HostPart[Any]]) -> type[HostSettings]:
    """Return the model of a file with the sections of these parts, of which each may be absent."""
    return _model(tuple((part.name, part.settings, part.always) for part in parts if part.settings is not None))


@lru_cache(_MODELS)
def _model(sections: tuple[tuple[str, type[BaseModel], bool], ...]) -> type[HostSettings]:
    fields: dict[str, Any] = {
        name: (settings, settings()) if always else (settings | None, None) for name, settings, always in sections
    }
    return create_model(HostSettings.__name__, __base__=HostSettings, __doc__=HostSettings.__doc__, **fields)


BUILT_IN = (
    "toolplug.parts.responses.part",
    "toolplug.parts.approvals.part",
    "toolplug.parts.sessions.part",
    "toolplug.parts.mcp.part",
    "toolplug.parts.credentials.part",
)
"""The modules of the parts of toolplug itself, each with its `PART`, in the order of their routes."""


@cache
def built_in() -> tuple[HostPart[Any], ...]:
    """Return the parts that come with toolplug, in the order of their routes, but for those that are not there."""
    # The folder of a part can be deleted: a host without it has no such section.
    there = [name for name in BUILT_IN if find_spec(name.rpartition(".")[0]) is not None]
    return tuple(import_module(name).PART for name in there)


def foreign_sections(document: Document) -> list[str]:
    """Return the sections of a file that neither the host nor a part of toolplug has, in file order."""
    known = {SECTION, SERVERS, *settings_model(built_in()).model_fields}
    return [name for name in document.root.entries if name not in known]


def with_named_plugins(entries: ProviderEntries, names: Iterable[str], problems: list[Problem]) -> ProviderEntries:
    """Return the entries with the plugins that only a section of these names enables, with default settings.

    A plugin without a part is left out: its section is an unknown key, as without the package.
    """
    added: dict[str, DesiredProvider] = {}
    for name in names:
        if name in entries.loaded or name not in entries.installed.types:
            continue
        found: list[Problem] = []
        plugin = entries.enabled_by_name(name, (name,), f"the section {name!r}", entries.types, found)
        loaded = entries.loaded.get(name)
        if loaded is not None and HOOK not in loaded.type.hooks.names:
            del entries.loaded[name], entries.types[name]
            continue
        problems += found
        if plugin is not None:
            added[name] = plugin
    return replace(entries, wanted={**entries.wanted, **added}) if added else entries


def with_defaults(entries: ProviderEntries, kinds: Mapping[str, Mapping[str, Value]]) -> ProviderEntries:
    """Return the entries with the installed plugins of these types that no entry names, each with its settings.

    Their routes are public. One that cannot be loaded, or has a route of another entry, is left out.
    """
    added: dict[str, DesiredProvider] = {}
    named = {*entries.types, *(found.type for found in entries.types.values()), *entries.coded}
    for kind, settings in kinds.items():
        if kind in named or len(entries.installed.types.get(kind, ())) != 1:
            continue
        plugin = entries.enabled_by_name(kind, (kind,), "the host", named, [], {**_DEFAULT_RULES, **settings})
        declared = [DeclaredRoutes(entry, loaded.routes) for entry, loaded in entries.loaded.values()]
        if plugin is None or kind not in entries.loaded or route_problems(declared):
            entries.loaded.pop(kind, None)
            del entries.types[kind]
        else:
            added[kind] = plugin
    return replace(entries, wanted={**entries.wanted, **added}) if added else entries


def parts_of_plugins(
    entries: ProviderEntries, problems: list[Problem]
) -> tuple[tuple[HostPart[Any], ...], ProviderEntries]:
    """Return the parts of the enabled plugins in file order, and the entries, in which a plugin may have failed by it.

    What is wrong with the part of a plugin that is required is added to `problems`.
    """
    taken = TakenByParts(built_in())
    asked: set[int] = set()  # two entries of one class have one part
    parts: list[HostPart[Any]] = []
    failed: dict[str, ProviderError] = {}
    for key, loaded in entries.loaded.items():
        entry, kind = loaded
        if HOOK not in kind.hooks.names or id(kind.plugin) in asked:
            continue
        asked.add(id(kind.plugin))
        try:
            own = plugin_parts(kind, taken)
        except ProviderError as error:
            failed[key] = error
            continue
        for part in own:
            taken.add(part, f"the part of provider {key!r}")
            parts.append(replace(part, entry=entry))
    return tuple(parts), entries.without(failed, problems)


def part_problems(document: Document, settings: HostSettings, parts: Iterable[HostPart[Any]]) -> Iterator[Problem]:
    """Yield a problem for each text of the `checks` of a part that has its section, and for checks that raise."""
    for part in parts:
        section = part.settings_in(settings)
        if section is None:
            continue
        package = "" if part.entry is None else part.entry.package
        try:
            texts = [str(text) for text in part.checks(section)]
        except BaseException as error:  # noqa: BLE001  the plugin's own code
            texts = [f"its checks raised {outline_error(error, package)}"]
        for text in texts:
            yield document.problem((part.name,), code="part_check", message=text)


def with_free_routes(
    entries: ProviderEntries, parts: Iterable[HostPart[Any]], problems: list[Problem]
) -> ProviderEntries:
    """Return the entries without those that declare a route or mount which is taken, as `route_problems`."""
    declared = (DeclaredRoutes(entry, loaded.routes) for entry, loaded in entries.loaded.values())
    problems += (taken := route_problems(declared, plugin_paths(parts)))
    without = {problem.path.split(".")[1] for problem in taken}  # the path is `providers.KEY` and more
    return replace(entries, wanted={key: each for key, each in entries.wanted.items() if key not in without})


def plugin_paths(parts: Iterable[HostPart[Any]], off: Collection[str] = ()) -> dict[str, ProviderEntry]:
    """Return the paths of the parts of plugins, each with its plugin, which no other provider can have routes at.

    `off`: the keys of those that are switched off.
    """
    owned = [(part, part.entry) for part in parts if part.entry is not None and part.entry.key not in off]
    return {path: entry for part, entry in owned for path in part.paths}


def plugin_parts(kind: ProviderType, taken: TakenByParts | None = None) -> list[HostPart[Any]]:
    """Return the parts of one plugin, all valid. `taken`: what other parts have. Raises `ProviderError`."""
    taken, found = TakenByParts(built_in()) if taken is None else taken, kind.installed
    owner, fix = (found.type, "change the file") if found.file else (found.package, f"update {found.distribution}")
    parts: list[HostPart[Any]] = []
    taken = taken.copy()  # two implementations in one plugin are checked against each other
    try:
        for function in kind.implementing(HOOK):
            parts.append(taken.check_part(function()))
            taken.add(parts[-1], "another part of the same plugin")
    except InvalidDefinition as error:
        raise ProviderError(f"{owner}: {HOOK}() {error}", state=ProviderState.INCOMPATIBLE, fix=fix) from None
    except BaseException as error:
        said = f"{owner}: {HOOK}() raised {outline_error(error, found.module)}"
        raise ProviderError(said, state=ProviderState.INCOMPATIBLE, fix=fix) from error
    return parts


_NAME = re.compile(r"[a-z][a-z0-9_]{0,63}")
_SCOPE = re.compile(r"[a-z][a-z0-9_.-]*(:[a-z0-9_.-]+)+")
_PATH = re.compile(r"(/[a-z0-9_-]+){1,2}")
_SEGMENTS = "one or two segments of a-z 0-9 _ -, as /v1/notes"

_RECORDS = (
    "allowlist",
    "approval",
    "approved",
    "artifact",
    "discovery",
    "provider",
    "queued",
    "readyz",
    "replay",
    "response",
    "session",
    "toolset",
)
"""What keys of the host's own records in the store begin with; those of a part begin with its name."""


class TakenByParts:
    """The names, paths and scopes that a further part cannot have, each with its owner for messages."""

    def __init__(self, parts: Iterable[HostPart[Any]]) -> None:
        # `dir`: a section becomes an attribute of the settings, and one called `copy` would hide a method of pydantic.
        names = (SECTION, SERVERS, *HostSettings.model_fields, *dir(HostSettings), *_RECORDS)
        self._names = dict.fromkeys(names, "the host")
        self._paths: dict[str, str] = {}
        self._scopes: dict[str, str] = dict.fromkeys(map(str, HOST_SCOPES), "the host")
        for part in parts:
            self.add(part, "the host")

    def copy(self) -> TakenByParts:
        """Return another one, to which parts can be added."""
        other = TakenByParts(())
        other._names, other._paths, other._scopes = {**self._names}, {**self._paths}, {**self._scopes}
        return other

    def add(self, part: HostPart[Any], owner: str) -> None:
        self._names[part.name] = owner
        self._paths |= dict.fromkeys(part.paths, owner)
        self._scopes |= dict.fromkeys(part.scopes, owner)

    def check_part(self, given: object) -> HostPart[Any]:
        """Return what a hook has returned. Raises `InvalidDefinition` unless it is a part that a host can have."""
        if not isinstance(given, HostPart):
            raise InvalidDefinition(f"returned {type(given).__name__}; return a HostPart")
        part, name = cast("HostPart[Any]", given), cast("object", given.name)
        if not (isinstance(name, str) and _NAME.fullmatch(name)):
            raise InvalidDefinition(
                f"gives the name {name!r}; a lower-case letter, then up to 63 of a-z 0-9 _ are allowed"
            )
        if name in self._names:
            raise InvalidDefinition(f"gives the name {name!r}, which is taken by {self._names[name]}")
        for what, value in (("open", part.open), ("routes", part.routes), ("checks", part.checks)):
            if not callable(value):
                raise InvalidDefinition(f"gives {value!r} for {what}, which is to be a function")
        self._check_settings(part.settings)
        self._check_lists(part)
        return part

    def _check_settings(self, model: object) -> None:
        if model is None:
            return
        if not (isinstance(model, type) and issubclass(model, BaseModel)):
            raise InvalidDefinition(f"gives {model!r} for settings; give the class of a pydantic model, or None")
        if "extra" not in model.model_config:
            raise InvalidDefinition(
                f"gives settings that ignore unknown keys; write model_config = ConfigDict(extra='forbid') into"
                f" {model.__name__}"
            )

    def _check_lists(self, part: HostPart[Any]) -> None:
        for what in ("paths", "shared", "scopes"):
            value: object = getattr(part, what)
            if not isinstance(value, tuple | list):
                raise InvalidDefinition(f"gives {value!r} for {what}; give a tuple of texts")
        for path in part.paths:
            if not _PATH.fullmatch(path):
                raise InvalidDefinition(f"gives the path {path!r}; give {_SEGMENTS}")
            if (is_reserved(path) and path not in OF_PARTS) or path in self._paths:
                raise InvalidDefinition(f"gives the path {path!r}, which is one of {self._paths.get(path, 'the host')}")
        for path in part.shared:
            if path not in part.paths:
                raise InvalidDefinition(f"shares {path!r}, which is none of its paths")
        for scope in part.scopes:
            if not _SCOPE.fullmatch(scope):
                raise InvalidDefinition(f"gives the scope {scope!r}; write it as {part.name}:read")
            if scope in self._scopes:
                raise InvalidDefinition(f"gives the scope {scope!r}, which is one of {self._scopes[scope]}")
        for text in (*part.commands, *part.commands.values()):
            if not isinstance(cast("object", text), str):
                raise InvalidDefinition(f"gives {text!r} in commands; give the name of each with that of its module")
