"""Expiry of a session, one TTL after the plugin's last sign, and the plugin's presence within its grace time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from toolplug.parts.sessions.relay import Relay
from toolplug.parts.sessions.shared import SessionCallbacks, SessionTasks
from toolplug.parts.sessions.tools.session_tool import PluginStatus
from toolplug.stores.store import Record


class Presence:
    """The presence of the plugin: its open streams, and the grace time of `grace_s()` seconds without any.

    `remote` is True while another process has an open stream of the plugin.
    """

    def __init__(self, session: SessionCallbacks, relay: Relay, grace_s: Callable[[], float]) -> None:
        self._session = session
        self._relay = relay
        self._grace_s = grace_s
        self._remote = False
        self._grace: asyncio.TimerHandle | None = None
        self._told: PluginStatus | None = None
        self._stopped = False

    @property
    def status(self) -> PluginStatus:
        """`attached` with an open stream, `waiting` within the grace time, else `detached`."""
        if self.is_attached:
            return "attached"
        return "detached" if self._grace is None else "waiting"

    @property
    def is_attached(self) -> bool:
        """True while a stream of the plugin is open, in any process."""
        return self._relay.is_attached or self._remote

    @property
    def reachable(self) -> bool:
        """True while the plugin is attached or may come back within the grace time."""
        return self.is_attached or self._grace is not None

    def attach(self, stream: str) -> None:
        """Add an open stream of the plugin."""
        was_reachable = self.reachable
        self._end_grace()
        # The stream first, and then the status: a reader that hears of it can call at once.
        self._relay.attach(stream)
        if not was_reachable:
            self._session.publish()
        self._tell("attached")

    def detach(self, stream: str) -> None:
        """Remove an ended stream of the plugin; the grace time begins after the last."""
        self._relay.detach(stream)
        if not self.is_attached:
            self._begin_grace()

    def set_remote(self, remote: bool, *, newest: bool) -> None:
        """Take note of the plugin's streams in other processes: if there is any, and if the newest of all is one."""
        was_reachable, was_attached = self.reachable, self.is_attached
        self._remote, self._relay.elsewhere = remote, newest
        if self.is_attached:
            self._end_grace()
            if not was_reachable:
                self._session.publish()
            self._tell("attached")
        elif was_attached and not self._stopped:
            self._begin_grace()
        # The newest stream may be one of this process again.
        self._relay.send_waiting()

    def give_up(self) -> None:
        """End the grace time, as another process has noticed that it is over."""
        # The plugin may have come back here while the other process wrote.
        if not self.is_attached and self._grace is not None:
            self._end_grace()
            self._grace_is_over()

    def expect(self) -> None:
        """Start the grace time again, unless the plugin is attached."""
        if self.is_attached or self._stopped:
            return
        was_reachable = self.reachable
        self._begin_grace()
        if not was_reachable:
            self._session.publish()

    def stop(self) -> None:
        """End the grace time for good."""
        self._stopped = True
        self._end_grace()

    def _begin_grace(self) -> None:
        self._end_grace()
        self._grace = asyncio.get_running_loop().call_later(self._grace_s(), self._grace_is_over)

    def _end_grace(self) -> None:
        if self._grace is not None:
            self._grace.cancel()
            self._grace = None

    def _grace_is_over(self) -> None:
        self._grace = None
        self._relay.lose("plugin_gone")
        self._session.publish()
        self._tell("detached")

    def _tell(self, status: PluginStatus) -> None:
        if self._told != status:
            self._told = status
            self._session.status_changed(status)


REMEMBERED = 2.1
"""How many TTLs a record is kept after its last stored sign: one is the session's life, one more the time for which it
is remembered; the last sign may be a tenth later than the stored one."""
_SIGN_KEPT_EVERY = 0.05
"""In TTLs: half of that tenth; the other half is for a slow store and a late timer."""
# Times go through a store as floats and through the arithmetic of `kept_sign`, and come back a little different.
_ROUNDING_S = 0.001
_SOONEST_S = 0.05
RETRY_S = 1.0
"""Seconds between two attempts while the store fails."""


