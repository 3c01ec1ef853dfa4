"""Notifying clients that their lists of tools, prompts and resources have changed, or resources that they follow."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from types import MappingProxyType
from typing import NamedTuple, Protocol, Self, runtime_checkable

from toolplug.catalog.offering import EMPTY_OFFERING, KINDS, OfferedEntry, OfferedKind, Offering
from toolplug.errors import ToolError
from toolplug.execution.executor import ToolExecutor, Unsubscribe

MOST = 256
"""Resources that one client follows at a time."""


class ResourceSubscriptions:
    """The subscriptions of one client; several updates of a resource that it has not taken are one."""

    def __init__(self) -> None:
        self._followed: dict[str, tuple[OfferedEntry, Callable[[], None]]] = {}
        self._updated: dict[str, None] = {}
        self._changing = asyncio.Lock()
        self._closed = False
        self._elsewhere: dict[str, tuple[str, str]] = {}
        self.wake: Callable[[], None] | None = None
        """Called at each update; None while no stream of the client is open in this process."""
        self.pass_on: Callable[[str, OfferedEntry], None] | None = None
        """Called at each update without a stream here, where another process may have one."""
        self.left: Callable[[str], None] | None = None
        """Called when the client stops following a resource, which another process may follow for it."""

    async def add(self, uri: str, resource: OfferedEntry) -> None:
        """Follow the resource of this URI, which this entry of the client's offering is or matches.

        Raises `ToolError` if its source cannot notify of updates or the client follows too many, and `ToolUnavailable`.
        """
        async with self._changing:
            if uri in self._followed or self._closed:
                return
            if len(self._followed) >= MOST:
                raise ToolError(f"{MOST} resources are followed already; unsubscribe from one first")
            stop = _nothing if resource.follow is None else await resource.follow(uri, lambda: self._update(uri))
            self._followed[uri] = (resource, stop)
            if self._closed:
                self.close()

    def leave(self, uri: str) -> None:
        """Stop following a resource in all processes."""
        self.remove(uri)
        if self.left is not None:
            self.left(uri)

    def updated_elsewhere(self, uri: str, key: str, source: str) -> None:
        """Note an update of a resource that another process follows, by its entry's key and source."""
        self._elsewhere[uri] = key, source
        self._note(uri)

    def remove(self, uri: str) -> None:
        """Stop following a resource; ignore one that is not followed."""
        self._elsewhere.pop(uri, None)
        _, stop = self._followed.pop(uri, (None, _nothing))
        self._updated.pop(uri, None)
        stop()

    def close(self) -> None:
        """Stop following every resource."""
        self._closed = True
        for uri in tuple(self._followed):
            self.remove(uri)

    def take_updates(self, offering: Offering) -> tuple[str, ...]:
        """Return the updated resources, once, without those that the client may no longer read by its offering."""
        updated, self._updated = self._updated, {}
        return tuple(uri for uri in updated if self._is_in(offering, uri))

    @property
    def pending(self) -> bool:
        """True if there are updates to take."""
        return bool(self._updated)

    def _is_in(self, offering: Offering, uri: str) -> bool:
        followed = self._followed.get(uri)
        key, source = self._elsewhere.get(uri, ("", "")) if followed is None else (followed[0].key, followed[0].source)
        entries = (offering.resources.get(key), offering.templates.get(key))
        return any(found is not None and found.source == source for found in entries)

    def _update(self, uri: str) -> None:
        followed = self._followed.get(uri)
        if followed is None:
            return
        if self.wake is None and self.pass_on is not None:
            self.pass_on(uri, followed[0])
        else:
            self._note(uri)

    def _note(self, uri: str) -> None:
        self._updated[uri] = None
        if self.wake is not None:
            self.wake()


def _nothing() -> None:
    """Do nothing to stop following a resource whose source notifies of nothing."""


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


class ListChanges(NamedTuple):
    """The lists of a client that have changed, and the URIs of its followed resources that have been updated."""

    tools: bool
    prompts: bool
    resources: bool
    updated: tuple[str, ...]


class Seen(NamedTuple):
    """What a client has listed: the etag of its tools, and the offerings of its last lists by kind."""

    tools: str | None = None
    offerings: Mapping[OfferedKind, Offering] = MappingProxyType({})

    def with_offering(self, kind: OfferedKind, offering: Offering) -> Seen:
        """Return this after the client has received a list of prompts, resources or templates."""
        return self._replace(offerings={**self.offerings, kind: offering})


