"""The attempts at one call, and the places that it holds at its limiters until the last attempt has ended."""

from __future__ import annotations

import asyncio
import copy
import random
from collections.abc import Callable
from secrets import token_urlsafe
from time import perf_counter

from toolplug.catalog.call import EMPTY, CallContext, ToolCall, ToolResult, ToolStatus, quick_result
from toolplug.catalog.plan import Limiter, Plan, Retry
from toolplug.execution.results import failed, gone, limited, succeeded, timed_out
from toolplug.runtime.running_call import RunningCall

_SUCCESS = ToolStatus.SUCCESS


def allowed_seconds(plan: Plan, context: CallContext, began: float) -> float:
    """How long the call may take from `began` on: its plan's time, or until the caller's deadline where that may be."""
    if context.deadline is None:
        return plan.timeout_s
    left = context.deadline - asyncio.get_running_loop().time()
    most = plan.timeout_s if plan.longest_s is None else plan.longest_s
    return max(min(most, left + perf_counter() - began), 0.0)


def begin(
    plan: Plan, call: ToolCall, inner: ToolCall, context: CallContext, began: float, seconds: float
) -> ToolResult | StartedCall:
    """Take the first step: the result where the tool ended there, else what `finished` waits for.

    `call` is the caller's, `inner` the one that the target gets. The call may take `seconds` from `began` on.
    """
    if plan.wants_context:
        deadline = asyncio.get_running_loop().time() + seconds - (perf_counter() - began)
        context = context._replace(deadline=deadline)
    switch, counters = plan.switch, plan.counters
    switch.running += 1
    counters.in_flight += 1
    try:
        outcome = plan.runner.start(plan.target, inner, context)
    except BaseException as error:  # noqa: BLE001  SystemExit and the like would end the loop: reference/threat-model
        counters.in_flight -= 1
        switch.leave()
        return failed(call, error, plan, context)
    if type(outcome) is RunningCall:
        return StartedCall(plan, outcome, began + seconds)
    counters.in_flight -= 1
    switch.leave()
    if type(outcome) is str and outcome.isascii():
        return quick_result(ToolResult, (call.id, call.name, outcome, _SUCCESS, None, (), EMPTY, None))
    return succeeded(call, outcome, plan, context)


async def finished(call: ToolCall, started: StartedCall, context: CallContext) -> ToolResult | None:
    """Wait for the tool's end: its result, or None at the deadline. Only the caller's own cancellation escapes."""
    running = started.running
    try:
        in_time = await running.wait(started.until - perf_counter())
    except (asyncio.CancelledError, GeneratorExit):
        started.abandon()
        raise
    if not in_time:
        started.abandon()
        return None
    plan, error = started.plan, running.error
    if error is not None:
        return failed(call, error, plan, context)
    return succeeded(call, running.value, plan, context)


class StartedCall:
    """A tool that has been started and not ended: gives everything back when it does, whoever still waits."""

    __slots__ = ("_abandoned", "_then", "plan", "running", "until")

    def __init__(self, plan: Plan, running: RunningCall, until: float) -> None:
        self.plan: Plan = plan
        self.running: RunningCall = running
        self.until: float = until
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


FIRST_PAUSE_S = 0.05
LAST_PAUSE_S = 5.0
_MOST_DOUBLINGS = 10


class PipelineCall:
    """One call on its way through the pipeline: the caller's `call`, and the `inner` one that the target gets.

    It may take `seconds` from `began` on. `reached` is true from the first attempt on, `ended` where the last attempt
    has ended in time.
    """

    __slots__ = (
        "_began",
        "_held",
        "_started",
        "_until",
        "call",
        "context",
        "ended",
        "inner",
        "plan",
        "reached",
        "seconds",
    )

    def __init__(
        self, plan: Plan, call: ToolCall, inner: ToolCall, context: CallContext, began: float, seconds: float
    ) -> None:
        self.plan: Plan = plan
        self.call: ToolCall = call
        self.inner: ToolCall = inner
        self.context: CallContext = context
        self.seconds: float = seconds
        self.reached: bool = False
        self.ended: bool = False
        self._began = began
        self._until = began + seconds
        self._held: list[Limiter] = []
        self._started: StartedCall | None = None

    @property
    def left_s(self) -> float:
        """Seconds until the deadline."""
        return self._until - perf_counter()

    def late_in(self, seconds: float) -> bool:
        """Is the time over so many seconds from now."""
        return perf_counter() + seconds >= self._until

    async def refused(self) -> ToolResult | None:
        """Ask the limit of abandoned calls and then each limiter, in order; keep what admits."""
        plan = self.plan
        if plan.abandoned.running >= plan.abandoned.limit:
            return limited(self.call, plan.abandoned.refusal())
        for limiter in plan.limiters:
            deadline = asyncio.get_running_loop().time() + self._until - perf_counter()
            try:
                refusal = await limiter.admit(deadline)
            except TimeoutError:
                return timed_out(self.call, self.seconds)
            if refusal is not None:
                return limited(self.call, refusal)
            self._held.append(limiter)
        return None

    async def attempt(self, inner: ToolCall, context: CallContext) -> ToolResult:
        """Make one attempt, unless the time is over or the source was closed while the call waited."""
        self.ended = False
        if self.late_in(0.0):
            return timed_out(self.call, self.seconds)
        if not self.plan.switch.open:
            return gone(self.call)
        self.reached = True
        outcome = begin(self.plan, self.call, inner, context, self._began, self.seconds)
        if isinstance(outcome, StartedCall):
            self._started = outcome
            outcome = await finished(self.call, outcome, context)
        self.ended = outcome is not None
        return timed_out(self.call, self.seconds) if outcome is None else outcome

    def answered(self, status: str) -> None:
        """Give the places back, the caller having its answer: now, or when the tool itself ends."""
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
    """Return the refusal of a limiter, or the result of the last attempt."""
    status: str = ToolStatus.CANCELLED
    try:
        result = await it.refused()
        if result is None:
            retry = it.plan.retry
            result = await (it.attempt(it.inner, it.context) if retry is None else _again(it, retry))
        # A caller that waits less long than the tool may take says nothing of the tool.
        impatient = result.status is ToolStatus.TIMEOUT and it.seconds < it.plan.timeout_s
        status = ToolStatus.CANCELLED if impatient else result.status
        return result
    finally:
        it.answered(status)


async def _again(it: PipelineCall, retry: Retry) -> ToolResult:
    """Make up to `retry.attempts` more after the first, while a pause before the next ends before the deadline.

    All of them carry one idempotency key, the caller's or a new one, so that the provider can tell a repetition.
    """
    context = it.context
    if context.idempotency_key is None:
        context = context._replace(idempotency_key=token_urlsafe(16))

    attempt = 0
    while True:
        inner = it.inner._replace(arguments=copy.deepcopy(it.inner.arguments))
        result = await it.attempt(inner, context)
        if attempt >= retry.attempts or not _may_follow(result):
            return result
        pause = _backoff_s(attempt) if result.retry_after_s is None else result.retry_after_s
        if it.late_in(pause) or not it.plan.switch.open:
            return result
        await asyncio.sleep(pause)
        attempt += 1


def _may_follow(result: ToolResult) -> bool:
    asked = result.status is ToolStatus.TOOL_ERROR and result.retry_after_s is not None
    return asked or result.status is ToolStatus.PANIC


def _backoff_s(attempt: int) -> float:
    """The pause after an attempt, counted from 0: doubled each time up to the longest, with jitter."""
    return min(FIRST_PAUSE_S * (2 ** min(attempt, _MOST_DOUBLINGS) + random.random()), LAST_PAUSE_S)
