"""Watchdog: logs which provider blocks the event loop, and at which line, while it does so."""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from time import monotonic
from traceback import walk_stack
from types import FrameType
from typing import Self

from toolplug.crashes import OURS, blamed_place

# A quarter of a second is what a person begins to notice; the collector and imports stay below it as a rule.
LAG_S = 0.25
# Twenty marks a second cost the loop about 0.1 % of a core and place a block within 50 ms.
BEAT_S = 0.05
QUIET_S = 10.0
"""Seconds after a line in which no other is logged; blocks in that time are counted in the next line."""

_LOOP_MODULES = ("asyncio.", "selectors", "uvloop")
"""Prefixes of the modules that run the loop; what they have called holds it up."""

_LOG = logging.getLogger("toolplug.execution")
_BLOCKING = "; write code that blocks as a plain `def`, which runs in a thread"


class Watchdog:
    """Watches the running loop from a thread while it is entered.

    The loop sets a mark every 50 ms. When the mark is older than `lag_s`, the thread inspects the stack of the loop's
    thread and logs one line, with the task that runs. `owners` returns the provider's key for each top-level package.
    With `names_host` False a block is logged only if a provider causes it. `on_block` is called with its place instead,
    from the thread.

    If nothing runs in the loop, nothing holds it up: the process waits for a processor, and the line says so.
    """

    def __init__(
        self,
        owners: Callable[[], Mapping[str, str]],
        *,
        lag_s: float = LAG_S,
        clock: Callable[[], float] = monotonic,
        names_host: bool = True,
        on_block: Callable[[str], None] | None = None,
    ) -> None:
        self._owners = owners
        self._lag_s = lag_s
        self._names_host = names_host
        self._on_block = on_block
        self._clock = clock
        self._mark = clock()
        self._ended = threading.Event()
        self._thread_id = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._beat: asyncio.TimerHandle | None = None
        self._watch = threading.Thread(target=self._watching, name="toolplug-watchdog", daemon=True)

    async def __aenter__(self) -> Self:
        self._thread_id = threading.get_ident()
        self._loop = asyncio.get_running_loop()
        self._set_mark(self._loop)
        self._watch.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        self._ended.set()
        if self._beat is not None:
            self._beat.cancel()
        # It ends within one beat, since the event wakes it; a thread that survived would inspect the stack of another
        # loop.
        self._watch.join()

    def _set_mark(self, loop: asyncio.AbstractEventLoop) -> None:
        self._mark = self._clock()
        self._beat = loop.call_later(BEAT_S, self._set_mark, loop)

    def _watching(self) -> None:
        # `told` is the mark of the block that was reported: one block is one line, however long it lasts.
        told, silent_until, untold = 0.0, 0.0, 0
        while not self._ended.wait(BEAT_S):
            mark, now = self._mark, self._clock()
            if now - mark <= self._lag_s or mark == told:
                continue
            told = mark
            if now < silent_until:
                untold += 1
                continue
            self._say(now - mark, untold)
            silent_until, untold = now + QUIET_S, 0

    def _say(self, lag_s: float, untold: int) -> None:
        # The only way to see what another thread runs; `faulthandler` writes to a file and cannot be filtered.
        frame = sys._current_frames().get(self._thread_id)  # pyright: ignore[reportPrivateUsage]
        stack = _of_callback(list(walk_stack(frame))[::-1])
        more = f"; it was held up {untold} times more since the last line" if untold else ""
        if not stack:
            if self._names_host:
                why = "nothing runs in it, so the process was paused or waits for a processor"
                _LOG.warning("the event loop is late, %d ms by now: %s%s", lag_s * 1000, why, more)
            return
        owners = self._owners()
        modules = (str(each.f_globals.get("__name__", "")) for each, _ in reversed(stack))
        packages = (module.partition(".")[0] for module in modules)
        package = next((package for package in packages if package in owners), None)  # of the innermost frame
        if package is None and not self._names_host:
            return
        who = f"provider {owners[package]!r}" if package is not None else "the host"
        place = blamed_place(stack, package or OURS)
        innermost = blamed_place(stack[-1:])
        shown = f"{place}" if place == innermost else f"{place}, innermost {innermost}"
        if self._on_block is not None:
            self._on_block(shown)
            return
        how = _BLOCKING if package is not None else ""
        where = f"{shown}{self._task()}{how}{more}"
        _LOG.warning("%s holds up the event loop, %d ms by now: %s", who, lag_s * 1000, where)

    def _task(self) -> str:
        """Return the name of the task that runs, if somebody has named it."""
        task = asyncio.current_task(self._loop)
        name = "Task-" if task is None else task.get_name()
        return "" if name.startswith("Task-") else f", in the task {name!r}"


def _of_callback(stack: Sequence[tuple[FrameType, int]]) -> list[tuple[FrameType, int]]:
    """Return the frames of what the loop has called, the innermost last; none if it has called nothing.

    Without frames of a loop it is the whole stack.
    """
    runs_loop = [str(frame.f_globals.get("__name__", "")).startswith(_LOOP_MODULES) for frame, _ in stack]
    if True not in runs_loop:
        return list(stack)
    start = runs_loop.index(True)
    while start < len(stack) and runs_loop[start]:
        start += 1
    return list(stack[start:])
