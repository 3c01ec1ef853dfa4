"""Idempotency keys: a repeated call under the same key gets the first result.

Each key has one record. It marks the call as running until after the deadline, so that a crash frees the key; then it
holds the result for a day.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Mapping
from typing import TypedDict, cast

from toolplug.catalog.call import CallContext, ToolCall, ToolResult, ToolStatus
from toolplug.catalog.exact_json import dump_json
from toolplug.catalog.plan import Plan, Refusal
from toolplug.errors import StoreConflict, StoreError
from toolplug.execution.results import denied, limited
from toolplug.signatures.values import canonical
from toolplug.stores.store import Store


class KeptResult(TypedDict):
    """A stored result, without the id and name of the call, which each repetition has of its own."""

    output: str
    status: str
    structured: object
    parts: list[Mapping[str, object]]
    metadata: dict[str, object]
    retry_after_s: float | None


def kept_result(result: ToolResult) -> KeptResult:
    """Return the result as it is stored."""
    return {
        "output": result.output,
        "status": result.status.value,
        "structured": result.structured,
        "parts": list(result.parts),
        "metadata": dict(result.metadata),
        "retry_after_s": result.retry_after_s,
    }


def result_again(call_id: str, name: str, kept: KeptResult) -> ToolResult:
    """Return a stored result as that of the call with this id and name."""
    return ToolResult(
        call_id,
        name,
        kept["output"],
        ToolStatus(kept["status"]),
        kept["structured"],
        tuple(kept["parts"]),
        kept["metadata"],
        kept["retry_after_s"],
    )


KEPT_S = 86_400.0
LEASE_BEYOND_DEADLINE_S = 30.0
RETRY_S = 1.0

KEY_REUSED = "idempotency_key_reused"
KEY_RUNNING = "idempotency_key_running"

_LOG = logging.getLogger("toolplug.execution")


class _Entry(TypedDict):
    """The record of a key: the digest of the call, and its result, None while it runs."""

    body: str
    result: KeptResult | None


class Replays:
    """First results by tenant, subject and idempotency key. Implements `toolplug.catalog.plan.Replay`."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def begin(self, plan: Plan, call: ToolCall, context: CallContext, seconds: float) -> ToolResult | None:
        """Return the first result or a refusal; None after marking an unused key as running. Raises `StoreError`."""
        key, body = _key(context), _body(plan, call, context)
        lease_s = seconds + LEASE_BEYOND_DEADLINE_S
        mark = dump_json({"body": body, "result": None})
        while True:
            record = await self._store.read(key)
            if record is not None:
                answer = _answer(call, _entry(record.value), body)
                if answer.status is ToolStatus.LIMITED:
                    plan.counters.limited_by("idempotency_key")
                return answer
            try:
                await self._store.commit(key, mark, expected=0, ttl_s=lease_s)
            except StoreConflict:
                continue  # another call took the key in between: it is read again
            return None

    async def finish(self, plan: Plan, context: CallContext, result: ToolResult | None) -> None:
        """Store the result, or free the key if there is none. A store error is logged; the running mark expires."""
        key = _key(context)
        try:
            record = await self._store.read(key)
            if record is None or _entry(record.value)["result"] is not None:
                return
            if result is None:
                await self._store.commit(key, None, expected=record.revision)
            else:
                kept: _Entry = {"body": _entry(record.value)["body"], "result": kept_result(result)}
                await self._store.commit(key, dump_json(kept), expected=record.revision, ttl_s=KEPT_S)
        except StoreError as error:
            _LOG.error("a result of %r is not kept for its idempotency key: %s", plan.ref.name, error)


def _answer(call: ToolCall, entry: _Entry, body: str) -> ToolResult:
    if entry["body"] != body:
        return denied(call, "idempotency", "its key was used for another call", code=KEY_REUSED)
    kept = entry["result"]
    if kept is None:
        refusal = Refusal("a call with its idempotency key runs", RETRY_S)
        return limited(call, refusal)._replace(metadata={"code": KEY_RUNNING})
    first = result_again(call.id, call.name, kept)
    return first._replace(metadata={**first.metadata, "idempotent_replayed": True})


def _entry(value: bytes) -> _Entry:
    return cast("_Entry", json.loads(value))  # only this module writes under its keys


def _key(context: CallContext) -> str:
    principal = context.principal
    owner = ascii((principal.tenant, principal.subject, context.idempotency_key))
    return f"replay/{hashlib.sha256(owner.encode()).hexdigest()}"


def _body(plan: Plan, call: ToolCall, context: CallContext) -> str:
    """Return the digest of what makes two calls under one key the same call."""
    ref = plan.ref
    arguments = call.arguments if isinstance(call.arguments, str | bytes) else dict(call.arguments)
    said = [ref.kind, ref.source, ref.name, arguments, dict(context.options), context.agent, context.session]
    return hashlib.sha256(canonical(said)).hexdigest()
