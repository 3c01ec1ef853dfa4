"""MCP sessions that several processes serve, so that a client's next request may reach any of them.

Each session has a volatile record `~mcp/ID` with its owner and its client, and a log of what other processes need of
it: cancelled requests, answers to questions, a newer stream, found tools, and resources that are followed no longer.
The process that has answered `resources/subscribe` follows the resource; while it has no stream of the client, it
writes updates to a second record, `~mcp-updates/ID`, from which the process with the stream notifies the client.
Everything else is of one process: a client is notified once too often of a changed list or an updated resource where
another process answered it before.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack
from time import monotonic
from typing import Literal, NamedTuple, Self, TypedDict, cast

import orjson

from toolplug.catalog.offering import OfferedEntry
from toolplug.cluster.followed import Follower
from toolplug.cluster.processes import Processes
from toolplug.errors import StoreConflict, StoreError
from toolplug.parts.mcp.serving.mcp_sessions import IDLE_S, Handshake, McpSessions, SessionOwner
from toolplug.parts.mcp.serving.notifications import Seen
from toolplug.parts.mcp.serving.server_endpoint import Client, ClientAnswer, RequestId
from toolplug.runtime.tasks import BackgroundTasks
from toolplug.stores.store import VOLATILE, Change, Event, Store

_LOG = logging.getLogger("toolplug.mcp")
_PREFIX = f"{VOLATILE}mcp/"
_UPDATES = f"{VOLATILE}mcp-updates/"
_RENEWED_EVERY_S = 60.0

Kind = Literal["cancel", "answer", "stream", "found", "left"]
_Updates = dict[str, tuple[str, str, float]]
"""The updated resources by URI: key and source of their entry, and the time of the update."""


class _StoredHandshake(TypedDict):
    owner: list[str | None]
    client: list[object]


class _Known(NamedTuple):
    """What this process has of a session's record: the end of its log, when it was renewed, and its found tools."""

    position: int
    renewed_at: float
    found: int


