"""What a session's events say, as JSON."""

from __future__ import annotations

import orjson

from toolplug.execution.timestamp import timestamp
from toolplug.sessions.record import SessionState
from toolplug.sessions.tool_set import Difference
from toolplug.sessions.vocabulary import PluginStatus


def connected_data(code: str, state: SessionState, status: PluginStatus, tools: bytes | None) -> bytes:
    """How a stream begins: with the tools as a JSON array; without them where it goes on from an earlier event."""
    begin: dict[str, object] = {
        "sessionCode": code,
        "revision": state.revision,
        "registered": state.registered,
        "pluginStatus": status,
    }
    if tools is not None:
        begin["tools"] = orjson.Fragment(tools)
    return orjson.dumps(begin | {"resumed": tools is None})


def update_data(code: str, state: SessionState, difference: Difference, reason: str) -> bytes:
    """How the session came into this state."""
    return orjson.dumps(
        {
            "sessionCode": code,
            "updates": orjson.Fragment(difference.wire()),
            "revision": state.revision,
            "timestamp": timestamp(state.updated_at),
            "reason": reason,
        }
    )


def status_data(code: str, status: PluginStatus, at: float) -> bytes:
    """That the plugin has come or gone."""
    return orjson.dumps({"sessionCode": code, "status": status, "timestamp": timestamp(at)})
