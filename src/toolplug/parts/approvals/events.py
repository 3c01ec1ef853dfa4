"""The hooks `approval_waiting`, `approval_decided` and `grant_revoked`: what plugins are told, each once.

A process tells its own plugins of what it asks, decides and revokes. The command line has no plugins: it leaves a
record, and of the processes that serve the one that removes the record tells its plugins.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Literal, cast

from pluggy import PluginManager as AnyPluginManager
from pydantic import TypeAdapter

from toolplug.cluster.followed import Follower
from toolplug.errors import StoreConflict, StoreError
from toolplug.part_protocols.approvals import RevokedGrant, Ticket
from toolplug.parts.approvals.limits import CLOSE_S, MAX_UNTOLD, UNTOLD_LIFE_S
from toolplug.providers.plugins.registration import ChangeFollower, PluginManager
from toolplug.runtime.tasks import BackgroundTasks
from toolplug.stores.store import Change, Store, key_pages, tenant_digest

Hook = Literal["approval_waiting", "approval_decided", "grant_revoked"]
FindTicket = Callable[[str], Awaitable[Ticket | None]]
"""Returns the ticket of `TENANT_DIGEST/ID`, None if it is gone. Raises `StoreError`."""

_UNTOLD = "approval-untold/"
_REVOKED = TypeAdapter(RevokedGrant)
_LOG = logging.getLogger("toolplug.execution")


@dataclass(slots=True, eq=False)
class _Told:
    """What one plugin has not been told yet."""

    waiting: deque[tuple[Hook, ChangeFollower, Ticket | RevokedGrant]] = field(
        default_factory=deque[tuple[Hook, ChangeFollower, Ticket | RevokedGrant]]
    )
    dropped: bool = False


async def leave_untold(store: Store, told: Ticket | RevokedGrant) -> None:
    """Have one of the processes that serve tell its plugins of a decision. A failure is logged."""
    # A ticket is in the store; a grant that was revoked is there no longer.
    value = b"" if isinstance(told, Ticket) else _REVOKED.dump_json(told)
    try:
        key = f"{_UNTOLD}{tenant_digest(told.tenant)}/{told.id}"
        await store.commit(key, value, ttl_s=UNTOLD_LIFE_S)
    except StoreError as error:
        _LOG.error("plugins are not told of a decision, as the store of approvals fails: %s", error)


class TicketEvents:
    """Tells the plugins of one host, each in its own turn: a slow one holds up no call and no other plugin."""

    def __init__(self, store: Store, plugins: AnyPluginManager, find: FindTicket) -> None:
        self._store = store
        # That of a host: parts know it by the class of pluggy, which this one extends.
        self._plugins = cast("PluginManager", plugins)
        self._find = find
        self._told: dict[int, _Told] = {}
        self._tasks = BackgroundTasks()
        self._follower = Follower(store, _UNTOLD, self._hear, self._look)
        self._following = BackgroundTasks()

    def begin(self) -> None:
        """Follow what the command line decides."""
        self._following.start(self._follow(), "toolplug-approvals-untold")

    async def aclose(self) -> None:
        """Give plugins a second for what they have not been told."""
        await self._following.cancel()
        await self._follower.aclose()
        # Not for ever: a plugin may hang, and the host is about to end.
        await asyncio.wait({asyncio.ensure_future(self._tasks.wait())}, timeout=CLOSE_S) if len(self._tasks) else None
        await self._tasks.cancel()

    def publish(self, hook: Hook, what: Ticket | RevokedGrant) -> None:
        """Tell the plugins that have the hook, in the background."""
        for follower in self._plugins.followers(hook):
            identity = id(follower.identity)
            told = self._told.get(identity)
            if told is None:
                told = self._told[identity] = _Told()
                self._tasks.start(self._tell(identity, told), f"toolplug-approvals-{follower.owner.key}")
            if len(told.waiting) >= MAX_UNTOLD:
                if not told.dropped:
                    _LOG.warning("%s is slow: it is not told of every approval", follower.owner)
                told.dropped = True
                continue
            told.waiting.append((hook, follower, what))

    async def _tell(self, identity: int, told: _Told) -> None:
        try:
            while told.waiting:
                hook, follower, what = told.waiting.popleft()
                kind = "approval" if isinstance(what, Ticket) else "grant"
                await follower.tell(what, f"{hook}()", f"it missed {kind} {what.id}")
                # A plugin that answers at once would otherwise be told of a thousand in one turn of the loop.
                await asyncio.sleep(0)
        finally:
            del self._told[identity]

    async def _follow(self) -> None:
        while True:
            try:
                return await self._follower.start()
            except StoreError as error:
                _LOG.warning("decisions of the command line are not heard: %s", error)
                await asyncio.sleep(UNTOLD_LIFE_S / 10)

    async def _look(self) -> None:
        async for page in key_pages(self._store, _UNTOLD):
            for key in page:
                await self._take(key)

    async def _hear(self, change: Change) -> None:
        if change.revision:
            await self._take(change.key)

    async def _take(self, key: str) -> None:
        """Tell of a decision of the command line, if this process is the one that removes its record."""
        record = await self._store.read(key)
        if record is None:
            return
        hook: Hook = "grant_revoked" if record.value else "approval_decided"
        # One without such a plugin leaves it to the others.
        if not self._plugins.followers(hook):
            return
        try:
            await self._store.commit(key, None, expected=record.revision)
        except StoreConflict:
            return
        what = _read_revoked(key, record.value) if record.value else await self._find(key.removeprefix(_UNTOLD))
        if what is not None:
            self.publish(hook, what)


def _read_revoked(key: str, value: bytes) -> RevokedGrant | None:
    """Return the grant of a record; None, with an error in the log, if it cannot be read."""
    try:
        return _REVOKED.validate_json(value)
    except ValueError:
        _LOG.error("record %s cannot be read: plugins are not told of a revoked grant", key)
        return None
