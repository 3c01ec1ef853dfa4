"""What an operator changes of a running host: providers that are switched on or off, and reloads."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from types import MappingProxyType

from toolplug.catalog.call import Principal
from toolplug.errors import ConfigError
from toolplug.execution.accounting import audited
from toolplug.host.admin.configured import LastReload
from toolplug.host.admin.reload import Reloaded, check_unchangeable, wanted_providers
from toolplug.host.file.configuration import Configuration
from toolplug.host.file.values import value_changes
from toolplug.host.parts import Parts
from toolplug.runtime.threads import in_own_thread


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
        self._overrides: Mapping[str, bool] = MappingProxyType({})
        self._last_reload: LastReload | None = None
        self.changing: asyncio.Lock = asyncio.Lock()

    @property
    def overrides(self) -> Mapping[str, bool]:
        """The providers that were switched on or off since the last reload, by key."""
        return self._overrides

    @property
    def last_reload(self) -> LastReload | None:
        """The last reload since the host was entered, also one that was refused."""
        return self._last_reload

    def begin(self) -> None:
        """Begin with the configuration as it is read: no provider is switched."""
        self._overrides, self._last_reload = MappingProxyType({}), None

    async def switch(self, key: str, on: bool, *, by: Principal, request_id: str) -> None:
        """Start or stop the provider of this key. Raises `NoSuchProvider` and `ConfigError`."""
        async with self.changing:
            parts = self._parts()
            with audited(f"provider.{'enable' if on else 'disable'}", by, request_id, lambda: key):
                overrides = MappingProxyType({**self._overrides, key: on})
                wanted = await in_own_thread(partial(wanted_providers, parts.configuration, overrides))
                await parts.registry.apply(wanted)
                parts.toolsets.plugins_changed()
                self._overrides = overrides

    async def reload(self, *, by: Principal, request_id: str) -> Reloaded:
        """Read the configuration and apply it. Raises `ConfigError`; then nothing has changed."""
        async with self.changing:
            parts = self._parts()
            before, was = parts.registry.running(), parts.configuration
            report = LastReload(at=parts.store.now(), by=by.subject)
            try:
                with audited("config.reload", by, request_id, lambda: self._source_name), parts.operations.reloading():
                    configuration = await in_own_thread(self._read)
                    check_unchangeable(was, configuration)
                    await parts.registry.apply(wanted_providers(configuration, {}))
                    self._overrides = MappingProxyType({})
                    parts.configure(configuration)
                    self._applied(configuration)
            except ConfigError as error:
                self._last_reload = replace(report, problems=tuple(error.problems))
                raise
            after = parts.registry.running()
            kept = tuple(key for key in after if before.get(key) is after[key])
            started = tuple(key for key in after if key not in kept)
            done = Reloaded(started, kept, tuple(key for key in before if key not in after))
            changes = await in_own_thread(partial(value_changes, was, configuration))
            self._last_reload = replace(report, changes=changes, providers=done)
            return done
