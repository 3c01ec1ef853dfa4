"""The volatile records by which processes that share a store serve one session: presences, relayed calls, new sessions.

~presence/CODE     the plugin streams of a session in all processes. It changes when one is opened or ends. A stream
                   lives as long as the process that has it runs; the newest one that lives gets all requests.
~call/CODE/ID      a relayed call, so that any process can deliver it and take its answer: written once, before it is
                   delivered, by the process of its caller.
~call/CODE/ID/end  written once, by the first process that ends the call: with the plugin's answer, or with why it is
                   too late.

A process looks at all sessions of the store every ten seconds only. So, for exact quotas of sessions, each session that
a quota counts first takes a place in a record of the quota's owner, the list of the owner's new sessions, which is
written only if no other process has written it since it was read. A process counts the sessions of that list in
addition to those it knows, so that no two processes take the last place.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple, NotRequired, TypedDict, cast

import orjson
from pydantic import TypeAdapter

from toolplug.catalog.call import ToolResult, ToolStatus
from toolplug.catalog.exact_json import dump_json, load_json
from toolplug.cluster.processes import Processes
from toolplug.errors import StoreConflict
from toolplug.host.quotas.settings import Owner
from toolplug.parts.sessions.tools.session_tool import PluginStatus
from toolplug.runtime.keyed_locks import KeyedLocks
from toolplug.stores.store import VOLATILE, Store, every_key, name_digest

PRESENCES = f"{VOLATILE}presence/"
_LOG = logging.getLogger("toolplug.sessions")
_PRESENCE_KEPT_S = 172_800.0
"""Seconds after the last change; the process of a stream that is open for longer writes it again."""


class OpenStream(NamedTuple):
    """One stream of a plugin: its id, and the name of the process that has it."""

    id: str
    process: str


class StoredPresence(NamedTuple):
    """The streams, the oldest first, the time of the store at which the last one ended, and the status that was logged.

    `revision` is that of the record, 0 for none. `turns` counts how often another stream became
    the newest, which gets the requests.
    """

    revision: int = 0
    streams: tuple[OpenStream, ...] = ()
    vacant_at: float | None = None
    reported: PluginStatus | None = None
    turns: int = 0


class PresenceRecords:
    """The presence records in a store that several processes share."""

    def __init__(self, store: Store, processes: Processes) -> None:
        self._store = store
        self._processes = processes

    async def read(self, code: str) -> StoredPresence:
        """Return the presence of a session's plugin. Raises `StoreError`."""
        record = await self._store.read(PRESENCES + code)
        return StoredPresence() if record is None else read_presence(record.value, record.revision)

    def live(self, presence: StoredPresence) -> tuple[OpenStream, ...]:
        """Return the streams whose processes run, the oldest first."""
        return tuple(stream for stream in presence.streams if self._processes.runs(stream.process))

    def own(self, stream: OpenStream) -> bool:
        """Return True for a stream of this process, also one of a name that it no longer has."""
        return stream.process.partition(".")[0] == self._processes.name.partition(".")[0]

    async def set_streams(self, code: str, local: tuple[str, ...]) -> StoredPresence:
        """Make these the streams of this process, in their order, and return the presence. Raises `StoreError`."""

        def change(now: StoredPresence) -> StoredPresence:
            live = self.live(now)
            known = {stream.id for stream in live}
            streams = [stream for stream in live if not self.own(stream) or stream.id in local]
            streams += [OpenStream(item, self._processes.name) for item in local if item not in known]
            vacant_at = None
            if not streams:
                vacant_at = now.vacant_at or self._store.now()
            turns = now.turns + (bool(streams) and streams[-1:] != list(now.streams[-1:]))
            return now._replace(streams=tuple(streams), vacant_at=vacant_at, turns=turns)

        return (await self._change(code, change))[0]

    async def report(self, code: str, status: PluginStatus) -> tuple[StoredPresence, bool]:
        """Note that this status is to be logged; True if it is for this process to log it. Raises `StoreError`.

        Streams of processes that have ended are removed.
        """

        def change(now: StoredPresence) -> StoredPresence:
            live = self.live(now)
            if bool(live) != (status == "attached"):
                return now  # it is no longer so
            return now._replace(streams=live, reported=status)

        return await self._change(code, change)

    async def remove(self, code: str) -> None:
        """Remove the presence of a session that is over. Raises `StoreError`."""
        await self._store.commit(PRESENCES + code, None)

    async def _change(
        self, code: str, change: Callable[[StoredPresence], StoredPresence]
    ) -> tuple[StoredPresence, bool]:
        """Change the record by compare-and-swap; return it, and whether it was reported otherwise before."""
        while True:
            before = await self.read(code)
            after = change(before)
            if after == before:
                return before, False
            kept = after._asdict() | {"streams": [[*stream] for stream in after.streams]}
            del kept["revision"]  # which the store counts itself
            key, value = PRESENCES + code, orjson.dumps(kept)
            try:
                revision = await self._store.commit(key, value, expected=before.revision, ttl_s=_PRESENCE_KEPT_S)
            except StoreConflict:
                continue
            return after._replace(revision=revision), after.reported != before.reported


