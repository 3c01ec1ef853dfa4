"""One attempt at a tool: its target is called apart from the caller, and its end or the deadline makes the result."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from time import perf_counter

from toolplug.catalog.call import EMPTY, CallContext, ToolCall, ToolResult, ToolStatus, quick_result
from toolplug.catalog.plan import Plan
from toolplug.execution.jobs import Job
from toolplug.execution.results import cut, failed, limited, succeeded, timed_out

_SUCCESS = ToolStatus.SUCCESS

ASCII_SAFE = 4
"""A text of n characters has at most 4n bytes."""


def begin(plan: Plan, call: ToolCall, inner: ToolCall, context: CallContext, began: float) -> ToolResult | Running:
    """Take the first step: the result where the tool ended there, else what `finished` waits for.

    `call` is the caller's, `inner` the one that the target gets. The deadline counts from `began`.
    """
    seconds = plan.timeout_s
    if context.deadline is not None:
        seconds = allowed_seconds(plan, context, began)
        if began + seconds <= perf_counter():
            return timed_out(call, seconds)
    if plan.brake.running >= plan.brake.limit:
        return limited(call, plan.brake.refusal())
    if plan.wants_context:
        deadline = asyncio.get_running_loop().time() + seconds - (perf_counter() - began)
        context = context._replace(deadline=deadline)
    switch, series = plan.switch, plan.series
    switch.running += 1
    series.in_flight += 1
    try:
        outcome = plan.carrier.start(plan.target, inner, context)
    except BaseException as error:  # noqa: BLE001  SystemExit and the like would end the loop: HAZARDS.md
        series.in_flight -= 1
        switch.leave()
        return sized(plan, failed(call, error, plan))
    if type(outcome) is Job:
        return Running(plan, outcome, began + seconds, seconds)
    series.in_flight -= 1
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


async def finished(call: ToolCall, running: Running) -> ToolResult:
    """Wait for the tool's end or the deadline. Only the caller's own cancellation escapes."""
    job = running.job
    try:
        in_time = await job.wait(running.until - perf_counter())
    except (asyncio.CancelledError, GeneratorExit):
        running.abandon()
        raise
    if not in_time:
        running.abandon()
        return timed_out(call, running.seconds)
    plan = running.plan
    return sized(plan, succeeded(call, job.value, plan) if job.error is None else failed(call, job.error, plan))


class Running:
    """A tool that has been started and not ended: gives everything back when it does, whoever still waits."""

    __slots__ = ("_abandoned", "_then", "job", "plan", "seconds", "until")

    def __init__(self, plan: Plan, job: Job, until: float, seconds: float) -> None:
        self.plan: Plan = plan
        self.job: Job = job
        self.until: float = until
        self.seconds: float = seconds
        self._abandoned = False
        self._then: Callable[[], None] | None = None
        job.when_done(self._ended)

    def then(self, release: Callable[[], None]) -> None:
        """Call back once when the tool itself has ended; at once if it has."""
        if self.job.done:
            release()
        else:
            self._then = release

    def abandon(self) -> None:
        """Its caller has been answered without it."""
        if not self.job.done and not self._abandoned:
            self._abandoned = True
            self.plan.brake.abandon()

    def _ended(self) -> None:
        plan = self.plan
        plan.series.in_flight -= 1
        plan.switch.leave()
        if self._abandoned:
            plan.brake.running -= 1
        if self._then is not None:
            self._then()


def sized(plan: Plan, result: ToolResult) -> ToolResult:
    """The result within its plan's limit; one that is over it is cut, or kept whole by `guarded` beforehand."""
    size = len(result.output)
    if size * ASCII_SAFE <= plan.max_result_bytes or plan.artifacts is not None:
        return result
    return cut(result, plan.max_result_bytes)
