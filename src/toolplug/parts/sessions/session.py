"""Live sessions: registered tools, connected streams, and the end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import replace

from toolplug.catalog.call import Principal
from toolplug.catalog.text import clean_text, pluralize
from toolplug.errors import ApiError, GoneState, SessionGone, StoreConflict, StoreError
from toolplug.execution.accounting import audit
from toolplug.execution.limiters import RateLimit
from toolplug.execution.live import LiveCatalog
from toolplug.parts.sessions.expiry import REMEMBERED, RETRY_S, Expiry, Presence
from toolplug.parts.sessions.peers.peers import PeerSession
from toolplug.parts.sessions.record import SessionState, abbreviate_code, read_state, record_key, state_bytes
from toolplug.parts.sessions.relay import Relay
from toolplug.parts.sessions.shared import SessionServices
from toolplug.parts.sessions.streams.events import (
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
from toolplug.parts.sessions.streams.stream import EventFanout, Reader, SessionLog
from toolplug.parts.sessions.tools.executors import SessionExecutors
from toolplug.parts.sessions.tools.negotiation import (
    Registration,
    RegistrationResult,
    ToolChanges,
    UpdateResult,
    apply_update,
    negotiate,
    read_changes,
)
from toolplug.parts.sessions.tools.session_tool import PluginStatus, StreamRole, ToolDifference
from toolplug.stores.store import Record


class Session:
    """A session of this process: created or loaded by `Sessions`, which holds it until it is over.

    Times are seconds on the store's clock. `record` is the revision of the stored record, `sign_at` the plugin's last
    sign in it.
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
        # Changes of one process take turns; those of others are found by the revision of the record.
        self._writing = asyncio.Lock()
        self._rate = RateLimit(shared.limits.max_updates_per_minute, 60, "the session")
        self._logbook = SessionLog(self._key, shared.store, shared.background, self.over)
        self.feed: EventFanout = EventFanout(
            self._key, shared.store, self._logbook, self, shared.background, shared.counters
        )
        self.peer: PeerSession | None = None
        if shared.peers is None:
            self.relay: Relay = Relay(self, shared.background, shared.counters)
        else:
            self.peer = PeerSession(self, shared.background, shared.counters, shared.peers)
            self.relay = self.peer.relay
        self._presence = Presence(self, self.relay, lambda: shared.limits.grace_s)
        if self.peer is not None:
            # Set afterwards: each of the two needs the other one.
            self.peer.presence = self._presence
        self._lending = SessionExecutors(code, shared, self.relay.request)
        self._life = Expiry(
            self,
            ttl_s=state.ttl_s,
            sign_at=sign_at,
            expires_at=expires_at,
            clock=shared.store.now,
            background=shared.background,
        )
        # A session that was loaded has no stream yet: its plugin gets the grace time to come back.
        if state.registered:
            self._presence.expect()

    @property
    def revision(self) -> int:
        """The revision of the registered tools: it rises by one with every change."""
        return self.state.revision

    @property
    def expires_at(self) -> float:
        """The time of expiry, in seconds on the store's clock, unless the plugin gives a sign before."""
        return self._life.expires_at

    @property
    def tenant(self) -> str:
        """The tenant that the session belongs to."""
        return self.state.tenant

    @property
    def plugin_status(self) -> PluginStatus:
        """`attached` with an open stream, `waiting` within the grace time, else `detached`."""
        return self._presence.status

    @property
    def record_revision(self) -> int:
        """The revision of the stored record, as this process knows it."""
        return self._record

    @property
    def is_attached(self) -> bool:
        """True while a stream of the plugin is open, in any process."""
        return self._presence.is_attached

    @property
    def attached_here(self) -> bool:
        """True while this process has an open stream of the plugin."""
        return self.relay.is_attached

    @property
    def reachable(self) -> bool:
        """True while the plugin is attached or may come back within the grace time."""
        return self._presence.reachable

    @property
    def executor(self) -> LiveCatalog:
        """The executor of the session's own tools: those that its plugin has registered, until then the default."""
        return self._lending.executor(self.state, reachable=self.reachable)

    @property
    def max_waiting(self) -> int:
        """The number of calls that may wait for the plugin at once."""
        return self._shared.limits.max_waiting_calls

    def now(self) -> float:
        """Return the store's time in seconds."""
        return self._shared.store.now()

    def check(self) -> None:
        """Raise `SessionGone` if the session is over or has expired."""
        if self.state.gone is not None:
            raise SessionGone(self.code, self.state.gone)
        if self._life.due:
            self._life.watch(soonest_s=0.0)
            raise SessionGone(self.code, "session_expired")

    def touch(self) -> float:
        """Take a sign of the plugin, which is stored in the background, and return the new time of expiry."""
        return self._life.sign()

    async def heartbeat(self) -> float:
        """Take and store a sign of the plugin, and return the new expiry. Raises `SessionGone` and `StoreError`."""
        self.check()
        return await self._life.store_sign()

    async def register(self, asked: Registration, *, request_id: str = "") -> RegistrationResult:
        """Replace all tools. Raises `ApiError`, `SessionGone` and `StoreError`; then nothing has changed."""
        with self._note_change("register", request_id):
            self.check()
            self.touch()
            # The first registration is not counted; the flag is taken before anything is awaited, so that only one is
            # free.
            free, self._unregistered = self._unregistered, False
            if not free:
                await self._check_rate()
            try:
                found = await negotiate(asked, self.tenant, self._shared)
                revision, _ = await self._change(found.apply_to, "registered")
            except BaseException as error:
                # A registration that was refused leaves the first one free.
                self._unregistered = free and not self.state.registered
                if free and isinstance(error, ApiError):
                    await self._check_rate()
                raise
            self._presence.expect()
            return RegistrationResult(tuple(found.tools.tools), found.failed, revision, found.cleaned)

    async def update(
        self, asked: ToolChanges, reason: str, expected: int | None = None, *, request_id: str = ""
    ) -> UpdateResult:
        """Apply all of these changes or none; `expected` is the revision that the session must have, if not None.

        Raises `ApiError`, `SessionGone` and `StoreError`.
        """

        def change(state: SessionState) -> SessionState:
            if expected is not None and expected != state.revision:
                message = f"the session is at revision {state.revision}, not {expected}; read its metadata again"
                raise ApiError("revision_mismatch", message, param="If-Match")
            return apply_update(state, changes, self._shared)

        with self._note_change("update", request_id):
            self.check()
            self.touch()
            await self._check_rate()
            changes = await read_changes(asked, self._shared.pool)
            return UpdateResult(*await self._change(change, clean_text(reason)), changes.cleaned)

    @contextmanager
    def _note_change(self, kind: str, request_id: str) -> Generator[None]:
        """Write one audit line and one count for a change that is made or refused with an `ApiError`."""
        try:
            yield
        except ApiError as error:
            self._note(kind, error.code, request_id)
            raise
        self._note(kind, "done", request_id)

    def _note(self, kind: str, outcome: str, request_id: str) -> None:
        self._shared.counters.changes[kind, outcome] += 1
        audit(f"session.{kind}", outcome, Principal(PLUGIN, self.tenant), abbreviate_code(self.code), request_id)

    async def open_stream(self, role: StreamRole, last_event_id: str | None) -> Reader:
        """Open an event stream; the caller must call `close_stream`. Raises `SessionGone` and `StoreError`."""
        self.check()
        reader = await self.feed.open(role, last_event_id)
        # The session may have ended while the stream was being opened.
        if reader.closed:
            self.feed.close(reader)
            self.check()
        elif role == "plugin":
            self._presence.attach(reader.id)
            self._plugin_signs()
            try:
                await self._write_streams()
            except BaseException:
                self.close_stream(reader)
                raise
        return reader

    def close_stream(self, reader: Reader) -> None:
        self.feed.close(reader)
        if reader.role == "plugin" and not self._life.stopped:
            self._presence.detach(reader.id)
            self._plugin_signs()
            if self.peer is not None:
                self._shared.background.finish(self._write_streams(), "session-presence")

    async def _write_streams(self) -> None:
        """Let the other processes know which streams of the plugin this one has. Raises `StoreError`."""
        if self.peer is not None:
            await self.peer.write_streams()

    async def log_page(self, after: int | None) -> LogPage | None:
        """Return the log after the event with this id (None: all of it); None if the log does not have the event.

        Requests are logged without their arguments. Raises `StoreError`.
        """
        page = await self._logbook.after(after)
        return log_page(page.entries, after or 0) if page.known else None

    def tools_wire(self, state: SessionState | None = None) -> bytes:
        """Return the tools as a JSON array, each with `available` and, if it is not, the `reason`."""
        state = self.state if state is None else state
        default = None if state.registered else self._shared.neighbours.default_tools(self.tenant)
        if default is not None:
            return default_tool_list(default.catalog)
        reason = None if self.reachable else "plugin_gone"
        if self._shared.planner.hides:
            reason = "disabled"
        return tool_list(
            state.tools, reason, lambda name: self._shared.neighbours.owner_of(self.tenant, name) is not None
        )

    def replan(self) -> None:
        """Publish the tools with new plans, as the operator's rules have changed."""
        self._lending.publish(self.state, reachable=self.reachable, anew=True)

    async def end(self) -> None:
        """End the session: close its streams, answer waiting calls, remove its tools. Raises `StoreError`."""
        await self._shared.background.unbroken(self._finish("session_ended"), "session-end")

    def stop(self) -> None:
        """Close the streams and answer waiting calls, as the host stops; the stored session stays."""
        self._stop_timers()
        self.relay.end("host_stopping")
        self.feed.stop()

    # The methods of `SessionCallbacks`, for the expiry, the event streams and the relay.

    async def keep_sign(self, ttl_s: float) -> None:
        """Keep the record for this many seconds from now on, unless the session is over. Raises `StoreError`."""
        # Under the lock, so that no change writes a shorter time to live in between.
        async with self._writing:
            if self.state.gone is None:
                await self._shared.store.extend(self._key, ttl_s=ttl_s)

    async def expire(self) -> None:
        """End the session if it has expired and its record has no later sign. Raises `StoreError`."""
        if self._life.due:
            await self._shared.background.unbroken(self._finish("session_expired"), "session-end")

    async def log(self, entry: LogEntry) -> bool:
        """Append to the log; return False if the session is over. Raises `StoreError`."""
        return await self._logbook.write(entry)

    def tell(self, stream: str, event: str, data: bytes, logged: bytes) -> bool:
        """Send an event to one stream now, and log `logged` soon; return False if the stream has no room now."""
        return self.feed.tell(stream, event, data, logged)

    def has_room(self) -> None:
        """Send waiting requests, as a stream that had no room has been read."""
        self.relay.send_waiting()

    def connected_data(self, record: Record) -> bytes:
        """Return the data of `connected` for a snapshot of the record, which is adopted if it is newer."""
        state = self.state
        if record.revision != self._record:
            state = read_state(record.value, self._shared.pool)
            self._adopt(state, record.revision)
        return connected_data(self.code, state, self.plugin_status, self.tools_wire(state))

    def resumed_data(self) -> bytes:
        """Return the data of `connected` for a reader that resumes where it was."""
        return connected_data(self.code, self.state, self.plugin_status, None)

    async def refresh(self) -> Record | None:
        """Read the record and adopt what another process has written; return None if the record has expired."""
        record = await self._shared.store.read(self._key)
        if record is None:
            self.over()
        elif record.revision > self._record:
            self._adopt(read_state(record.value, self._shared.pool), record.revision)
        return record

    def hear(self, value: bytes, revision: int) -> None:
        """Adopt what another process has written, unless this one is writing, and adopts it then."""
        # A writer finds the newer record by its conflict and reads it then; adopting it here would change its state
        # midway.
        if not self._writing.locked():
            self._adopt(read_state(value, self._shared.pool), revision)

    def over(self) -> None:
        """End the session in this process, as its record has expired."""
        if self.state.gone is None:
            self._on_gone(self.state.end("session_expired", self.now()), "session_expired")

    def began_again(self, role: StreamRole, stream: str) -> None:
        """Send the requests of a stream again that has dropped what it was sent."""
        if role == "plugin":
            self.relay.resend(stream)

    # Changes.

    async def _change(self, change: Callable[[SessionState], SessionState], reason: str) -> tuple[int, ToolDifference]:
        return await self._shared.background.unbroken(self._commit(change, reason), "session-change")

    async def _commit(self, change: Callable[[SessionState], SessionState], reason: str) -> tuple[int, ToolDifference]:
        """Change the record by compare-and-swap and log the change; return the new revision and the difference."""
        async with self._writing:
            while True:
                self.check()
                before, now = self.state, self.now()
                # Called again after each conflict, on the state that the other process has left.
                after = change(before)
                difference = before.tools.difference(after.tools)
                if after is before:
                    return before.revision, difference
                after = replace(after, updated_at=now)
                event = LogEntry(UPDATE, EVERYBODY, update_data(self.code, after, difference, reason), after.revision)
                try:
                    # Record and event in one transaction: a reader of the log never sees an update that was not made.
                    record = await self._write(after, [entry_bytes(event)], after.ttl_s * REMEMBERED)
                except StoreConflict:
                    await self.refresh()
                    continue
                self._life.note_written()
                self._adopt(after, record)
                return after.revision, difference

    async def _write(self, state: SessionState, events: Sequence[bytes], ttl_s: float) -> int:
        store = self._shared.store
        return await store.commit(self._key, state_bytes(state), expected=self._record, ttl_s=ttl_s, events=events)

    def _adopt(self, state: SessionState, record: int) -> None:
        """Take over the state of this revision of the record, unless a newer one is known."""
        # Hints may come late and in any order; a revision is never adopted backwards.
        if record <= self._record or self.state.gone is not None:
            return
        first = state.registered and not self.state.registered
        self._record = record
        if state.gone is not None:
            self._on_gone(state, state.gone)
            return
        self.state = state
        if first:
            self._unregistered = False
        if first and not self.reachable:
            self._presence.expect()
        else:
            self.publish()

    async def _check_rate(self) -> None:
        count = self._shared.limits.max_updates_per_minute
        if self.peer is None:
            self._rate.resize(count, 60)
            refusal = await self._rate.admit(0.0)
            retry_after_s = None if refusal is None else refusal.retry_after_s
        else:
            retry_after_s = await self.peer.admit_update(count)
        if retry_after_s is not None:
            message = f"a session takes {pluralize(count, 'update')} a minute; put several changes into one"
            raise ApiError("too_many_updates", message, retry_after_s=retry_after_s)

    # Presence of the plugin.

    def publish(self) -> None:
        """Publish the tools again: they or their availability have changed."""
        self._lending.publish(self.state, reachable=self.reachable)

    def status_changed(self, status: PluginStatus) -> None:
        """Send the plugin's new status to every stream."""
        self._shared.background.start(self._log_status(status), "session-status")

    async def _log_status(self, status: PluginStatus) -> None:
        if await self._logs(status):
            await self.log(LogEntry(STATUS, EVERYBODY, status_data(self.code, status, self.now())))

    async def _logs(self, status: PluginStatus) -> bool:
        """Return True if this process logs the status, and no other one; tries again while the store fails."""
        while self.peer is not None and self.state.gone is None:
            try:
                return await self.peer.report(status)
            except StoreError:
                await asyncio.sleep(RETRY_S)
        return self.peer is None

    def _plugin_signs(self) -> None:
        """Take the opening or end of a plugin's stream as a sign."""
        self.touch()
        self._life.watch()

    # Its end.

    async def _finish(self, how: GoneState) -> None:
        async with self._writing:
            last = [*self._logbook.late(), LogEntry(GONE, NOBODY, b"{}")]
            while self.state.gone is None:
                if how == "session_expired" and await self._lives_on():
                    return
                over = self.state.end(how, self.now())
                try:
                    record = await self._write(over, [entry_bytes(entry) for entry in last], over.ttl_s)
                except StoreConflict:
                    await self.refresh()
                    continue
                self._adopt(over, record)

    async def _lives_on(self) -> bool:
        """Return True if another process has had a sign of the plugin, or has ended the session."""
        record = await self.refresh()
        return record is None or self.state.gone is not None or self._life.lives_on(record)

    def _on_gone(self, state: SessionState, how: GoneState) -> None:
        self.state = state
        # First, since an expiry in between would end the session a second time.
        self._stop_timers()
        self.relay.end(how)
        if self.peer is not None:
            self._shared.background.finish(self.peer.remove(), "session-presence")
        self.feed.end(how, str(SessionGone(self.code, how)))
        self._lending.end()
        self._shared.counters.ended[how] += 1
        self._shared.forget(self.code)

    def _stop_timers(self) -> None:
        self._logbook.close()
        self._life.stop()
        self._presence.stop()
