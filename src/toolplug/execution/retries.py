"""Attempts at one call, with their deadline, and the release of its limiters when the last attempt has ended."""

from __future__ import annotations

import asyncio
import copy
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from secrets import token_urlsafe
from time import perf_counter

from toolplug.catalog.call import EMPTY, CallContext, ToolCall, ToolResult, ToolStatus, quick_result
from toolplug.catalog.definition import ToolDefinition
from toolplug.catalog.plan import CallHooks, Limiter, Plan, Retry
from toolplug.execution.results import failed, gone, limited, succeeded, timed_out
from toolplug.runtime.running_call import RunningCall

_SUCCESS = ToolStatus.SUCCESS


def allowed_seconds(plan: Plan, context: CallContext, began: float) -> float:
    """Return the seconds that the call may take from `began` on: the plan's, or up to the caller's deadline."""
    if context.deadline is None:
        return plan.timeout_s
    left = context.deadline - asyncio.get_running_loop().time()
    most = plan.timeout_s if plan.longest_s is None else plan.longest_s
    return max(min(most, left + perf_counter() - began), 0.0)


def begin(
    plan: Plan, call: ToolCall, inner: ToolCall, context: CallContext, began: float, seconds: float
) -> ToolResult | StartedCall:
    """Take the first step of the tool: return its result if it ended there, else a `StartedCall` for `finished`.

    `call` is the caller's, `inner` the one for the target. The call may take `seconds` from `began` (`perf_counter`).
    """
    left_s = began + seconds - perf_counter() if plan.wants_context else None
    switch, counters = plan.switch, plan.counters
    switch.running += 1
    counters.in_flight += 1
    try:
        outcome = plan.runner.start(plan.target, inner, context, left_s)
    except BaseException as error:  # noqa: BLE001  SystemExit and the like would end the loop: reference/threat-model
        counters.in_flight -= 1
        switch.leave()
        return failed(call, error, plan, context)
    if type(outcome) is RunningCall:
        return StartedCall(plan, outcome, began + seconds)
    counters.in_flight -= 1
    switch.leave()
    if type(outcome) is str and plan.output is None and outcome.isascii():
        return quick_result(ToolResult, (call.id, call.name, outcome, _SUCCESS, None, (), EMPTY, None))
    return succeeded(call, outcome, plan, context)


async def finished(call: ToolCall, started: StartedCall, context: CallContext) -> ToolResult | None:
    """Wait for the tool's end and return its result, None at the deadline. Raises only the caller's cancellation."""
    running, plan = started.running, started.plan
    try:
        in_time = await running.wait(started.until - perf_counter())
        if not in_time and plan.late_s:
            in_time = await running.wait_longer(plan.late_s) and running.error is None
    except (asyncio.CancelledError, GeneratorExit):
        started.abandon()
        raise
    if not in_time:
        started.abandon()
        return None
    error = running.error
    if error is not None:
        return failed(call, error, plan, context)
    return succeeded(call, running.value, plan, context)


class StartedCall:
    """A tool that is still running; releases its counts when the tool ends, even if its caller no longer waits."""

    __slots__ = ("_abandoned", "_then", "plan", "running", "until")

    def __init__(self, plan: Plan, running: RunningCall, until: float) -> None:
        self.plan: Plan = plan
        self.running: RunningCall = running
        self.until: float = until
        self._abandoned = False
        self._then: Callable[[], None] | None = None
        running.when_done(self._ended)

    def then(self, release: Callable[[], None]) -> None:
        """Call `release` once when the tool itself has ended, at once if it has."""
        if self.running.done:
            release()
        else:
            self._then = release

    def abandon(self) -> None:
        """Count the tool as abandoned until it ends: its caller is answered without it."""
        if not self.running.done and not self._abandoned:
            self._abandoned = True
            self.plan.abandoned.abandon()
            self.plan.switch.abandon()

    def _ended(self) -> None:
        plan = self.plan
        plan.counters.in_flight -= 1
        if self._abandoned:
            plan.abandoned.running -= 1
            plan.switch.abandoned -= 1
        plan.switch.leave()
        if self._then is not None:
            self._then()


ABANDONED = "abandoned"
"""The gate that refuses a call while too many abandoned calls of its provider run."""

FIRST_PAUSE_S = 0.05
LAST_PAUSE_S = 5.0
_MOST_DOUBLINGS = 10


