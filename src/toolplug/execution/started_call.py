"""The start of one attempt at a call, and the wait for its end or its deadline."""

from __future__ import annotations

import asyncio
from asyncio import get_running_loop
from collections.abc import Callable
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
from toolplug.catalog.plan import Plan
from toolplug.execution.limits.limiters import SourceSwitch
from toolplug.execution.limits.resolved_limits import DEFAULT_DRAIN_S
from toolplug.execution.results import error_result, outlasted_result, success_result
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


class StartedCall:
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

    @property
    def switch(self) -> SourceSwitch:
        """The switch of the tool's source."""
        return self.plan.switch

    @property
    def drain_s(self) -> float:
        """Seconds for which the call may go on when its source is switched off."""
        return drain_seconds(self.plan)

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


def drain_seconds(plan: Plan) -> float:
    """Return the seconds for which a call may go on when its source is switched off."""
    limits = plan.limits
    return DEFAULT_DRAIN_S if limits is None else limits.drain_s
