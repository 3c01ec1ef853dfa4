"""The parts of a configuration that have metrics worth a panel or a rule."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from toolplug.execution.plans import ToolPolicy
from toolplug.host.file.configuration import Configuration

LIMITING = ("rate", "max_concurrency", "breaker")


@dataclass(frozen=True, slots=True, kw_only=True)
class Monitored:
    """What a configuration has. `sources` are enabled providers and servers as the label `provider` names them.

    `asks` is whether a call may wait for a person, `limits` whether a limit is set, `routed` whether a provider may
    have routes; the others are whether a section is there.
    """

    namespace: str
    providers: Sequence[str]
    servers: Sequence[str]
    asks: bool
    limits: bool
    quotas: bool
    auth: bool
    sessions: bool
    routed: bool

    @property
    def sources(self) -> Sequence[str]:
        """The values of the label `provider`: keys of providers, and `mcp:` with the ids of servers."""
        return (*self.providers, *(f"mcp:{server}" for server in self.servers))


def read_monitored(configuration: Configuration) -> Monitored:
    """Return what a valid configuration has."""
    settings = configuration.settings
    wanted = configuration.providers.wanted
    running = {key: item.entry for key, item in wanted.items() if item.build is not None}
    servers = {name: server for name, server in configuration.servers.servers.items() if server.enabled}
    rules = [rule for part in (*running.values(), *servers.values()) for rule in part.tools.values()]
    policies = [
        *(ToolPolicy(rule.policy) for rule in rules if rule.policy is not None),
        *(ToolPolicy(server.policy) for server in servers.values()),
        *(ToolPolicy(policy) for facts in configuration.facts.values() for policy in facts.policies),
    ]
    limits = [settings.limits, *(toolset.limits for toolset in settings.toolsets.values())]
    limits += [part.limits for part in (*running.values(), *servers.values(), *rules)]
    return Monitored(
        namespace=settings.metrics.namespace,
        providers=tuple(running),
        servers=tuple(servers),
        asks=any(policy.word == "ask" for policy in policies),
        limits=any(getattr(item, name) is not None for item in limits for name in LIMITING),
        quotas=settings.quotas.model_fields_set != set(),
        auth=settings.auth is not None,
        sessions="sessions" in settings.model_fields_set,
        routed=any(
            item.type.routes or "routes" in item.type.unchecked
            for key, item in configuration.providers.loaded.items()
            if key in running
        ),
    )
