"""What an operator asks of one process of a shared store, and all do: providers switched on or off, and a reload.

Two volatile records: `~host/switches` has the providers that were enabled or disabled since the last reload, and
`~host/reload` changes with each reload that was asked for over HTTP. Each process applies both to its own file.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from types import TracebackType
from typing import Self, cast

import orjson

from toolplug.errors import StoreConflict
from toolplug.stores.followed import Follower
from toolplug.stores.processes import Processes
from toolplug.stores.store import VOLATILE, Change, Store

_PREFIX = f"{VOLATILE}host/"
_SWITCHES = f"{_PREFIX}switches"
_RELOAD = f"{_PREFIX}reload"
_RELOAD_KEPT_S = 60.0


class HostPeers:
    """The other hosts on a shared store; used inside `async with`.

    `switch` is called with all switches that differ from the file, `reload` with the name of who asked for it. Both
    are called also for what this process has asked for, and must not raise.
    """

    def __init__(
        self,
        store: Store,
        processes: Processes,
        switch: Callable[[Mapping[str, bool]], Awaitable[None]],
        reload: Callable[[str], Awaitable[None]],
    ) -> None:
        self._store = store
        self._processes = processes
        self._switch = switch
        self._reload = reload
        self._reloaded = 0
        self._follower = Follower(store, _PREFIX, self._hear, self._look)

    async def __aenter__(self) -> Self:
        """Apply the present switches, and follow changes. Raises `StoreError`.

        The first process of all removes what earlier ones have left: a start clears the switches.
        """
        if not self._processes.others:
            await self._store.commit(_SWITCHES, None)
        self._reloaded = (await self._store.revisions([_RELOAD]))[_RELOAD]
        await self._follower.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._follower.aclose()

    async def switched(self, key: str, on: bool) -> None:
        """Let all processes enable or disable a provider. Raises `StoreError`."""
        while True:
            record = await self._store.read(_SWITCHES)
            switches = {} if record is None else _switches(record.value)
            value = orjson.dumps({**switches, key: on})
            try:
                await self._store.commit(_SWITCHES, value, expected=0 if record is None else record.revision)
            except StoreConflict:
                continue
            return

    async def cleared(self) -> None:
        """Clear the switches, as a reload does. Raises `StoreError`."""
        await self._store.commit(_SWITCHES, None)

    async def reloaded(self, by: str) -> None:
        """Let all other processes read their configuration again. Raises `StoreError`."""
        value = orjson.dumps({"by": by, "process": self._store.id})
        self._reloaded = await self._store.commit(_RELOAD, value, ttl_s=_RELOAD_KEPT_S)

    async def _hear(self, change: Change) -> None:
        if change.key == _SWITCHES:
            await self._switch(_switches(change.value) if change.value is not None and change.revision else {})
        elif change.revision > self._reloaded and change.value is not None:
            await self._take_reload(change.value, change.revision)

    async def _look(self) -> None:
        record = await self._store.read(_SWITCHES)
        await self._switch({} if record is None else _switches(record.value))
        record = await self._store.read(_RELOAD)
        if record is not None and record.revision > self._reloaded:
            await self._take_reload(record.value, record.revision)

    async def _take_reload(self, value: bytes, revision: int) -> None:
        self._reloaded = revision
        asked = orjson.loads(value)
        if asked["process"] != self._store.id:
            await self._reload(str(asked["by"]))


def _switches(value: bytes) -> dict[str, bool]:
    return cast("dict[str, bool]", orjson.loads(value))