class PeerMcpSessions(McpSessions):
    """The MCP sessions of a process that shares its store with others; used inside `async with`.

    A session of another process is added when a request names it.
    """

    def __init__(self, store: Store, processes: Processes, *, over: Callable[[Handshake], object]) -> None:
        super().__init__(over=over)
        self._store = store
        self._processes = processes
        self._records: dict[str, _Known] = {}
        self._updates: dict[str, _Updates] = {}
        self._tasks = BackgroundTasks()
        self._life = AsyncExitStack()
        self._followers = (
            Follower(store, _PREFIX, self._hear, self._look_at_logs),
            Follower(store, _UPDATES, self._hear_updates, self._look_at_updates),
        )

    async def __aenter__(self) -> Self:
        """Follow the records. Raises `StoreError`."""
        async with AsyncExitStack() as life:
            life.push_async_callback(self._tasks.cancel)
            for follower in self._followers:
                await follower.start()
                life.push_async_callback(follower.aclose)
            self._life = life.pop_all()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._life.aclose()

    async def begin(self, owner: SessionOwner, client: Client) -> Handshake:
        """Return a new session. Raises `StoreError`."""
        handshake = self.open(owner, client)
        self._connect(handshake)
        kept: _StoredHandshake = {"owner": [*owner], "client": [*client]}
        await self._store.commit(_PREFIX + handshake.id, orjson.dumps(kept), ttl_s=IDLE_S)
        await self._remember(handshake)
        return handshake

    async def find_shared(self, session_id: str, owner: SessionOwner) -> Handshake | None:
        """Return the session of this id and owner, None if there is none. Raises `StoreError`."""
        handshake = self.find(session_id, owner)
        if handshake is None:
            return await self._adopt(session_id, owner)
        known = self._records.get(session_id)
        if known is None or monotonic() - known.renewed_at > _RENEWED_EVERY_S:
            if not await self._store.extend(_PREFIX + session_id, ttl_s=IDLE_S):
                self._forget(handshake)
                return None
            await self._remember(handshake)
        return handshake

    async def finish(self, handshake: Handshake) -> None:
        """End a session in all processes. Raises `StoreError`."""
        await self._store.commit(_PREFIX + handshake.id, None)
        self._forget(handshake)

    async def cancel(self, handshake: Handshake, request: object) -> None:
        """Cancel the running request of this id, in whichever process it runs. Raises `StoreError`."""
        if isinstance(request, str | int) and request not in handshake.running:
            await self._append(handshake, "cancel", request)
        else:
            handshake.cancel(request)

    async def take_answer(self, handshake: Handshake, answer: ClientAnswer) -> None:
        """Pass on a client's answer to the process that has asked. Raises `StoreError`."""
        if not handshake.questions.take(answer):
            await self._append(handshake, "answer", [answer.id, answer.result])

    async def streams_here(self, handshake: Handshake) -> None:
        """Take note that this process has the client's newest stream, which ends others. Raises `StoreError`."""
        await self._append(handshake, "stream", self._processes.name)

    async def share_found(self, handshake: Handshake) -> None:
        """Let the others know which deferred tools the client has found. Raises `StoreError`."""
        known = self._records.get(handshake.id)
        names = handshake.found.names
        if known is not None and len(names) > known.found:
            self._records[handshake.id] = known._replace(found=len(names))
            await self._append(handshake, "found", [*names])

    async def _adopt(self, session_id: str, owner: SessionOwner) -> Handshake | None:
        record = await self._store.read(_PREFIX + session_id)
        if record is None:
            return None
        kept = cast("_StoredHandshake", orjson.loads(record.value))
        # A record of 0.1 has no scope.
        if (*kept["owner"], "")[: len(owner)] != owner:
            return None
        version, info, capabilities = kept["client"]
        handshake = self.find(session_id, owner)
        if handshake is None:
            handshake = self.open(owner, Client(str(version), info, capabilities), session_id)
            self._connect(handshake)
            handshake.seen = Seen(tools="")  # unknown: the client is notified of a change when it listens here
            log = await self._store.events(_PREFIX + session_id, None)
            for event in log.entries:
                self._apply(handshake, event, only="found")
            await self._take_updates(handshake)
        await self._remember(handshake)
        return handshake

    async def _remember(self, handshake: Handshake) -> None:
        before = self._records.get(handshake.id)
        record = await self._store.read(_PREFIX + handshake.id) if before is None else None
        position = before.position if before is not None else 0 if record is None else record.position
        self._records[handshake.id] = _Known(position, monotonic(), len(handshake.found.names))

    def _forget(self, handshake: Handshake) -> None:
        self._records.pop(handshake.id, None)
        self._updates.pop(handshake.id, None)
        self.end(handshake)

    def _connect(self, handshake: Handshake) -> None:
        """Connect a session of this process with the other processes."""
        handshake.questions.name_after(self._processes.name)

        def pass_on(uri: str, resource: OfferedEntry) -> None:
            self._tasks.start(_run_logged(self._pass_on(handshake.id, uri, resource)), "toolplug-mcp-update")

        def left(uri: str) -> None:
            self._tasks.start(_run_logged(self._leave(handshake, uri)), "toolplug-mcp-update")

        handshake.subscriptions.pass_on = pass_on
        handshake.subscriptions.left = left

    async def _pass_on(self, session_id: str, uri: str, resource: OfferedEntry | None) -> None:
        """Write an update of a resource for the process with the client's stream, or None for one that is left.

        Raises `StoreError`.
        """
        while True:
            record = await self._store.read(_UPDATES + session_id)
            updates = {} if record is None else cast("_Updates", orjson.loads(record.value))
            if resource is not None:
                updates[uri] = (resource.key, resource.source, self._store.now())
            elif updates.pop(uri, None) is None:
                return
            expected = 0 if record is None else record.revision
            try:
                await self._store.commit(_UPDATES + session_id, orjson.dumps(updates), expected=expected, ttl_s=IDLE_S)
            except StoreConflict:
                continue
            return

    async def _leave(self, handshake: Handshake, uri: str) -> None:
        await self._pass_on(handshake.id, uri, None)
        await self._append(handshake, "left", uri)

    async def _take_updates(self, handshake: Handshake) -> None:
        """Note the updates that other processes have written and this one has not noted. Raises `StoreError`."""
        record = await self._store.read(_UPDATES + handshake.id)
        if record is not None:
            known = self._updates.setdefault(handshake.id, {})
            for uri, update in cast("_Updates", orjson.loads(record.value)).items():
                if known.get(uri) != update:
                    known[uri] = update
                    handshake.subscriptions.updated_elsewhere(uri, update[0], update[1])

    async def _hear_updates(self, change: Change) -> None:
        handshake = self.get(change.key.removeprefix(_UPDATES))
        if handshake is not None and change.revision:
            await self._take_updates(handshake)

    async def _look_at_updates(self) -> None:
        for session_id in tuple(self._records):
            handshake = self.get(session_id)
            if handshake is not None and handshake.stream is not None:
                await self._take_updates(handshake)

    async def _append(self, handshake: Handshake, kind: Kind, value: object) -> None:
        await self._store.extend(_PREFIX + handshake.id, events=[orjson.dumps([kind, value])])

    async def _hear(self, change: Change) -> None:
        handshake = self.get(change.key.removeprefix(_PREFIX))
        if handshake is None:
            self._records.pop(change.key.removeprefix(_PREFIX), None)
        elif not change.revision:
            self._forget(handshake)
        elif change.events is None:
            await self._catch_up(handshake)
        else:
            self._apply_new(handshake, change.events)

    async def _look_at_logs(self) -> None:
        for session_id in tuple(self._records):
            handshake = self.get(session_id)
            if handshake is None:
                del self._records[session_id]
            elif handshake.busy:
                await self._catch_up(handshake)

    async def _catch_up(self, handshake: Handshake) -> None:
        known = self._records.get(handshake.id)
        if known is not None:
            log = await self._store.events(_PREFIX + handshake.id, known.position)
            self._apply_new(handshake, log.entries)

    def _apply_new(self, handshake: Handshake, events: tuple[Event, ...]) -> None:
        known = self._records.get(handshake.id)
        if known is None:
            return
        for event in events:
            if event.id > known.position:
                self._apply(handshake, event)
        if events:
            found = max(known.found, len(handshake.found.names))
            self._records[handshake.id] = known._replace(position=max(known.position, events[-1].id), found=found)

    def _apply(self, handshake: Handshake, event: Event, only: Kind | None = None) -> None:
        kind, value = orjson.loads(event.data)
        if only is not None and kind != only:
            return
        match kind:
            case "cancel":
                handshake.cancel(cast("RequestId", value))
            case "answer":
                handshake.questions.take(ClientAnswer(value[0], value[1]))
            case "stream":
                if value != self._processes.name and handshake.stream is not None:
                    handshake.stream()
            case "left":
                handshake.subscriptions.remove(value)
            case _:
                handshake.found.add(value)


async def _run_logged(work: Coroutine[None, None, None]) -> None:
    try:
        await work
    except StoreError as error:
        _LOG.warning("an MCP client may not be notified of an updated resource: %s", error)
