"""What the small world is held against: what was written, what each reader makes of it, what each caller is given."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson
from tests.sessions.fixtures import Told, told

from toolplug.catalog.call import ToolResult, ToolStatus
from toolplug.errors import StoreError
from toolplug.parts.sessions.session import Session
from toolplug.parts.sessions.streams.events import event_id, is_logged, position_of
from toolplug.parts.sessions.streams.stream import Reader
from toolplug.stores.memory import MemoryStore

UPDATE = "tool-availability-update"

Tools = dict[str, str]
"""The tools of a session: name → description, which tells whose they are."""


@dataclass
class Ledger:
    """What was written of one session: its tools at each revision, and the changes that are under way."""

    slot: int
    history: list[Tools] = field(default_factory=lambda: [{}])
    under_way: list[Callable[[Tools], Tools]] = field(default_factory=list[Callable[[Tools], Tools]])
    over: bool = False

    @property
    def revision(self) -> int:
        return len(self.history) - 1

    def written(self, state: Mapping[str, Any]) -> None:
        """The store has taken a record: the next revision, and one change whole, or the session's end."""
        if state["gone"]:
            self.over = True
            return
        tools = {tool["name"]: tool.get("description", "") for tool in state["tools"]}
        assert not self.over, "a session came back to life"
        assert state["revision"] == len(self.history), "revisions rise by one"
        before = self.history[-1]
        assert any(_same(change(before), tools) for change in self.under_way), f"nobody asked for {before} → {tools}"
        self.history.append(tools)


class WatchedStore(MemoryStore):
    """Tells the ledger of a session what was written of it."""

    def __init__(self, clock: Callable[[], float], kept_events: int, ledgers: Mapping[str, Ledger]) -> None:
        super().__init__(clock=clock, kept_events=kept_events)
        self._ledgers = ledgers

    async def commit(
        self,
        key: str,
        value: bytes | None,
        *,
        expected: int | None = None,
        ttl_s: float | None = None,
        events: Sequence[bytes] = (),
        to: str | None = None,
    ) -> int:
        revision = await super().commit(key, value, expected=expected, ttl_s=ttl_s, events=events, to=to)
        ledger = self._ledgers.get(key)
        if ledger is not None and value is not None:
            ledger.written(orjson.loads(value))
        return revision


class StreamClient:
    """One open stream, and what its reader makes of what it hears."""

    def __init__(self, session: Session, ledger: Ledger, reader: Reader, resumed_from: StreamClient | None) -> None:
        self.session = session
        self.ledger = ledger
        self.reader = reader
        self.begun = resumed_from is not None and resumed_from.begun
        self.revision = resumed_from.revision if resumed_from else 0
        self.tools: Tools = dict(resumed_from.tools) if resumed_from else {}
        self.last_id = resumed_from.last_id if resumed_from else 0
        self.requests: dict[str, dict[str, Any]] = {}
        self.over = False
        self.reading: asyncio.Task[None] | None = None

    @property
    def waiting(self) -> bool:
        return not self.over and (self.reader.closed or not self.reader.idle)

    async def hear(self) -> None:
        """Read once what waits."""
        try:
            chunk = await self.reader.next()
        except StoreError:
            return  # the stream is cut, or tried again
        self.over = not chunk
        for event in told(chunk):
            self._take(event)

    def _take(self, event: Told) -> None:
        assert event.data.get("sessionCode", self.session.code) == self.session.code, "an event of another session"
        if event.event == "resync" and not is_logged(self.last_id):
            self.last_id = event_id(position_of(self.last_id))  # a host that was killed had not written what it told
        assert event.id >= self.last_id, "ids fall"
        if event.event in {UPDATE, "plugin-status", "tool-request", "tool-cancelled"}:
            assert event.id > self.last_id, "an event was told twice"
        self.last_id = event.id
        match event.event:
            case "connected":
                self._connected(event.data)
            case "tool-availability-update":
                self._updated(event.data)
            case "tool-request":
                self._requested(event.data)
            case _:
                pass

    def _connected(self, data: Mapping[str, Any]) -> None:
        if data["resumed"]:
            assert self.begun, "resumed without a beginning"
            return
        self.begun = True
        self.revision = data["revision"]
        self.tools = {tool["name"]: tool["description"] for tool in data["tools"]}
        self._compare()

    def _updated(self, data: Mapping[str, Any]) -> None:
        assert self.begun, "an update without a beginning"
        assert data["revision"] == self.revision + 1, f"revision {data['revision']} after {self.revision}"
        self.revision = data["revision"]
        updates = data["updates"]
        for name in updates["removed"]:
            del self.tools[name]
        for tool in [*updates["added"], *updates["modified"]]:
            self.tools[tool["name"]] = tool["description"]
        self._compare()

    def _compare(self) -> None:
        # Events do not tell the order of a set that was replaced.
        assert self.tools == self.ledger.history[self.revision], "not what was written at this revision"
        assert all(description.startswith(f"s{self.ledger.slot} ") for description in self.tools.values())

    def _requested(self, data: dict[str, Any]) -> None:
        assert self.reader.role == "plugin", "a client was sent a request"
        assert data["arguments"]["slot"] == self.ledger.slot, "a request of another session"
        earlier = self.requests.get(data["id"])
        assert earlier is None or earlier["attempt"] < data["attempt"], "a request was sent twice"
        self.requests[data["id"]] = data


@dataclass
class Call:
    """One call, and what its caller must be given."""

    number: int
    slot: int
    ledger: Ledger
    name: str
    began_at: int
    task: asyncio.Task[ToolResult] = field(init=False)
    cancelled: bool = False
    answer: object = None

    def check(self) -> None:
        """Exactly one terminal result: the answer that was taken, or why there is none."""
        assert self.task.done(), f"call {self.number} never ended"
        if self.task.cancelled():
            assert self.cancelled
            return
        result = self.task.result()
        if self.answer is not None and not self.cancelled:
            assert result.status is ToolStatus.SUCCESS, f"an answer was taken and the caller told {result.output}"
        if result.status is ToolStatus.SUCCESS:
            assert result.structured == self.answer, f"call {self.number} got {result.output}"
        if result.status is ToolStatus.UNKNOWN_TOOL:
            listed = [self.name in tools for tools in self.ledger.history[self.began_at :]]
            assert self.ledger.over or not all(listed), "a listed tool was unknown"


def _same(one: Tools, other: Tools) -> bool:
    return list(one.items()) == list(other.items())
