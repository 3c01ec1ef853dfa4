"""Which messages of a server are let in: dealing with one costs more than reading it, and some servers talk much."""

from __future__ import annotations

from mcp_types import JSONRPCMessage, JSONRPCNotification

_WANTED = frozenset(
    (
        "notifications/cancelled",
        "notifications/progress",
        "notifications/subscriptions/acknowledged",
        "notifications/tools/list_changed",
    )
)


def is_wanted(message: JSONRPCMessage) -> bool:
    """False for a notification that nobody here listens to."""
    return not isinstance(message, JSONRPCNotification) or message.method in _WANTED
