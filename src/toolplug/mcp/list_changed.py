"""Notifying clients that their list of tools has changed.

A change of the registry may change ten thousand lists. It only marks them; each turn of the event loop compares a few,
and wakes the notifiers of those that differ. A client is notified again only after it has taken the last notification.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import islice
from types import TracebackType
from typing import Protocol, Self, runtime_checkable

from toolplug.execution.executor import ToolExecutor, Unsubscribe

LOOKED_AT = 16
"""Lists that are looked at in one turn of the loop."""


@runtime_checkable
class Invalidatable(Protocol):
    """An executor that can report that its catalog may have changed, without computing the new one."""

    @property
    def invalidates(self) -> bool:
        """True if `on_invalidate` reports all changes of its sources."""
        ...

    def on_invalidate(self, told: Callable[[], None]) -> Unsubscribe:
        """Call this function when the catalog that was last read may have changed."""
        ...


class ListChangedNotifier:
    """All lists that clients follow."""

    def __init__(self) -> None:
        self._watches: dict[Watch, str | None] = {}
        self._sessions: dict[str, set[Watch]] = {}
        self._due: dict[Watch, None] = {}
        self._turning = False
        self._stopped = False

    def watch(self, executor: ToolExecutor, *, of: str | None = None, since: str | None = None) -> Watch:
        """Follow the executor's list until the watch is closed or its session (`of`) has ended.

        `since` is the etag of the catalog that the client knows; None for the current one.
        """
        watch = Watch(executor, self._is_due, self._forget)
        self._watches[watch] = of
        if of is not None:
            self._sessions.setdefault(of, set()).add(watch)
        if since is not None and executor.catalog.etag != since:
            watch.wake()
        if self._stopped:
            watch.close()
        return watch

    def end(self, session: str) -> None:
        """Close every watch of a session."""
        for watch in list(self._sessions.get(session, ())):
            watch.close()

    def stop(self) -> None:
        """End all watches: `changed` returns False."""
        self._stopped = True
        for watch in list(self._watches):
            watch.close()

    def _is_due(self, watch: Watch) -> None:
        self._due[watch] = None
        if not self._turning:
            self._turning = True
            asyncio.get_running_loop().call_soon(self._turn)

    def _forget(self, watch: Watch) -> None:
        session = self._watches.pop(watch, None)
        if session is not None:
            of_session = self._sessions[session]
            of_session.discard(watch)
            if not of_session:
                del self._sessions[session]

    def _turn(self) -> None:
        for watch in list(islice(self._due, LOOKED_AT)):
            del self._due[watch]
            watch.look()
        self._turning = bool(self._due)
        if self._turning:
            asyncio.get_running_loop().call_soon(self._turn)


class Watch:
    """One client's list of tools; `changed` waits for a change that the client has not been notified of."""

    def __init__(self, executor: ToolExecutor, due: Callable[[Watch], None], forget: Callable[[Watch], None]) -> None:
        self._executor = executor
        self._due = due
        self._forget = forget
        self._seen = executor.catalog
        self._wake = asyncio.Event()
        self._closed = False
        self._asks = False
        self._stop: list[Unsubscribe] = []
        self._listen()

    async def changed(self) -> bool:
        """Wait until the list differs from the last one; return False when the watch has been closed."""
        await self._wake.wait()
        self._wake.clear()
        return not self._closed

    def wake(self) -> None:
        """Wake `changed`."""
        self._wake.set()

    def look(self) -> None:
        """Wake `changed` if the list differs."""
        if self._closed:
            return
        before, self._seen = self._seen, self._executor.catalog
        if before.diff(self._seen):
            self.wake()
        self._listen()

    def close(self) -> None:
        """Stop following the list."""
        self._closed = True
        for stop in self._stop:
            stop()
        self._stop.clear()
        self._forget(self)
        self.wake()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _listen(self) -> None:
        """Subscribe to invalidations, and to differences if those do not cover all changes."""
        executor = self._executor
        marking = isinstance(executor, Invalidatable)
        if marking and not self._stop:
            self._stop.append(executor.on_invalidate(self._told))
        if not self._asks and not (marking and executor.invalidates):
            self._asks = True
            self._stop.append(executor.subscribe(lambda _: self._told()))

    def _told(self) -> None:
        self._due(self)
