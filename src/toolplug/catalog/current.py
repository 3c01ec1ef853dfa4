"""What code inside a call or a request can ask about it without being handed anything."""

from __future__ import annotations

from contextvars import ContextVar

Frame = tuple[str, int]
"""The tenant that is served, and how many tool calls are nested around this code."""

current_frame: ContextVar[Frame] = ContextVar("toolplug_frame", default=("default", 0))


def enter_frame(tenant: str) -> None:
    """Begin one more nested call for a tenant, in the context that is current: the call's own."""
    current_frame.set((tenant, current_frame.get()[1] + 1))


def current_tenant() -> str:
    """The tenant of the call or request that this code runs for; `default` outside of any."""
    return current_frame.get()[0]
