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
from collections.abc import Coroutine, Generator
from contextvars import Context, copy_context
from sys import getrefcount
from typing import Any

from toolplug.catalog.call import CallContext, ToolCall
from toolplug.catalog.current import enter_frame
from toolplug.catalog.plan import Target
from toolplug.execution.jobs import Job

Running = Coroutine[Any, Any, object]


class Lanes:
    """The parked tasks of one event loop; opened and closed with the executor that uses them.

    Never more are parked than calls run, or one: at rest there is exactly one.
    """

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._parked: list[_Lane] = []
        self._carrying: set[_Lane] = set()

    async def open(self) -> None:
        """Park the first task on the running loop."""
        self._loop = asyncio.get_running_loop()
        _Lane(self, self._loop)
        await asyncio.sleep(0)

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
        tenant = context.principal.tenant
        lane = self._take()
        if lane is None:
            own.run(enter_frame, tenant)
            return self._carried_by(_Lane(self, loop), _Carried(target(call, context), own, _UNSTARTED))
        task = lane.task
        caller = current_task(loop)
        if caller is not None:
            _leave_task(loop, caller)
        _enter_task(loop, task)
        yielded = _UNSTARTED
        try:
            coroutine = target(call, context)
            yielded = own.run(_first_step, coroutine, tenant)
        except StopIteration as end:
            return end.value
        finally:
            _leave_task(loop, task)
            if caller is not None:
                _enter_task(loop, caller)
            if yielded is _UNSTARTED:
                self._parked.append(lane)
        return self._carried_by(lane, _Carried(coroutine, own, yielded))

    def _take(self) -> _Lane | None:
        """A parked lane whose task nobody else holds or has cancelled."""
        parked = self._parked
        while parked:
            lane = parked.pop()
            if lane.untouched():
                return lane
            lane.leave()
        return None

    def _carried_by(self, lane: _Lane, call: _Carried) -> Job:
        self._carrying.add(lane)
        return lane.carry(call)

    def gone(self, lane: _Lane) -> None:
        """The lane takes no more calls."""
        self._carrying.discard(lane)

    def parks(self, lane: _Lane) -> bool:
        """The lane carries nothing (any more): does it stay for the next call."""
        self._carrying.discard(lane)
        stays = self._loop is not None and len(self._parked) < max(len(self._carrying), 1)
        if stays:
            self._parked.append(lane)
        return stays


class _Lane:
    """One task, and the call that it carries while it carries one."""

    __slots__ = ("_call", "_job", "_lanes", "_loop", "_park", "_references", "task")

    def __init__(self, lanes: Lanes, loop: asyncio.AbstractEventLoop) -> None:
        self._lanes = lanes
        self._loop = loop
        self._park: asyncio.Future[None] = loop.create_future()
        self._call: _Carried | None = None
        self._job: Job | None = None
        self._references = 0
        self.task = loop.create_task(self._main(), name="toolplug-lane", context=Context())
        self.task.add_done_callback(self._gone)

    def carry(self, call: _Carried) -> Job:
        """Hand a call to this task."""
        self._call = call
        job = self._job = Job(self._loop, self.task.cancel)
        self.leave()
        return job

    def leave(self) -> None:
        """End the parking: for the call that was handed over, else for good."""
        if not self._park.done():
            self._park.set_result(None)

    def untouched(self) -> bool:
        """Is the parked task held by nobody else and not cancelled; counted against its first time of parking."""
        if self._park.done():
            return False
        held = getrefcount(self.task)
        if not self._references:
            self._references = held
        return held <= self._references

    async def _main(self) -> None:
        while True:
            if self._call is None and not self._lanes.parks(self):
                return
            cancelled = await self._called()
            call, job = self._call, self._job
            if call is None or job is None:
                return
            value, error = None, None
            try:
                value = await (call.cancelled() if cancelled else call)
            except BaseException as raised:  # noqa: BLE001  the tool's own end: `run` decides what becomes of it
                error = raised
            self._call = self._job = None
            if self.task.cancelling():
                self._lanes.gone(self)
                job.finish(value, error)
                return
            self._park = self._loop.create_future()
            job.finish(value, error)
            del call, job, value, error

    async def _called(self) -> bool:
        """Wait for a call; True when the task was cancelled before it could take the call over."""
        if self._park.done() and not self._park.cancelled():
            return False
        try:
            await self._park
        except asyncio.CancelledError:
            return True
        return False

    def _gone(self, task: asyncio.Task[None]) -> None:
        """The task has ended; a call that it still holds was cancelled before its first step."""
        call, job = self._call, self._job
        self._call = self._job = None
        self._lanes.gone(self)
        if call is not None and job is not None:
            call.close()
            job.finish(None, asyncio.CancelledError())


class _Carried:
    """An awaitable that drives a coroutine in the coroutine's own context, from what it yielded last."""

    __slots__ = ("_context", "_coroutine", "_yielded")

    def __init__(self, coroutine: Running, context: Context, yielded: object) -> None:
        self._coroutine = coroutine
        self._context = context
        self._yielded = yielded

    def cancelled(self) -> _Carried:
        """The same call, cancelled while its task had not yet taken it over."""
        waits_for = self._yielded
        if not (isinstance(waits_for, asyncio.Future) and waits_for.cancel()):
            self._yielded = _CANCELLED
        return self

    def close(self) -> None:
        """Give the call up without another step than its clean-up."""
        self._context.run(self._coroutine.close)

    def __await__(self) -> Generator[Any, Any, object]:
        run, coroutine, yielded = self._context.run, self._coroutine, self._yielded
        try:
            if yielded is _UNSTARTED:
                yielded = run(coroutine.send, None)
            elif yielded is _CANCELLED:
                yielded = run(coroutine.throw, asyncio.CancelledError())
            while True:
                try:
                    sent = yield yielded
                except GeneratorExit:
                    run(coroutine.close)
                    raise
                except BaseException as thrown:  # noqa: BLE001  it is thrown on into the tool
                    yielded = run(coroutine.throw, thrown)
                else:
                    yielded = run(coroutine.send, sent)
        except StopIteration as end:
            return end.value


_UNSTARTED = object()
_CANCELLED = object()


def _first_step(coroutine: Running, tenant: str) -> object:
    enter_frame(tenant)
    return coroutine.send(None)
