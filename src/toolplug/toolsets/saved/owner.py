"""Whose saved toolsets: a subject of a tenant, or that subject within one session (CONTRACT.md section 7)."""

from __future__ import annotations

import hashlib
from typing import NamedTuple

from toolplug.catalog.call import CallContext, Principal


class Owner(NamedTuple):
    """Who has toolsets, and may have one of them equipped. In a session it is another owner than outside of it."""

    tenant: str
    subject: str
    session: str | None = None

    @property
    def key(self) -> str:
        """A part of store keys, which says the session and hides who it is: names may be any text."""
        who = hashlib.sha256(ascii((self.tenant, self.subject)).encode()).hexdigest()[:32]
        return f"own/{who}" if self.session is None else f"session/{self.session}/{who}"


class Caller(NamedTuple):
    """Who asks, and through which agent and session. `trace` is the request id of audit lines."""

    principal: Principal
    agent: str | None = None
    session: str | None = None
    trace: str = ""

    @classmethod
    def of(cls, context: CallContext) -> Caller:
        """Who makes a tool call."""
        return cls(context.principal, context.agent, context.session, context.trace)

    @property
    def owner(self) -> Owner:
        """Whose toolsets are asked for."""
        return Owner(self.principal.tenant, self.principal.subject, self.session)
