"""Inspecting a configuration: hosts that start only what they can, and the findings of `toolplug doctor`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from toolplug.catalog.call import Principal
from toolplug.catalog.definition import Note
from toolplug.catalog.render import described, notes_section
from toolplug.config.nearest import name_hint
from toolplug.errors import Problem
from toolplug.host.file.configuration import Configuration, Source, read_configuration, read_parts
from toolplug.host.host import Host
from toolplug.host.lint import configuration_warnings, metric_warnings, tool_warnings
from toolplug.providers.entry import DesiredProvider, ProviderEntry, ProviderRecord, ProviderState, recorded
from toolplug.providers.entry_points import Installed
from toolplug.stores.store import Store
from toolplug.toolsets.saved.saved_records import SavedRecords

MAX_DESCRIPTION = 1024
"""Some model APIs refuse a longer description of a tool."""

_JOINT = 2


async def long_notes(store: Store) -> list[Problem]:
    """One for each tool of each saved toolset whose description and notes together are too long.

    The description counts as long as it was when a note was last added. Raises `StoreError`.
    """
    found: list[Problem] = []
    async for toolset in SavedRecords(store).every():
        for item in toolset.notes:
            section = notes_section([Note(note.name, note.text) for note in item.notes])
            length = len(section) + (item.description_length + _JOINT if item.description_length else 0)
            if length > MAX_DESCRIPTION:
                message = f"with its notes the description of {item.tool!r} has {length} characters"
                hint = f"some model APIs refuse more than {MAX_DESCRIPTION}; shorten the notes, or remove some"
                found.append(
                    Problem(code="long_notes", message=message, path=f"saved toolset {toolset.name}", hint=hint)
                )
    return found


_WRONG = frozenset(
    {
        ProviderState.IMPORT_FAILED,
        ProviderState.CONFIG_INVALID,
        ProviderState.START_FAILED,
        ProviderState.INCOMPATIBLE,
    }
)


class Findings(NamedTuple):
    """`errors` keep something from working; `warnings` are worth a look."""

    errors: tuple[Problem, ...] = ()
    warnings: tuple[Problem, ...] = ()


async def findings(host: Host, installed: Installed, problems: Sequence[Problem]) -> Findings:
    """Look through an entered host; `problems` of its configuration are those that would keep one from starting."""
    said = {item.path.partition("[")[0] for item in problems}
    errors = [
        *problems,
        *host.wrong_servers,
        *(failure for key, failure in failures(host) if not _is_said(key, said)),
        *(Problem(code="not_ready", message=f"{part}: {reason}") for part, reason in await host.ready()),
    ]
    warnings = [
        *installed.problems,
        *_doubled(installed),
        *(_failure(record) for record in host.records() if record.state is ProviderState.SHADOWED),
        *_conflicts(host),
        *_long_descriptions(host),
        *tool_warnings(host),
        *await metric_warnings(host),
        *_failed_servers(host),
        *await long_notes(host.store),
    ]
    return Findings(tuple(errors), tuple(warnings))


def failures(host: Host) -> Iterator[tuple[str, Problem]]:
    """The providers of an entered host that are on and do not run, by key."""
    found = host.registry.failures()
    for record in host.records():
        if record.state in _WRONG:
            yield record.key, found.get(record.key) or _failure(record)


def tolerated_failures(configuration: Configuration) -> list[Problem]:
    """What keeps providers with `required: false` from running, as far as it is known before a start."""
    failed: list[Problem] = []
    for key, item in configuration.providers.wanted.items():
        loaded = configuration.providers.loaded.get(key)
        if loaded is not None and not item.entry.required:
            failed.extend(loaded.wrong_rules())
        elif item.record is not None and item.record.state in _WRONG:
            failed.append(_failure(item.record))
    return failed


def _is_said(key: str, paths: set[str]) -> bool:
    root = f"providers.{key}"
    return any(path == root or path.startswith(f"{root}.") for path in paths)


def _failure(record: ProviderRecord) -> Problem:
    return Problem(
        code=record.state.replace("-", "_"), message=record.reason, path=f"providers.{record.key}", hint=record.fix
    )


def _doubled(installed: Installed) -> Iterator[Problem]:
    for name, packages in installed.types.items():
        if len(packages) > 1:
            owners = " and ".join(item.package for item in packages)
            message = f"provider type {name!r} comes from {owners}; no configuration can name it"
            yield Problem(code="two_distributions", message=message, hint="uninstall one of them")


def _conflicts(host: Host) -> Iterator[Problem]:
    catalog = host.registry.catalog
    for key, generation in host.registry.running().items():
        for name in generation.catalog:
            winner = catalog[name].definition.ref.source if name in catalog else key
            if winner != key:
                message = f"its tool {name!r} is not listed: provider {winner!r} comes first and has it already"
                hint = f"disable the tool in one of them: tools: {{{name}: disable}}"
                yield Problem(code="conflict", message=message, path=f"providers.{key}", hint=hint)


def _long_descriptions(host: Host) -> Iterator[Problem]:
    for definition in host.registry.catalog.definitions():
        length = len(described(definition))
        if length > MAX_DESCRIPTION:
            message = f"the description of the tool {definition.name!r} has {length} characters"
            hint = f"some model APIs refuse more than {MAX_DESCRIPTION}"
            yield Problem(
                code="long_description", message=message, path=f"providers.{definition.ref.source}", hint=hint
            )


def _failed_servers(host: Host) -> Iterator[Problem]:
    """MCP servers whose last discovery failed, tools of theirs in quarantine, and rules for tools that they lack."""
    for view in host.servers.servers(Principal().tenant):
        record, path = view.record, f"mcp_servers.{view.id}"
        if record.status == "failed":
            hint = f"toolplug discover {view.id} tries it again"
            yield Problem(code="discovery_failed", message=record.error or "its discovery failed", path=path, hint=hint)
        for name in view.unmatched:
            message = f"there is a rule for {name!r}, and the server has no tool of this name"
            hint = name_hint(name, [tool.name for tool in record.tools])
            yield Problem(code="unmatched_rule", message=message, path=f"{path}.tools", hint=hint)
        for tool in record.tools:
            if tool.quarantined:
                message = f"its tool {tool.name!r} is new or has changed, and is in quarantine"
                hint = f"look at it, then: toolplug discover {view.id} --accept {tool.name}"
                yield Problem(code="quarantined", message=message, path=path, hint=hint)


_REASON = "this command starts no provider"


def open_servers_only(config: Source, problems: list[Problem], *, environ: Mapping[str, str] | None = None) -> Host:
    """A host like that of `open_host`, beside the process that serves, which starts no provider.

    What is wrong with entries of `mcp_servers` is added to `problems` when it is entered; it runs without them. Every
    other problem is raised as `ConfigError`.
    """

    def read(
        source: Source, environ: Mapping[str, str], installed: Installed, coded: Mapping[str, str]
    ) -> Configuration:
        configuration = read_configuration(source, environ, installed, coded)
        problems.extend(configuration.servers.problems)
        entries = configuration.providers
        off = {key: entries.switched_off(key, _REASON, "") for key in entries.wanted}
        return replace(configuration, providers=replace(entries, wanted=off))

    return Host(config, environ, read, serving=False)


_STATES = {
    "import_failed": ProviderState.IMPORT_FAILED,
    "incompatible": ProviderState.INCOMPATIBLE,
}


def open_inspected(
    config: Source,
    problems: list[Problem],
    *,
    warnings: list[Problem] | None = None,
    environ: Mapping[str, str] | None = None,
) -> Host:
    """A host like that of `open_host`, in which every provider ends in a state and none stops the others.

    What would stop a start is added to `problems` when the host is entered, but for providers that fail to start: their
    records say so. `Host.wrong_servers` are no part of it. `warnings` gets those about the configuration.
    Entering raises `ConfigError` only for a document that cannot be read at all.
    """

    def read(
        source: Source, environ: Mapping[str, str], installed: Installed, coded: Mapping[str, str]
    ) -> Configuration:
        found: list[Problem] = []
        configuration = read_parts(source, environ, installed, found, coded)
        problems.extend(sorted(found, key=lambda item: (item.line, item.column)))
        if warnings is not None:
            warnings.extend(configuration_warnings(configuration))
        return _tolerant(configuration, found)

    return Host(config, environ, read, serving=False)


def _tolerant(configuration: Configuration, problems: list[Problem]) -> Configuration:
    """Every entry of the file in its order: the wrong ones as records, the others free to fail at their start."""
    entries = configuration.providers
    wanted: dict[str, DesiredProvider] = {}
    for key in entries.keys:
        item = entries.wanted.get(key)
        if item is None:
            wanted[key] = _refused(configuration, key, problems)
        else:
            wanted[key] = item._replace(inspected=True)
    return replace(configuration, providers=replace(entries, wanted=wanted))


def _refused(configuration: Configuration, key: str, problems: list[Problem]) -> DesiredProvider:
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
    return DesiredProvider(entry, None, recorded(entry, state, reason, mine[0].hint if mine else ""))
