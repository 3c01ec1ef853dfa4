"""Attempts at a call: the tool's first step and the wait for its end, limiters, and retries within one deadline."""

from __future__ import annotations

import asyncio
import copy
import random
from asyncio import get_running_loop
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from secrets import token_urlsafe
from time import perf_counter

from toolplug.catalog.call import (
    EMPTY,
    CallContext,
    Deadline,
    TaskDeadline,
    ToolCall,
    ToolResult,
    ToolStatus,
    quick_result,
)
from toolplug.catalog.definition import ToolDefinition
from toolplug.catalog.plan import Limiter, Plan, Retry
from toolplug.execution.call_hooks import CallHooks
from toolplug.execution.limiters import SourceSwitch
from toolplug.execution.resolved_limits import DEFAULT_DRAIN_S
from toolplug.execution.results import (
    DRAINING,
    error_result,
    gone_result,
    limited_result,
    outlasted_result,
    success_result,
    timed_out,
)
from toolplug.runtime.backoff import pause_after
from toolplug.runtime.running_call import RunningCall

_SUCCESS = ToolStatus.SUCCESS


def allowed_seconds(plan: Plan, context: CallContext, began: float) -> float:
    """Return the seconds that the call may take from `began` on: the plan's, or up to the caller's deadline."""
    if context.deadline is None:
        return plan.timeout_s
    # Deadlines are loop time and durations `perf_counter`: both are monotonic, but need not have the same zero.
    left = context.deadline - get_running_loop().time()
    most = _most_seconds(plan, context.deadline)
    # What has passed since `began` is added, since the result counts from there.
    return max(min(most, left + perf_counter() - began), 0.0)


def limit_seconds(plan: Plan, context: CallContext, seconds: float) -> float:
    """Return the limit of a call that had `seconds`: what its caller allowed, not what was left of it on the way."""
    asked = context.deadline
    return asked.within_s if isinstance(asked, Deadline) and asked.within_s <= _most_seconds(plan, asked) else seconds


def _most_seconds(plan: Plan, asked: float) -> float:
    # The operator has set it for calls that no request waits for, above what each tool says of itself.
    if isinstance(asked, TaskDeadline):
        return asked.within_s
    return plan.timeout_s if plan.longest_s is None else plan.longest_s


def loop_time_of(time: float) -> float:
    """Return the loop's time at a moment of `perf_counter`: every deadline of a call is on one clock."""
    return get_running_loop().time() + time - perf_counter()


def begin(
    plan: Plan, call: ToolCall, inner: ToolCall, context: CallContext, began: float, seconds: float
) -> ToolResult | StartedCall:
    """Take the first step of the tool: return its result if it ended there, else a `StartedCall` for `finished`.

    `call` is the caller's, `inner` the one for the target. The call may take `seconds` from `began` (`perf_counter`).
    """
    # As `loop_time_of`, written out: it runs for each call that wants its context.
    until = None
    if plan.wants_context:
        until = get_running_loop().time() + began + seconds - perf_counter()
        context = context.of_tool(plan.tools_of, until)
    switch, counters = plan.switch, plan.counters
    # Before the first step: it may suspend, and a reload in that turn must see the call.
    switch.running += 1
    counters.in_flight += 1
    try:
        outcome = plan.runner.start(plan.target, inner, context)
    except BaseException as error:  # noqa: BLE001  SystemExit and the like would end the loop: reference/threat-model
        counters.in_flight -= 1
        switch.leave()
        return error_result(call, error, plan, context)
    if type(outcome) is RunningCall:
        return StartedCall(plan, outcome, began, loop_time_of(began + seconds) if until is None else until)
    counters.in_flight -= 1
    switch.leave()
    # The usual answer of a tool, and the fastest way: an ASCII text has no lone surrogate and needs no repair.
    if type(outcome) is str and plan.output is None and outcome.isascii():
        return quick_result(ToolResult, (call.id, call.name, outcome, _SUCCESS, None, (), EMPTY, None))
    return success_result(call, outcome, plan, context)


async def wait_for_result(call: ToolCall, started: StartedCall, context: CallContext) -> ToolResult | None:
    """Wait for the tool's end and return its result, None at the deadline. Raises only the caller's cancellation."""
    running, plan = started.running, started.plan
    try:
        in_time = await running.wait_until(started.until)
        # A remote end knows the deadline too and answers at it, with a better reason than ours: that answer is on its
        # way.
        if not in_time and plan.late_s and not started.outlasted:
            in_time = await running.wait_longer(plan.late_s) and running.error is None
    except (asyncio.CancelledError, GeneratorExit):
        started.abandon()
        raise
    if not in_time:
        started.abandon()
        return outlasted_result(call, perf_counter() - started.began) if started.outlasted else None
    error = running.error
    if error is not None:
        return error_result(call, error, plan, context)
    return success_result(call, running.value, plan, context)


