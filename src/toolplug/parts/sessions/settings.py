"""The section `sessions` of the file: how long sessions live, and how much applications may lend."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from toolplug.catalog.definition import Offer
from toolplug.config.units import Duration, FileMapping
from toolplug.execution.plans import Policy
from toolplug.parts.sessions.limits import MAX_TOOLS, MAX_TTL_S, MIN_TTL_S, SessionLimits

_DEFAULT = SessionLimits()


class SessionSettings(FileMapping):
    """The lifetime and limits of sessions, and what they list before their application registers tools."""

    ttl: Annotated[
        Duration, Field(ge=MIN_TTL_S, le=MAX_TTL_S, description="a session's life after its application's last sign")
    ] = _DEFAULT.ttl_s
    grace: Annotated[
        Duration, Field(description="how long calls wait for an application whose last stream has ended")
    ] = _DEFAULT.grace_s
    max_tools: Annotated[int, Field(ge=1, le=MAX_TOOLS, description="tools of one session")] = _DEFAULT.max_tools
    max_updates_per_minute: Annotated[int, Field(ge=1, description="changes of one session's tools")] = (
        _DEFAULT.max_updates_per_minute
    )
    max_waiting_calls: Annotated[int, Field(ge=1, description="calls of one session that may wait for an answer")] = (
        _DEFAULT.max_waiting_calls
    )
    max_sessions: Annotated[int, Field(ge=1, description="sessions of this host")] = _DEFAULT.max_sessions
    policy: Annotated[
        Policy,
        Field(description="of session tools: allow; ask: a person approves each call; deny: refused; disable: hidden"),
    ] = "allow"
    offer: Annotated[
        Offer,
        Field(
            description="of session tools to models; on_request: only in a response whose request names the tools;"
            " search: once a search has found them"
        ),
    ] = "always"
    default_toolset: Annotated[
        str | None, Field(description="the toolset that a session shows before anything is registered in it")
    ] = None
