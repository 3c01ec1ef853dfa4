"""What code inside a call or a request can ask about it without being handed anything."""

from __future__ import annotations

from contextvars import ContextVar
from typing import NamedTuple


class Frame(NamedTuple):
    """The tenant that is served, and how many tool calls are nested around this code."""

    tenant: str = "default"
    depth: int = 0


OUTERMOST = Frame()

current_frame: ContextVar[Frame] = ContextVar("toolplug_frame", default=OUTERMOST)


def current_tenant() -> str:
    """The tenant of the call or request that this code runs for; `default` outside of any."""
    return current_frame.get()[0]
