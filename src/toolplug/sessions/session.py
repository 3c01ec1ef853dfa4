"""One live session: what is registered, who is connected, and how long it lives."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import replace
from typing import NamedTuple, TypeVar
from weakref import ref

import orjson

from toolplug.catalog.catalog import EMPTY_CATALOG, Catalog
from toolplug.catalog.definition import ToolDefinition
from toolplug.catalog.plan import Tool
from toolplug.errors import FailedTool, GoneState, SessionGone, SessionRefused, StoreConflict
from toolplug.execution.limits import Abandoned, Rate
from toolplug.execution.live import LiveCatalog
from toolplug.execution.switch import SourceSwitch
from toolplug.sessions.code import is_token_of
from toolplug.sessions.feed import Feed
from toolplug.sessions.lent_tools import LentTools
from toolplug.sessions.log_entry import EVERYBODY, GONE, NOBODY, STATUS, UPDATE, LogEntry, entry_bytes
from toolplug.sessions.logged_event import LoggedEvent, logged_events
from toolplug.sessions.negotiation import Registration, ToolChanges, changed, negotiated, read_changes
from toolplug.sessions.reader import Reader
from toolplug.sessions.record import SessionState, read_state, record_key, state_bytes
from toolplug.sessions.relay import Relay
from toolplug.sessions.session_tool import SOURCE
from toolplug.sessions.shared import Shared
from toolplug.sessions.timestamp import timestamp
from toolplug.sessions.tool_list import default_tool_list, tool_list
from toolplug.sessions.tool_set import Difference
from toolplug.sessions.vocabulary import PluginStatus, StreamRole
from toolplug.stores.store import Record

T = TypeVar("T")

REMEMBERED = 2.1
"""How many times to live a record is kept after the last sign that it holds.

