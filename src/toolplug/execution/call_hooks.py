"""The hooks around every call of a host: `before_call`, `change_result`, `after_call`, and tracers.

A plugin that fails affects its own check only: the call is refused, or its result withheld, unless the plugin's entry
says `on_failure: allow`. pluggy orders the implementations and does not call them, since there one that raises keeps
the others from being called, and a coroutine is a value like any other.

All plans of a host share one `LiveCallHooks`. A change of plugins replaces its `current` hooks, and a running call
keeps those that it began with.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

from pluggy import HookImpl, Result

from toolplug.catalog.call import CallContext, ToolCall, ToolResult, ToolStatus
from toolplug.catalog.definition import ToolDefinition
from toolplug.catalog.plan import CallRunner, NeedsApproval, WouldRefuse, listed_name
from toolplug.catalog.text import clean_text
from toolplug.crashes import log_crash
from toolplug.execution.accounting import audit
from toolplug.execution.isolated_hooks import (
    HOOK_S,
    CallHook,
    Given,
    HookFailure,
    OwnedTracer,
    Spans,
    Wrapper,
    failure_of,
    read_only_call,
)
from toolplug.execution.limiters import SourceSwitch
from toolplug.execution.results import check_result, readable, text_result
from toolplug.runtime.running_call import RunningCall

SHORTEST_AFTER_S = 0.1
"""How long an answer waits for `after_call` at least, also past the deadline."""
MAX_REASON = 2_000
"""Characters of the reason for which a plugin refuses a call; a longer one is cut."""
_MAX_NAME = 200
FAILED = "a check failed"
"""The reason that callers read where a check failed."""

_ANSWERS = frozenset({ToolStatus.SUCCESS, ToolStatus.TOOL_ERROR})
_REFUSED = "the call is denied"
_WITHHELD = "the result is withheld"
_KEPT = "the call keeps its result"

T = TypeVar("T")


class Monitor(NamedTuple):
    """Functions that `PluginManager.add_hookcall_monitoring` got: called before and after each hook is asked."""

    before: Callable[[str, Sequence[HookImpl], Mapping[str, Any]], object]
    after: Callable[[Result[Any], str, Sequence[HookImpl], Mapping[str, Any]], object]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CallHooks:
    """The hooks of one moment, each in the order in which plugins are asked; wrappers come first.

    `calls` counts the calls that began with them, so that a plugin is not closed under one.
    """

    runner: CallRunner
    before: tuple[CallHook, ...] = ()
    change: tuple[CallHook, ...] = ()
    after: tuple[CallHook, ...] = ()
    tracers: tuple[OwnedTracer, ...] = ()
    monitors: tuple[Monitor, ...] = ()
    calls: SourceSwitch = field(default_factory=SourceSwitch)
    shows: bool = field(init=False)
    asks: bool = field(init=False)
    asks_at_once: bool = field(init=False)
    changes: bool = field(init=False)
    observes: bool = field(init=False)
    observes_at_once: bool = field(init=False)
    traces: bool = field(init=False)

    def __post_init__(self) -> None:
        for name, hooks in (
            ("asks", self.before),
            ("changes", self.change),
            ("observes", self.after),
            ("traces", self.tracers),
        ):
            object.__setattr__(self, name, bool(hooks))
        hooks = (*self.before, *self.change, *self.after)
        object.__setattr__(self, "shows", bool(self.monitors) or any(hook.takes_call for hook in hooks))
        object.__setattr__(self, "asks_at_once", not any(hook.is_async or hook.wraps for hook in self.before))
        object.__setattr__(self, "observes_at_once", not any(hook.is_async for hook in self.after))

    async def trace(
        self,
        tool: ToolDefinition | None,
        call: ToolCall,
        context: CallContext,
        answer: Callable[[CallContext], Awaitable[ToolResult]],
    ) -> ToolResult:
        """Return the answer of a call, in the spans of the tracers; it gets the context with their headers."""
        spans = Spans(self.tracers, tool, read_only_call(call, nested=False), context)
        result = None
        try:
            result = await answer(spans.context)
            return result
        finally:
            spans.end(result)

    def refusal(
        self, call: ToolCall, context: CallContext, tool: ToolDefinition | None, until: float
    ) -> Awaitable[str | NeedsApproval | None] | str | NeedsApproval | None:
        """Return the reason for which a plugin refuses the call, by `until` (`perf_counter`); None if nobody does.

        Of plugins that want an approval the first is named, if no other one refuses.

        Where all of `before` are plain functions, there is nothing to await.
        """
        if self.monitors:
            answer = self._refusal(call, context, tool, until)
            return self._monitor("before_call", self.before, answer, {"call": call, "context": context, "tool": tool})
        if not self.asks_at_once:
            return self._refusal(call, context, tool, until)
        needs = None
        for hook in self.before:
            reason = _refused_by(hook, call, context, tool)
            if reason is not None:
                if isinstance(reason, str):
                    return reason
                needs = needs or reason
        return needs

    def change_result(
        self,
        call: ToolCall,
        context: CallContext,
        tool: ToolDefinition | None,
        result: ToolResult,
        until: float,
        max_bytes: int,
    ) -> Awaitable[ToolResult]:
        """Return what the plugins make of a tool's result, by `until` (`perf_counter`).

        A result that is no answer of a tool stays as it is.
        """
        answer = self._apply_changes(call, context, tool, result, until, max_bytes)
        if not (self.monitors and result.status in _ANSWERS):
            return answer
        given = {"call": call, "context": context, "tool": tool, "result": result}
        return self._monitor("change_result", self.change, answer, given)

    def report_answer(
        self,
        call: ToolCall,
        context: CallContext,
        tool: ToolDefinition | None,
        result: ToolResult,
        duration_s: float,
        within_s: float,
    ) -> Awaitable[None] | None:
        """Pass the answer of a call to the plugins; wait so many seconds for them, and let them go on after that.

        Where all of `after` are plain functions, there is nothing to await.
        """
        given = (call, context, result, tool, duration_s)
        if self.monitors:
            answer = self._answer(call, context, given, within_s)
            named = {"call": call, "context": context, "tool": tool, "result": result, "duration_s": duration_s}
            return self._monitor("after_call", self.after, answer, named)
        if not self.observes_at_once:
            return self._answer(call, context, given, within_s)
        for hook in self.after:
            try:
                hook.value(context, given)
            except HookFailure as failure:
                hook.report(failure, call, context, _KEPT)
        return None

    async def _refusal(
        self, call: ToolCall, context: CallContext, tool: ToolDefinition | None, until: float
    ) -> str | NeedsApproval | None:
        begun: list[Wrapper] = []
        reason, needs = None, None
        try:
            for hook in self.before:
                try:
                    reason = await self._ask(hook, begun, call, context, tool, until)
                except HookFailure as failure:
                    reason = FAILED if hook.denies(failure, call, context, _REFUSED) else None
                if isinstance(reason, str):
                    break
                needs = needs or reason
            reason = reason if isinstance(reason, str) else needs
            while begun:
                wrapper = begun.pop()
                try:
                    # None keeps the reason: a wrapper can replace a refusal, but not take it back.
                    value = _reason(wrapper.end(reason), wrapper.hook, call, context, tool)
                    reason = value if isinstance(value, str) or reason is None else reason
                except HookFailure as failure:
                    # `denies` is first, since it also logs. A reason that a plugin gave is better than "a check
                    # failed".
                    if wrapper.hook.denies(failure, call, context, _REFUSED) and not isinstance(reason, str):
                        reason = FAILED
            return reason
        finally:
            for wrapper in reversed(begun):
                wrapper.close()

    async def _ask(
        self,
        hook: CallHook,
        begun: list[Wrapper],
        call: ToolCall,
        context: CallContext,
        tool: ToolDefinition | None,
        until: float,
    ) -> str | NeedsApproval | None:
        """Return what one plugin says; a wrapper is begun, and says it at its end. Raises `HookFailure`."""
        given = (call, context, tool)
        if hook.wraps:
            begun.append(Wrapper(hook, context, given))
            return None
        if hook.is_async:
            value = await hook.run_async(self.runner, call, context, given, until)
            return _reason(value, hook, call, context, tool)
        return _refused_by(hook, call, context, tool)

    async def _apply_changes(
        self,
        call: ToolCall,
        context: CallContext,
        tool: ToolDefinition | None,
        result: ToolResult,
        until: float,
        max_bytes: int,
    ) -> ToolResult:
        if result.status not in _ANSWERS:
            return result
        begun: list[Wrapper] = []
        withheld = None
        try:
            for hook in self.change:
                if withheld is not None:
                    break
                given = (call, context, result, tool)
                try:
                    if hook.wraps:
                        begun.append(Wrapper(hook, context, given))
                    elif hook.is_async:
                        value = await hook.run_async(self.runner, call, context, given, until)
                        result = _read_replacement(value, result, call, max_bytes)
                    else:
                        result = _read_replacement(hook.value(context, given), result, call, max_bytes)
                except HookFailure as failure:
                    withheld = _withhold(call) if hook.denies(failure, call, context, _WITHHELD) else None
            while begun:
                wrapper = begun.pop()
                try:
                    value = wrapper.end(withheld or result)
                    result = _read_replacement(value, result, call, max_bytes)
                except HookFailure as failure:
                    if wrapper.hook.denies(failure, call, context, _WITHHELD):
                        withheld = _withhold(call)
            return withheld or result
        finally:
            for wrapper in reversed(begun):
                wrapper.close()

    async def _answer(self, call: ToolCall, context: CallContext, given: Given, within_s: float) -> None:
        running: list[asyncio.Future[None]] = []
        for hook in self.after:
            try:
                if not hook.is_async:
                    hook.value(context, given)
                    continue
                outcome = hook.begin(self.runner, call, context, given)
            except HookFailure as failure:
                hook.report(failure, call, context, _KEPT)
            else:
                if isinstance(outcome, RunningCall):
                    running.append(self._follow(hook, outcome, call, context))
        if running:
            await asyncio.wait(running, timeout=max(within_s, SHORTEST_AFTER_S))

    def _follow(
        self, hook: CallHook, running: RunningCall, call: ToolCall, context: CallContext
    ) -> asyncio.Future[None]:
        """Return a future of the hook's end, which is asked to stop after `HOOK_S`, whether the caller waits or not."""
        loop = asyncio.get_running_loop()
        followed: asyncio.Future[None] = loop.create_future()

        def on_timeout() -> None:
            hook.report(HookFailure(f"had not ended after {HOOK_S:g} s"), call, context, _KEPT)
            # The caller goes on; `calls.leave` still waits for the end of the hook, so that its plugin is not closed
            # under it.
            running.cancel()
            followed.set_result(None)

        def on_end() -> None:
            timer.cancel()
            self.calls.leave()
            if not followed.done():
                followed.set_result(None)
                if running.error is not None:
                    hook.report(failure_of(running.error), call, context, _KEPT)

        self.calls.running += 1
        timer = loop.call_later(HOOK_S, on_timeout)
        running.when_done(on_end)
        return followed

    async def _monitor(self, name: str, hooks: Sequence[CallHook], answer: Awaitable[T], given: Mapping[str, Any]) -> T:
        """Return the answer, and show it to the monitors of the plugin manager."""
        # As pluggy passes them to its monitors: it calls the last of the list first.
        implementations = [hook.implementation for hook in reversed(hooks)]
        for monitor in self.monitors:
            _watch(monitor.before, name, implementations, given)
        value = await answer
        outcome: Result[Any] = Result(value, None)
        for monitor in reversed(self.monitors):
            _watch(monitor.after, outcome, name, implementations, given)
        return value


