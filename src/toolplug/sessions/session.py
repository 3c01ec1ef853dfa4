"""One live session: what is registered, who is connected, and how long it lives."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import NamedTuple

from toolplug.catalog.call import Principal
from toolplug.catalog.text import cleaned, counted
from toolplug.errors import ApiError, GoneState, SessionGone, StoreConflict
from toolplug.execution.accounting import audit
from toolplug.execution.limits import Rate
from toolplug.execution.live import LiveCatalog
from toolplug.sessions.events import (
    EVERYBODY,
    GONE,
    NOBODY,
    PLUGIN,
    STATUS,
    UPDATE,
    LogEntry,
    LogPage,
    connected_data,
    default_tool_list,
    entry_bytes,
    log_page,
    status_data,
    tool_list,
    update_data,
)
from toolplug.sessions.executors import SessionExecutors
from toolplug.sessions.expiry import REMEMBERED, Expiry, Presence
from toolplug.sessions.negotiation import FailedTool, Registration, ToolChanges, changed, negotiated, read_changes
from toolplug.sessions.record import SessionState, read_state, record_key, shown, state_bytes
from toolplug.sessions.relay import Relay
from toolplug.sessions.session_log import SessionLog
from toolplug.sessions.session_tool import CleanedTool, Difference, PluginStatus, StreamRole
from toolplug.sessions.shared import SessionServices
from toolplug.sessions.stream import EventFanout, Reader
from toolplug.stores.store import Record


class Registered(NamedTuple):
    """What a registration took, what it could not, and what it removed from what it took."""

    names: tuple[str, ...]
    failed: tuple[FailedTool, ...]
    revision: int
    cleaned: tuple[CleanedTool, ...] = ()


class Updated(NamedTuple):
    """What an update changed, and what it removed from new definitions."""

    revision: int
    difference: Difference
    cleaned: tuple[CleanedTool, ...] = ()


class Session:
    """A session of this process: created or loaded by `Sessions`, which holds it until it is over.

    Times are seconds on the store's clock. `revision` rises by one with every change of what is registered. `sign_at`
    is the plugin's last sign that the record holds.
    """

    def __init__(
        self, code: str, state: SessionState, record: int, shared: SessionServices, *, sign_at: float, expires_at: float
    ) -> None:
        self.code: str = code
        self.state: SessionState = state
        self._record = record
        self._shared = shared
        self._key = record_key(code)
        self._unregistered = not state.registered
        self._writing = asyncio.Lock()
        self._rate = Rate(shared.limits.max_updates_per_minute, 60, "the session")
        self._logbook = SessionLog(self._key, shared.store, shared.background, self.over)
        self.feed: EventFanout = EventFanout(
            self._key, shared.store, self._logbook, self, shared.background, shared.counters
        )
        self.relay: Relay = Relay(self, shared.background, shared.counters)
        self._presence = Presence(self, self.relay, lambda: shared.limits.grace_s)
        self._lending = SessionExecutors(code, shared, self.relay.request)
        self._life = Expiry(
            self,
            ttl_s=state.ttl_s,
            sign_at=sign_at,
            expires_at=expires_at,
            clock=shared.store.now,
            background=shared.background,
        )
        if state.registered:
            self._presence.expect()

    @property
    def revision(self) -> int:
        """The revision of what is registered."""
        return self.state.revision

    @property
    def expires_at(self) -> float:
        """When it expires, unless its plugin gives a sign before."""
        return self._life.expires_at

    @property
    def tenant(self) -> str:
        """Whose session it is."""
        return self.state.tenant

    @property
    def plugin_status(self) -> PluginStatus:
        """Whether the plugin is there, may come back, or is gone."""
        return self._presence.status

    @property
    def attached(self) -> bool:
        """Is a stream of the plugin open."""
        return self.relay.attached

    @property
    def reachable(self) -> bool:
        """Is the plugin there, or may it come back within the grace time."""
        return self._presence.reachable

    @property
    def executor(self) -> LiveCatalog:
        """The session's own tools as they are now: what its plugin registered, before that the default tools."""
        return self._lending.executor(self.state, reachable=self.reachable)

    @property
    def max_waiting(self) -> int:
        """How many calls of its tools may wait at once."""
        return self._shared.limits.max_waiting_calls

    def now(self) -> float:
        """The store's time."""
        return self._shared.store.now()

    def check(self) -> None:
        """Raise `SessionGone` where the session is over."""
        if self.state.gone is not None:
            raise SessionGone(self.code, self.state.gone)
        if self._life.due:
            self._life.watch(soonest_s=0.0)
            raise SessionGone(self.code, "session_expired")

    def touch(self) -> float:
        """A sign of the plugin's life; the time at which the session now expires."""
        return self._life.sign()

    async def heartbeat(self) -> float:
        """The same; when it returns, a restart knows of the sign. Raises `SessionGone` and `StoreError`."""
        self.check()
        return await self._life.signed()

    async def register(self, asked: Registration, *, request_id: str = "") -> Registered:
        """Replace the whole set. Raises `ApiError`, `SessionGone` and `StoreError`; then nothing has changed."""
        with self._noted("register", request_id):
            return await self._register(asked)

    async def _register(self, asked: Registration) -> Registered:
        self.check()
        self.touch()
        free, self._unregistered = self._unregistered, False
        if not free:
            await self._check_rate()
        try:
            found = await negotiated(asked, self.tenant, self._shared)
            revision, _ = await self._changed(found.applied, "registered")
        except BaseException as error:
            self._unregistered = free and not self.state.registered
            if free and isinstance(error, ApiError):
                await self._check_rate()
            raise
        self._presence.expect()
        return Registered(tuple(found.tools.tools), found.failed, revision, found.cleaned)

    async def update(
        self, asked: ToolChanges, reason: str, expected: int | None = None, *, request_id: str = ""
    ) -> Updated:
        """Change a part of the set, all of it or nothing; `expected` is the revision that it must have.

        Raises `ApiError`, `SessionGone` and `StoreError`.
        """
        with self._noted("update", request_id):
            return await self._update(asked, reason, expected)

    async def _update(self, asked: ToolChanges, reason: str, expected: int | None) -> Updated:
        self.check()
        self.touch()
        await self._check_rate()
        changes = await read_changes(asked, self._shared.pool)

        def change(state: SessionState) -> SessionState:
            if expected is not None and expected != state.revision:
                message = f"the session is at revision {state.revision}, not {expected}; read its metadata again"
                raise ApiError("revision_mismatch", message, param="If-Match")
            return changed(state, changes, self._shared)

        return Updated(*await self._changed(change, cleaned(reason)), changes.cleaned)

    @contextmanager
    def _noted(self, kind: str, request_id: str) -> Generator[None]:
        """Write one audit line and one count for a change that is made or refused, so that the two agree."""
        try:
            yield
        except ApiError as error:
            self._note(kind, error.code, request_id)
            raise
        self._note(kind, "done", request_id)

    def _note(self, kind: str, outcome: str, request_id: str) -> None:
        self._shared.counters.changes[kind, outcome] += 1
        audit(f"session.{kind}", outcome, Principal(PLUGIN, self.tenant), shown(self.code), request_id)

    async def open_stream(self, role: StreamRole, last_event_id: str | None) -> Reader:
        """A new stream of events. Raises `SessionGone` and `StoreError`; `close_stream` must follow."""
        self.check()
        reader = await self.feed.open(role, last_event_id)
        if reader.closed:
            self.feed.close(reader)
            self.check()
        elif role == "plugin":
            self._presence.attach(reader.id)
            self._plugin_signs()
        return reader

    def close_stream(self, reader: Reader) -> None:
        """The stream has ended."""
        self.feed.close(reader)
        if reader.role == "plugin" and not self._life.stopped:
            self._presence.detach(reader.id)
            self._plugin_signs()

    async def log_page(self, after: int | None) -> LogPage | None:
        """What the log holds after an event, None for all of it; None where it does not hold the event.

        Requests stand there without their arguments. Raises `StoreError`.
        """
        page = await self._logbook.after(after)
        return log_page(page.entries, after or 0) if page.known else None

    def tools_wire(self, state: SessionState | None = None) -> bytes:
        """The tools as a JSON array for people and plugins: each with whether it can be called now."""
        state = self.state if state is None else state
        default = None if state.registered else self._shared.neighbours.default_tools(self.tenant)
        if default is not None:
            return default_tool_list(default.catalog)
        reason = None if self.reachable else "plugin_gone"
        if self._shared.planner.hides:
            reason = "disabled"
        return tool_list(state.tools, reason, lambda name: self._shared.neighbours.taken(self.tenant, name) is not None)

    def replanned(self) -> None:
        """The operator's rules have changed."""
        self._lending.publish(self.state, reachable=self.reachable, anew=True)

    async def end(self) -> None:
        """End the session: streams close, waiting calls are answered, tools are gone. Raises `StoreError`."""
        await self._shared.background.unbroken(self._finish("session_ended"), "session-end")

    def stop(self) -> None:
        """The host stops: the session goes on where it is loaded next."""
        self._stop_timers()
        self.relay.end("host_stopping")
        self.feed.stop()

    # SessionCallbacks: what the expiry, the event streams and the relay ask of their session.

    async def keep_sign(self, ttl_s: float) -> None:
        """Keep the record for so long from now on, unless the session is over. Raises `StoreError`."""
        async with self._writing:
            if self.state.gone is None:
                await self._shared.store.extend(self._key, ttl_s=ttl_s)

    async def expire(self) -> None:
        """End the session where its time is over. Raises `StoreError`."""
        if self._life.due:
            await self._shared.background.unbroken(self._finish("session_expired"), "session-end")

    async def log(self, entry: LogEntry) -> bool:
        """Append to the log; False where the session is over. Raises `StoreError`."""
        return await self._logbook.write(entry)

    def tell(self, stream: str, event: str, data: bytes, logged: bytes) -> bool:
        """Tell one stream at once, and the log soon; False where the stream has no room now."""
        return self.feed.tell(stream, event, data, logged)

    def has_room(self) -> None:
        """A stream that had no room has been read."""
        self.relay.send_waiting()

    def connected(self, record: Record) -> bytes:
        """The data of `connected` for the session as the record has it, which is taken over where it is newer."""
        state = self.state
        if record.revision != self._record:
            state = read_state(record.value, self._shared.pool)
            self._adopt(state, record.revision)
        return connected_data(self.code, state, self.plugin_status, self.tools_wire(state))

    def resumed(self) -> bytes:
        """The data of `connected` for a reader that goes on where it was."""
        return connected_data(self.code, self.state, self.plugin_status, None)

    async def refresh(self) -> Record | None:
        """Take over what another process has written: the record, None where it has expired."""
        record = await self._shared.store.read(self._key)
        if record is None:
            self.over()
        elif record.revision > self._record:
            self._adopt(read_state(record.value, self._shared.pool), record.revision)
        return record

    def over(self) -> None:
        """The record has expired."""
        if self.state.gone is None:
            self._gone(self.state.ended("session_expired", self.now()), "session_expired")

    def began_again(self, role: StreamRole, stream: str) -> None:
        """The stream has dropped what it was sent: its requests go out again."""
        if role == "plugin":
            self.relay.resend(stream)

    # Changes.

    async def _changed(self, change: Callable[[SessionState], SessionState], reason: str) -> tuple[int, Difference]:
        return await self._shared.background.unbroken(self._commit(change, reason), "session-change")

    async def _commit(self, change: Callable[[SessionState], SessionState], reason: str) -> tuple[int, Difference]:
        """Change the record by compare-and-swap, with the event of the change; the new revision and the difference."""
        async with self._writing:
            while True:
                self.check()
                before, now = self.state, self.now()
                after = change(before)
                difference = before.tools.difference(after.tools)
                if after is before:
                    return before.revision, difference
                after = replace(after, updated_at=now)
                event = LogEntry(UPDATE, EVERYBODY, update_data(self.code, after, difference, reason), after.revision)
                try:
                    record = await self._write(after, [entry_bytes(event)], after.ttl_s * REMEMBERED)
                except StoreConflict:
                    await self.refresh()
                    continue
                self._life.written()
                self._adopt(after, record)
                return after.revision, difference

    async def _write(self, state: SessionState, events: Sequence[bytes], ttl_s: float) -> int:
        store = self._shared.store
        return await store.commit(self._key, state_bytes(state), expected=self._record, ttl_s=ttl_s, events=events)

    def _adopt(self, state: SessionState, record: int) -> None:
        """Be in the state that this revision of the record holds, unless a newer one is known."""
        if record <= self._record or self.state.gone is not None:
            return
        first = state.registered and not self.state.registered
        self._record = record
        if state.gone is not None:
            self._gone(state, state.gone)
            return
        self.state = state
        if first:
            self._unregistered = False
        if first and not self.reachable:
            self._presence.expect()
        else:
            self._publish()

    async def _check_rate(self) -> None:
        self._rate.resized(self._shared.limits.max_updates_per_minute, 60)
        refusal = await self._rate.admit(0.0)
        if refusal is not None:
            message = f"a session takes {counted(self._rate.count, 'update')} a minute; put several changes into one"
            raise ApiError("too_many_updates", message, retry_after_s=refusal.retry_after_s)

    # The plugin's coming and going.

    def reachability_changed(self) -> None:
        """The plugin is gone, or was, and may come back."""
        self._publish()

    def status_changed(self, status: PluginStatus) -> None:
        """Say so to every stream."""
        self._shared.background.start(self._log_status(status_data(self.code, status, self.now())), "session-status")

    async def _log_status(self, data: bytes) -> None:
        await self.log(LogEntry(STATUS, EVERYBODY, data))

    def _plugin_signs(self) -> None:
        """A stream of the plugin has opened or ended."""
        self.touch()
        self._life.watch()

    def _publish(self) -> None:
        self._lending.publish(self.state, reachable=self.reachable)

    # Its end.

    async def _finish(self, how: GoneState) -> None:
        async with self._writing:
            last = [*self._logbook.late(), LogEntry(GONE, NOBODY, b"{}")]
            while self.state.gone is None:
                if how == "session_expired" and await self._lives_on():
                    return
                over = self.state.ended(how, self.now())
                try:
                    record = await self._write(over, [entry_bytes(entry) for entry in last], over.ttl_s)
                except StoreConflict:
                    await self.refresh()
                    continue
                self._adopt(over, record)

    async def _lives_on(self) -> bool:
        """Has another process had a sign of the plugin."""
        record = await self.refresh()
        return record is None or self.state.gone is not None or self._life.lives_on(record)

    def _gone(self, state: SessionState, how: GoneState) -> None:
        self.state = state
        self._stop_timers()
        self.relay.end(how)
        self.feed.end(how, str(SessionGone(self.code, how)))
        self._lending.end()
        self._shared.counters.ended[how] += 1
        self._shared.forget(self.code)

    def _stop_timers(self) -> None:
        """No timer runs any more."""
        self._logbook.close()
        self._life.stop()
        self._presence.stop()