class Expiry:
    """The signs of one session's plugin, and the timer that ends the session without them.

    `sign_at` is the last sign in the record, `expires_at` the time of expiry, both in seconds on the store's clock.
    Once it is `stopped`, no timer runs and no sign is stored.
    """

    def __init__(
        self,
        session: SessionCallbacks,
        *,
        ttl_s: float,
        sign_at: float,
        expires_at: float,
        clock: Callable[[], float],
        background: SessionTasks,
    ) -> None:
        self.expires_at: float = expires_at
        self._session = session
        self._ttl_s = ttl_s
        self._sign_at = sign_at
        self._clock = clock
        self._background = background
        self._keeping = False
        self._timer: asyncio.TimerHandle | None = None
        self.stopped: bool = False
        self.watch()

    @property
    def due(self) -> bool:
        """True if the session has expired, as far as this process knows."""
        return not self._session.is_attached and self._clock() >= self.expires_at

    def sign(self) -> float:
        """Take a sign of the plugin, store it in the background if that is due, and return the new time of expiry."""
        if self._signs_and_is_late() and not self._keeping and not self.stopped:
            self._keeping = True
            self._background.start(self._keep_later(), "session-sign")
        return self.expires_at

    async def store_sign(self) -> float:
        """Take a sign of the plugin, store it if that is due, and return the new expiry. Raises `StoreError`."""
        if self._signs_and_is_late():
            await self._keep()
        return self.expires_at

    def note_written(self) -> None:
        """Note that the record has just been written with a full TTL."""
        self._sign_at = self._clock()

    def lives_on(self, record: Record) -> bool:
        """Return True if the session goes on by this record, in which another process may have stored a later sign."""
        sign_at = kept_sign(record, self._ttl_s)
        if sign_at > self._sign_at + _ROUNDING_S:
            self._sign_at = sign_at
            self.expires_at = max(self.expires_at, latest_expiry(record, self._ttl_s))
        return not self.due

    def watch(self, soonest_s: float = _SOONEST_S) -> None:
        """Set the timer for the time of expiry, or for the next sign while the plugin is attached."""
        if self._timer is not None:
            self._timer.cancel()
        if self.stopped:
            return
        # An open stream is a sign by itself, which the timer has to note while the plugin says nothing.
        left = self._ttl_s * _SIGN_KEPT_EVERY if self._session.is_attached else self.expires_at - self._clock()
        self._timer = asyncio.get_running_loop().call_later(max(left, soonest_s), self._look)

    def stop(self) -> None:
        """Stop the timer for good."""
        self.stopped = True
        if self._timer is not None:
            self._timer.cancel()

    def _look(self) -> None:
        if self._session.attached_here:
            self.sign()
        elif self._session.is_attached:
            self.expires_at = self._clock() + self._ttl_s  # the process of its stream stores the signs
        if self.due:
            self._background.start(self._expire(), "session-expiry")
        else:
            self.watch()

    async def _expire(self) -> None:
        try:
            await self._session.expire()
        finally:
            self.watch(RETRY_S)

    def _signs_and_is_late(self) -> bool:
        """Take a sign; return True if the one in the record is too old by now."""
        now = self._clock()
        self.expires_at = now + self._ttl_s
        # `abs`: after the clock was set back, the stored sign lies in the future, and has to be written again.
        return abs(now - self._sign_at) >= self._ttl_s * _SIGN_KEPT_EVERY

    async def _keep_later(self) -> None:
        try:
            await self._keep()
        finally:
            self._keeping = False

    async def _keep(self) -> None:
        await self._session.keep_sign(self._ttl_s * REMEMBERED)
        self.note_written()


def kept_sign(record: Record, ttl_s: float) -> float:
    """Return the time of the plugin's last sign in the record, in seconds on the store's clock."""
    # The sign has no field of its own: renewing a time to live (`extend`) changes neither the value nor the revision.
    return (record.expires_at or 0.0) - ttl_s * REMEMBERED


def latest_expiry(record: Record, ttl_s: float) -> float:
    """Return the latest time at which the session may expire, as its last sign may be newer than the record's."""
    return (record.expires_at or 0.0) - ttl_s