class _CallOfPlan:
    """A call that is under way: `switch` and `drain_s` of `toolplug.catalog.plan.EndableWork`."""

    __slots__ = ()
    plan: Plan

    @property
    def switch(self) -> SourceSwitch:
        return self.plan.switch

    @property
    def drain_s(self) -> float:
        """Seconds for which the call may go on when its source is switched off."""
        limits = self.plan.limits
        return DEFAULT_DRAIN_S if limits is None else limits.drain_s


class StartedCall(_CallOfPlan):
    """A tool that is still running; releases its counts when the tool ends, even if its caller no longer waits.

    Implements `toolplug.catalog.plan.EndableWork`. It is `outlasted` if it was ended, and not by its deadline.
    """

    __slots__ = ("_abandoned", "_then", "began", "outlasted", "plan", "running", "until")

    def __init__(self, plan: Plan, running: RunningCall, began: float, until: float) -> None:
        self.plan: Plan = plan
        self.running: RunningCall = running
        self.began: float = began
        self.until: float = until
        self.outlasted: bool = False
        self._abandoned = False
        self._then: Callable[[], None] | None = None
        plan.counters.running.add(self)
        # Last: it calls back at once if the tool has already ended, and then everything must be set.
        running.when_done(self._on_end)

    def end(self) -> None:
        """Answer the caller that the time to drain is over, and ask the tool to stop."""
        self.outlasted = True
        self.running.stop_waiting()

    def then(self, release: Callable[[], None]) -> None:
        """Call `release` once when the tool itself has ended, at once if it has."""
        if self.running.done:
            release()
        else:
            self._then = release

    def abandon(self) -> None:
        """Count the tool as abandoned until it ends: its caller is answered without it."""
        self.plan.counters.running.discard(self)
        # Counted once, though both the deadline and the caller's own cancellation may lead here.
        if not self.running.done and not self._abandoned:
            self._abandoned = True
            self.plan.abandoned.abandon()
            self.plan.switch.abandon()

    def _on_end(self) -> None:
        plan = self.plan
        plan.counters.running.discard(self)
        plan.counters.in_flight -= 1
        if self._abandoned:
            plan.abandoned.running -= 1
            plan.switch.abandoned -= 1
        plan.switch.leave()
        if self._then is not None:
            self._then()


ABANDONED = "abandoned"
"""The gate that refuses a call while too many abandoned calls of its provider run."""

# A worker that restarts, or a lock that another call holds, is often over by then.
FIRST_PAUSE_S = 0.05
LAST_PAUSE_S = 5.0