def read_presence(value: bytes, revision: int) -> StoredPresence:
    """Return the presence in a record; that of no application if it is damaged, which its next sign replaces."""
    try:
        kept = orjson.loads(value)
        streams = tuple(OpenStream(stream, process) for stream, process in kept["streams"])
        return StoredPresence(revision, streams, kept["vacant_at"], kept["reported"], kept.get("turns", 0))
    except (ValueError, KeyError, TypeError) as error:
        _LOG.error("the record of a session's presence cannot be read: %r", error)
        return StoredPresence(revision)


CALLS = f"{VOLATILE}call/"
_END = "/end"
_AFTER_DEADLINE_S = 5.0
_ENDED_S = 60.0
"""Seconds after a call's deadline for which a second answer is rejected with the reason."""
_END_LONGER_S = 10.0
"""An end is kept for so many seconds longer than its call, which would be a waiting one without it: clocks differ."""


class StoredCall(NamedTuple):
    """A call as its record has it. `arguments` is JSON; `caller` is the name of the process that waits for its end.

    `deadline` is in seconds on the store's clock. A `queued` call goes on when its process has ended: another runs it.
    `trace` is the trace context of the caller. `turn` is that of the first stream of the plugin that it may have been
    sent on (`StoredPresence`), None if unknown.
    """

    tool: str
    arguments: bytes
    deadline: float
    call_id: str
    request_id: str
    trace: dict[str, str]
    caller: str
    queued: bool
    turn: int | None = None


class CallEnd(NamedTuple):
    """How a call has ended: with the plugin's value or `ToolResult`, or too late for one, for this reason."""

    value: object
    late: str | None = None


class RecordedProgress(NamedTuple):
    """A plugin's report of progress."""

    progress: float
    total: float | None
    message: str | None


class _KeptEnd(TypedDict):
    late: NotRequired[str]
    error: NotRequired[str]


class CallRecords:
    """The records of relayed calls in a store that several processes share."""

    def __init__(self, store: Store, processes: Processes) -> None:
        self._store = store
        self._processes = processes

    async def publish(self, code: str, call_id: str, call: StoredCall) -> None:
        """Write a call, in place of one that a process has begun which runs no more. Raises `StoreError`.

        A call that is long over is not written again, since it could outlive its end.
        """
        ttl_s = call.deadline - self._store.now() + _ENDED_S
        if ttl_s <= 0:
            return
        head = {name: value for name, value in call._asdict().items() if name != "arguments"}
        # The arguments as they are: no process on the way decodes them.
        value = orjson.dumps(head) + b"\n" + call.arguments
        await self._store.commit(_call_key(code, call_id), value, ttl_s=ttl_s)

    async def read(self, code: str, call_id: str) -> StoredCall | None:
        """Return a call; None if there is none of this id. Raises `StoreError`."""
        record = await self._store.read(_call_key(code, call_id))
        return None if record is None else read_call(record.value)

    async def waiting(self, code: str) -> list[str]:
        """Return the ids of a session's calls without an end. Raises `StoreError`."""
        prefix = f"{CALLS}{code}/"
        # One walk over the keys: whether a call has ended is in them, and no record is read.
        found = [key async for key in every_key(self._store, prefix)]
        ended = {key.removesuffix(_END) for key in found if key.endswith(_END)}
        return [key.removeprefix(prefix) for key in found if key not in ended and not key.endswith(_END)]

    async def end(self, code: str, call_id: str, end: CallEnd, deadline: float) -> CallEnd:
        """End a call, and return how it has ended: this one, unless another came first. Raises `StoreError`."""
        key = _call_key(code, call_id) + _END
        value = _end_bytes(end)
        while True:
            ttl_s = self._left(deadline) + _ENDED_S + _END_LONGER_S
            try:
                await self._store.commit(key, value, expected=0, ttl_s=ttl_s)
            except StoreConflict:
                earlier = await self.end_of(code, call_id)
                if earlier is None:
                    continue  # it has expired in between
                return earlier
            return end

    async def end_of(self, code: str, call_id: str) -> CallEnd | None:
        """Return how a call has ended; None if it has not, or is forgotten. Raises `StoreError`."""
        record = await self._store.read(_call_key(code, call_id) + _END)
        return None if record is None else read_end(record.value)

    async def report(self, code: str, call_id: str, caller: str, progress: RecordedProgress) -> None:
        """Pass progress on to the caller's process. Raises `StoreError`."""
        store_id = caller.partition(".")[0]
        await self._store.extend(_call_key(code, call_id), events=[orjson.dumps([*progress])], to=store_id)

    @property
    def caller(self) -> str:
        """The name of this process, for the calls of its own callers."""
        return self._processes.name

    @property
    def valid(self) -> bool:
        """True while this process may send requests: its lease has not lapsed."""
        return self._processes.valid

    def is_orphaned(self, caller: str | None, deadline: float) -> bool:
        """Return True if nobody waits for a call: the process of this caller has ended, or the deadline has passed."""
        ended = caller is not None and not self._processes.runs(caller)
        return ended or self._left(deadline) < -_AFTER_DEADLINE_S

    def _left(self, deadline: float) -> float:
        return max(deadline - self._store.now(), -2 * _AFTER_DEADLINE_S)


