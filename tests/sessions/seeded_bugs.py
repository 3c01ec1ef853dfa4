"""Bugs that the small world must show. Each is a few lines that a session could have been written with."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tests.faulty_store import FaultyStore
from tests.sessions.fixtures import turns
from tests.sessions.harness import Seams

from toolplug.catalog.definition import ToolDefinition
from toolplug.catalog.plan import Plan, Tool
from toolplug.execution.plans import PlanSource
from toolplug.parts.sessions.relay import Relay
from toolplug.parts.sessions.service import Sessions
from toolplug.parts.sessions.session import Session
from toolplug.parts.sessions.streams.stream import EventFanout, Reader
from toolplug.parts.sessions.tools.session_tool import SessionPlanner


class _OnePlanAName(SessionPlanner):
    """Two sessions that lend a tool of one name share its plan, and with it the relay of the first."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self._plans: dict[str, Plan] = {}

    def tool(self, definition: ToolDefinition, source: PlanSource) -> Tool:
        made = super().tool(definition, source)
        return Tool(definition, self._plans.setdefault(definition.name, made.plan))


class _JoinsWhereverItIs(EventFanout):
    """A stream joins although what came after its beginning has been told already."""

    def _join(self, reader: Reader, position: int) -> bool:
        return super()._join(reader, max(position, self._position))


class _ForgetsWhatTheSnapshotHeld(EventFanout):
    """What a snapshot shows is told once more when the feed comes to it."""

    async def _begin(self, reader: Reader, resync: str | None) -> None:
        await super()._begin(reader, resync)
        reader.after = 0


class _DropsWhatIsTooMuch(EventFanout):
    """A slow reader loses events and is not told."""

    def _join(self, reader: Reader, position: int) -> bool:
        reader.__class__ = _Dropping
        return super()._join(reader, position)


class _Dropping(Reader):
    __slots__ = ()

    def lose(self, reason: str) -> None:
        super().lose(reason)
        if reason == "slow_reader":
            self.lost = None


class _TellsUnderOneId(EventFanout):
    """Requests that a stream is told one after the other have one id."""

    def tell(self, stream: str, event: str, data: bytes, logged: bytes) -> bool:
        self._readers[stream].told = 0
        return super().tell(stream, event, data, logged)


class _AnswersTheOldest(Relay):
    """An answer goes to whoever waits longest."""

    def answer(self, request_id: str, value: object) -> None:
        self._waiting(request_id)
        super().answer(next(iter(self._requests)), value)


class _ForgetsLeases(Relay):
    """What was sent on a stream that has ended is not sent again."""

    def resend(self, stream: str) -> None:
        self.send_waiting()


class _AnswersBeforeItWrites(FaultyStore):
    """Every third change is acknowledged and never written."""

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
        self.commits = getattr(self, "commits", 0) + 1
        if expected and self.commits % 3 == 0:
            return expected + 1
        return await super().commit(key, value, expected=expected, ttl_s=ttl_s, events=events, to=to)


class _WritesInTwoSteps(FaultyStore):
    """A record and its event are two changes, with a moment between them."""

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
        revision = await super().commit(key, value, expected=expected, ttl_s=ttl_s, to=to)
        if events:
            await turns(4)
            await super().extend(key, events=events)
        return revision


def _with(feed: type[EventFanout] | None = None, relay: type[Relay] | None = None) -> Seams:
    """Sessions whose feeds or relays are of these classes."""

    class Buggy(Sessions):
        def _adopt(self, *given: Any, **named: Any) -> Session:
            session = super()._adopt(*given, **named)
            if feed is not None:
                session.feed.__class__ = feed
            if relay is not None:
                session.relay.__class__ = relay
            return session

    return Seams(sessions=Buggy)


SEEDED = {
    "a cross-session leak": Seams(planner=_OnePlanAName),
    "a lost event": _with(feed=_JoinsWhereverItIs),
    "events lost to a slow reader": _with(feed=_DropsWhatIsTooMuch),
    "a doubled event": _with(feed=_ForgetsWhatTheSnapshotHeld),
    "two requests under one id": _with(feed=_TellsUnderOneId),
    "an answer to the wrong call": _with(relay=_AnswersTheOldest),
    "a request that is not sent again": _with(relay=_ForgetsLeases),
    "an acknowledged change that is lost": Seams(store=_AnswersBeforeItWrites),
    "a record without its event": Seams(store=_WritesInTwoSteps),
}
"""What is wrong → the world in which it is."""
