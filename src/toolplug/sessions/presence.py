"""Whether a session's plugin is there, may come back, or is gone."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

from toolplug.sessions.relay import Relay
from toolplug.sessions.vocabulary import PluginStatus


class Owner(Protocol):
    """The session whose plugin it is."""

    def reachability_changed(self) -> None:
        """The plugin is gone, or was, and is there or may come back."""
        ...

    def status_changed(self, status: PluginStatus) -> None:
        """The plugin has attached, or is gone."""
        ...


class Presence:
    """The plugin's streams and the grace time without any. `grace_s` gives how long that is."""

    def __init__(self, owner: Owner, relay: Relay, grace_s: Callable[[], float]) -> None:
        self._owner = owner
        self._relay = relay
        self._grace_s = grace_s
        self._grace: asyncio.TimerHandle | None = None
        self._told: PluginStatus | None = None
        self._stopped = False

    @property
    def status(self) -> PluginStatus:
        """Attached, waiting within the grace time, or detached."""
        if self._relay.attached:
            return "attached"
        return "detached" if self._grace is None else "waiting"

    @property
    def reachable(self) -> bool:
        """Is the plugin there, or may it come back within the grace time."""
        return self._relay.attached or self._grace is not None

    def attach(self, stream: str) -> None:
        """A stream of the plugin has opened."""
        was_reachable = self.reachable
        self._end_grace()
        self._relay.attach(stream)
        if not was_reachable:
            self._owner.reachability_changed()
        self._tell("attached")

    def detach(self, stream: str) -> None:
        """A stream of the plugin has ended."""
        self._relay.detach(stream)
        if not self._relay.attached:
            self._begin_grace()

    def expect(self) -> None:
        """Give the plugin the grace time from now on, unless it is there."""
        if self._relay.attached or self._stopped:
            return
        was_reachable = self.reachable
        self._begin_grace()
        if not was_reachable:
            self._owner.reachability_changed()

    def stop(self) -> None:
        """Expect nothing any more."""
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
        self._owner.reachability_changed()
        self._tell("detached")

    def _tell(self, status: PluginStatus) -> None:
        if self._told != status:
            self._told = status
            self._owner.status_changed(status)
