"""The session routes as rows of the host's table."""

from __future__ import annotations

from toolplug.http.routing import CALL, READ, SESSIONS, HostRoute, Parameter
from toolplug.http.sessions.event_stream import session_stream
from toolplug.http.sessions.handlers import (
    MAX_BODY,
    answer_request,
    call_in_session,
    create_session,
    end_session,
    heartbeat,
    list_sessions,
    register_tools,
    session_call,
    session_events,
    session_metadata,
    update_tools,
)
from toolplug.http.sessions.models import (
    CallState,
    CreateBody,
    Created,
    EventsAnswer,
    HeartbeatAnswer,
    Metadata,
    QueuedAnswer,
    RefusedRegistration,
    RegisterAnswer,
    RegisterBody,
    ResultAnswer,
    ResultBody,
    SessionCallBody,
    SessionList,
    UpdateAnswer,
    UpdateBody,
)
from toolplug.http.wire_models import CallAnswer

_SESSIONS = "/api/sessions"
_ONE = "/api/sessions/{code}"
_UNKNOWN = (400, 404, 410)

_IF_MATCH = Parameter("If-Match", "the revision that the session must have", place="header")
_VERSION = Parameter("Accept-Version", "the version of the answer; 2.0.0", place="header")
_SINCE = Parameter("Last-Event-ID", "the id of the last event that was read", place="header")
_AFTER = Parameter("after", "the id of an event; everything that is kept when absent")
_KEY = Parameter("Idempotency-Key", "the same key and body within a day give the first result", place="header")

SESSION_ROUTES = (
    HostRoute(
        "POST",
        _SESSIONS,
        SESSIONS,
        create_session,
        "Create a session",
        Created,
        CreateBody,
        status=201,
        errors=(400, 413, 415, 429),
    ),
    HostRoute("GET", _SESSIONS, READ, list_sessions, "The tenant's live sessions", SessionList),
    HostRoute("DELETE", _ONE, SESSIONS, end_session, "End a session", status=204, errors=_UNKNOWN),
    HostRoute(
        "POST",
        f"{_ONE}/register-tools",
        None,
        register_tools,
        "Lend a set of tools in place of the one before",
        RegisterAnswer,
        RegisterBody,
        status=201,
        audience="plugin",
        max_body=MAX_BODY,
        others={422: RefusedRegistration},
        errors=(*_UNKNOWN, 413, 415, 429),
    ),
    HostRoute(
        "POST",
        f"{_ONE}/update-tools",
        None,
        update_tools,
        "Change a part of the set, all of it or nothing",
        UpdateAnswer,
        UpdateBody,
        (_IF_MATCH,),
        audience="plugin",
        max_body=MAX_BODY,
        errors=(*_UNKNOWN, 409, 412, 413, 415, 422, 429),
    ),
    HostRoute(
        "GET",
        f"{_ONE}/metadata",
        READ,
        session_metadata,
        "What the session offers now",
        Metadata,
        None,
        (_VERSION,),
        {304: None},
        (*_UNKNOWN, 406),
        audience="either",
    ),
    HostRoute(
        "GET",
        f"{_ONE}/stream",
        READ,
        session_stream,
        "The session's events as they happen",
        parameters=(_SINCE,),
        errors=_UNKNOWN,
        content_types=("text/event-stream",),
        audience="either",
    ),
    HostRoute(
        "GET",
        f"{_ONE}/events",
        READ,
        session_events,
        "The session's log",
        EventsAnswer,
        None,
        (_AFTER,),
        errors=_UNKNOWN,
    ),
    HostRoute(
        "POST",
        f"{_ONE}/tool-calls",
        CALL,
        call_in_session,
        "Call a tool with the session's catalog",
        CallAnswer,
        SessionCallBody,
        (_KEY,),
        {202: QueuedAnswer},
        (*_UNKNOWN, 409, 413, 415, 422, 429),
        ("application/json", "text/event-stream"),
    ),
    HostRoute(
        "GET",
        f"{_ONE}/tool-calls/{{id}}",
        READ,
        session_call,
        "How far a call is that nobody waited for",
        CallState,
        errors=_UNKNOWN,
    ),
    HostRoute(
        "POST",
        f"{_ONE}/tool-results",
        None,
        answer_request,
        "Answer a request that the plugin was sent",
        ResultAnswer,
        ResultBody,
        audience="plugin",
        errors=(*_UNKNOWN, 409, 413, 415),
    ),
    HostRoute(
        "POST",
        f"{_ONE}/heartbeat",
        None,
        heartbeat,
        "Keep the session alive",
        HeartbeatAnswer,
        audience="plugin",
        errors=_UNKNOWN,
    ),
)
