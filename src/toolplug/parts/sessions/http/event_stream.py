"""The log of a session and its event stream, which ends where its client may not or cannot read it any more."""

from __future__ import annotations

import asyncio
import re
from contextlib import ExitStack, suppress
from random import randrange
from typing import cast

from orjson import Fragment
from starlette.responses import Response

from toolplug.errors import AccessError, StoreError
from toolplug.http.bodies.request_body import OrjsonResponse
from toolplug.http.errors import HttpProblem, invalid_request
from toolplug.http.event_stream import EventStreamResponse, ServedEventStream, open_stream
from toolplug.http.requests import HostRequest, query_fields
from toolplug.http.routing import EVENTS, READ, Parameter, answers, route
from toolplug.parts.sessions.http.handlers import ONE, PRIVATE, session_of
from toolplug.parts.sessions.http.models import EventsAnswer, JsonObject, LoggedEvent
from toolplug.parts.sessions.limits import HEARTBEAT_S
from toolplug.parts.sessions.session import Session
from toolplug.parts.sessions.streams.stream import Reader

RECHECK_S = 60.0
"""Seconds between two checks of a stream's credential."""

# In heartbeats, which every stream gets anyway: ten thousand streams need no timers of their own.
_RECHECK_BEATS = int(RECHECK_S / HEARTBEAT_S)


class SessionStream:
    """Sends the events of one reader of the session.

    Between two events it holds one future and the watch for a client that hangs up; its reader's beat is its clock.
    """

    __slots__ = ("_beats", "_check", "_counted", "_reader", "_request", "_session")

    def __init__(self, request: HostRequest, session: Session, reader: Reader, counted: ExitStack) -> None:
        self._counted = counted
        self._request = request
        self._session = session
        self._reader = reader
        self._beats = randrange(_RECHECK_BEATS)  # so that not all streams of a session are checked together
        self._check: asyncio.Task[None] | None = None

    async def write(self, stream: ServedEventStream) -> None:
        """Send until the reader ends, the client hangs up or takes nothing, or its credential is no longer valid."""
        reader = self._reader
        reader.on_beat = self._beat
        try:
            await stream.start()
            with suppress(StoreError):  # the stream ends; the client connects again when the store is back
                while not (reader.idle and reader.closed):
                    # Asked before waiting: what came while the last frames were sent has rung already.
                    if reader.idle:
                        await reader.rung()
                        continue
                    await stream.send(await reader.next())
        finally:
            if self._check is not None:
                self._check.cancel()
            self._session.close_stream(reader)
            self._counted.close()

    def _beat(self) -> None:
        self._beats += 1
        if self._beats % _RECHECK_BEATS == 0:
            self._check = asyncio.get_running_loop().create_task(self._check_admission(), name="toolplug-stream-check")

    async def _check_admission(self) -> None:
        """End the stream if its caller would no longer be admitted."""
        request = self._request
        try:
            await request.state["readmit"](request)
        except HttpProblem as problem:
            self._dismiss(problem.message)
        except (AccessError, StoreError):
            return  # the session has ended, which its streams report, or the store cannot answer now
        else:
            if request.state["principal"].tenant != self._session.tenant:
                self._dismiss("the credential is of another tenant now")
        finally:
            self._check = None

    def _dismiss(self, message: str) -> None:
        self._session.feed.dismiss(self._reader, "auth_expired", message)


_AFTER = Parameter("after", "the id of an event; everything that is kept when absent")
_POSITION = re.compile(r"[0-9]{1,18}")
_SINCE = Parameter("Last-Event-ID", "the id of the last event that was read", place="header")


@route("GET", f"{ONE}/stream", READ, "The session's events as they happen", parameters=(_SINCE,), audience="either")
@answers(content_types=EVENTS)
async def session_stream(request: HostRequest) -> Response:
    """Stream the events until the session, the client or its credential ends."""
    session = await session_of(request)
    # No stream is opened for it, which would count as a sign of the plugin and replace its newest stream.
    if request.method == "HEAD":
        return EventStreamResponse(_write_nothing)
    # A token of the session makes the request the plugin's.
    role = "client" if request.state["session"] is None else "plugin"
    with ExitStack() as counted:
        counted.enter_context(open_stream(request))
        reader = await session.open_stream(role, request.headers.get("last-event-id"))
        # The stream outlives this handler, and so does its place in the quota.
        return EventStreamResponse(SessionStream(request, session, reader, counted.pop_all()).write)


async def _write_nothing(stream: ServedEventStream) -> None:
    """Send nothing but the headers."""


@route("GET", f"{ONE}/events", READ, "The session's log", parameters=(_AFTER,))
@answers(EventsAnswer)
async def session_events(request: HostRequest) -> OrjsonResponse[EventsAnswer]:
    """Answer the session's log after a position. Raises `HttpProblem`."""
    given = query_fields(request).get("after")
    if given is not None and not _POSITION.fullmatch(given):
        raise invalid_request("'after' should be the id of an event, a whole number", "after")
    session = await session_of(request)
    after = None if given is None else int(given)
    page = await session.log_page(after)
    resync = page is None
    events, position = page or await session.log_page(None) or ((), 0)
    shown: list[LoggedEvent] = [
        {"id": event.id, "event": event.event, "data": cast("JsonObject", Fragment(event.text))} for event in events
    ]
    return OrjsonResponse({"events": shown, "position": position, "resync": resync}, 200, PRIVATE)