@dataclass(slots=True, eq=False)
class PipelineCall(_CallOfPlan):
    """One call in the pipeline: the caller's `call`, and the `inner` one for the target.

    It may take `seconds` from `began` (`perf_counter`) on, `until` in loop time. `hooks` are those of plugins, None for
    none; they see the `tool` as it is listed, and the call as `shown`. `needs` is why a plugin wants an approval.
    `reached` is True from the first attempt on, `ended` if the last attempt ended in time. While the call waits for a
    limiter or the next attempt, it implements `toolplug.catalog.plan.EndableWork`.
    """

    plan: Plan
    call: ToolCall
    inner: ToolCall
    context: CallContext
    began: float
    seconds: float
    hooks: CallHooks | None = None
    tool: ToolDefinition | None = None
    shown: ToolCall | None = None
    needs: str | None = None
    reached: bool = False
    ended: bool = False
    until: float = field(init=False)
    _held: list[Limiter] = field(default_factory=list[Limiter])
    _started: StartedCall | None = None
    _pause: asyncio.Timeout | None = None
    _had_s: float = 0.0

    def __post_init__(self) -> None:
        # Once, for all waits: limiters, pauses and attempts then share one deadline, and none adds rounding of its own.
        self.until = loop_time_of(self.began + self.seconds)

    @property
    def left_s(self) -> float:
        """Seconds until the deadline; negative after it."""
        return self.until - get_running_loop().time()

    @property
    def limit_s(self) -> float:
        """The limit of the call in seconds, for its text."""
        return limit_seconds(self.plan, self.context, self.seconds)

    def end(self) -> None:
        """Wait no longer: answer the caller that the time to drain is over."""
        if self._pause is not None and not self._pause.expired():
            self._pause.reschedule(get_running_loop().time())

    async def unless_ended(self, waiting: Awaitable[ToolResult | None]) -> ToolResult | None:
        """Return what it waits for, or the result of a call that is ended before it comes."""
        running = self.plan.counters.running
        running.add(self)
        pause = self._pause = asyncio.timeout(None)
        try:
            async with pause:
                return await waiting
        except TimeoutError:
            # A `TimeoutError` of what is awaited itself, as a limiter raises at the deadline.
            if not pause.expired():
                raise
            return outlasted_result(self.call, perf_counter() - self.began)
        finally:
            self._pause = None
            running.discard(self)

    async def ask_limiters(self) -> ToolResult | None:
        """Ask the limit of abandoned calls and then each limiter, in order; return the first refusal, or None."""
        plan = self.plan
        if plan.abandoned.running >= plan.abandoned.limit:
            plan.counters.limited_by(ABANDONED)
            return limited_result(self.call, plan.abandoned.refusal())
        return await self.unless_ended(self._not_admitted()) if plan.limiters else None

    async def _not_admitted(self) -> ToolResult | None:
        plan = self.plan
        for limiter in plan.limiters:
            try:
                refusal = await limiter.admit(self.until)
            except TimeoutError:
                return timed_out(self.call, self.limit_s)
            if refusal is not None:
                plan.counters.limited_by(limiter.setting)
                return limited_result(self.call, refusal)
            # One by one, so that `release_limiters` returns what was taken even if a later limiter refuses or raises.
            self._held.append(limiter)
        return None

    async def attempt(self, inner: ToolCall, context: CallContext) -> ToolResult:
        """Make one attempt, unless the deadline has passed or the source was closed while the call waited."""
        self.ended = False
        if self.left_s <= 0:
            return timed_out(self.call, self.limit_s)
        # Its provider may have been replaced while the call waited; a target of a closed provider must not be called.
        if not self.plan.switch.open:
            return gone_result(self.call)
        if not self.reached:
            self.reached, self._had_s = True, self.left_s
        outcome = begin(self.plan, self.call, inner, context, self.began, self.seconds)
        if isinstance(outcome, StartedCall):
            self._started = outcome
            outcome = await wait_for_result(self.call, outcome, context)
        self.ended = outcome is not None
        return timed_out(self.call, self.limit_s) if outcome is None else outcome

    def evidence(self, result: ToolResult) -> str:
        """Return the status that speaks for or against the tool, `cancelled` for one that says nothing of it.

        A timeout counts if the tool had at least half of its own time: what was spent in a queue, and a caller's own
        shorter deadline, are no failures of the tool, nor is a call that was ended by a drain.
        """
        late = result.status is ToolStatus.TIMEOUT
        # `_had_s * 2`: a call that got less than half of its time has spent the rest in queues, which is no fault of
        # the tool.
        impatient = late and (self.seconds < self.plan.timeout_s or self._had_s * 2 < self.plan.timeout_s)
        drained = late and result.metadata.get("code") == DRAINING
        return result.status if self.reached and not impatient and not drained else ToolStatus.CANCELLED

    def release_limiters(self, status: str) -> None:
        """Tell the limiters the status of the answer, and release them when the tool itself has ended."""
        # Two steps: the breaker needs the answer now, but a place of `max_concurrency` stays taken while the tool runs
        # on.
        for limiter in self._held:
            limiter.on_answer(status)
        if self._started is None:
            self._release()
        else:
            self._started.then(self._release)

    def _release(self) -> None:
        for limiter in self._held:
            limiter.on_end()


async def run_with_retries(it: PipelineCall) -> ToolResult:
    """Return the first refusal of a limiter, or the result of the last attempt; then release the limiters."""
    status: str = ToolStatus.CANCELLED
    try:
        result = await it.ask_limiters()
        if result is None:
            retry = it.plan.retry
            result = await (it.attempt(it.inner, it.context) if retry is None else _again(it, retry))
        status = it.evidence(result)
        return result
    finally:
        it.release_limiters(status)


async def _again(it: PipelineCall, retry: Retry) -> ToolResult:
    """Make up to `retry.attempts` more attempts after the first, while the pause before the next ends in time.

    All carry one idempotency key, the caller's or a new one, so that the provider recognises a repetition.
    """
    context = it.context
    if context.idempotency_key is None:
        context = context._replace(idempotency_key=token_urlsafe(16))

    attempt = 0
    while True:
        # The tool may have changed its arguments before it failed; each attempt gets them as they were sent.
        inner = it.inner._replace(arguments=copy.deepcopy(it.inner.arguments))
        result = await it.attempt(inner, context)
        asked = result.status is ToolStatus.TOOL_ERROR and result.retry_after_s is not None
        if attempt >= retry.attempts or not (asked or result.status is ToolStatus.PANIC):
            return result
        pause_s = result.retry_after_s
        if pause_s is None:  # doubled after each attempt, with jitter
            pause_s = pause_after(attempt + 1, FIRST_PAUSE_S, LAST_PAUSE_S)
            # Calls that failed together, as when a server restarts, would otherwise come back in the same millisecond.
            pause_s = min(pause_s + FIRST_PAUSE_S * random.random(), LAST_PAUSE_S)
        if pause_s >= it.left_s or not it.plan.switch.open:
            return result
        ended = await it.unless_ended(asyncio.sleep(pause_s))
        if ended is not None:
            return result
        attempt += 1
