"""Tasks that carry calls apart from their callers.

A call takes its first step at once, in the caller's turn of the loop, but under the identity of a parked task and in a
context of its own. If it ends there, it has cost no task and no turn. If it suspends, the parked task carries it on
and the caller waits for a `Job`. So the caller can be answered at the deadline whatever the tool does, and the tool's
cancel scopes, timeouts and context variables (asyncio's and anyio's alike) never touch the caller.

    caller's task ──start──▶ first step as `lane.task` ──ended──▶ value
                                      │ suspended
                                      ▼
                             lane.task carries it on ──▶ Job.finish ──▶ caller wakes

A tool may keep a reference to its task beyond its end (a timer that will cancel it, a cancel scope that it never
left). Such a lane is not used again: whatever holds a task's reference can only reach the call that it belonged to.
"""

from __future__ import annotations

import asyncio
from asyncio import current_task
from asyncio.tasks import _enter_task, _leave_task  # pyright: ignore[reportPrivateUsage]
from contextvars import Context, copy_context
from sys import getrefcount

from toolplug.catalog.call import CallContext, ToolCall
from toolplug.catalog.current import current_frame
from toolplug.catalog.plan import Target
from toolplug.execution.jobs import Job
from toolplug.execution.steps import ENDED, Carried, FirstSteps


class Lanes:
    """The parked tasks of one event loop; opened and closed with the executor that uses them, and used on that loop.

    Never more are parked than calls run, or one: at rest there is exactly one.
    """

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._parked: list[_Lane] = []
        self._carrying: set[_Lane] = set()
        self._references = 0

    async def open(self) -> None:
        """Park the first task on the running loop."""
        self._loop = asyncio.get_running_loop()
        lane = _Lane(self, self._loop)
        await asyncio.sleep(0)
        self._references = lane.references()

    async def aclose(self) -> None:
        """Let the parked tasks go. A call that still runs keeps its own until it ends."""
        self._loop = None
        parked, self._parked = self._parked, []
        for lane in parked:
            lane.leave()
        await asyncio.gather(*(lane.task for lane in parked), return_exceptions=True)

    def start(self, target: Target, call: ToolCall, context: CallContext, /) -> object:
        """Take the first step: the target's value when it ended there, else its `Job`. Its errors are raised.

        The target runs in a copy of the current context, in which the tenant is the caller's.
        """
        loop = self._loop
        if loop is None:
            raise RuntimeError("the executor is closed")
        own = copy_context()
        own.run(_set_frame, (context.principal.tenant, _frame()[1] + 1))
        parked = self._parked
        lane = parked.pop() if parked else None
        if lane is None or lane.park.done() or getrefcount(lane.task) > self._references:
            lane = self._another(lane)
            if lane is None:
                return self._carried_by(_Lane(self, loop), Carried(_whole(target, call, context), own))
        task, steps = lane.task, lane.steps
        caller = current_task(loop)
        if caller is not None:
            _leave_task(loop, caller)
        _enter_task(loop, task)
        try:
            yielded = own.run(steps.take, own.run(target, call, context))
        except BaseException:
            lane.steps = FirstSteps()
            self._put_back(lane)
            raise
        finally:
            _leave_task(loop, task)
            if caller is not None:
                _enter_task(loop, caller)
        if yielded is ENDED:
            self._put_back(lane)
            value, steps.value = steps.value, None
            return value
        lane.steps = FirstSteps()
        return self._carried_by(lane, Carried(steps.rest(), own, yielded))

    def _another(self, lane: _Lane | None) -> _Lane | None:
        """This lane, or the next parked one, whose task nobody else holds or has cancelled."""
        while lane is not None and (lane.park.done() or getrefcount(lane.task) > self._references):
            lane.leave()
            lane = self._parked.pop() if self._parked else None
        return lane

    def _carried_by(self, lane: _Lane, call: Carried) -> Job:
        self._carrying.add(lane)
        return lane.carry(call)

    def gone(self, lane: _Lane) -> None:
        """The lane takes no more calls."""
        self._carrying.discard(lane)
        if lane in self._parked:
            self._parked.remove(lane)
        self._trim()

    def free(self, lane: _Lane) -> None:
        """The lane carries nothing (any more): it is parked, or told to leave."""
        self._carrying.discard(lane)
        self._put_back(lane)
        self._trim()

    def _trim(self) -> None:
        """Let the oldest go while more are parked than calls run, but for one."""
        kept = max(len(self._carrying), 1)
        while len(self._parked) > kept:
            self._parked.pop(0).leave()

    def _put_back(self, lane: _Lane) -> None:
        if self._loop is None:
            lane.leave()
        else:
            self._parked.append(lane)


class _Lane:
    """One task, and the call that it carries while it carries one."""

    __slots__ = ("_call", "_job", "_lanes", "_loop", "park", "steps", "task")

    def __init__(self, lanes: Lanes, loop: asyncio.AbstractEventLoop) -> None:
        self._lanes = lanes
        self._loop = loop
        self.park: asyncio.Future[None] = loop.create_future()
        self.steps: FirstSteps = FirstSteps()
        self._call: Carried | None = None
        self._job: Job | None = None
        self.task: asyncio.Task[None] = loop.create_task(self._main(), name="toolplug-lane", context=Context())
        self.task.add_done_callback(self._gone)

    def carry(self, call: Carried) -> Job:
        """Hand a call to this task."""
        self._call = call
        job = self._job = Job(self._loop, self.task.cancel)
        self.leave()
        return job

    def leave(self) -> None:
        """End the parking: for the call that was handed over, else for good."""
        if not self.park.done():
            self.park.set_result(None)

    def references(self) -> int:
        """How many hold the task; the same number for every parked task that nobody else holds."""
        return getrefcount(self.task)

    async def _main(self) -> None:
        while True:
            if self._call is None:
                self._lanes.free(self)
            cancelled = await self._called()
            call, job = self._call, self._job
            if call is None or job is None:
                return
            value, error = None, None
            try:
                value = await (call.cancelled() if cancelled else call)
            except BaseException as raised:
                if call.closed:
                    raise
                error = raised
            self._call = self._job = None
            if self.task.cancelling():
                self._lanes.gone(self)
                job.finish(value, error)
                return
            self.park = self._loop.create_future()
            job.finish(value, error)
            del call, job, value, error

    async def _called(self) -> bool:
        """Wait for a call; True when the task was cancelled before it could take the call over."""
        if self.park.done() and not self.park.cancelled():
            return False
        try:
            await self.park
        except asyncio.CancelledError:
            return True
        return False

    def _gone(self, task: asyncio.Task[None]) -> None:
        """The task has ended; a call that it still holds was cancelled before its first step."""
        call, job = self._call, self._job
        self._call = self._job = None
        self._lanes.gone(self)
        if call is not None and job is not None:
            try:
                call.close()
            finally:
                job.finish(None, asyncio.CancelledError())


async def _whole(target: Target, call: ToolCall, context: CallContext) -> object:
    return await target(call, context)


_set_frame, _frame = current_frame.set, current_frame.get
