"""Several processes on one virtual loop, each of which can be frozen, as `SIGSTOP` does.

A callback belongs to the `Freezer` of its context: tasks that a process starts, and its timers, inherit it. What a
frozen process would run is kept, and runs in its order when the process goes on, unless it was cancelled by then.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextvars import Context, ContextVar, copy_context
from typing import Any

from tests.virtual_time import VirtualLoop

_OWNER: ContextVar[Freezer | None] = ContextVar("owner", default=None)

Due = tuple[asyncio.Handle, Callable[[], object], Context]


class Freezer:
    """Freezes everything that runs in its `context`. `last_frozen_s` is the loop's time when it last went on."""

    def __init__(self) -> None:
        self.context: Context = Context()
        self.context.run(_OWNER.set, self)
        self.frozen = False
        self.due: list[Due] = []

    def freeze(self) -> None:
        """Stop here: nothing of this runs until `go_on`."""
        self.frozen = True

    def go_on(self) -> None:
        """Run what is due, in the order in which it became so."""
        self.frozen = False
        due, self.due = self.due, []
        loop = asyncio.get_running_loop()
        for handle, run, context in due:
            loop.call_soon(_unless_cancelled, handle, run, context=context)


class FreezableLoop(VirtualLoop):
    """Keeps the callbacks of frozen processes."""

    def call_soon(self, callback: Callable[..., Any], *args: Any, context: Context | None = None) -> asyncio.Handle:
        context = context or copy_context()
        owner = context.get(_OWNER)
        if owner is None:
            return super().call_soon(callback, *args, context=context)
        gate = _Gate(owner, callback, args, context)
        gate.handle = super().call_soon(gate, context=context)
        return gate.handle

    def call_at(
        self, when: float, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        context = context or copy_context()
        owner = context.get(_OWNER)
        if owner is None:
            return super().call_at(when, callback, *args, context=context)
        gate = _Gate(owner, callback, args, context)
        gate.handle = handle = super().call_at(when, gate, context=context)
        return handle


class _Gate:
    """A callback that runs unless its owner is frozen."""

    handle: asyncio.Handle

    def __init__(self, owner: Freezer, callback: Callable[..., Any], args: tuple[Any, ...], context: Context) -> None:
        self._owner = owner
        self._callback = callback
        self._args = args
        self._context = context

    def __call__(self) -> None:
        if self._owner.frozen:
            self._owner.due.append((self.handle, self, self._context))
        else:
            self._callback(*self._args)


def _unless_cancelled(handle: asyncio.Handle, run: Callable[[], object]) -> None:
    if not handle.cancelled():
        run()
