"""Tasks that carry calls apart from their callers, for Python 3.11, where a task cannot start eagerly.

It is removed when support for 3.11 ends (October 2027). A task for every call would triple the cost of a call that
never suspends.

A call takes its first step at once, in the caller's turn of the loop, but with a parked task as the current task and in
a context of its own. If it ends there, it has cost no task and no turn. If it suspends, the parked task carries it on
and the caller waits for a `RunningCall`, with the guarantees of `task_runner`.

    caller's task ──start──▶ first step as `worker.task` ──ended──▶ value
                                      │ suspended
                                      ▼
                             worker.task carries it on ──▶ RunningCall.finish ──▶ caller wakes

A tool may keep a reference to its task beyond its end (a timer that will cancel it, a cancel scope that it never
left). Such a worker is not used again, so that the reference never reaches another call.
"""

from __future__ import annotations

import asyncio
import types
from asyncio import current_task
from asyncio.tasks import (
    _enter_task,  # pyright: ignore[reportPrivateUsage]
    _leave_task,  # pyright: ignore[reportPrivateUsage]
)
from collections.abc import Callable, Coroutine, Generator
from contextvars import Context, copy_context
from sys import getrefcount
from typing import Any, cast

from toolplug.catalog.call import CallContext, ToolCall, current_frame
from toolplug.catalog.plan import Target
from toolplug.runtime.running_call import RunningCall

Suspended = Coroutine[Any, Any, object] | Generator[Any, Any, object]

ENDED = object()
"""Returned by `FirstSteps.take` for a coroutine that ended in its first step."""

# Objects of their own, since a coroutine may yield any value, None included.
UNSTARTED = object()
_CANCELLED = object()


class FirstSteps:
    """Takes the first steps of coroutines, one coroutine after another, inside one generator.

    `take` returns what the coroutine yields, or `ENDED`, with its result in `value`: less than half the cost of the
    `StopIteration` of a coroutine that is driven directly. After a coroutine that raises, or that suspends and keeps
    the generator as its `rest`, the next one needs new `FirstSteps`.
    """

    __slots__ = ("_generator", "kept", "take", "value")

    def __init__(self) -> None:
        self.value: object = None
        self.kept: bool = False
        self._generator = _generator(self)
        # Bound once, since every call uses it.
        self.take: Callable[[object], object] = self._generator.send
        # Advances the generator to its first `yield`, where it waits for a coroutine.
        self.take(None)

    def rest(self) -> Suspended:
        """Return the suspended coroutine, for the caller to drive; it returns its result."""
        self.kept = True
        return self._generator


def _one_after_another(steps: FirstSteps) -> Generator[Any, Any, object]:
    coroutine: Coroutine[Any, Any, object] = yield
    while True:
        # anything else is awaited as `await` would: an iterable that is no awaitable must not pass for one
        steps_of = coroutine if type(coroutine) is types.CoroutineType else coroutine.__await__()  # pyright: ignore[reportUnknownVariableType, reportUnknownMemberType]
        value: object = yield from steps_of  # pyright: ignore  what types.coroutine is for
        if steps.kept:
            return cast("object", value)
        # The result goes through an attribute and not through `return`, so that the generator lives on for the next
        # call.
        steps.value = value
        del coroutine, steps_of, value
        coroutine = yield ENDED


_generator = cast("Callable[[FirstSteps], Generator[Any, Any, object]]", types.coroutine(_one_after_another))


