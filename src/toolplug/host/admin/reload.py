"""Reloading a host: what changes in place, what needs a restart, and the difference that `toolplug diff` shows.

Providers are compared as a reload compares them: one with an equal entry keeps its instance. The tools of the others
are taken from instances that are built, not started; a provider that lists its tools only while it runs is `unknown`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from toolplug.catalog.catalog import Catalog, CatalogDiff, merged
from toolplug.catalog.plan import TenantsGate, Tool
from toolplug.errors import ConfigError, Problem, ProviderError
from toolplug.execution.limiters import SourceSwitch
from toolplug.execution.plans import CallServices
from toolplug.execution.task_runner import ThreadRunner
from toolplug.host.file.configuration import Configuration
from toolplug.host.file.settings import changed_sections
from toolplug.providers.entry import DesiredProvider
from toolplug.providers.lifecycle import run_step
from toolplug.providers.planning import planned_tools

UNCHANGEABLE = ("store", "metrics")
"""Sections that a reload refuses to change."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigurationDifference:
    """The difference of two configurations: keys of providers, names of tools, names of sections.

    Modified `tools` have another definition; `replanned` ones only other rules for the call. `restart` names the
    changed sections for which a reload is refused.
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


def difference(old: Configuration, new: Configuration) -> ConfigurationDifference:
    """Return the difference of two valid configurations, without starting anything."""
    before, after = _running(old), _running(new)
    kept = tuple(key for key in after if key in before and before[key].entry == after[key].entry)
    unknown: dict[str, None] = {}
    parts = _catalogs(before, unknown), _catalogs(after, unknown)
    was, will = (merged(part for key, part in side.items() if key not in unknown)[0] for side in parts)
    tools = was.diff(will)
    sections = changed_sections(old.settings, new.settings)
    return ConfigurationDifference(
        started=tuple(key for key in after if key not in before),
        stopped=tuple(key for key in before if key not in after),
        changed=tuple(key for key in after if key in before and key not in kept),
        kept=kept,
        tools=tools,
        replanned=_find_replanned(was, will, tools),
        unknown=tuple(unknown),
        sections=sections,
        restart=tuple(name for name in sections if name in UNCHANGEABLE),
    )


def _find_replanned(was: Catalog, will: Catalog, tools: CatalogDiff) -> tuple[str, ...]:
    """Return the names of tools with the same definition and other rules."""
    return tuple(
        name
        for name, tool in will.items()
        if name in was and name not in tools.modified and _rules(tool) != _rules(was[name])
    )


def _running(configuration: Configuration) -> dict[str, DesiredProvider]:
    return {key: item for key, item in configuration.providers.wanted.items() if item.build is not None}


def _catalogs(providers: Mapping[str, DesiredProvider], unknown: dict[str, None]) -> dict[str, Catalog]:
    """Return the tools of each provider by key; keys of those that cannot list them are added to `unknown`."""
    services = CallServices()
    found: dict[str, Catalog] = {}
    for key, (entry, build, *_) in providers.items():
        if build is not None:
            try:
                provider = run_step(entry, "its constructor", build)
                tools = planned_tools(entry, provider, services, SourceSwitch(), ThreadRunner(key))
            except ProviderError:
                unknown[key] = None
            else:
                found[key] = Catalog(tools)
    return found


def _rules(tool: Tool) -> list[object]:
    """Return the rules of the call without their origins."""
    tenants = [gate.tenants for gate in tool.plan.gates if isinstance(gate, TenantsGate)]
    return [*tenants, *((item.name, item.value) for item in tool.plan.settings)]


class Reloaded(NamedTuple):
    """The outcome of a reload, by provider key; a changed provider counts as `started`."""

    started: tuple[str, ...]
    kept: tuple[str, ...]
    stopped: tuple[str, ...]


NOTHING = Reloaded((), (), ())


def wanted_providers(configuration: Configuration, overrides: Mapping[str, bool]) -> list[DesiredProvider]:
    """Return the providers of a configuration, without those that were switched off since by `overrides`.

    Raises `NoSuchProvider` for a key that the file does not have.
    """
    entries = configuration.providers
    for key in overrides:
        entries.check_known(key)
    return [
        item
        if overrides.get(key, True)
        else entries.switched_off(key, "switched off while running", f"POST /v1/providers/{key}/enable, or reload")
        for key, item in entries.wanted.items()
    ]


def check_unchangeable(old: Configuration, new: Configuration) -> None:
    """Raise `ConfigError` for changes that need a restart: of the store, and of the names of metrics.

    A first quota on stored bytes needs one too, since bytes that are stored already were not counted.
    """
    problems = [
        Problem(code="needs_restart", message="cannot change while the host runs", path=name, hint="restart the host")
        for name in UNCHANGEABLE
        if getattr(old.settings, name) != getattr(new.settings, name)
    ]
    if new.settings.quotas.sets("stored_bytes") and not old.settings.quotas.sets("stored_bytes"):
        message = "cannot begin to count stored bytes while the host runs"
        problems.append(Problem(code="needs_restart", message=message, path="quotas", hint="restart the host"))
    if problems:
        raise ConfigError(problems)
