"""The result of a tool call as JSON."""

from __future__ import annotations

import orjson

from toolplug.catalog.call import CallContext, ToolResult, ToolStatus
from toolplug.errors import SessionRefused
from toolplug.execution.replay import KEY_REUSED, KEY_RUNNING
from toolplug.http.known_errors import session_refused
from toolplug.http.problem import HttpProblem, store_unavailable
from toolplug.signatures.values import encoded

REPLAYED = "idempotent_replayed"
STORE_UNAVAILABLE = "store_unavailable"
TOO_MANY_WAITING = "too_many_waiting_calls"

_SUCCESS = ToolStatus.SUCCESS


def call_answer(result: ToolResult) -> bytes:
    """The answer's body; what is not there (`structured`, `retry_after_s`) is left out."""
    head = orjson.dumps(
        {
            "call_id": result.call_id,
            "output": result.output,
            "is_error": result.status is not _SUCCESS,
            "status": result.status,
        }
    )
    parts = [head[:-1], b',"metadata":', _metadata(result)]
    if result.structured is not None:
        parts += [b',"structured":', (encoded(result.structured) or "null").encode()]
    if result.retry_after_s is not None:
        parts += [b',"retry_after_s":', orjson.dumps(result.retry_after_s)]
    parts.append(b"}")
    return b"".join(parts)


def _metadata(result: ToolResult) -> bytes:
    """The metadata without the mark of a replay, which is a header: a replay's body is the first one's."""
    metadata = result.metadata
    if not metadata:
        return b"{}"
    return (encoded({name: value for name, value in metadata.items() if name != REPLAYED}) or "{}").encode()


def is_replay(result: ToolResult) -> bool:
    """Is it the first result of an earlier call under the same key."""
    return result.metadata.get(REPLAYED) is True


def replay_problem(result: ToolResult, context: CallContext) -> HttpProblem | None:
    """The error of a request whose idempotency key cannot be honoured; only for a request that has one."""
    code = result.metadata.get("code")
    if context.idempotency_key is None or code is None:
        return None
    if result.status is ToolStatus.DENIED and code == KEY_REUSED:
        message = "this Idempotency-Key was used for another call; use a new one"
        return HttpProblem(422, KEY_REUSED, message, param="Idempotency-Key")
    if result.status is ToolStatus.LIMITED and code == KEY_RUNNING:
        message = "the call with this Idempotency-Key still runs; ask again in a moment"
        return HttpProblem(409, KEY_RUNNING, message, param="Idempotency-Key")
    if result.status is ToolStatus.UNAVAILABLE and code == STORE_UNAVAILABLE:
        return store_unavailable()
    return None


def crowd_problem(result: ToolResult, context: CallContext) -> HttpProblem | None:
    """The error of a request to a session of which as many calls wait as may."""
    if result.status is ToolStatus.LIMITED and result.metadata.get("code") == TOO_MANY_WAITING:
        refused = SessionRefused(TOO_MANY_WAITING, result.output, retry_after_s=result.retry_after_s)
        return session_refused(refused)
    return replay_problem(result, context)
