"""Reloading a host: what changes in place, what needs a restart, and the difference that `toolplug diff` shows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from toolplug.catalog.access import TenantsGate
from toolplug.catalog.catalog import Catalog, CatalogDiff, merged
from toolplug.catalog.plan import Tool
from toolplug.errors import ConfigError, Problem, ProviderError
from toolplug.execution.limits import SourceSwitch
from toolplug.execution.plans import CallServices
from toolplug.execution.task_runner import ThreadRunner
from toolplug.host.file.configuration import Configuration
from toolplug.host.file.settings import HostSettings
from toolplug.providers.entry import DesiredProvider, ProviderEntry
from toolplug.providers.lifecycle import called
from toolplug.providers.planning import planned_tools

# What a reload with another file would do, without doing it: for `toolplug diff`.
#
# Providers are compared as a reload compares them: an entry that is equal keeps its instance. The tools of those that
# are not are taken from instances that are built and not started; what a provider can only tell once it runs is left
# out, and its key named in `unknown`.

UNCHANGEABLE = ("store", "metrics")
"""Sections that a reload refuses to change."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """Providers by key, tools by name, sections of the host by name.

    `modified` tools have another definition; `replanned` ones the same with other rules around the call. `restart`
    names the sections for which a reload is refused.
    """

    started: tuple[str, ...] = ()
    stopped: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()
    tools: CatalogDiff
    replanned: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()
    sections: tuple[str, ...] = ()
    restart: tuple[str, ...] = ()


def difference(old: Configuration, new: Configuration) -> Difference:
    """Compare two configurations, both read without a problem."""
    before, after = _running(old), _running(new)
    kept = tuple(key for key in after if key in before and before[key].entry == after[key].entry)
    unknown: dict[str, None] = {}
    parts = _catalogs(before, unknown), _catalogs(after, unknown)
    was, will = (merged(part for key, part in side.items() if key not in unknown)[0] for side in parts)
    tools = was.diff(will)
    sections = tuple(
        name for name in HostSettings.model_fields if getattr(old.settings, name) != getattr(new.settings, name)
    )
    return Difference(
        started=tuple(key for key in after if key not in before),
        stopped=tuple(key for key in before if key not in after),
        changed=tuple(key for key in after if key in before and key not in kept),
        kept=kept,
        tools=tools,
        replanned=tuple(_replanned(was, will, tools)),
        unknown=tuple(unknown),
        sections=sections,
        restart=tuple(name for name in sections if name in UNCHANGEABLE),
    )


def _running(configuration: Configuration) -> dict[str, DesiredProvider]:
    return {key: item for key, item in configuration.providers.wanted.items() if item.build is not None}


def _catalogs(providers: Mapping[str, DesiredProvider], unknown: dict[str, None]) -> dict[str, Catalog]:
    """The tools of each provider that tells them before it runs; the keys of the others are noted."""
    services = CallServices()
    found: dict[str, Catalog] = {}
    for key, wanted in providers.items():
        try:
            found[key] = Catalog(_tools(wanted, services))
        except ProviderError:
            unknown[key] = None
    return found


def _tools(wanted: DesiredProvider, services: CallServices) -> list[Tool]:
    entry: ProviderEntry = wanted.entry
    if wanted.build is None:
        return []
    provider = called(entry, "its constructor", wanted.build)
    return planned_tools(entry, provider, services, SourceSwitch(), ThreadRunner(entry.key))


def _replanned(was: Catalog, will: Catalog, tools: CatalogDiff) -> Iterator[str]:
    for name, tool in will.items():
        if name in was and name not in tools.modified and _rules(tool) != _rules(was[name]):
            yield name


def _rules(tool: Tool) -> list[object]:
    """What holds around the call, without where it was said."""
    tenants = [gate.tenants for gate in tool.plan.gates if isinstance(gate, TenantsGate)]
    return [*tenants, *((item.knob, item.value) for item in tool.plan.settings)]


class Reloaded(NamedTuple):
    """What a reload did, by provider key: a changed provider is `started` anew."""

    started: tuple[str, ...]
    kept: tuple[str, ...]
    stopped: tuple[str, ...]


def wanted_providers(configuration: Configuration, overrides: Mapping[str, bool]) -> list[DesiredProvider]:
    """The providers as the file says, but for those that were switched since (key to on or off).

    Raises `NoSuchProvider` for a key that the file does not have, and `ConfigError` for an entry that cannot be on.
    """
    entries = configuration.providers
    for key in overrides:
        entries.check_known(key)
    wanted: list[DesiredProvider] = []
    for key, item in entries.wanted.items():
        on = overrides.get(key)
        if on is None:
            wanted.append(item)
        elif on:
            wanted.append(entries.switched_on(key))
        else:
            fix = f"POST /v1/providers/{key}/enable, or reload"
            wanted.append(entries.switched_off(key, "switched off while running", fix))
    return wanted


def check_unchangeable(old: Configuration, new: Configuration) -> None:
    """Raise `ConfigError` for what a running host cannot change: where it stores, and how its metrics are named.

    Nor can it begin to count what is stored: what is there already would not count.
    """
    problems = [
        Problem(code="needs_restart", message="cannot change while the host runs", path=name, hint="restart the host")
        for name in ("store", "metrics")
        if getattr(old.settings, name) != getattr(new.settings, name)
    ]
    if new.settings.quotas.sets("stored_bytes") and not old.settings.quotas.sets("stored_bytes"):
        message = "cannot begin to count stored bytes while the host runs"
        problems.append(Problem(code="needs_restart", message=message, path="quotas", hint="restart the host"))
    if problems:
        raise ConfigError(problems)
