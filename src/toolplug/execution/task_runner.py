"""Where tools run apart from their callers: an asynchronous one in a task of its own, a synchronous one in a thread.

A call takes its first step at once, in the caller's turn of the loop. If it ends there, its value is returned without
another turn. If it suspends, its task goes on and the caller waits for a `RunningCall`. The caller can therefore be
answered at the deadline whatever the tool does, and the tool's cancel scopes, timeouts and context variables (of
asyncio and anyio) never reach the caller.

On Python 3.12 and later this is `asyncio.Task(eager_start=True)`; 3.11 has `task_runner_py311`. The task is made on the
loop that runs here, never on a stored one: before 3.14 a task that starts eagerly from another thread corrupts the
current task of its loop (https://github.com/python/cpython/issues/155338). It is made without the loop's
`create_task`, since uvloop's knows no `eager_start` (https://github.com/MagicStack/uvloop/issues/754).

A call that another process runs has neither task nor thread here: what that process sends ends it.
"""

from __future__ import annotations

import sys
from asyncio import AbstractEventLoop, Task, get_running_loop
from contextvars import copy_context
from functools import partial
from typing import NamedTuple

from toolplug.catalog.call import CallContext, ToolCall, current_frame, enter_frame
from toolplug.catalog.plan import Target
from toolplug.runtime.running_call import RunningCall
from toolplug.runtime.threads import DaemonThreads

__all__ = ["OutsideRunner", "TaskRunner", "ThreadRunner"]

_set_frame, _frame = current_frame.set, current_frame.get

if sys.version_info >= (3, 12):

    class TaskRunner:
        """Starts a task for each call on one event loop; its executor opens and closes it."""

        def __init__(self) -> None:
            self._open = False
            self._running: set[Task[object]] = set()

        async def open(self) -> None:
            """Start to accept calls."""
            self._open = True

        async def aclose(self) -> None:
            """Accept no more calls. One that still runs keeps its task until it ends."""
            self._open = False

        def start(self, target: Target, call: ToolCall, context: CallContext, /) -> object:
            """Take the first step: return the value of a target that ended there, else its `RunningCall`.

            The target runs in a copy of the current context, with the caller's tenant. Raises its error.
            """
            if not self._open:
                raise RuntimeError("the executor is closed")
            loop = get_running_loop()
            # A box that both sides have: it tells whether the first step has ended, which the task itself only says in
            # its next turn of the loop.
            first: list[object] = []
            work = _work(loop, first, target, call, context)
            task = Task(work, loop=loop, name="toolplug-call-worker", eager_start=True)
            if first:
                value = first[0]
                if type(value) is not _Raised:
                    return value
                try:
                    raise value.error
                finally:
                    del value, first  # the traceback holds this frame
            running = RunningCall(loop, task.cancel)
            first.append(running)
            self._running.add(task)  # the loop itself holds tasks weakly
            task.add_done_callback(self._running.discard)
            return running

    class _Raised(NamedTuple):
        error: BaseException

    async def _work(
        loop: AbstractEventLoop, first: list[object], target: Target, call: ToolCall, context: CallContext
    ) -> None:
        """Run the target in the context of its task. Raises nothing, since a `SystemExit` of a task ends the loop.

        The outcome of the first step is appended to `first`, as a task that was cancelled would not give the value that
        its target returned. If the target suspends, `first` holds its `RunningCall`, which then gets the outcome.
        """
        value, error = None, None
        try:
            _set_frame((context.principal.tenant, _frame()[1] + 1))
            value = await target(call, context)
        except BaseException as raised:
            if loop.is_closed():  # the coroutine is closed with its task, and no caller waits
                raise
            error = raised
        if not first:
            first.append(value if error is None else _Raised(error))
        elif isinstance(running := first[0], RunningCall):
            running.finish(value, error)

else:
    from toolplug.task_runner_py311 import TaskRunner


class OutsideRunner:
    """Runs targets that begin a call outside of this process, and return its `RunningCall`: it needs no task here."""

    def start(self, target: Target, call: ToolCall, context: CallContext, /) -> object:
        """Begin the call, in a copy of the current context with the caller's tenant. Raises what the target raises."""
        own = copy_context()
        own.run(enter_frame, context.principal.tenant)
        return own.run(target, call, context)


class ThreadRunner:
    """Runs the synchronous tools of one provider in threads; a limiter decides how many may run at once."""

    def __init__(self, name: str) -> None:
        self._threads = DaemonThreads(name)

    def start(self, target: Target, call: ToolCall, context: CallContext, /) -> RunningCall:
        """Run the target in a thread, in a copy of the current context with the caller's tenant.

        Raises `RuntimeError` if the provider is closed or the process can have no more threads.
        """
        loop = get_running_loop()
        # Copied here, not in the thread: what the caller sets afterwards must not reach the tool.
        own = copy_context()
        own.run(enter_frame, context.principal.tenant)
        running = RunningCall(loop, None)
        self._threads.start(partial(own.run, partial(target, call, context)), running.finish)
        return running

    def close(self) -> None:
        """End each thread when its work ends; a tool that hangs keeps its thread until the process ends."""
        self._threads.close()
