"""Filters for a server's messages, and the JSON-RPC error codes of failures on our side."""

from __future__ import annotations

from typing import Final

from mcp.shared.exceptions import MCPError
from mcp_types import CONNECTION_CLOSED, JSONRPCMessage, JSONRPCNotification
from mcp_types.methods import SERVER_NOTIFICATIONS, parse_server_notification
from mcp_types.version import LATEST_HANDSHAKE_VERSION, LATEST_MODERN_VERSION
from pydantic import ValidationError

# Codes of JSON-RPC errors that stand for what happened on our own side of the wire.
#
# A server that sends one of them only chooses what its own refusal is called.

BAD_ANSWER: Final = -32090
FAILED: Final = -32091
UNAUTHORIZED: Final = -32092

UNREADABLE: Final = "its answer cannot be read"

_CLOSED = "Connection closed"


def is_closed(error: MCPError) -> bool:
    """Return whether the SDK reports a closed connection. Servers use the same code for requests that they refuse."""
    return error.code == CONNECTION_CLOSED and error.message == _CLOSED


def is_meant_as_answer(text: bytes) -> bool:
    """Return whether an invalid message is meant as an answer, and not a line that the program has printed.

    That is an object with a result or an error, and a line that is not text.
    """
    if text.lstrip().startswith(b"{"):
        return b'"method"' not in text and (b'"result"' in text or b'"error"' in text)
    try:
        text.decode()
    except UnicodeDecodeError:
        return True
    return False


_WANTED = frozenset(
    (
        "notifications/cancelled",
        "notifications/progress",
        "notifications/subscriptions/acknowledged",
        "notifications/prompts/list_changed",
        "notifications/resources/list_changed",
        "notifications/resources/updated",
        "notifications/tools/list_changed",
    )
)


def is_wanted(message: JSONRPCMessage) -> bool:
    """Return False for a notification that toolplug does not handle."""
    return not isinstance(message, JSONRPCNotification) or message.method in _WANTED


def is_readable(message: JSONRPCMessage) -> bool:
    """Return False for a notification whose parameters the SDK cannot read: it would log a traceback for each.

    Servers send a null `progressToken`, among others, for as long as a call runs.
    """
    if not isinstance(message, JSONRPCNotification) or not is_wanted(message):
        return True
    try:
        for version in (LATEST_HANDSHAKE_VERSION, LATEST_MODERN_VERSION):
            if (message.method, version) in SERVER_NOTIFICATIONS:
                parse_server_notification(message.method, version, message.params)
    except ValidationError:
        return False
    return True
