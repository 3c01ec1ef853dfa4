"""The `sessions:` section (CONTRACT.md sections 2 and 6)."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from toolplug.config.units import Duration
from toolplug.execution.tool_rule import Policy
from toolplug.host.file.part import Part
from toolplug.sessions.limits import MAX_TOOLS, MAX_TTL_S, MIN_TTL_S, SessionLimits

_DEFAULT = SessionLimits()


class SessionSettings(Part):
    """How long sessions live, what each may take, and what they show before their application registers."""

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
    default_toolset: Annotated[
        str | None, Field(description="the toolset that a session shows before anything is registered in it")
    ] = None

    @property
    def limits(self) -> SessionLimits:
        """What the sessions are held to."""
        return SessionLimits(
            ttl_s=self.ttl,
            grace_s=self.grace,
            max_tools=self.max_tools,
            max_updates_per_minute=self.max_updates_per_minute,
            max_waiting_calls=self.max_waiting_calls,
            max_sessions=self.max_sessions,
        )
