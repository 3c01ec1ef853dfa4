"""The steps around the target of a plan that has more than the least: hooks, replay, limiters, retries, artifacts."""

from __future__ import annotations

import asyncio
import copy
from time import perf_counter

import stamina

from toolplug.catalog.call import CallContext, ToolCall, ToolResult, ToolStatus
from toolplug.catalog.plan import Limiter, Plan, Retry
from toolplug.errors import StoreError
from toolplug.execution.attempt import Running, allowed_seconds, begin, finished
from toolplug.execution.results import cut, denied, limited, timed_out, unavailable

FIRST_PAUSE_S = 0.05
LAST_PAUSE_S = 5.0

_NOT_REACHED = frozenset({ToolStatus.LIMITED, ToolStatus.DENIED, ToolStatus.UNAVAILABLE})


async def guarded(plan: Plan, call: ToolCall, inner: ToolCall, context: CallContext, began: float) -> ToolResult:
    """Hooks, then replay, then limiters, then the target with its retries; the hooks hear the result."""
    veto = await _vetoed(plan, call, inner, context)
    result = veto if veto is not None else await _replayed(plan, call, inner, context, began)
    for observer in plan.observers:
        await observer.after(inner, context, result)
    return result


async def _vetoed(plan: Plan, call: ToolCall, inner: ToolCall, context: CallContext) -> ToolResult | None:
    for observer in plan.observers:
        reason = await observer.before(inner, context)
        if reason is not None:
            return denied(call, "hook", reason)
    return None


async def _replayed(plan: Plan, call: ToolCall, inner: ToolCall, context: CallContext, began: float) -> ToolResult:
    if plan.replay is None or context.idempotency_key is None:
        return await _limited(plan, call, inner, context, began)
    try:
        first = await plan.replay.begin(plan, inner, context)
    except StoreError as error:
        return unavailable(call, f"the store: {error}", code="store_unavailable")
    if first is not None:
        return first._replace(call_id=call.id, name=call.name)
    result = None
    try:
        result = await _limited(plan, call, inner, context, began)
    finally:
        reached = result is not None and result.status not in _NOT_REACHED
        await plan.replay.finish(plan, context, result if reached else None)
    return result


async def _limited(plan: Plan, call: ToolCall, inner: ToolCall, context: CallContext, began: float) -> ToolResult:
    seconds = allowed_seconds(plan, context, began)
    tries = _Tries()
    status: str = ToolStatus.CANCELLED
    try:
        for limiter in plan.limiters:
            refusal = await limiter.admit(asyncio.get_running_loop().time() + seconds - (perf_counter() - began))
            if refusal is not None:
                return limited(call, refusal)
            tries.admitted.append(limiter)
        result = await tries.made(plan, call, inner, context, began)
        status = result.status
    except TimeoutError:
        return timed_out(call, seconds)
    finally:
        tries.answered(status)
    return result


class _Tries:
    """The attempts at one call, and the places that they hold until the last of them has ended."""

    __slots__ = ("_running", "admitted")

    def __init__(self) -> None:
        self.admitted: list[Limiter] = []
        self._running: Running | None = None

    async def made(self, plan: Plan, call: ToolCall, inner: ToolCall, context: CallContext, began: float) -> ToolResult:
        """The result of the last attempt."""
        if plan.retry is None:
            result = await self._attempt(plan, call, inner, context, began)
        else:
            result = await self._again(plan.retry, plan, call, inner, context, began)
        if plan.artifacts is None or len(result.output.encode()) <= plan.max_result_bytes:
            return result
        return cut(result, plan.max_result_bytes, await plan.artifacts.keep(result.output, context))

    def answered(self, status: str) -> None:
        """The caller has its answer; the places go back now, or when the tool itself ends."""
        for limiter in self.admitted:
            limiter.answered(status)
        if self._running is None:
            self._release()
        else:
            self._running.then(self._release)

    async def _attempt(
        self, plan: Plan, call: ToolCall, inner: ToolCall, context: CallContext, began: float
    ) -> ToolResult:
        outcome = begin(plan, call, inner, context, began)
        if isinstance(outcome, Running):
            self._running = outcome
            return await finished(call, outcome)
        return outcome

    async def _again(
        self, retry: Retry, plan: Plan, call: ToolCall, inner: ToolCall, context: CallContext, began: float
    ) -> ToolResult:
        """Up to `retry.attempts` more after the first, while the deadline leaves time; each gets its own arguments."""
        until = began + allowed_seconds(plan, context, began)

        def may_follow(error: Exception) -> bool | float:
            if not isinstance(error, _Unlucky):
                return False
            wait = error.result.retry_after_s
            if wait is None:
                return perf_counter() < until
            return wait if perf_counter() + wait < until else False

        attempts = stamina.retry_context(
            may_follow,
            attempts=retry.attempts + 1,
            timeout=until - perf_counter(),
            wait_initial=FIRST_PAUSE_S,
            wait_jitter=FIRST_PAUSE_S,
            wait_max=LAST_PAUSE_S,
        )
        try:
            async for attempt in attempts:
                with attempt:
                    arguments = copy.deepcopy(inner.arguments)
                    result = await self._attempt(plan, call, inner._replace(arguments=arguments), context, began)
                    if result.status is ToolStatus.PANIC or result.retry_after_s is not None:
                        raise _Unlucky(result)
                    return result
        except _Unlucky as last:
            return last.result
        raise AssertionError("stamina ends with a result or an error")

    def _release(self) -> None:
        for limiter in self.admitted:
            limiter.ended()


class _Unlucky(Exception):
    """A result after which the call may be tried again."""

    def __init__(self, result: ToolResult) -> None:
        self.result = result
        super().__init__(result.status)