class DrivenCoroutine:
    """An awaitable that drives a coroutine in its own context, starting from what it yielded last."""

    __slots__ = ("_context", "_coroutine", "_yielded", "closed")

    def __init__(self, coroutine: Suspended, context: Context, yielded: object = UNSTARTED) -> None:
        self._coroutine = coroutine
        self._context = context
        self._yielded = yielded
        self.closed: bool = False

    def cancel_unstarted(self) -> DrivenCoroutine:
        """Cancel the call, which its task has not taken over yet, and return it."""
        waits_for = self._yielded
        # A future that the tool waits for raises the cancellation inside the tool, where its `finally` runs; without
        # one it is thrown in at the next step.
        if not (isinstance(waits_for, asyncio.Future) and waits_for.cancel()):
            self._yielded = _CANCELLED
        return self

    def close(self) -> None:
        """Close the coroutine, which runs its clean-up only."""
        self._context.run(self._coroutine.close)

    def __await__(self) -> Generator[Any, Any, object]:
        run, coroutine, yielded = self._context.run, self._coroutine, self._yielded
        try:
            if yielded is UNSTARTED:
                yielded = run(coroutine.send, None)
            elif yielded is _CANCELLED:
                yielded = run(coroutine.throw, asyncio.CancelledError())
            while True:
                try:
                    sent = yield yielded
                except GeneratorExit:  # the task itself is closed: its loop is gone
                    self.closed = True
                    run(coroutine.close)
                    raise
                except BaseException as thrown:  # noqa: BLE001  it is thrown on into the tool
                    yielded = run(coroutine.throw, thrown)
                else:
                    yielded = run(coroutine.send, sent)
        except StopIteration as end:
            return end.value


class TaskRunner:
    """The parked tasks of one event loop; its executor opens and closes it there.

    At most as many tasks are parked as calls run, but always one.
    """

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._parked: list[_Worker] = []
        self._carrying: set[_Worker] = set()
        self._references = 0

    async def open(self) -> None:
        """Park the first task on the running loop."""
        self._loop = asyncio.get_running_loop()
        worker = _Worker(self, self._loop)
        # One turn, so that the task has started and is parked: only then is its reference count that of every parked
        # task.
        await asyncio.sleep(0)
        self._references = worker.references()

    async def aclose(self) -> None:
        """End the parked tasks. A call that still runs keeps its own until it ends."""
        self._loop = None
        parked, self._parked = self._parked, []
        for worker in parked:
            worker.leave()
        await asyncio.gather(*(worker.task for worker in parked), return_exceptions=True)

    def start(self, target: Target, call: ToolCall, context: CallContext, /) -> object:
        """Take the first step: return the target's value if it ended there, else its `RunningCall`; raise its error.

        The target runs in a copy of the current context, with the caller's tenant.
        """
        loop = self._loop
        if loop is None:
            raise RuntimeError("the executor is closed")
        own = copy_context()
        own.run(_set_frame, (context.principal.tenant, _frame()[1] + 1))
        parked = self._parked
        # The last one that was parked: its memory is the most likely to be in the processor's cache.
        worker = parked.pop() if parked else None
        if worker is None or worker.park.done() or getrefcount(worker.task) > self._references:
            worker = self._another(worker)
            if worker is None:
                return self._carried_by(_Worker(self, loop), DrivenCoroutine(_whole(target, call, context), own))
        task, steps = worker.task, worker.steps
        caller = current_task(loop)
        # `asyncio.current_task` must name the worker during the step, as it would in a task of its own; without a
        # caller (a callback of the loop) there is none to put aside.
        if caller is not None:
            _leave_task(loop, caller)
        _enter_task(loop, task)
        try:
            yielded = own.run(steps.take, own.run(target, call, context))
        # The generator has ended with what was raised: the next call needs new steps, but the task is as good as
        # before.
        except BaseException:
            worker.steps = FirstSteps()
            self._put_back(worker)
            raise
        finally:
            _leave_task(loop, task)
            if caller is not None:
                _enter_task(loop, caller)
        if yielded is ENDED:
            self._put_back(worker)
            value, steps.value = steps.value, None
            return value
        worker.steps = FirstSteps()
        return self._carried_by(worker, DrivenCoroutine(steps.rest(), own, yielded))

    def _another(self, worker: _Worker | None) -> _Worker | None:
        """Return this worker or the next parked one whose task has no other reference and is not cancelled."""
        while worker is not None and (worker.park.done() or getrefcount(worker.task) > self._references):
            worker.leave()
            worker = self._parked.pop() if self._parked else None
        return worker

    def _carried_by(self, worker: _Worker, call: DrivenCoroutine) -> RunningCall:
        self._carrying.add(worker)
        return worker.carry(call)

    def remove_worker(self, worker: _Worker) -> None:
        """Remove the worker, which takes no more calls."""
        self._carrying.discard(worker)
        if worker in self._parked:
            self._parked.remove(worker)
        self._trim()

    def free(self, worker: _Worker) -> None:
        """Park the idle worker, or end it."""
        self._carrying.discard(worker)
        self._put_back(worker)
        self._trim()

    def _trim(self) -> None:
        """End the oldest parked tasks while there are more of them than running calls, but keep one."""
        # A burst parks as many tasks as it had calls; they go with it, but the next call finds one.
        kept = max(len(self._carrying), 1)
        while len(self._parked) > kept:
            self._parked.pop(0).leave()  # linear: one is parked too many, as a rule

    def _put_back(self, worker: _Worker) -> None:
        if self._loop is None:
            worker.leave()
        else:
            self._parked.append(worker)


