"""What an operator changes of a running host, and what he sees of it: the values that apply, and the last reload.

Of several processes of a store, each applies a change to its own configuration file. The volatile record
`~host/switches` has the providers that were switched since the last reload; the first process of all clears it.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from types import MappingProxyType
from typing import NamedTuple, cast

import orjson
from pydantic import TypeAdapter

from toolplug.catalog.call import OPERATOR, Principal
from toolplug.cluster.followed import Follower
from toolplug.cluster.processes import RunningProcess, Topic, running_processes
from toolplug.config.yaml_tree import shown_path
from toolplug.errors import ConfigError, Problem, StoreConflict, StoreError, StoreUnavailable
from toolplug.execution.accounting import audit_block
from toolplug.execution.plans import NO_RULE
from toolplug.host.admin.reload import NOTHING, Reloaded, check_unchangeable, wanted_providers
from toolplug.host.file.configuration import Configuration, with_enabled
from toolplug.host.file.plugin_hooks import hooks_of_plugins
from toolplug.host.file.provider_entries import SECTION as PROVIDERS
from toolplug.host.file.settings import Auth
from toolplug.host.file.tool_servers import SECTION as SERVERS
from toolplug.host.file.values import (
    ConfiguredValue,
    ValueChange,
    configuration_digest,
    configured_values,
    value_changes,
)
from toolplug.host.opening.parts import Parts
from toolplug.host.store_records import hash_key
from toolplug.providers.plugins.registration import specifications
from toolplug.runtime.threads import in_own_thread
from toolplug.stores.store import VOLATILE, Change

ANSWERED_WITHIN_S = 30.0
"""How long a change waits for other processes, which may have providers to start."""

_SWITCHES = f"{VOLATILE}host/switches"
_SWITCH = "switch"
_RELOAD = "reload"
_LOG = logging.getLogger("toolplug.host")


class ProcessReload(NamedTuple):
    """The outcome of a reload in one process; one with problems has changed nothing, or has not answered."""

    done: Reloaded = NOTHING
    problems: tuple[Problem, ...] = ()


_OUTCOME = TypeAdapter(ProcessReload)


class HostAdmin:
    """The changes of one host, one at a time.

    `parts` returns the parts of the entered host, and raises `RuntimeError` once it is left. `read` returns its
    configuration as it is now. `applied` is called with each configuration that a reload has applied. `source_name` is
    that of audit lines.
    """

    def __init__(
        self,
        parts: Callable[[], Parts],
        read: Callable[[], Configuration],
        applied: Callable[[Configuration], None],
        source_name: str,
    ) -> None:
        self._parts = parts
        self._read = read
        self._applied = applied
        self._source_name = source_name
        self.overrides: Mapping[str, bool] = MappingProxyType({})
        self.last_reload: LastReload | None = None
        self._as_read: Configuration  # as `begin` or the last reload has read it, whatever was switched since
        self.changing: asyncio.Lock = asyncio.Lock()

    @property
    def process_names(self) -> tuple[str, ...]:
        """The names of the processes that share the store, this one first. Raises `RuntimeError` if it is left."""
        processes = self._parts().records.processes
        return processes.name, *sorted(processes.others)

    async def begin(self) -> None:
        """Begin with the configuration as it was read, and with what other processes have switched since.

        Opens the last of the host's parts: what other processes ask is answered from now on. Raises `StoreError`.
        """
        self.overrides, self.last_reload = MappingProxyType({}), None
        parts = self._parts()
        self._as_read = parts.configuration
        if parts.records.processes.joined:
            # What an earlier run of the host has switched does not outlive it.
            if not parts.records.processes.others:
                await parts.records.store.commit(_SWITCHES, None)
            follower = Follower(parts.records.store, _SWITCHES, self._hear, self._take_switches)
            parts.life.push_async_callback(follower.aclose)
            await follower.start()
            parts.records.requests.answer(_SWITCH, Topic(self._answer_switch, self._take_switches))
            parts.records.requests.answer(_RELOAD, Topic(self._answer_reload, _nothing))
            await self._describe(parts)
        await parts.life.enter_async_context(parts.records.requests)

    @property
    def process(self) -> str:
        """The name of this process among those of its store."""
        return self._parts().records.processes.name

    async def processes(self) -> Mapping[str, RunningProcess]:
        """Return the processes of a shared store by their names, this one among them; none of one that is not shared.

        Raises `StoreError`.
        """
        parts = self._parts()
        return await running_processes(parts.records.store) if parts.records.store.shared else {}

    async def digest(self) -> str:
        """Return the digest of this host's configuration, to compare with that of a process. Raises `StoreError`."""
        parts = self._parts()
        key = await hash_key(parts.records.store)
        return await in_own_thread(partial(configuration_digest, parts.configuration, key))

    async def switch(self, key: str, on: bool, *, by: Principal, request_id: str) -> None:
        """Start or stop the provider of this key, in every process of the store that has it.

        Raises `NoSuchProvider` and `ConfigError`, and `StoreError` if a process may not have applied it.
        """
        async with self.changing:
            parts = self._parts()
            with audit_block(f"provider.{'enable' if on else 'disable'}", by, request_id, lambda: key):
                # Here first: an entry that cannot run is refused before any other process hears of it.
                await self._apply(parts, {**self.overrides, key: on})
            if parts.records.processes.joined:
                await _write_switch(parts, key, on)
        # Without the lock: each process takes its own to answer, and two that switch at once would wait for each other
        # until the time is up.
        missing = (await parts.records.requests.ask(_SWITCH, None, within_s=ANSWERED_WITHIN_S)).missing
        if missing:
            processes = " and ".join(missing)
            raise StoreUnavailable(f"provider {key!r} is switched, but {processes} did not answer that it is there too")

    async def reload(self, *, by: Principal, request_id: str) -> Reloaded:
        """Read the configuration and apply it. Raises `ConfigError`; then nothing has changed.

        What was switched is as in the file again, in every process. Raises `StoreError` if that cannot be stored.
        """
        async with self.changing:
            parts = self._parts()
            # First, so that a file that is refused leaves what was switched as it is.
            done = await self._reload(parts, by, request_id)
            if parts.records.processes.joined:
                await parts.records.store.commit(_SWITCHES, None)
            return done

    async def reload_others(self, *, by: Principal) -> Mapping[str, ProcessReload]:
        """Let every other process of the store read its own configuration, and return what has become of each, by name.

        Raises `StoreError`.
        """
        answers = await self._parts().records.requests.ask(_RELOAD, by.subject, within_s=ANSWERED_WITHIN_S)
        given = {process: _OUTCOME.validate_python(answer) for process, answer in answers.given.items()}
        message = f"the process has not answered within {ANSWERED_WITHIN_S:g} s; it reloads when it can"
        late = Problem(code="no_answer", message=message, hint="look at its log, or reload again")
        return {**given, **dict.fromkeys(answers.missing, ProcessReload(problems=(late,)))}

    async def _apply(self, parts: Parts, overrides: Mapping[str, bool]) -> None:
        plugins = parts.registry.plugins
        on = [key for key, switched in overrides.items() if switched]
        read = partial(with_enabled, self._as_read, on, specifications(plugins))
        configuration = await in_own_thread(read)
        wanted = wanted_providers(configuration, overrides)
        off = overrides.keys() - on
        plugins.specify(hooks_of_plugins(configuration.providers))
        async with parts.running.opening(configuration, off):
            await parts.registry.apply(wanted, configuration.plugin_paths(off))
            parts.current.configuration = configuration
            await parts.running.configure(configuration, off)
        parts.toolsets.plugins_changed()
        self.overrides = MappingProxyType({**overrides})

    async def _reload(self, parts: Parts, by: Principal, request_id: str) -> Reloaded:
        before, was = parts.registry.running(), parts.configuration
        report = LastReload(at=parts.records.store.now(), by=by.subject)
        try:
            with audit_block("config.reload", by, request_id, lambda: self._source_name), parts.operations.reloading():
                configuration = await in_own_thread(self._read)
                check_unchangeable(was, configuration)
                await self._apply_file(parts, configuration)
        except ConfigError as error:
            self.last_reload = replace(report, problems=tuple(error.problems))
            raise
        except StoreError as error:
            problem = Problem(code="store_unavailable", message=str(error), hint="reload again")
            self.last_reload = replace(report, problems=(problem,))
            raise
        after = parts.registry.running()
        # The same generation: an entry that has not changed keeps its instance.
        kept = tuple(key for key in after if before.get(key) is after[key])
        started = tuple(key for key in after if key not in kept)
        done = Reloaded(started, kept, tuple(key for key in before if key not in after))
        changes = await in_own_thread(partial(value_changes, was, configuration))
        self.last_reload = replace(report, changes=changes, providers=done)
        await self._describe(parts)
        return done

    async def _apply_file(self, parts: Parts, configuration: Configuration) -> None:
        parts.registry.plugins.specify(hooks_of_plugins(configuration.providers))
        # Opened first: a part that cannot be opened refuses the reload before anything has changed.
        async with parts.running.opening(configuration):
            await parts.registry.apply(wanted_providers(configuration, {}), configuration.plugin_paths())
            self.overrides, self._as_read = MappingProxyType({}), configuration
            await parts.configure(configuration)
        self._applied(configuration)

    async def _describe(self, parts: Parts) -> None:
        """Let the lease say which configuration this process runs."""
        if parts.records.processes.joined:
            try:
                await parts.records.processes.describe(config=await self.digest())
            except StoreError as error:
                _LOG.warning("other processes do not hear which configuration this one runs: %s", error)

    async def _answer_reload(self, by: object) -> object:
        async with self.changing:
            try:
                outcome = ProcessReload(done=await self._reload(self._parts(), Principal(str(by)), ""))
            except ConfigError as error:
                _LOG.error("the configuration is not reloaded as %r asked another process: %s", by, error)
                outcome = ProcessReload(problems=tuple(error.problems))
            return _OUTCOME.dump_python(outcome, mode="json")

    async def _answer_switch(self, about: object) -> None:
        await self._take_switches()

    async def _hear(self, change: Change) -> None:
        await self._take_switches()

    async def _take_switches(self) -> None:
        """Switch providers as other processes have; those that this configuration does not have are left out."""
        async with self.changing:
            parts = self._parts()
            record = await parts.records.store.read(_SWITCHES)
            switches = {} if record is None else _switches(record.value)
            known = parts.configuration.providers.wanted
            overrides = {key: on for key, on in switches.items() if key in known}
            if overrides != self.overrides:
                try:
                    await self._apply(parts, overrides)
                except ConfigError as error:
                    _LOG.error("providers are not switched as another process was asked to: %s", error)


async def _nothing() -> None:
    """Miss no reload: a process that begins, or whose lease had lapsed, finds the requests that are left."""


async def _write_switch(parts: Parts, key: str, on: bool) -> None:
    while True:
        record = await parts.records.store.read(_SWITCHES)
        switches = {} if record is None else _switches(record.value)
        value = orjson.dumps({**switches, key: on})
        try:
            await parts.records.store.commit(_SWITCHES, value, expected=0 if record is None else record.revision)
        # Another process has written in between, so that one of the two makes progress in each round.
        except StoreConflict:
            continue
        return


def _switches(value: bytes) -> dict[str, bool]:
    return cast("dict[str, bool]", orjson.loads(value))


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