def read_key(key: str) -> tuple[str, str, bool]:
    """Return the session code and the id that a key names, and whether it is that of the call's end."""
    code, _, rest = key.removeprefix(CALLS).partition("/")
    call_id, slash, _ = rest.partition("/")
    return code, call_id, bool(slash)


def read_call(value: bytes) -> StoredCall:
    """Return the call that `publish` has written."""
    head, _, arguments = value.partition(b"\n")
    kept: dict[str, Any] = orjson.loads(head)
    # A later version may have more fields: during a rolling update its records are read here.
    return StoredCall(arguments=arguments, **{name: kept[name] for name in StoredCall._fields if name in kept})


def read_progress(data: bytes) -> RecordedProgress:
    """Return the progress that `report` has written."""
    return RecordedProgress(*orjson.loads(data))


def _end_bytes(end: CallEnd) -> bytes:
    if end.late is not None:
        return orjson.dumps({"late": end.late}) + b"\nnull"
    if isinstance(end.value, ToolResult):
        return orjson.dumps({"error": end.value.output}) + b"\nnull"
    return b"{}\n" + dump_json(end.value)


def read_end(value: bytes) -> CallEnd:
    """Return the end that `CallRecords.end` has written."""
    head, _, answer = value.partition(b"\n")
    kept = cast("_KeptEnd", orjson.loads(head))
    if "late" in kept:
        return CallEnd(None, kept["late"])
    if "error" in kept:
        return CallEnd(ToolResult(output=kept["error"], status=ToolStatus.TOOL_ERROR))
    return CallEnd(load_json(answer))


def _call_key(code: str, call_id: str) -> str:
    return f"{CALLS}{code}/{call_id}"


NEW_S = 30.0
"""Seconds for which a session is new: the ten between two looks, a look, and the commit of a slow store."""


class NewSession(NamedTuple):
    """A session that lives `ttl_s` without a sign, and when it was added, in seconds on the store's clock."""

    code: str
    tenant: str
    subject: str
    ttl_s: float
    at: float = 0.0


_PLACES = TypeAdapter(list[NewSession])


class NewSessions:
    """The lists of new sessions in the store.

    `lives(code)` loads a session: True if it lives, False if it is over, None if it has no record that can be read.
    """

    def __init__(self, store: Store, lives: Callable[[str], Awaitable[bool | None]]) -> None:
        self._store = store
        self._lives = lives
        # One writer a process, so that the requests of a burst do not make each other try again.
        self._writing = KeyedLocks[Owner]()

    async def add(self, owner: Owner, new: NewSession, check: Callable[[Counter[Owner]], None]) -> None:
        """Take a place now for a session that is stored next. Raises `StoreError`.

        `check` is called when all other new sessions of the owner are loaded, with the number, by owner, of those that
        are not stored yet; nothing is written if it raises. It is called again after a concurrent change.

        The place of a session that is not stored after all is free again after `NEW_S`.
        """
        key = _place_key(owner)
        async with self._writing.of(owner):
            while True:
                record = await self._store.read(key)
                places, unstored = await self._look([] if record is None else _PLACES.validate_json(record.value))
                check(unstored)
                try:
                    await self._store.commit(
                        key,
                        _PLACES.dump_json([*places, new._replace(at=self._store.now())]),
                        expected=0 if record is None else record.revision,
                        ttl_s=NEW_S,
                        to=self._store.id,  # nobody follows it
                    )
                except StoreConflict:
                    continue
                return

    async def _look(self, places: list[NewSession]) -> tuple[list[NewSession], Counter[Owner]]:
        """Return the places that are still in use, and the number of those without a stored session by owner."""
        now = self._store.now()
        used, unstored = list[NewSession](), Counter[Owner]()
        for place in places:
            lives = await self._lives(place.code) if now < place.at + NEW_S else False
            if lives is None and now < place.at + min(place.ttl_s, NEW_S):
                unstored.update([(place.tenant,), (place.tenant, place.subject)])
            elif not lives:
                continue
            used.append(place)
        return used, unstored


def _place_key(owner: Owner) -> str:
    """Return the key of an owner's list: a hash, as names may be any text."""
    return f"{VOLATILE}new-sessions/{name_digest(*owner)[:32]}"
