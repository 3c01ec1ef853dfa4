"""The steps around the target of a plan with more: hooks, approval, replay, limiters, retries, artifacts."""

from __future__ import annotations

import asyncio
import logging

from toolplug.catalog.call import CallContext, ToolCall, ToolResult, ToolStatus
from toolplug.catalog.plan import Plan, Replay
from toolplug.errors import StoreError
from toolplug.execution.results import cut, denied, unavailable
from toolplug.execution.tries import Tries

_LOG = logging.getLogger("toolplug.execution")
_NOT_REACHED = frozenset({ToolStatus.LIMITED, ToolStatus.DENIED, ToolStatus.UNAVAILABLE})


async def guarded(plan: Plan, call: ToolCall, inner: ToolCall, context: CallContext, began: float) -> ToolResult:
    """Hooks, then approval, then replay, then limiters, then the target with its retries; the hooks hear the result."""
    result = await _vetoed(plan, call, inner, context)
    if result is None and plan.approval is not None:
        result = await plan.approval.ask(plan, call, context)
    if result is None:
        tries = Tries(plan, call, inner, context, began)
        if plan.replay is None or context.idempotency_key is None:
            result = await _kept(plan, tries, context)
        else:
            result = await _replayed(plan.replay, plan, call, inner, context, tries)
    for observer in plan.observers:
        await observer.after(inner, context, result)
    return result


async def _vetoed(plan: Plan, call: ToolCall, inner: ToolCall, context: CallContext) -> ToolResult | None:
    for observer in plan.observers:
        reason = await observer.before(inner, context)
        if reason is not None:
            return denied(call, "hook", reason)
    return None


async def _replayed(
    replay: Replay, plan: Plan, call: ToolCall, inner: ToolCall, context: CallContext, tries: Tries
) -> ToolResult:
    """The first result under the key, or this call's own, which is remembered if the tool was reached.

    A call that is cancelled while its tool runs leaves its mark to expire: the tool may still have its effect.
    """
    try:
        first = await replay.begin(plan, inner, context)
    except StoreError as error:
        _LOG.error("the store of idempotent replays fails: %s", error)
        return unavailable(call, "its store cannot answer", code="store_unavailable")
    if first is not None:
        return first._replace(call_id=call.id, name=call.name)
    try:
        result = await _kept(plan, tries, context)
    except (asyncio.CancelledError, Exception):
        if not tries.reached:
            await replay.finish(plan, context, None)
        raise
    reached = tries.reached and result.status not in _NOT_REACHED
    await replay.finish(plan, context, result if reached else None)
    return result


async def _kept(plan: Plan, tries: Tries, context: CallContext) -> ToolResult:
    """The call's result; one over its limit is kept whole and given as its head and a handle."""
    result = await tries.made()
    if plan.artifacts is None or len(result.output.encode()) <= plan.max_result_bytes:
        return result
    try:
        handle = await plan.artifacts.keep(result.output, context)
    except StoreError as error:
        _LOG.error("the store of artifacts fails: %s", error)
        handle = None
    return cut(result, plan.max_result_bytes, handle)