class LiveCallHooks:
    """The current hooks of one host, None while no plugin has any."""

    __slots__ = ("_replaced", "current")

    def __init__(self) -> None:
        self.current: CallHooks | None = None
        self._replaced: list[CallHooks] = []

    def replace(self, hooks: CallHooks | None) -> None:
        """Use these hooks for every call that begins from now on."""
        if self.current is not None:
            self._replaced.append(self.current)
        self._replaced = [each for each in self._replaced if each.calls.running]
        self.current = hooks

    async def drain(self, within_s: float) -> None:
        """Wait until every call that began with other hooks has been answered, at most so many seconds."""
        await asyncio.gather(*(each.calls.drain(within_s) for each in self._replaced))
        self._replaced = [each for each in self._replaced if each.calls.running]


def _refused_by(
    hook: CallHook, call: ToolCall, context: CallContext, tool: ToolDefinition | None
) -> str | NeedsApproval | None:
    """Return the reason for which a plain function refuses the call, None if it does not."""
    try:
        value = hook.value(context, (call, context, tool))
        return None if value is None else _reason(value, hook, call, context, tool)
    except HookFailure as failure:
        return FAILED if hook.denies(failure, call, context, _REFUSED) else None


def _reason(
    value: object, hook: CallHook, call: ToolCall, context: CallContext, tool: ToolDefinition | None
) -> str | NeedsApproval | None:
    """Return what a `before_call` returned; what a watched rule would have refused is counted and audited.

    Raises `HookFailure` if it is no text, `NeedsApproval`, `WouldRefuse` or None.
    """
    if value is None:
        return None
    if isinstance(value, WouldRefuse):
        rule, named = f"plugin: {hook.owner.key}", call.name if tool is None else tool.ref.name
        hook.watched("" if tool is None else tool.ref.source, named, rule)
        said = {"rule": rule, "reason": cleaned_reason(str(value.reason)), "would": "denied", "call_id": call.id}
        audit("tool.call", "watched", context.principal, listed_name(call, tool), context.request_id, None, **said)
        return None
    if isinstance(value, NeedsApproval):
        return NeedsApproval(cleaned_reason(str(value.reason)))
    if not isinstance(value, str):
        raise HookFailure(f"returned {_name(value)}, neither a text nor None")
    return cleaned_reason(value)