One is the session's life, one more the time for which it is remembered; a tenth is how far the last sign may be ahead
of the one that the record holds.
"""
_SIGN_KEPT_EVERY = 0.1


class Registered(NamedTuple):
    """What a registration took, and what it could not."""

    names: tuple[str, ...]
    failed: tuple[FailedTool, ...]
    revision: int


class Updated(NamedTuple):
    """What an update changed."""

    revision: int
    difference: Difference


class Session:
    """A session of this process: created or loaded by `Sessions`, which holds it until it is over.

    Times are seconds on the store's clock. `revision` rises by one with every change of what is registered.
    """

    def __init__(self, code: str, state: SessionState, record: int, expires_at: float, shared: Shared) -> None:
        self.code: str = code
        self.state: SessionState = state
        self.expires_at: float = expires_at
        self._record = record
        self._shared = shared
        self._key = record_key(code)
        self._kept_at = shared.clock()
        self._writing = asyncio.Lock()
        self._rate = Rate(shared.limits.max_updates_per_minute, 60, "the session")
        self._switch = SourceSwitch()
        self._brake = Abandoned(SOURCE)
        self._executor: ref[LentTools] | None = None
        self._noted: PluginStatus | None = None
        self._grace: asyncio.TimerHandle | None = None
        self.feed: Feed = Feed(self._key, shared.store, self, shared.background, shared.counters)
        self.relay: Relay = Relay(self, shared.background, shared.counters)
        self._expiry = self._expire_later()
        if state.registered:
            self._begin_grace()

    @property
    def revision(self) -> int:
        """The revision of what is registered."""
        return self.state.revision

    @property
    def tenant(self) -> str:
        """Whose session it is."""
        return self.state.tenant

    @property
    def plugin_status(self) -> PluginStatus:
        """Whether the plugin is there, may come back, or is gone."""
        if self.relay.attached:
            return "attached"
        return "detached" if self._grace is None else "waiting"

    @property
    def reachable(self) -> bool:
        """Is the plugin there, or may it come back within the grace time."""
        return self.relay.attached or self._grace is not None

    @property
    def executor(self) -> LiveCatalog:
        """The session's own tools as they are now: what its plugin registered, before that the default tools."""
        lent = self._lent()
        if lent is None:
            state, neighbours = self.state, self._shared.neighbours
            lent = LentTools(
                self._shared.planner.ledger.series("_unknown", "_unknown"),
                None if state.registered else neighbours.default_tools(self.tenant),
            )
            self._executor = ref(lent)
            lent.lend(self._catalog(EMPTY_CATALOG), registered=state.registered)
        self._shared.executors.used(self.code, lent)
        return lent

    @property
    def max_waiting(self) -> int:
        """How many calls of its tools may wait at once."""
        return self._shared.limits.max_waiting_calls

    def now(self) -> float:
        """The store's time."""
        return self._shared.clock()

    def holds(self, token: str) -> bool:
        """Is this the token of the session's plugin."""
        return is_token_of(self.state.token_digest, token)

    def check(self) -> None:
        """Raise `SessionGone` where the session is over."""
        if self.state.gone is None and not self.relay.attached and self.now() >= self.expires_at:
            self._shared.background.start(self._expire(), "session-expiry")
            raise SessionGone(self.code, "session_expired")
        if self.state.gone is not None:
            raise SessionGone(self.code, self.state.gone)

    def touch(self) -> float:
        """A sign of the plugin's life; the time at which the session now expires."""
        now, ttl_s = self.now(), self.state.ttl_s
        self.expires_at = now + ttl_s
        if abs(now - self._kept_at) >= ttl_s * _SIGN_KEPT_EVERY:
            self._kept_at = now
            self._shared.background.start(self._keep_sign(), "session-sign")
        return self.expires_at

    async def register(self, asked: Registration) -> Registered:
        """Replace the whole set. Raises `SessionRefused`, `SessionGone` and `StoreError`; then nothing has changed."""
        self.check()
        self.touch()
        first = not self.state.registered
        if not first:
            await self._check_rate()
        try:
            found = await negotiated(asked, self.tenant, self._shared)
            await self._changed(found.applied, "registered")
        except SessionRefused:
            if first:
                await self._check_rate()
            raise
        return Registered(tuple(found.tools.tools), found.failed, self.revision)

    async def update(self, asked: ToolChanges, reason: str, expected: int | None = None) -> Updated:
        """Change a part of the set, all of it or nothing; `expected` is the revision that it must have.

        Raises `SessionRefused`, `SessionGone` and `StoreError`.
        """
        self.check()
        self.touch()
        await self._check_rate()
        changes = await read_changes(asked, self._shared.pool)

        def change(state: SessionState) -> SessionState:
            if expected is not None and expected != state.revision:
                message = f"the session is at revision {state.revision}, not {expected}; read its metadata again"
                raise SessionRefused("revision_mismatch", message, param="If-Match")
            return changed(state, changes, self._shared)

        return Updated(*await self._changed(change, reason))

    async def open_stream(self, role: StreamRole, last_event_id: str | None) -> Reader:
        """A new stream of events. Raises `SessionGone` and `StoreError`; `close_stream` must follow."""
        self.check()
        reader = await self.feed.open(role, last_event_id)
        if role == "plugin":
            self._attach(reader)
        return reader

    def close_stream(self, reader: Reader) -> None:
        """The stream has ended."""
        self.feed.close(reader)
        if reader.role == "plugin" and self.state.gone is None:
            self.relay.detach(reader.id)
            self.touch()
            if not self.relay.attached:
                self._begin_grace()

    async def log_page(self, after: int | None) -> tuple[LoggedEvent, ...] | None:
        """What the log holds after a position, None for all of it; None where it does not hold the position.

        Arguments of requests are left out. Raises `StoreError`.
        """
        page = await self._shared.store.events(self._key, after)
        return logged_events(page.entries) if page.known else None

    def tools_wire(self, state: SessionState | None = None) -> bytes:
        """The tools as a JSON array for people and plugins: each with whether it can be called now."""
        state = self.state if state is None else state
        default = None if state.registered else self._shared.neighbours.default_tools(self.tenant)
        if default is not None:
            return default_tool_list(default.catalog)
        reason = None if self.reachable else "plugin_gone"
        return tool_list(state.tools, reason, lambda name: self._shared.neighbours.taken(self.tenant, name) is not None)

    def replanned(self) -> None:
        """The operator's rules have changed."""
        lent = self._lent()
        if lent is not None:
            lent.lend(self._catalog(EMPTY_CATALOG), registered=self.state.registered)

    async def end(self) -> None:
        """End the session: streams close, waiting calls are answered, tools are gone. Raises `StoreError`."""
        await self._shielded(self._finish("session_ended"))

    def stop(self) -> None:
        """The host stops: the session goes on where it is loaded next."""
        self._still()
        self.relay.lose("host_stopping")
        for reader in self.feed.readers:
            reader.close()

    # What feed and relay ask of their session.

    async def log(self, entry: LogEntry) -> bool:
        """Append to the log; False where the session is over. Raises `StoreError`."""
        return await self._shared.store.extend(self._key, events=[entry_bytes(entry)])

    def connected(self, record: Record) -> bytes:
        """The data of `connected` for the session as the record has it."""
        state = self.state if record.revision == self._record else read_state(record.value, self._shared.pool)
        return orjson.dumps(self._head(state) | {"tools": orjson.Fragment(self.tools_wire(state)), "resumed": False})

    def resumed(self) -> bytes:
        """The data of `connected` for a reader that goes on where it was."""
        return orjson.dumps(self._head(self.state) | {"resumed": True})

    async def refresh(self) -> None:
        """Take over what another process has written."""
        record = await self._shared.store.read(self._key)
        if record is None:
            await self.over()
        elif record.revision != self._record:
            self._adopt(read_state(record.value, self._shared.pool), record.revision)

    async def over(self) -> None:
        """The record has expired."""
        self._gone("session_expired")

    def began_again(self, reader: Reader) -> None:
        """The stream has dropped what it was sent: its requests go out again."""
        if reader.role == "plugin":
            self.relay.resend(reader.id)

    # Changes.

    async def _changed(self, change: Callable[[SessionState], SessionState], reason: str) -> tuple[int, Difference]:
        return await self._shielded(self._commit(change, reason))

    async def _shielded(self, work: Coroutine[None, None, T]) -> T:
        """Do the work to its end, also where its caller goes away: a commit that is begun may be kept."""
        return await asyncio.shield(asyncio.ensure_future(work))

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
                event = LogEntry(UPDATE, EVERYBODY, self._update(after, difference, reason), after.revision)
                try:
                    record = await self._write(after, [entry_bytes(event)], after.ttl_s * REMEMBERED)
                except StoreConflict:
                    await self.refresh()
                    continue
                self._kept_at, self.expires_at = now, now + after.ttl_s
                self._adopt(after, record)
                return after.revision, difference

    async def _write(self, state: SessionState, events: Sequence[bytes], ttl_s: float) -> int:
        store = self._shared.store
        return await store.commit(self._key, state_bytes(state), expected=self._record, ttl_s=ttl_s, events=events)

    def _adopt(self, state: SessionState, record: int) -> None:
        first = state.registered and not self.state.registered
        self.state, self._record = state, record
        if state.gone is not None:
            self._gone(state.gone)
            return
        if first and not self.reachable:
            self._begin_grace()
        self._publish()

    def _update(self, state: SessionState, difference: Difference, reason: str) -> bytes:
        return orjson.dumps(
            {
                "sessionCode": self.code,
                "updates": orjson.Fragment(difference.wire()),
                "revision": state.revision,
                "timestamp": timestamp(state.updated_at),
                "reason": reason,
            }
        )

    async def _check_rate(self) -> None:
        self._rate.resized(self._shared.limits.max_updates_per_minute, 60)
        refusal = await self._rate.admit(0.0)
        if refusal is not None:
            message = f"a session takes {self._rate.count} updates a minute; put several changes into one"
            raise SessionRefused("too_many_updates", message, retry_after_s=refusal.retry_after_s)

    # The plugin's coming and going.

    def _attach(self, reader: Reader) -> None:
        was_reachable = self.reachable
        if self._grace is not None:
            self._grace.cancel()
            self._grace = None
        self.relay.attach(reader.id)
        self.touch()
        if not was_reachable:
            self._publish()
        self._note("attached")

    def _begin_grace(self) -> None:
        loop = asyncio.get_running_loop()
        self._grace = loop.call_later(self._shared.limits.grace_s, self._grace_is_over)

    def _grace_is_over(self) -> None:
        self._grace = None
        self.relay.lose("plugin_gone")
        self._publish()
        self._note("detached")

    def _note(self, status: PluginStatus) -> None:
        if self._noted != status:
            self._noted = status
            data = {"sessionCode": self.code, "status": status, "timestamp": timestamp(self.now())}
            self._shared.background.start(self._log_status(orjson.dumps(data)), "session-status")

    async def _log_status(self, data: bytes) -> None:
        await self.log(LogEntry(STATUS, EVERYBODY, data))

    def _head(self, state: SessionState) -> dict[str, object]:
        return {
            "sessionCode": self.code,
            "revision": state.revision,
            "registered": state.registered,
            "pluginStatus": self.plugin_status,
        }

    # Its executor.

    def _lent(self) -> LentTools | None:
        """The executor, where anybody has it."""
        return None if self._executor is None else self._executor()

    def _publish(self) -> None:
        lent = self._lent()
        if lent is not None:
            lent.lend(self._catalog(lent.own), registered=self.state.registered)

    def _catalog(self, before: Catalog) -> Catalog:
        """The session's tools; those of a plugin that is gone are away. What did not change stays the same object."""
        known = before if before.away is None else before.away
        tools = [self._tool(item.definition, known) for item in self.state.tools.tools.values()]
        return Catalog(tools) if self.reachable else Catalog(away=Catalog(tools))

    def _tool(self, definition: ToolDefinition, known: Catalog) -> Tool:
        kept = known.get(definition.name)
        if kept is not None and kept.definition is definition:
            return kept
        return self._shared.planner.tool(definition, self.relay.request, self._switch, self._brake)

    # Its life.

    def _expire_later(self) -> asyncio.TimerHandle:
        left = max(self.expires_at - self.now(), 0.05)
        return asyncio.get_running_loop().call_later(left, self._expire_if_due)

    def _expire_if_due(self) -> None:
        if self.relay.attached:
            self.touch()
        if self.now() < self.expires_at:
            self._expiry = self._expire_later()
        else:
            self._shared.background.start(self._expire(), "session-expiry")

    async def _expire(self) -> None:
        if self.state.gone is None:
            await self._finish("session_expired")

    async def _keep_sign(self) -> None:
        await self._shared.store.extend(self._key, ttl_s=self.state.ttl_s * REMEMBERED)

    async def _finish(self, how: GoneState) -> None:
        async with self._writing:
            while self.state.gone is None:
                state = self.state
                over = SessionState(
                    tenant=state.tenant,
                    token_digest=state.token_digest,
                    ttl_s=state.ttl_s,
                    plugin_type=state.plugin_type,
                    updated_at=self.now(),
                    revision=state.revision,
                    gone=how,
                )
                try:
                    record = await self._write(over, [entry_bytes(LogEntry(GONE, NOBODY, b"{}"))], state.ttl_s)
                except StoreConflict:
                    await self.refresh()
                    continue
                self._adopt(over, record)

    def _gone(self, how: GoneState) -> None:
        self.state = replace(self.state, gone=how)
        self._still()
        self._switch.open = False
        self.relay.lose(how)
        self.feed.end(how, str(SessionGone(self.code, how)))
        lent = self._lent()
        if lent is not None:
            lent.end()
        self._shared.counters.ended[how] += 1
        self._shared.executors.forget(self.code)
        self._shared.forget(self.code)

    def _still(self) -> None:
        """No timer runs any more."""
        self._expiry.cancel()
        if self._grace is not None:
            self._grace.cancel()
            self._grace = None
