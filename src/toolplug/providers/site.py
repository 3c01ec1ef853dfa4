"""The context of a provider: its key, directory, store, and the services of its host."""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, ParamSpec, Protocol, Self, TypeVar
from urllib.parse import quote

from pluggy import PluginManager

from toolplug import library_types
from toolplug.catalog.call import Principal, current_tenant
from toolplug.net.egress import PUBLIC_ONLY, Egress
from toolplug.providers.offering.definitions import ConsolePage
from toolplug.stores.store import Record, Store

S = TypeVar("S")
T = TypeVar("T")
P = ParamSpec("P")


class Services(Protocol):
    """Returns a service of the host by its class: `site.service(SavedToolsets)`."""

    def __call__(self, kind: type[S], /) -> S:
        """Return the host's instance, for calls and requests. Raises `LookupError` if the host has none."""
        ...


def no_services(kind: type[S], /) -> S:
    """Raise `LookupError`: a registry without a host has no services."""
    raise LookupError(f"this provider needs a host that offers {kind.__name__}; a registry without a host has none")


async def list_nowhere() -> None:
    """Do nothing: no registry lists the provider."""


async def no_sealer(purpose: str) -> library_types.Sealer:
    """Raise `LookupError`: a registry without a host has no key."""
    raise LookupError(f"what {purpose} seals needs the key of a host; a registry without a host has none")


Sealing = Callable[[str], Awaitable["library_types.Sealer"]]
"""Returns what seals for a purpose."""

EgressRules = Callable[[], Egress]


class ProviderStore(Protocol):
    """The records of one provider and one tenant; its keys cannot address other records.

    The methods are those of `toolplug.stores.store.Store`, with its errors, and without events.

    ```python
    import asyncio

    from toolplug import CallContext, FunctionProvider, FunctionRegistry, ProviderStore, tool

    class Counter(FunctionProvider):
        async def start(self, site):
            self.site = site

        @tool
        async def count(self, context: CallContext) -> int:
            "Count one more."
            store: ProviderStore = self.site.store(context.principal)
            record = await store.read("count")
            number = 1 if record is None else int(record.value) + 1
            await store.commit("count", str(number).encode(), expected=0 if record is None else record.revision)
            return number

    async def main():
        async with FunctionRegistry([Counter()]) as registry:
            assert [(await registry.call("count")).output for _ in range(2)] == ["1", "2"]

    asyncio.run(main())
    ```
    """

    async def read(self, key: str) -> Record | None:
        """Return the record, or `None`."""
        ...

    async def commit(
        self, key: str, value: bytes | None, *, expected: int | None = None, ttl_s: float | None = None
    ) -> int:
        """Write the record (`None` deletes it) and return its new revision."""
        ...

    async def keys(self, prefix: str = "", *, after: str = "", limit: int = 1000) -> list[str]:
        """Return the keys that begin with `prefix` and follow `after`, in code-point order."""
        ...


class CallHookSwitch:
    """Switches the hooks of one plugin around calls off and on, for calls that begin from then on.

    A plugin that only observes switches them off while it has nobody to show calls to; a call then costs what it does
    without the plugin. They are on at first.
    """

    __slots__ = ("_changed", "on")

    def __init__(self, changed: Callable[[], None] = lambda: None) -> None:
        self.on: bool = True
        self._changed = changed

    def set(self, on: bool) -> None:
        """Switch them on or off."""
        if on is not self.on:
            self.on = on
            self._changed()


class Closing:
    """Set when the plugin is being replaced or stopped.

    An `asyncio.Event`, made with the context: a module that only defines providers does not load asyncio.
    """

    __slots__ = ("_event",)

    def __init__(self) -> None:
        self._event = import_module("asyncio").Event()

    def is_set(self) -> bool:
        """Return whether the plugin is being replaced or stopped."""
        return self._event.is_set()

    def set(self) -> None:
        """Wake everything that waits."""
        self._event.set()

    async def wait(self) -> None:
        """Wait until it is set."""
        await self._event.wait()