def cleaned_reason(text: str) -> str:
    """Return a plugin's reason as a caller may read it: without invisible characters, at most `MAX_REASON`."""
    # The methods of `str` itself: the plugin's text may be of a subclass with methods of its own.
    reason = readable(clean_text(str.__getitem__(text, slice(MAX_REASON))))
    return reason if str.__len__(text) <= MAX_REASON else f"{reason}…"


def _name(value: object) -> str:
    return type(value).__name__[:_MAX_NAME]


def _read_replacement(value: object, result: ToolResult, call: ToolCall, max_bytes: int) -> ToolResult:
    """Return the result that a `change_result` returned. Raises `HookFailure` if it is none."""
    if value is None:
        return result
    if isinstance(value, str):
        return result._replace(output=readable(value), structured=None, parts=())
    if not isinstance(value, ToolResult):
        raise HookFailure(f"returned {_name(value)}, neither a ToolResult nor a text nor None")
    try:
        changed = check_result(call, value, max_bytes)
    except BaseException as error:
        raise failure_of(error) from error
    if changed is None:
        raise HookFailure("returned a result that is not JSON")
    if changed.status not in _ANSWERS:
        raise HookFailure(f"returned the status {changed.status.value!r}; a result is 'success' or 'tool_error'")
    return changed


def _withhold(call: ToolCall) -> ToolResult:
    return text_result(call, ToolStatus.TOOL_ERROR, f'result of tool "{call.name}" is withheld: {FAILED}')


def _watch(function: Callable[..., object], *given: object) -> None:
    """Call a monitor, whose fault affects no call."""
    try:
        function(*given)
    except Exception as error:  # noqa: BLE001  code of the application
        log_crash("a monitor of the plugin manager", error)
