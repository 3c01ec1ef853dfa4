"""One implementation of a hook around calls, run so that its faults, its delays and its context stay its own.

Callers learn that a check failed; the log says which plugin, what it raised and where. Hooks see calls with read-only
arguments, so that no plugin changes what the tool or another plugin gets. Tracers make a span for each call.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Generator, Mapping
from contextvars import Context, copy_context
from copy import deepcopy
from dataclasses import dataclass
from time import perf_counter
from typing import Any, Literal, NamedTuple, NoReturn, cast

from pluggy import HookImpl

from toolplug.catalog.call import CallContext, ToolCall, ToolResult, current_frame, quick_call
from toolplug.catalog.definition import ToolDefinition
from toolplug.catalog.plan import CallRunner, CallSpan, CallTracer
from toolplug.crashes import CodeOwner, log_crash, outline_error
from toolplug.errors import ToolUnavailable
from toolplug.runtime.running_call import RunningCall

_SCALARS = frozenset({str, int, float, bool, type(None)})


class ReadOnlyDict(dict[Any, Any]):
    """A `dict` that raises `TypeError` when it is changed; a copy of it is a plain one, and any encoder takes it."""

    __slots__ = ()

    def __reduce__(self) -> tuple[type[dict[Any, Any]], tuple[object, ...]]:
        return dict, ([*self.items()],)


class ReadOnlyList(list[Any]):
    """A `list` that raises `TypeError` when it is changed; a copy of it is a plain one, and any encoder takes it."""

    __slots__ = ()

    def __reduce__(self) -> tuple[type[list[Any]], tuple[object, ...]]:
        return list, ([*self],)


def _refuse(*_: object, **__: object) -> NoReturn:
    raise TypeError("the arguments of a call are read-only in hooks; copy them, refuse the call, or change its result")


_CHANGES = {
    ReadOnlyDict: ("__setitem__", "__delitem__", "__ior__", "clear", "pop", "popitem", "setdefault", "update"),
    ReadOnlyList: (
        *("__setitem__", "__delitem__", "__iadd__", "__imul__", "append", "clear", "extend", "insert", "pop"),
        *("remove", "reverse", "sort"),
    ),
}
for _kind, _names in _CHANGES.items():
    for _name in _names:
        setattr(_kind, _name, _refuse)


def read_only_call(call: ToolCall, *, nested: bool) -> ToolCall:
    """Return the call with read-only arguments: `nested` ones too, where the tool could see a change of those."""
    call_id, name, given = call
    # The check of an abstract class costs as much as the copy, and nearly all arguments are a dict.
    if type(given) is not dict and not isinstance(given, Mapping):
        return call
    arguments = _read_only(dict(given)) if nested else ReadOnlyDict(given)  # pyright: ignore[reportUnknownArgumentType]
    return quick_call(ToolCall, (call_id, name, arguments))


def _read_only(value: object) -> object:
    if type(value) is dict:
        named = cast("dict[object, object]", value).items()
        return ReadOnlyDict({key: item if type(item) in _SCALARS else _read_only(item) for key, item in named})
    if type(value) is list:
        return ReadOnlyList(
            [item if type(item) in _SCALARS else _read_only(item) for item in cast("list[object]", value)]
        )
    try:
        return deepcopy(value)  # what a conversion has made of it: a model, a date
    except Exception:  # noqa: BLE001  code of the value's own class
        return value


_set_frame, _frame = current_frame.set, current_frame.get

_LOG = logging.getLogger("toolplug.providers")

HOOK_S = 5.0
"""How long a hook may take."""
BLOCKED_S = 0.1
"""A synchronous hook that takes longer than this is named in the log: it blocks the event loop."""
MAX_KINDS = 64
"""Kinds of failures of one plugin's code that are counted; beyond that the counts begin again."""

OnFailure = Literal["deny", "allow"]
"""What a hook around calls that fails means: the call is refused or its result withheld, or both go on."""

Ask = Callable[..., Any]
"""Takes what the hook is given, by position."""

Given = tuple[Any, ...]
"""The arguments of a hook: `Hook.given` in `providers/plugins/implementations.py` has their order."""