def thread_pool(key: str = "provider") -> library_types.FairThreads:
    """Return the pool of a provider, made with its context: a module that only defines providers loads no asyncio."""
    pool: library_types.FairThreads = import_module("toolplug.runtime.threads").FairThreads(f"{key}-work")
    return pool


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderContext:
    """The argument of `start`, valid as long as the provider; any hook but `commands` can have it as `site`.

    `state_dir` is an existing directory of this provider, for all tenants. `store` returns the records of the
    principal's tenant; it is cheap, and the result may be kept. `config_dir` is the base of relative paths in settings:
    the folder of the configuration file; a validator of the provider's Config finds it as `info.context["config_dir"]`.
    `service` returns services of the host, for use in calls and requests: they may not be ready while providers start.
    `egress` is the operator's `egress.allow`, for `checked_transport`; without a host it allows public addresses only.
    `config` are the provider's settings and `log` is its logger, as in `FunctionProvider`. `plugins` lists the plugins
    of the host. `call_hooks` switches the plugin's hooks around calls off and on. `closing` is set when the plugin is
    being replaced or stopped: responses that have no end of their own, such as event streams, should then end.
    `console_pages` returns the pages that plugins offer to a console, with the `mount` of their entries in the paths.
    `threads` is the pool behind `in_thread`, and `sealing` what is behind `sealer`. `changed` publishes the provider's
    record again, and `relist` has its tools, routes and hooks listed again.

    ```python
    import asyncio

    from toolplug import CallContext, FunctionProvider, FunctionRegistry, ProviderContext, tool

    class Notes(FunctionProvider):
        async def start(self, site: ProviderContext) -> None:
            self.site = site

        @tool
        async def set_motto(self, text: str, context: CallContext) -> str:
            "Keep the motto of the caller's tenant."
            await self.site.store(context.principal).commit("motto", text.encode())
            return "kept"

    async def main():
        async with FunctionRegistry([Notes()]) as registry:
            assert (await registry.call("set_motto", text="Write it down.")).output == "kept"

    asyncio.run(main())
    ```
    """

    key: str
    state_dir: Path
    store: Callable[[Principal], ProviderStore]
    config_dir: Path = Path()
    service: Services = no_services
    egress: Egress = PUBLIC_ONLY
    config: Any = None
    log: logging.Logger = field(default_factory=lambda: logging.getLogger("toolplug.providers"))
    plugins: PluginManager = field(default_factory=lambda: PluginManager("toolplug"))
    call_hooks: CallHookSwitch = field(default_factory=CallHookSwitch)
    closing: Closing = field(default_factory=Closing)
    console_pages: Callable[[], Sequence[ConsolePage]] = tuple
    threads: library_types.FairThreads = field(default_factory=thread_pool)
    changed: Callable[[], None] = lambda: None
    relist: Callable[[], Awaitable[None]] = list_nowhere
    sealing: Sealing = no_sealer

    async def sealer(self) -> library_types.Sealer:
        """Return what seals bytes for this provider with the key of the host: no other one opens them.

        Raises `HostKeyError` where the host has no key, and `LookupError` in a registry without a host.
        """
        return await self.sealing(f"provider {self.key}")

    async def in_thread(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call a function that blocks in a thread of this provider's pool, and return its value.

        The pool has eight threads; the tenants that wait get one in turn, and one tenant has at most four. Use it in
        place of `asyncio.to_thread`, whose few threads belong to the whole process. A cancelled caller's function is
        never called if it still waits; give one that may run long a way to stop. Raises what the function raises, and
        `RuntimeError` when 1,024 functions of this tenant wait, or when the provider is closed.
        """
        return await self.threads.run(current_tenant(), partial(function, *args, **kwargs))


_HERE = Path()

SiteFor = Callable[[str], ProviderContext]
"""Returns the context of the provider of a key."""


class ProviderRecords:
    """The records of one provider and one tenant."""

    def __init__(self, store: Store, prefix: str) -> None:
        self._store = store
        self._prefix = prefix

    async def read(self, key: str) -> Record | None:
        """Return the record, or `None`."""
        return await self._store.read(self._prefix + key)

    async def commit(
        self, key: str, value: bytes | None, *, expected: int | None = None, ttl_s: float | None = None
    ) -> int:
        """Write the record (`None` deletes it) and return its new revision."""
        return await self._store.commit(self._prefix + key, value, expected=expected, ttl_s=ttl_s)

    async def keys(self, prefix: str = "", *, after: str = "", limit: int = 1000) -> list[str]:
        """Return the keys that begin with `prefix` and follow `after`, in code-point order."""
        start = self._prefix + after if after else ""
        found = await self._store.keys(self._prefix + prefix, after=start, limit=limit)
        return [key[len(self._prefix) :] for key in found]


def stored_sites(
    store: Callable[[], Store],
    root: Callable[[], Path],
    config_dir: Path = _HERE,
    service: Services = no_services,
    egress: EgressRules = lambda: PUBLIC_ONLY,
    sealing: Sealing = no_sealer,
) -> SiteFor:
    """Return a function that gives providers their context by their keys; store and root are opened when needed."""

    def site_for(key: str) -> ProviderContext:
        state_dir = root() / "providers" / key
        state_dir.mkdir(parents=True, exist_ok=True, mode=0o700)

        def records(principal: Principal) -> ProviderStore:
            # Quoted: a slash in a tenant's name would open the records of another one.
            return ProviderRecords(store(), f"provider/{key}/{quote(principal.tenant, safe='')}/")

        return ProviderContext(
            key=key,
            state_dir=state_dir,
            store=records,
            config_dir=config_dir,
            service=service,
            egress=egress(),
            threads=thread_pool(key),
            sealing=sealing,
        )

    return site_for


class TemporaryRoot:
    """A temporary directory, created when it is first needed, and removed at the end."""

    def __init__(self) -> None:
        self._made: tempfile.TemporaryDirectory[str] | None = None

    def __call__(self) -> Path:
        """Return the directory."""
        if self._made is None:
            self._made = tempfile.TemporaryDirectory(prefix="toolplug-", ignore_cleanup_errors=True)
        return Path(self._made.name)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        made, self._made = self._made, None
        if made is not None:
            made.cleanup()
