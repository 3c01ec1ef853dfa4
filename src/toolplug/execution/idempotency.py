"""Idempotency keys: a repeated call under the same key gets the first result, and is never a second run.

Each key has one record, for a day. It marks the call as running, with the process that runs it; then it holds the
result. Where that process has ended in between, nobody knows what the tool did: the answer is `outcome_unknown`.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
from collections.abc import Mapping
from typing import NotRequired, TypedDict, cast

from toolplug import library_types
from toolplug.catalog.call import CallContext, ToolCall, ToolResult, ToolStatus
from toolplug.catalog.exact_json import dump_json
from toolplug.catalog.plan import Plan, Refusal
from toolplug.errors import StoreConflict, StoreError
from toolplug.execution.results import denied_result, limited_result
from toolplug.execution.user_auth import ScopeOf, no_scope
from toolplug.signatures.values import canonical
from toolplug.stores.store import Store, name_digest


class KeptResult(TypedDict):
    """A stored result, without the id and name of the call, which each repetition has of its own."""

    output: str
    status: str
    structured: object
    parts: list[Mapping[str, object]]
    metadata: dict[str, object]
    retry_after_s: float | None


def kept_result(result: ToolResult) -> KeptResult:
    return {
        "output": result.output,
        "status": result.status.value,
        "structured": result.structured,
        "parts": list(result.parts),
        "metadata": dict(result.metadata),
        "retry_after_s": result.retry_after_s,
    }


def result_again(call_id: str, name: str, kept: KeptResult) -> ToolResult:
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


# A day, as Stripe and others keep theirs: clients that retry from a queue come back within hours.
KEPT_S = 86_400.0
LEASE_BEYOND_DEADLINE_S = 30.0
"""After the deadline and this time a call that has left no result counts as lost, though its process runs."""
RETRY_S = 1.0

KEY_REUSED = "idempotency_key_reused"
KEY_RUNNING = "idempotency_key_running"
OUTCOME_UNKNOWN = "outcome_unknown"

_LOG = logging.getLogger("toolplug.execution")


class _CallEntry(TypedDict):
    """The record of a key: the digest of the call, and its result, None while it runs.

    `process` is the name of the process that runs it, `until` the end of its time on the store's clock; both are absent
    in records of 0.1.
    """

    body: str
    result: KeptResult | None
    process: NotRequired[str]
    until: NotRequired[float]


class Replays:
    """First results by tenant, subject and idempotency key.

    `processes` are those that share the store. `scope_of` returns the scope of the credentials that a caller brings:
    two people behind one subject, who bring different ones, never get each other's results.
    """

    def __init__(self, store: Store, processes: library_types.Processes, scope_of: ScopeOf = no_scope) -> None:
        self._store = store
        self._scope_of = scope_of
        self._processes = processes
        self._running: dict[str, _CallEntry] = {}

    async def begin(self, plan: Plan, call: ToolCall, context: CallContext, seconds: float) -> ToolResult | None:
        """Return the first result or a refusal; None after marking an unused key as running. Raises `StoreError`."""
        key = await self._key(context)
        lease_s = seconds + LEASE_BEYOND_DEADLINE_S
        mark: _CallEntry = {
            "body": _body(plan, call, context),
            "result": None,
            "process": self._processes.name,
            "until": self._store.now() + lease_s,
        }
        # Before anything is awaited: two calls of this process with one key cannot both find it unused.
        first = self._running.setdefault(key, mark)
        if first is not mark:
            return self._answer(plan, call, first, mark["body"], runs=True)
        answer = None
        try:
            answer = await self._begin_key(key, mark, plan, call, lease_s)
        except asyncio.CancelledError:  # the mark may have been written all the same
            await self.finish(plan, context, None)
            raise
        except BaseException:
            del self._running[key]
            raise
        if answer is not None:
            del self._running[key]
        return answer

    async def finish(self, plan: Plan, context: CallContext, result: ToolResult | None) -> None:
        """Store the result, or free the key if there is none. A store error is logged; the mark is left for its day."""
        key = await self._key(context)
        mark = self._running.get(key)
        try:
            record = await self._store.read(key)
            # Another process has taken the key over in between, as after a lease that had ended: its record is not ours
            # to change. One that is gone before its time was lost with its store: the call has been made all the same.
            if mark is None or (record is not None and _entry(record.value) != mark):
                return
            if record is None and self._store.now() > mark.get("until", 0):
                return
            revision = 0 if record is None else record.revision
            if result is not None:
                kept: _CallEntry = {**mark, "result": kept_result(result)}
                await self._store.commit(key, dump_json(kept), expected=revision, ttl_s=KEPT_S)
            elif record is not None:
                await self._store.commit(key, None, expected=revision)
        except StoreError as error:
            _LOG.error("a result of %r is not kept for its idempotency key: %s", plan.ref.name, error)
        finally:
            self._running.pop(key, None)

    async def _begin_key(
        self, key: str, mark: _CallEntry, plan: Plan, call: ToolCall, lease_s: float
    ) -> ToolResult | None:
        """Write the mark and return None; the answer to the call if the key has a record. Raises `StoreError`."""
        while True:
            record = await self._store.read(key)
            if record is not None:
                entry = _entry(record.value)
                return self._answer(plan, call, entry, mark["body"], runs=await self._runs(entry))
            try:
                # The mark is kept for its day too: a repetition after a crash must learn that the outcome is unknown,
                # and not run.
                await self._store.commit(key, dump_json(mark), expected=0, ttl_s=KEPT_S + lease_s)
            except StoreConflict:
                continue  # another call took the key in between: it is read again
            return None

    async def _runs(self, entry: _CallEntry) -> bool:
        """Return whether the call of a key may still run in another process. Raises `StoreError`.

        This process knows its own running calls; a mark of it without one is that of a result which was not kept.
        """
        process = entry.get("process", "")
        if entry["result"] is not None or process == self._processes.name or self._store.now() > entry.get("until", 0):
            return False
        return bool(await self._processes.running([process]))

    def _answer(self, plan: Plan, call: ToolCall, entry: _CallEntry, body: str, *, runs: bool) -> ToolResult:
        if entry["body"] != body:
            return denied_result(call, "idempotency", "its key was used for another call", code=KEY_REUSED)
        kept = entry["result"]
        if kept is not None:
            first = result_again(call.id, call.name, kept)
            return first._replace(metadata={**first.metadata, "idempotent_replayed": True})
        if not runs:
            return outcome_unknown(call)
        plan.counters.limited_by("idempotency_key")
        refusal = Refusal("a call with its idempotency key runs", RETRY_S)
        return limited_result(call, refusal)._replace(metadata={"code": KEY_RUNNING})

    async def _key(self, context: CallContext) -> str:
        principal, scope = context.principal, await self._scope_of(context.credentials)
        of = [principal.tenant, principal.subject, context.idempotency_key]
        return f"replay/{name_digest(*of, *([scope] if scope else []))}"


def outcome_unknown(call: ToolCall) -> ToolResult:
    """Return the result of a call that has left none, as its process died: it may have had its effect."""
    text = f'outcome of tool "{call.name}" is unknown: it may have run, and left no result'
    return ToolResult(call.id, call.name, text, ToolStatus.TOOL_ERROR, metadata={"code": OUTCOME_UNKNOWN})


def _entry(value: bytes) -> _CallEntry:
    return cast("_CallEntry", json.loads(value))  # only this module writes under its keys


def _body(plan: Plan, call: ToolCall, context: CallContext) -> str:
    """Return the digest of what makes two calls under one key the same call."""
    ref = plan.ref
    arguments = call.arguments if isinstance(call.arguments, str | bytes) else dict(call.arguments)
    said = [ref.kind, ref.source, ref.name, arguments, dict(context.options), context.agent, context.session]
    return hashlib.sha256(canonical(said)).hexdigest()
