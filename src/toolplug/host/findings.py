"""What is wrong with a configuration and the packages behind it, and what is doubtful: for `toolplug doctor`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from toolplug.catalog.call import Principal
from toolplug.catalog.render import described
from toolplug.config.nearest import name_hint
from toolplug.errors import Problem
from toolplug.host.host import Host
from toolplug.host.toolsets.long_notes import MAX_DESCRIPTION, long_notes
from toolplug.providers.entry_points import Installed
from toolplug.providers.state import ProviderRecord, ProviderState

_WRONG = frozenset(
    {
        ProviderState.IMPORT_FAILED,
        ProviderState.CONFIG_INVALID,
        ProviderState.START_FAILED,
        ProviderState.INCOMPATIBLE,
    }
)


class Findings(NamedTuple):
    """`wrong` keeps something from working; `doubtful` is worth a look."""

    wrong: tuple[Problem, ...] = ()
    doubtful: tuple[Problem, ...] = ()


async def findings(host: Host, installed: Installed, problems: Sequence[Problem]) -> Findings:
    """Look through an entered host; `problems` of its configuration are those that would keep one from starting."""
    said = {item.path.partition("[")[0] for item in problems}
    wrong = [
        *problems,
        *host.wrong_servers,
        *(_failure(record) for record in host.records() if record.state in _WRONG and not _is_said(record, said)),
        *(Problem(code="not_ready", message=reason) for reason in await host.ready()),
    ]
    doubtful = [
        *installed.problems,
        *_doubled(installed),
        *(_failure(record) for record in host.records() if record.state is ProviderState.SHADOWED),
        *_conflicts(host),
        *_long_descriptions(host),
        *_failed_servers(host),
        *await long_notes(host.store),
    ]
    return Findings(tuple(wrong), tuple(doubtful))


def _is_said(record: ProviderRecord, paths: set[str]) -> bool:
    root = f"providers.{record.key}"
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
                message = f"its tool {tool.name!r} has changed, and is in quarantine"
                hint = f"look at it, then: toolplug discover {view.id} --accept {tool.name}"
                yield Problem(code="quarantined", message=message, path=path, hint=hint)
