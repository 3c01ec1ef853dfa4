"""Coroutines driven by hand: their first step apart from any task, the rest in a task and in a context of their own."""

from __future__ import annotations

import asyncio
import types
from collections.abc import Callable, Coroutine, Generator
from contextvars import Context
from typing import Any, cast

Running = Coroutine[Any, Any, object] | Generator[Any, Any, object]

ENDED = object()
"""What `FirstSteps.take` gives for a coroutine that ended in its first step."""

UNSTARTED = object()
_CANCELLED = object()


class FirstSteps:
    """Takes the first steps of coroutines, one coroutine after another, inside one generator.

    `take` gives what the coroutine yields, or `ENDED`, with its result in `value`: less than half the price of the
    `StopIteration` that a coroutine ends with outside of another. One that raises ends the generator; one that suspends
    takes it along as its `rest`. Either way the next coroutine needs new `FirstSteps`.
    """

    __slots__ = ("_generator", "kept", "take", "value")

    def __init__(self) -> None:
        self.value: object = None
        self.kept: bool = False
        self._generator = _generator(self)
        self.take: Callable[[object], object] = self._generator.send
        self.take(None)

    def rest(self) -> Running:
        """The coroutine that has suspended, to be driven on; it returns its result."""
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
        steps.value = value
        del coroutine, steps_of, value
        coroutine = yield ENDED


_generator = cast("Callable[[FirstSteps], Generator[Any, Any, object]]", types.coroutine(_one_after_another))


class Carried:
    """An awaitable that drives a coroutine in the coroutine's own context, from what it yielded last."""

    __slots__ = ("_context", "_coroutine", "_yielded", "closed")

    def __init__(self, coroutine: Running, context: Context, yielded: object = UNSTARTED) -> None:
        self._coroutine = coroutine
        self._context = context
        self._yielded = yielded
        self.closed: bool = False

    def cancelled(self) -> Carried:
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