@dataclass(slots=True, eq=False)
class PipelineCall:
    """One call in the pipeline: the caller's `call`, and the `inner` one for the target.

    It may take `seconds` from `began` (`perf_counter`) on. `hooks` are those of plugins, None for none;
    they see the `tool` as it is listed.
    `reached` is True from the first attempt on, `ended` if the last attempt ended in time.
    """

    plan: Plan
    call: ToolCall
    inner: ToolCall
    context: CallContext
    began: float
    seconds: float
    hooks: CallHooks | None = None
    tool: ToolDefinition | None = None
    reached: bool = False
    ended: bool = False
    _held: list[Limiter] = field(default_factory=list[Limiter])
    _started: StartedCall | None = None

    @property
    def left_s(self) -> float:
        """Seconds until the deadline; negative after it."""
        return self.began + self.seconds - perf_counter()

    async def refused(self) -> ToolResult | None:
        """Ask the limit of abandoned calls and then each limiter, in order; return the first refusal, or None."""
        plan = self.plan
        if plan.abandoned.running >= plan.abandoned.limit:
            plan.counters.limited_by(ABANDONED)
            return limited(self.call, plan.abandoned.refusal())
        for limiter in plan.limiters:
            deadline = asyncio.get_running_loop().time() + self.left_s
            try:
                refusal = await limiter.admit(deadline)
            except TimeoutError:
                return timed_out(self.call, self.seconds)
            if refusal is not None:
                plan.counters.limited_by(limiter.knob)
                return limited(self.call, refusal)
            self._held.append(limiter)
        return None

    async def attempt(self, inner: ToolCall, context: CallContext) -> ToolResult:
        """Make one attempt, unless the deadline has passed or the source was closed while the call waited."""
        self.ended = False
        if self.left_s <= 0:
            return timed_out(self.call, self.seconds)
        if not self.plan.switch.open:
            return gone(self.call)
        self.reached = True
        outcome = begin(self.plan, self.call, inner, context, self.began, self.seconds)
        if isinstance(outcome, StartedCall):
            self._started = outcome
            outcome = await finished(self.call, outcome, context)
        self.ended = outcome is not None
        return timed_out(self.call, self.seconds) if outcome is None else outcome

    def answered(self, status: str) -> None:
        """Tell the limiters the status of the answer, and release them when the tool itself has ended."""
        for limiter in self._held:
            limiter.answered(status)
        if self._started is None:
            self._release()
        else:
            self._started.then(self._release)

    def _release(self) -> None:
        for limiter in self._held:
            limiter.ended()


async def run_with_retries(it: PipelineCall) -> ToolResult:
    """Return the first refusal of a limiter, or the result of the last attempt; then release the limiters."""
    status: str = ToolStatus.CANCELLED
    try:
        result = await it.refused()
        if result is None:
            retry = it.plan.retry
            result = await (it.attempt(it.inner, it.context) if retry is None else _again(it, retry))
        # A deadline of the caller that is shorter than the tool's timeout is no failure of the tool.
        impatient = result.status is ToolStatus.TIMEOUT and it.seconds < it.plan.timeout_s
        status = ToolStatus.CANCELLED if impatient else result.status
        return result
    finally:
        it.answered(status)


async def _again(it: PipelineCall, retry: Retry) -> ToolResult:
    """Make up to `retry.attempts` more attempts after the first, while the pause before the next ends in time.

    All carry one idempotency key, the caller's or a new one, so that the provider recognises a repetition.
    """
    context = it.context
    if context.idempotency_key is None:
        context = context._replace(idempotency_key=token_urlsafe(16))

    attempt = 0
    while True:
        inner = it.inner._replace(arguments=copy.deepcopy(it.inner.arguments))
        result = await it.attempt(inner, context)
        asked = result.status is ToolStatus.TOOL_ERROR and result.retry_after_s is not None
        if attempt >= retry.attempts or not (asked or result.status is ToolStatus.PANIC):
            return result
        pause_s = result.retry_after_s
        if pause_s is None:  # doubled after each attempt, with jitter
            pause_s = min(FIRST_PAUSE_S * (2 ** min(attempt, _MOST_DOUBLINGS) + random.random()), LAST_PAUSE_S)
        if pause_s >= it.left_s or not it.plan.switch.open:
            return result
        await asyncio.sleep(pause_s)
        attempt += 1