class _Worker:
    """One task, and the call that it carries, if any."""

    __slots__ = ("_call", "_loop", "_runner", "_running", "park", "steps", "task")

    def __init__(self, runner: TaskRunner, loop: asyncio.AbstractEventLoop) -> None:
        self._runner = runner
        self._loop = loop
        self.park: asyncio.Future[None] = loop.create_future()
        self.steps: FirstSteps = FirstSteps()
        self._call: DrivenCoroutine | None = None
        self._running: RunningCall | None = None
        self.task: asyncio.Task[None] = loop.create_task(self._main(), name="toolplug-call-worker", context=Context())
        self.task.add_done_callback(self._close_held_call)

    def carry(self, call: DrivenCoroutine) -> RunningCall:
        """Hand a call to this task and return its `RunningCall`."""
        self._call = call
        running = self._running = RunningCall(self._loop, self.task.cancel)
        self.leave()
        return running

    def leave(self) -> None:
        """Wake the parked task: it runs the call that was handed over, or ends."""
        if not self.park.done():
            self.park.set_result(None)

    def references(self) -> int:
        """Return the reference count of the task; it is the same for all parked tasks without outside references."""
        return getrefcount(self.task)

    async def _main(self) -> None:
        while True:
            if self._call is None:
                self._runner.free(self)
            cancelled = await self._wait_for_call()
            call, running = self._call, self._running
            if call is None or running is None:
                return
            value, error = None, None
            try:
                value = await (call.cancel_unstarted() if cancelled else call)
            except BaseException as raised:
                if call.closed:
                    raise
                error = raised
            self._call = self._running = None
            # The tool has swallowed a cancellation, whose count stays with the task: `asyncio.timeout` of the next call
            # would misread it.
            if self.task.cancelling():
                self._runner.remove_worker(self)
                running.finish(value, error)
                return
            self.park = self._loop.create_future()
            running.finish(value, error)
            # The frame of a parked task would keep the last result and its traceback alive.
            del call, running, value, error

    async def _wait_for_call(self) -> bool:
        """Wait for a call; return True if the task was cancelled before it could take the call over."""
        if self.park.done() and not self.park.cancelled():
            return False
        try:
            await self.park
        except asyncio.CancelledError:
            return True
        return False

    def _close_held_call(self, task: asyncio.Task[None]) -> None:
        """Close a call that the ended task still holds: the task was cancelled before its first step."""
        call, running = self._call, self._running
        self._call = self._running = None
        self._runner.remove_worker(self)
        if call is not None and running is not None:
            try:
                call.close()
            finally:
                running.finish(None, asyncio.CancelledError())


async def _whole(target: Target, call: ToolCall, context: CallContext) -> object:
    return await target(call, context)


_set_frame, _frame = current_frame.set, current_frame.get
