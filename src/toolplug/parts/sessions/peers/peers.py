"""Sessions that several processes serve: what this process does when another one has changed something of them.

Each process follows the records of sessions, of the presence of their plugins, and of relayed calls. A change that it
hears is a hint: it may come late, twice or never. So each process also looks at these records every two seconds, and
each request that names a session first reads the revisions of its records (`Peers.fresh`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol, Self, cast

import orjson

from toolplug.cluster.followed import Follower
from toolplug.cluster.processes import Processes
from toolplug.errors import StoreConflict, StoreRefused
from toolplug.parts.sessions.expiry import Presence
from toolplug.parts.sessions.peers.relay import SharedRelay
from toolplug.parts.sessions.peers.shared_records import (
    CALLS,
    PRESENCES,
    CallRecords,
    PresenceRecords,
    StoredCall,
    StoredPresence,
    read_call,
    read_end,
    read_key,
    read_presence,
    read_progress,
)
from toolplug.parts.sessions.record import PREFIX, abbreviate_code, record_key
from toolplug.parts.sessions.shared import PeerRecords, SessionCallbacks, SessionCounters, SessionTasks
from toolplug.parts.sessions.tools.session_tool import PluginStatus
from toolplug.runtime.tasks import JoinedRuns
from toolplug.stores.store import VOLATILE, Change, Store, every_key

_MINUTE_S = 60.0
_AT_ONCE = 1000
"""Records whose revisions one trip reads."""
_LOG = logging.getLogger("toolplug.sessions")


class SharedUpdateRate:
    """The updates of one session in the last minute, at all processes, as a volatile record of their times."""

    def __init__(self, store: Store, code: str) -> None:
        self._store = store
        self._key = f"{VOLATILE}updates/{code}"
        self._revision = 0
        self._times: list[float] = []

    async def admit(self, count: int) -> float | None:
        """Count an update; if `count` were made in the last minute, return after how many seconds the next one may be.

        Raises `StoreError`.
        """
        while True:
            now = self._store.now()
            times = [time for time in self._times if time > now - _MINUTE_S]
            if len(times) >= count:
                return times[-count] + _MINUTE_S - now
            times.append(now)
            try:
                revision = await self._store.commit(
                    self._key,
                    orjson.dumps(times),
                    expected=self._revision,
                    ttl_s=_MINUTE_S,
                    to=self._store.id,  # nobody follows it
                )
            except StoreConflict:
                record = await self._store.read(self._key)
                self._revision = 0 if record is None else record.revision
                self._times = [] if record is None else cast("list[float]", orjson.loads(record.value))
                continue
            self._revision, self._times = revision, times
            return None


class PeerSession:
    """The part that one session of this process takes in what other processes do with it.

    `presence` is the session's, which is made with the `relay` of this.
    """

    presence: Presence

    def __init__(
        self, session: SessionCallbacks, background: SessionTasks, counters: SessionCounters, records: PeerRecords
    ) -> None:
        self.relay: SharedRelay = SharedRelay(session, background, counters, records.calls)
        self._code = session.code
        self._calls, self._presences, store = records
        self._updates = SharedUpdateRate(store, session.code)
        self._stored = StoredPresence()
        self._others: frozenset[str] = frozenset()
        self._delivers = False
        self._writing = asyncio.Lock()

    @property
    def presence_revision(self) -> int:
        """The revision of the presence record, as this process knows it."""
        return self._stored.revision

    @property
    def busy(self) -> bool:
        """True if this process has a stream of the plugin, or a caller that waits for it."""
        return self.relay.is_attached or bool(self.relay.of_callers)

    async def admit_update(self, count: int) -> float | None:
        """Count an update, at most `count` a minute, or return the seconds until one may be. Raises `StoreError`."""
        return await self._updates.admit(count)

    async def write_streams(self) -> None:
        """Write which streams of the plugin this process has. Raises `StoreError`."""
        async with self._writing:
            await self.adopt(await self._presences.set_streams(self._code, self.relay.streams))

    async def report(self, status: PluginStatus) -> bool:
        """Return True if this process logs the plugin's new status, and no other one. Raises `StoreError`.

        Waits until this process has stored its streams, since the record decides whether the status still holds.
        """
        async with self._writing:
            presence, logs = await self._presences.report(self._code, status)
            await self.adopt(presence)
        return logs

    async def remove(self) -> None:
        """Remove the presence record of a session that is over. Raises `StoreError`."""
        await self._presences.remove(self._code)

    async def refresh(self) -> None:
        """Read the presence record. Raises `StoreError`."""
        await self.adopt(await self._presences.read(self._code))

    async def adopt(self, presence: StoredPresence) -> None:
        """Take over the presence, unless a newer one is known, and send what now is for this process to send."""
        # 0 is no record: it is taken over, or a presence that was lost with the store would stay for ever.
        if 0 < presence.revision < self._stored.revision:
            return
        self._stored = presence
        self.relay.adopt_streams(presence.turns, (stream.id for stream in presence.streams))
        await self.look_at_streams()

    async def look_at_streams(self) -> None:
        """Take over which streams live now: processes may have ended. Raises `StoreError`."""
        live = self._presences.live(self._stored)
        others = frozenset(stream.id for stream in live if not self._presences.own(stream))
        newest = bool(live) and live[-1].id in others
        before, delivered = self._others, self._delivers
        self._others = others
        self.presence.set_remote(bool(others), newest=newest)
        if self._stored.reported == "detached" and not live:
            self.presence.give_up()
        self._delivers = self.relay.delivers
        # Requests wait without a sender when a process with a stream has ended, or this one sends again after nobody
        # did.
        if self._delivers and (before - others or not (delivered or others)):
            await self.collect(await self._calls.waiting(self._code))

    async def collect(self, call_ids: Iterable[str]) -> None:
        """Send the calls that wait, but for those that this process has sent. Raises `StoreError`."""
        for call_id in call_ids:
            if not self.relay.waits(call_id):
                await self._deliver(call_id, await self._calls.read(self._code, call_id))

    async def _deliver(self, call_id: str, call: StoredCall | None) -> None:
        """Send a call, unless it has ended since it was found. Raises `StoreError`."""
        over = self.relay.has_ended(call_id) and await self._calls.end_of(self._code, call_id) is not None
        if call is not None and not over:
            self.relay.deliver(call_id, call)

    async def hear_call(self, call_id: str, change: Change, *, is_end: bool) -> None:
        """Take note of a new call, of progress, or of the end of a call. Raises `StoreError`."""
        if not change.revision:
            return
        if is_end:
            if self.relay.waits(call_id):
                await self.hear_end(call_id, change.value)
        elif change.events:
            for event in change.events:
                self.relay.note_progress(call_id, read_progress(event.data))
        elif self.relay.delivers and not self.relay.waits(call_id):
            call = await self._calls.read(self._code, call_id) if change.value is None else read_call(change.value)
            await self._deliver(call_id, call)

    async def hear_end(self, call_id: str, value: bytes | None = None) -> None:
        """Take note of the end of a call. Raises `StoreError`."""
        end = await self._calls.end_of(self._code, call_id) if value is None else read_end(value)
        if end is not None:
            self.relay.note_end(call_id, end)

    async def renew(self, *, renamed: bool) -> None:
        """Write what names this process again if it has a new name, and end the calls of others that have ended.

        Raises `StoreError`.
        """
        known = {stream.id for stream in self._presences.live(self._stored)}
        if not known.issuperset(self.relay.streams):
            await self.write_streams()
        if renamed:
            await self.relay.publish_again()
        self.relay.end_orphans()
        await self.look_at_streams()


class SharedSession(Protocol):
    """The methods of `Session`, described there, that are called for changes by other processes."""

    code: str

    @property
    def peer(self) -> PeerSession | None: ...
    @property
    def record_revision(self) -> int: ...
    async def refresh(self) -> object: ...
    def hear(self, value: bytes, revision: int) -> None: ...
    def over(self) -> None: ...


class Peers:
    """The other processes that serve the same sessions; used inside `async with`.

    `find` returns a session that this process has, `live` all of them.
    """

    def __init__(
        self,
        store: Store,
        processes: Processes,
        find: Callable[[str], SharedSession | None],
        live: Callable[[], Sequence[SharedSession]],
    ) -> None:
        self.records: PeerRecords = PeerRecords(CallRecords(store, processes), PresenceRecords(store, processes), store)
        self._store = store
        self._processes = processes
        self._find = find
        self._live = live
        self._name = processes.name
        self._unreadable: dict[str, str] = {}
        self._fresh = JoinedRuns(self._refresh, "toolplug-sessions-fresh")
        self._followers = [
            Follower(store, PREFIX, self._hear_session, self._look),
            Follower(store, PRESENCES, self._hear_presence, self._look),
            Follower(store, CALLS, self._hear_call, self._look),
        ]

    async def __aenter__(self) -> Self:
        """Follow the records. Raises `StoreError`."""
        self._name = self._processes.name
        for follower in self._followers:
            await follower.start()
        self._processes.listen(self._look)
        return self

    async def __aexit__(self, *_: object) -> None:
        for follower in self._followers:
            await follower.aclose()
        await self._fresh.aclose()

    async def fresh(self, code: str) -> None:
        """Make the session as new as this call, one trip for all that ask at once. Raises `StoreError`.

        Raises `StoreUnavailable` also while the lease of this process has lapsed, and `StoreRefused` if the record is
        that of a later version: such a session stays as it was here, and other sessions go on.
        """
        self._processes.check()
        await self._fresh.join(code)
        if code in self._unreadable:
            raise StoreRefused(self._unreadable[code])

    async def _refresh(self, codes: set[str]) -> None:
        sessions = [session for code in codes if (session := self._find(code)) is not None]
        await self._refresh_all(sessions)

    async def _refresh_all(self, sessions: Iterable[SharedSession]) -> None:
        everything = [*sessions]
        # Half: there are two records of each session.
        for begin in range(0, len(everything), _AT_ONCE // 2):
            some = everything[begin : begin + _AT_ONCE // 2]
            keys = [key for session in some for key in (record_key(session.code), PRESENCES + session.code)]
            revisions = await self._store.revisions(keys)
            for session in some:
                if revisions[record_key(session.code)] != session.record_revision:
                    await self._reread(session)
                peer = session.peer
                if peer is not None and revisions[PRESENCES + session.code] != peer.presence_revision:
                    await peer.refresh()

    async def _reread(self, session: SharedSession) -> None:
        try:
            await session.refresh()
        except StoreRefused as error:
            if session.code not in self._unreadable:
                _LOG.error("%s is served by other processes only: %s", abbreviate_code(session.code), error)
            self._unreadable[session.code] = str(error)
        else:
            self._unreadable.pop(session.code, None)

    async def _look(self) -> None:
        """Look at everything that is in use here, as a change may not have been heard."""
        self._unreadable = {code: why for code, why in self._unreadable.items() if self._find(code) is not None}
        renamed, self._name = self._name != self._processes.name, self._processes.name
        sessions = [session for session in self._live() if session.peer is not None and session.peer.busy]
        for session in sessions:
            if session.peer is not None:
                await session.peer.renew(renamed=renamed)
        await self._refresh_all(sessions)
        if sessions:
            await self._look_at_calls()

    async def _look_at_calls(self) -> None:
        ended, waiting = set[tuple[str, str]](), list[tuple[str, str]]()
        async for key in every_key(self._store, CALLS):
            code, call_id, is_end = read_key(key)
            if is_end:
                ended.add((code, call_id))
            else:
                waiting.append((code, call_id))
        for code, call_id in waiting:
            session = self._find(code)
            peer = None if session is None else session.peer
            if peer is None:
                continue
            if (code, call_id) not in ended:
                if peer.relay.delivers:
                    await peer.collect([call_id])
            elif peer.relay.waits(call_id):
                await peer.hear_end(call_id)

    async def _hear_session(self, change: Change) -> None:
        session = self._find(change.key.removeprefix(PREFIX))
        if session is None:
            return
        if not change.revision:
            session.over()
        elif change.revision > session.record_revision:
            if change.value is None or session.code in self._unreadable:
                await self._reread(session)
            else:
                try:
                    session.hear(change.value, change.revision)
                except StoreRefused:
                    await self._reread(session)

    async def _hear_presence(self, change: Change) -> None:
        session = self._find(change.key.removeprefix(PRESENCES))
        if session is None or session.peer is None or not change.revision:
            return
        if change.value is None:
            await session.peer.refresh()
        else:
            await session.peer.adopt(read_presence(change.value, change.revision))

    async def _hear_call(self, change: Change) -> None:
        code, call_id, is_end = read_key(change.key)
        session = self._find(code)
        if session is not None and session.peer is not None:
            await session.peer.hear_call(call_id, change, is_end=is_end)
