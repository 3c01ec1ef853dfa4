"""MCP sessions that several processes serve, so that a client's next request may reach any of them.

Each session has a volatile record `~mcp/ID` with its owner and its client, and a log of what other processes need of
it: cancelled requests, answers to questions, a newer stream, and found tools. Everything else is of one process: a
client is notified once too often of a changed list where another process answered it before.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from time import monotonic
from typing import Literal, NamedTuple, Self, TypedDict, cast

import orjson

from toolplug.mcp.list_changed import Seen
from toolplug.mcp.mcp_sessions import IDLE_S, Handshake, McpSessions
from toolplug.mcp.server_endpoint import Client, ClientAnswer, RequestId
from toolplug.stores.followed import Follower
from toolplug.stores.processes import Processes
from toolplug.stores.store import VOLATILE, Change, Event, Store

_PREFIX = f"{VOLATILE}mcp/"
_RENEWED_EVERY_S = 60.0

Kind = Literal["cancel", "answer", "stream", "found"]


class _Kept(TypedDict):
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
        self._follower = Follower(store, _PREFIX, self._hear, self._look_at_logs)

    async def __aenter__(self) -> Self:
        """Follow the records. Raises `StoreError`."""
        await self._follower.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._follower.aclose()

    async def begin(self, owner: Hashable, client: Client) -> Handshake:
        """Return a new session. Raises `StoreError`."""
        handshake = self.open(owner, client)
        handshake.questions.name_after(self._processes.name)
        kept: _Kept = {"owner": [*cast("tuple[str | None, ...]", owner)], "client": [*client]}
        await self._store.commit(_PREFIX + handshake.id, orjson.dumps(kept), ttl_s=IDLE_S)
        await self._remember(handshake)
        return handshake

    async def named(self, session_id: str, owner: Hashable) -> Handshake | None:
        """Return the session of this id and owner, None if there is none. Raises `StoreError`."""
        handshake = self.find(session_id, owner)
        if handshake is None:
            return await self._adopted(session_id, owner)
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

    async def _adopted(self, session_id: str, owner: Hashable) -> Handshake | None:
        record = await self._store.read(_PREFIX + session_id)
        if record is None:
            return None
        kept = cast("_Kept", orjson.loads(record.value))
        if tuple(kept["owner"]) != owner:
            return None
        version, info, capabilities = kept["client"]
        handshake = self.find(session_id, owner)
        if handshake is None:
            handshake = self.open(owner, Client(str(version), info, capabilities), session_id)
            handshake.questions.name_after(self._processes.name)
            handshake.seen = Seen(tools="")  # unknown: the client is notified of a change when it listens here
            log = await self._store.events(_PREFIX + session_id, None)
            for event in log.entries:
                self._apply(handshake, event, only="found")
        await self._remember(handshake)
        return handshake

    async def _remember(self, handshake: Handshake) -> None:
        before = self._records.get(handshake.id)
        record = await self._store.read(_PREFIX + handshake.id) if before is None else None
        position = before.position if before is not None else 0 if record is None else record.position
        self._records[handshake.id] = _Known(position, monotonic(), len(handshake.found.names))

    def _forget(self, handshake: Handshake) -> None:
        self._records.pop(handshake.id, None)
        self.end(handshake)

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
            case _:
                handshake.found.add(value)
