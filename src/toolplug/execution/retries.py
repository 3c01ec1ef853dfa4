"""The attempts at one call, and the places that it holds at its limiters until the last attempt has ended."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Callable
from secrets import token_urlsafe
from time import perf_counter
from typing import cast

from tenacity import AsyncRetrying, RetryCallState, retry_if_result, wait_exponential_jitter

from toolplug.catalog.call import EMPTY, CallContext, ToolCall, ToolResult, ToolStatus, quick_result
from toolplug.catalog.plan import Limiter, Plan, Retry
from toolplug.execution.results import cut, failed, gone, limited, succeeded, timed_out
from toolplug.execution.task_runner import RunningCall

_SUCCESS = ToolStatus.SUCCESS

ASCII_SAFE = 4
"""A text of n characters has at most 4n bytes."""


def begin(plan: Plan, call: ToolCall, inner: ToolCall, context: CallContext, began: float) -> ToolResult | StartedCall:
    """Take the first step: the result where the tool ended there, else what `finished` waits for.

    `call` is the caller's, `inner` the one that the target gets. The deadline counts from `began`.
    """
    seconds = plan.timeout_s
    if context.deadline is not None:
        seconds = allowed_seconds(plan, context, began)
        if began + seconds <= perf_counter():
            return timed_out(call, seconds)
    if plan.abandoned.running >= plan.abandoned.limit:
        return limited(call, plan.abandoned.refusal())
    if plan.wants_context:
        deadline = asyncio.get_running_loop().time() + seconds - (perf_counter() - began)
        context = context._replace(deadline=deadline)
    switch, counters = plan.switch, plan.counters
    switch.running += 1
    counters.in_flight += 1
    try:
        outcome = plan.runner.start(plan.target, inner, context)
    except BaseException as error:  # noqa: BLE001  SystemExit and the like would end the loop: HAZARDS.md
        counters.in_flight -= 1
        switch.leave()
        return sized(plan, failed(call, error, plan))
    if type(outcome) is RunningCall:
        return StartedCall(plan, outcome, began + seconds, seconds)
    counters.in_flight -= 1
    switch.leave()
    if type(outcome) is str and len(outcome) * ASCII_SAFE <= plan.max_result_bytes and outcome.isascii():
        return quick_result(ToolResult, (call.id, call.name, outcome, _SUCCESS, None, (), EMPTY, None))
    return sized(plan, succeeded(call, outcome, plan))


def allowed_seconds(plan: Plan, context: CallContext, began: float) -> float:
    """How long the call may take from `began` on: its plan's time, or until the caller's deadline where that may be."""
    if context.deadline is None:
        return plan.timeout_s
    left = context.deadline - asyncio.get_running_loop().time()
    most = plan.timeout_s if plan.longest_s is None else plan.longest_s
    return max(min(most, left + perf_counter() - began), 0.0)


async def finished(call: ToolCall, started: StartedCall) -> ToolResult:
    """Wait for the tool's end or the deadline. Only the caller's own cancellation escapes."""
    running = started.running
    try:
        in_time = await running.wait(started.until - perf_counter())
    except (asyncio.CancelledError, GeneratorExit):
        started.abandon()
        raise
    if not in_time:
        started.abandon()
        return timed_out(call, started.seconds)
    plan = started.plan
    error = running.error
    return sized(plan, succeeded(call, running.value, plan) if error is None else failed(call, error, plan))


class StartedCall:
    """A tool that has been started and not ended: gives everything back when it does, whoever still waits."""

    __slots__ = ("_abandoned", "_then", "plan", "running", "seconds", "until")

    def __init__(self, plan: Plan, running: RunningCall, until: float, seconds: float) -> None:
        self.plan: Plan = plan
        self.running: RunningCall = running
        self.until: float = until
        self.seconds: float = seconds
        self._abandoned = False
        self._then: Callable[[], None] | None = None
        running.when_done(self._ended)

    def then(self, release: Callable[[], None]) -> None:
        """Call back once when the tool itself has ended; at once if it has."""
        if self.running.done:
            release()
        else:
            self._then = release

    def abandon(self) -> None:
        """Its caller has been answered without it."""
        if not self.running.done and not self._abandoned:
            self._abandoned = True
            self.plan.abandoned.abandon()

    def _ended(self) -> None:
        plan = self.plan
        plan.counters.in_flight -= 1
        plan.switch.leave()
        if self._abandoned:
            plan.abandoned.running -= 1
        if self._then is not None:
            self._then()


def sized(plan: Plan, result: ToolResult) -> ToolResult:
    """The result within its plan's limit; one that is over it is cut, or kept whole by `run_pipeline` beforehand."""
    size = len(result.output)
    if size * ASCII_SAFE <= plan.max_result_bytes or plan.artifacts is not None:
        return result
    return cut(result, plan.max_result_bytes)


FIRST_PAUSE_S = 0.05
LAST_PAUSE_S = 5.0

_backoff = wait_exponential_jitter(multiplier=FIRST_PAUSE_S, max=LAST_PAUSE_S, jitter=FIRST_PAUSE_S)


class Tries:
    """One call on its way to the target. `reached` is true from the first attempt on."""

    __slots__ = ("_began", "_call", "_context", "_held", "_inner", "_plan", "_seconds", "_started", "_until", "reached")

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
        self._started: StartedCall | None = None

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
        if plan.abandoned.running >= plan.abandoned.limit:
            return limited(self._call, plan.abandoned.refusal())
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
        if isinstance(outcome, StartedCall):
            self._started = outcome
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
        if self._started is None:
            self._release()
        else:
            self._started.then(self._release)

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
