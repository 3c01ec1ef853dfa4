"""The keys of `auth.api_keys`, checked against the scopes and agents that there are."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from toolplug.config.document import Document
from toolplug.config.nearest import name_hint
from toolplug.config.yaml_tree import KeyPath
from toolplug.errors import Problem
from toolplug.host.file.provider_entries import ProviderEntries
from toolplug.host.file.settings import HOST_SCOPES, HostSettings
from toolplug.providers.entry import ProviderState


def key_problems(
    document: Document, settings: HostSettings, providers: ProviderEntries, coded_agents: Collection[str]
) -> Iterator[Problem]:
    """Yield a problem for each scope that nothing asks for, and each agent that is not configured.

    A misspelt one fails closed, and so would be found by its holder only. `coded_agents` are those that the host's code
    names.
    """
    if settings.auth is None:
        return
    scopes, agents = _known_scopes(providers), [*document.keys(("agents",)), *coded_agents]
    for index, key in enumerate(settings.auth.api_keys):
        path: KeyPath = ("auth", "api_keys", index)
        for number, scope in enumerate(key.scopes if scopes is not None else ()):
            if scope not in (scopes or ()):
                message = f"neither the host nor a route of an enabled provider asks for the scope {scope!r}"
                hint = name_hint(scope, scopes or ())
                yield document.problem((*path, "scopes", number), code="unknown_scope", message=message, hint=hint)
        for number, agent in enumerate(key.agents or ()):
            if agent not in agents:
                message = f"there is no agent {agent!r} under agents"
                hint = name_hint(agent, agents) or f"add it: agents: {{{agent}: {{toolsets: []}}}}"
                yield document.problem((*path, "agents", number), code="unknown_agent", message=message, hint=hint)


def _known_scopes(providers: ProviderEntries) -> Collection[str] | None:
    """Return the scopes that the host and the routes of enabled providers ask for.

    None if they are not known: of a provider that could not be read, and of one that a function makes at the start.
    """
    known = [*HOST_SCOPES]
    for key in providers.keys:
        wanted = providers.wanted.get(key)
        if wanted is not None and wanted.record is not None and wanted.record.state is ProviderState.DISABLED:
            continue
        if wanted is None or wanted.scopes is None:
            return None
        known += sorted(wanted.scopes)
    return known