class ListChangedNotifier:
    """All lists that clients follow."""

    def __init__(self) -> None:
        self._watches: dict[Watch, str | None] = {}
        self._sessions: dict[str, set[Watch]] = {}
        self._due: dict[Watch, None] = {}
        self._turning = False
        self._stopped = False

    def watch(
        self,
        executor: ToolExecutor,
        *,
        of: str | None = None,
        since: Seen | None = None,
        offering: Callable[[], Offering] | None = None,
        subscriptions: ResourceSubscriptions | None = None,
    ) -> Watch:
        """Follow the executor's list until the watch is closed or its session (`of`) has ended.

        With an `offering`, follow its lists too, and the resources of the `subscriptions`. `since` is what the client
        has listed; without it, it knows the current lists.
        """
        seen = Seen() if since is None else since
        watch = Watch(executor, self._is_due, self._forget, offering, subscriptions, seen.offerings)
        self._watches[watch] = of
        if of is not None:
            self._sessions.setdefault(of, set()).add(watch)
        if seen.tools is not None and executor.catalog.etag != seen.tools:
            watch.wake()
        if self._stopped:
            watch.close()
        return watch

    def look_at_all(self) -> None:
        """Look at every list soon, since prompts or resources may have changed."""
        for watch in self._watches:
            self._is_due(watch)

    def end(self, session: str) -> None:
        """Close every watch of a session."""
        for watch in list(self._sessions.get(session, ())):
            watch.close()

    def stop(self) -> None:
        """End all watches: `wait_for_change` returns False."""
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
    """One client's lists; `wait_for_change` waits for a change that the client has not been notified of."""

    def __init__(
        self,
        executor: ToolExecutor,
        due: Callable[[Watch], None],
        forget: Callable[[Watch], None],
        offering: Callable[[], Offering] | None = None,
        subscriptions: ResourceSubscriptions | None = None,
        listed: Mapping[OfferedKind, Offering] = MappingProxyType({}),
    ) -> None:
        self._executor = executor
        self._due = due
        self._forget = forget
        self._seen = executor.catalog
        self._wake = asyncio.Event()
        self._closed = False
        self._asks = False
        self._stop: list[Unsubscribe] = []
        self._tools = self._prompts = self._resources = False
        self._offering = offering
        self._seen_offering = EMPTY_OFFERING if offering is None else offering()
        for kind, known in listed.items():
            self._compare((kind,), known, self._seen_offering)
        self._subscriptions = subscriptions
        if subscriptions is not None:
            subscriptions.wake = self._wake.set
            if subscriptions.pending:
                self._wake.set()
        self._listen()

    async def wait_for_change(self) -> bool:
        """Wait until a list differs from the last one, or a followed resource has been updated.

        Returns False when the watch has been closed.
        """
        await self._wake.wait()
        self._wake.clear()
        return not self._closed

    def take_changes(self) -> ListChanges:
        """Return the changes that have not been taken yet."""
        updated = () if self._subscriptions is None else self._subscriptions.take_updates(self._seen_offering)
        changes = ListChanges(self._tools, self._prompts, self._resources, updated)
        self._tools = self._prompts = self._resources = False
        return changes

    def wake(self) -> None:
        """Wake `wait_for_change`, with a change of the list of tools."""
        self._tools = True
        self._wake.set()

    def look(self) -> None:
        """Wake `wait_for_change` if a list differs."""
        if self._closed:
            return
        before, self._seen = self._seen, self._executor.catalog
        if before.diff(self._seen):
            self.wake()
        if self._offering is not None:
            known, self._seen_offering = self._seen_offering, self._offering()
            self._compare(KINDS, known, self._seen_offering)
        self._listen()

    def _compare(self, kinds: Sequence[OfferedKind], before: Offering, now: Offering) -> None:
        """Wake `wait_for_change` if an offering lists something else of these kinds."""
        if before is now:
            return
        for kind in kinds:
            if before.list_entries(kind) != now.list_entries(kind) or [*before.list_entries(kind)] != [
                *now.list_entries(kind)
            ]:
                if kind == "prompts":
                    self._prompts = True
                else:
                    self._resources = True
                self._wake.set()

    def close(self) -> None:
        """Stop following the lists."""
        self._closed = True
        if self._subscriptions is not None and self._subscriptions.wake == self._wake.set:
            self._subscriptions.wake = None
        for stop in self._stop:
            stop()
        self._stop.clear()
        self._forget(self)
        self._wake.set()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _listen(self) -> None:
        """Subscribe to invalidations, and to differences if those do not cover all changes."""
        executor = self._executor
        marking = isinstance(executor, Invalidatable)
        if marking and not self._stop:
            self._stop.append(executor.on_invalidate(self._notify_due))
        if not self._asks and not (marking and executor.invalidates):
            self._asks = True
            self._stop.append(executor.subscribe(lambda _: self._notify_due()))

    def _notify_due(self) -> None:
        self._due(self)


TOOLS_CHANGED = "notifications/tools/list_changed"
PROMPTS_CHANGED = "notifications/prompts/list_changed"
RESOURCES_CHANGED = "notifications/resources/list_changed"
RESOURCE_UPDATED = "notifications/resources/updated"


def notifications_of(changes: ListChanges) -> list[tuple[str, dict[str, object]]]:
    """Return method and parameters of a notification for each change."""
    lists = ((changes.tools, TOOLS_CHANGED), (changes.prompts, PROMPTS_CHANGED), (changes.resources, RESOURCES_CHANGED))
    told: list[tuple[str, dict[str, object]]] = [(method, {}) for changed, method in lists if changed]
    return told + [(RESOURCE_UPDATED, {"uri": uri}) for uri in changes.updated]