class FailureCounts:
    """Counts failures of one plugin's code by their kind, so that code that fails at every call does not fill the log.

    A kind is logged at its first, 10th, 100th and 1,000th time, then at each further 1,000th.
    """

    __slots__ = ("_counts",)

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}

    def note(self, kind: str) -> str | None:
        """Count a failure; return what its line says of the earlier ones, None if it is not to be logged."""
        if len(self._counts) >= MAX_KINDS and kind not in self._counts:
            self._counts.clear()
        count = self._counts[kind] = self._counts.get(kind, 0) + 1
        if count == 1:
            return ""
        if count not in (10, 100) and count % 1000:
            return None
        return (
            f"; this has happened {count} times, and is logged again at {count * 10 if count < 1000 else count + 1000}"
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CallHook:
    """One plugin's implementation of the hook `name`; `ask` takes the arguments of the hook by position.

    It takes none of the first `skips`: a function around it that leaves them out would cost each call 1 % of its time.
    `wraps`: it is a wrapper around other implementations. `takes_call`: `call` is among its arguments. `failures` are
    those that affect no call. `watched` counts a call that a watched rule would have refused, by source, tool and rule.
    """

    name: str
    implementation: HookImpl
    ask: Ask
    owner: CodeOwner
    is_async: bool
    wraps: bool
    takes_call: bool
    on_failure: OnFailure
    failures: FailureCounts
    watched: Callable[[str, str, str], object]
    skips: int = 0

    @property
    def title(self) -> tuple[str, CodeOwner]:
        """Its hook and its plugin, for messages."""
        return self.name, self.owner

    def value(self, context: CallContext, given: Given) -> object:
        """Return what a synchronous hook returns. Raises `HookFailure`."""
        began = perf_counter()
        try:
            # A copy: the context variables that a hook sets must not reach the tool or the next hook.
            own = copy_context()
            own.run(_set_frame, (context.principal.tenant, _frame()[1] + 1))
            value = own.run(self.ask, *given[self.skips :])
        except BaseException as error:
            raise failure_of(error) from error
        if perf_counter() - began > BLOCKED_S:
            self.log_blocking(perf_counter() - began)
        if value is not None and inspect.isawaitable(value):
            if inspect.iscoroutine(value):
                # Or Python would warn, at some later time, of a coroutine that was never awaited.
                value.close()
            raise HookFailure(f"returned a {type(value).__name__} that nobody awaits; write it as `async def`")
        return value

    def begin(self, runner: CallRunner, call: ToolCall, context: CallContext, given: Given) -> object:
        """Return the value of an asynchronous hook that ends at once, else its `RunningCall`. Raises `HookFailure`."""
        try:
            return runner.start(lambda call, context: self.ask(*given[self.skips :]), call, context)
        except BaseException as error:
            raise failure_of(error) from error

    async def run_async(
        self,
        runner: CallRunner,
        call: ToolCall,
        context: CallContext,
        given: Given,
        until: float,
    ) -> object:
        """Return what an asynchronous hook returns, by `until` (`perf_counter`) at most. Raises `HookFailure`."""
        outcome = self.begin(runner, call, context, given)
        if not isinstance(outcome, RunningCall):
            return outcome
        within_s = max(min(HOOK_S, until - perf_counter()), 0.0)
        if not await outcome.wait(within_s):
            raise HookFailure(f"had not ended after {within_s:.3g} s")
        if outcome.error is not None:
            raise failure_of(outcome.error) from outcome.error
        return outcome.value

    def log_blocking(self, took_s: float) -> None:
        """Log that the hook blocked the event loop, unless that was counted only."""
        times = self.failures.note("blocked")
        if times is not None:
            message = "hook %s of %s blocked the event loop for %.3g s; make it async%s"
            _LOG.warning(message, *self.title, took_s, times)

    def denies(self, failure: HookFailure, call: ToolCall, context: CallContext, what: str) -> bool:
        """Log a failed check, and return whether it counts against the call, which then ends as `what` says.

        One that counts is logged for each call, as only its line says why the call was refused; a hook that is out of
        reach is counted, as every call meets it, and nothing is wrong with its code.
        """
        if self.on_failure == "allow":
            self.report(failure, call, context, "the call goes on (on_failure: allow)")
            return False
        log = self.report if isinstance(failure.__cause__, ToolUnavailable) else self._log
        log(failure, call, context, f"{what} (on_failure: deny)")
        return True

    def report(self, failure: HookFailure, call: ToolCall, context: CallContext, then: str) -> None:
        """Log a failure and its consequence, unless it was counted only."""
        times = self.failures.note(kind_of(failure, self.owner))
        if times is not None:
            self._log(failure, call, context, f"{then}{times}")

    def _log(self, failure: HookFailure, call: ToolCall, context: CallContext, then: str) -> None:
        cause = failure.__cause__
        if cause is None:
            _LOG.error("hook %s of %s %s; %s", *self.title, failure, then)
        elif isinstance(cause, ToolUnavailable):
            # Its text says how it is had, as of a provider whose worker has not dialled in.
            _LOG.warning("hook %s of %s is out of reach: %s; %s", *self.title, self.owner.masked(str(cause)), then)
        else:
            log_raised(self.name, self.owner, cause, call, context, then)


class HookFailure(Exception):
    """A hook raised, was late, or returned a wrong value; the text says which, without the text of an exception."""


def kind_of(failure: BaseException, owner: CodeOwner) -> str:
    """Return what a failure has in common with those that are counted with it: type and line, or its text."""
    error = failure.__cause__ if isinstance(failure, HookFailure) else failure
    return str(failure) if error is None else outline_error(error, owner.package)


def failure_of(error: BaseException) -> HookFailure:
    failure = HookFailure(f"raised {type(error).__name__}")
    failure.__cause__ = error
    return failure


def log_raised(
    name: str, owner: CodeOwner, error: BaseException, call: ToolCall, context: CallContext, then: str
) -> None:
    """Log what a hook raised."""
    log_crash(f"hook {name}", error, owner, call_id=call.id, request_id=context.request_id, then=then)


class Wrapper:
    """A wrapper around other implementations: a generator between its two halves, in a context of its own."""

    def __init__(self, hook: CallHook, context: CallContext, given: Given) -> None:
        self.hook = hook
        self._context = context
        self._own = copy_context()
        self._generator = cast(
            "Generator[None, object, object]", _in_context(self._own, hook, context, hook.ask, *given[hook.skips :])
        )
        try:
            _in_context(self._own, hook, context, next, self._generator)
        except _GeneratorEnd as stopped:
            raise HookFailure("did not yield") from stopped.__cause__

    def end(self, value: object) -> object:
        """Return what the wrapper returns for the value of the others. Raises `HookFailure`."""
        try:
            _in_context(self._own, self.hook, self._context, self._generator.send, value)
        except _GeneratorEnd as stopped:
            return stopped.value
        self.close()
        raise HookFailure("yielded twice")

    def close(self) -> None:
        """End the generator of a call that was cancelled."""
        try:
            self._own.run(self._generator.close)
        except BaseException as error:  # noqa: BLE001  code of a plugin
            log_crash(f"hook {self.hook.name}", error, self.hook.owner)


class _GeneratorEnd(Exception):
    """A generator has ended with this value."""

    def __init__(self, value: object) -> None:
        super().__init__()
        self.value = value


def _in_context(
    own: Context, hook: CallHook, context: CallContext, function: Callable[..., Any], *given: object
) -> Any:
    """Return what a synchronous step of a hook returns, run as the caller's tenant. Raises `HookFailure`."""
    began = perf_counter()
    try:
        own.run(_set_frame, (context.principal.tenant, _frame()[1] + 1))
        return own.run(function, *given)
    # The end of a generator is no fault of it; after `send` its value is the answer.
    except StopIteration as stopped:
        raise _GeneratorEnd(stopped.value) from None
    except BaseException as error:
        raise failure_of(error) from error
    finally:
        if perf_counter() - began > BLOCKED_S:
            hook.log_blocking(perf_counter() - began)


_HOOK = "call_tracers"


class OwnedTracer(NamedTuple):
    """A tracer, the plugin that it comes from, and what it has raised."""

    tracer: CallTracer
    owner: CodeOwner
    failures: FailureCounts

    def report(self, error: BaseException, call: ToolCall, context: CallContext, then: str) -> None:
        """Log what the tracer raised, and its consequence, unless it was counted only."""
        times = self.failures.note(kind_of(error, self.owner))
        if times is not None:
            log_raised(_HOOK, self.owner, error, call, context, f"{then}{times}")


class Spans:
    """The spans of one call; what a tracer raises is logged, and affects neither the call nor other tracers."""

    __slots__ = ("_begun", "_call", "context")

    def __init__(
        self, tracers: tuple[OwnedTracer, ...], tool: ToolDefinition | None, call: ToolCall, context: CallContext
    ) -> None:
        self.context: CallContext = context
        self._call = call
        self._begun: list[tuple[CallSpan, OwnedTracer]] = []
        for owned in tracers:
            try:
                span = owned.tracer.start(call, self.context, tool)
                if span is not None:
                    self._begun.append((span, owned))
                    # The next tracer begins with these headers: its span is below this one, and the tool gets the
                    # innermost.
                    self.context = self.context.of_trace(dict(span.headers))
            except BaseException as error:  # noqa: BLE001  code of a plugin
                owned.report(error, call, context, "the call has no span of it")

    def end(self, result: ToolResult | None) -> None:
        """End the spans, the last first; None if the caller went away."""
        for span, owned in reversed(self._begun):
            try:
                span.end(result)
            except BaseException as error:  # noqa: BLE001  code of a plugin
                owned.report(error, self._call, self.context, "its span is lost")
