"""The running configuration as an operator sees it: the values that apply, and the last reload."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import orjson

from toolplug.catalog.call import OPERATOR, Principal
from toolplug.config.yaml_tree import shown_path
from toolplug.errors import Problem
from toolplug.execution.plans import NO_RULE
from toolplug.host.admin.reload import NOTHING, Reloaded
from toolplug.host.file.provider_entries import SECTION as PROVIDERS
from toolplug.host.file.settings import Auth
from toolplug.host.file.tool_servers import SECTION as SERVERS
from toolplug.host.file.values import ConfiguredValue, ValueChange, configured_values
from toolplug.host.opening.parts import Parts


@dataclass(frozen=True, slots=True, kw_only=True)
class LastReload:
    """The last reload of this process: `at` on the store's clock, and by whom.

    A refused one has `problems`, and nothing else has changed; of an applied one, `changes` are the values that differ
    and `providers` what has become of each.
    """

    at: float
    by: str
    changes: tuple[ValueChange, ...] = ()
    problems: tuple[Problem, ...] = ()
    providers: Reloaded = NOTHING


def running_values(parts: Parts, overrides: Mapping[str, bool], viewer: Principal) -> Iterator[ConfiguredValue]:
    """Yield the values of the configuration as they apply now to the viewer's tenant, and as the viewer may see them.

    `overrides` are the providers that were switched on or off. A value that was set at run time replaces that of the
    file; what has no counterpart in the file comes last.
    """
    changed = {value.path: value for value in _at_run_time(parts, overrides, viewer.tenant)}
    values = [changed.pop(value.path, value) for value in configured_values(parts.configuration)]
    values += changed.values()
    auth = parts.configuration.settings.auth
    yield from values if viewer.has_scope(OPERATOR) else _of_tenant(values, auth, viewer.tenant)


_OF_KEY = re.compile(r"auth\.api_keys\[(\d+)\]\.")
_TENANTS = re.compile(r"\.tools\..+\.tenants(\[\d+\])?")


def _of_tenant(values: Iterable[ConfiguredValue], auth: Auth | None, tenant: str) -> Iterator[ConfiguredValue]:
    """Yield the values that the administrator of one tenant may see: not the keys of other tenants, nor their names."""
    keys = () if auth is None else auth.api_keys
    for value in values:
        key = _OF_KEY.match(value.path)
        foreign = keys[int(key[1])].tenant != tenant if key else _TENANTS.search(value.path) and value.text != tenant
        if not foreign:
            yield value


def _at_run_time(parts: Parts, overrides: Mapping[str, bool], tenant: str) -> Iterator[ConfiguredValue]:
    for key, on in overrides.items():
        origin = f"POST /v1/providers/{key}/{'enable' if on else 'disable'}"
        yield _set((PROVIDERS, key, "enabled"), on, origin)
    configured = parts.configuration.servers.servers
    for view in parts.servers.servers(tenant):
        entry = configured.get(view.id) if view.source == "file" else None
        path, origin = (SERVERS, view.id), f"/api/mcp-servers/{view.id}"
        if entry is None:
            yield _set((*path, "url"), view.transport.get("url", ""), f"POST {origin}")
        if entry is None or entry.enabled != view.enabled:
            yield _set((*path, "enabled"), view.enabled, f"PATCH {origin}" if entry else f"POST {origin}")
        for name, policy in view.tools.items():
            if entry is None or entry.tools.get(name, NO_RULE).policy != policy:
                yield _set((*path, "tools", name), _word(policy), f"PATCH {origin}")
    allowlists = parts.toolsets.tools.allowlists
    for (of, agent), allowlist in allowlists.own.items():
        if of == tenant:
            yield _set(("agents", agent, "toolsets"), list(allowlist.toolsets), f"PUT /api/agents/{agent}/toolsets")
    for name, toolset in parts.toolsets.tools.toolsets.own.get(tenant, {}).items():
        for part, text in (("prefix", toolset.prefix), ("from", toolset.shown)):
            yield _set(("toolsets", name, part), text, f"PUT /api/toolset-bindings/{name}")


def _word(policy: object) -> str:
    return policy if isinstance(policy, str) else "ask the caller"


def _set(path: tuple[str, ...], value: object, origin: str) -> ConfiguredValue:
    text = value if isinstance(value, str) else orjson.dumps(value).decode()
    return ConfiguredValue(path=shown_path(path), text=text, source="runtime", origin=origin)
