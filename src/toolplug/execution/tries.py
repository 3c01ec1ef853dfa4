"""The attempts at one call, and the places that it holds at its limiters until the last attempt has ended."""

from __future__ import annotations

import asyncio
import copy
from secrets import token_urlsafe
from time import perf_counter
from typing import cast

from tenacity import AsyncRetrying, RetryCallState, retry_if_result, wait_exponential_jitter

from toolplug.catalog.call import CallContext, ToolCall, ToolResult, ToolStatus
from toolplug.catalog.plan import Limiter, Plan, Retry
from toolplug.execution.attempt import Running, allowed_seconds, begin, finished
from toolplug.execution.results import gone, limited, timed_out

FIRST_PAUSE_S = 0.05
LAST_PAUSE_S = 5.0

_backoff = wait_exponential_jitter(multiplier=FIRST_PAUSE_S, max=LAST_PAUSE_S, jitter=FIRST_PAUSE_S)


class Tries:
    """One call on its way to the target. `reached` is true from the first attempt on."""

    __slots__ = ("_began", "_call", "_context", "_held", "_inner", "_plan", "_running", "_seconds", "_until", "reached")

    def __init__(self, plan: Plan, call: ToolCall, inner: ToolCall, context: CallContext, began: float) -> None:
        self.reached: bool = False
        self._plan = plan
        self._call = call
        self._inner = inner
        self._context = context
        self._began = began
        self._seconds = allowed_seconds(plan, context, began)
        self._until = began + self._seconds
        self._held: list[Limiter] = []
        self._running: Running | None = None

    async def made(self) -> ToolResult:
        """Admitted by every limiter, then tried: the refusal, or the result of the last attempt."""
        status: str = ToolStatus.CANCELLED
        try:
            result = await self._refused()
            if result is None:
                retry = self._plan.retry
                result = await (self._attempt(self._inner) if retry is None else self._again(retry))
            status = result.status
            return result
        finally:
            self._answered(status)

    async def _refused(self) -> ToolResult | None:
        """Ask the breaker of abandoned calls and then each limiter, in order; keep what admits."""
        plan = self._plan
        if plan.brake.running >= plan.brake.limit:
            return limited(self._call, plan.brake.refusal())
        for limiter in plan.limiters:
            deadline = asyncio.get_running_loop().time() + self._until - perf_counter()
            try:
                refusal = await limiter.admit(deadline)
            except TimeoutError:
                return timed_out(self._call, self._seconds)
            if refusal is not None:
                return limited(self._call, refusal)
            self._held.append(limiter)
        return None

    async def _attempt(self, inner: ToolCall) -> ToolResult:
        """One attempt, unless the time is over or the source was closed while the call waited."""
        if perf_counter() >= self._until:
            return timed_out(self._call, self._seconds)
        if not self._plan.switch.open:
            return gone(self._call)
        self.reached = True
        outcome = begin(self._plan, self._call, inner, self._context, self._began)
        if isinstance(outcome, Running):
            self._running = outcome
            return await finished(self._call, outcome)
        return outcome

    async def _again(self, retry: Retry) -> ToolResult:
        """Up to `retry.attempts` more after the first, while a pause before the next ends before the deadline.

        All of them carry one idempotency key, the caller's or a new one, so that the provider can tell a repetition.
        """
        if self._context.idempotency_key is None:
            self._context = self._context._replace(idempotency_key=token_urlsafe(16))

        async def attempt() -> ToolResult:
            return await self._attempt(self._inner._replace(arguments=copy.deepcopy(self._inner.arguments)))

        def last(state: RetryCallState) -> bool:
            late = perf_counter() + state.upcoming_sleep >= self._until
            return state.attempt_number > retry.attempts or late or not self._plan.switch.open

        retrying = AsyncRetrying(retry=retry_if_result(_may_follow), wait=_pause, stop=last, retry_error_callback=_made)
        return cast("ToolResult", await retrying(attempt))  # tenacity's callback may be of any type

    def _answered(self, status: str) -> None:
        """The caller has its answer; the places go back now, or when the tool itself ends."""
        for limiter in self._held:
            limiter.answered(status)
        if self._running is None:
            self._release()
        else:
            self._running.then(self._release)

    def _release(self) -> None:
        for limiter in self._held:
            limiter.ended()


def _may_follow(result: ToolResult) -> bool:
    asked = result.status is ToolStatus.TOOL_ERROR and result.retry_after_s is not None
    return asked or result.status is ToolStatus.PANIC


def _made(state: RetryCallState) -> ToolResult:
    outcome = state.outcome
    assert outcome is not None, "there is an outcome after an attempt"
    return cast("ToolResult", outcome.result())  # tenacity does not carry the type


def _pause(state: RetryCallState) -> float:
    wished = _made(state).retry_after_s if state.outcome is not None and not state.outcome.failed else None
    return _backoff(state) if wished is None else wished
