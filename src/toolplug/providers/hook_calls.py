"""The host-wide hooks of provider packages, called one by one and each guarded.

A `before_call` that raises, is late, or returns neither a text nor None refuses the call, unless the entry of its
provider says `on_failure: allow`: what guards calls must not be switched off by its own fault. Callers learn that a
check failed, the log says which. A failing `after_call` is logged.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Sequence
from typing import NamedTuple

import pluggy
from pluggy import HookImpl

from toolplug.catalog.call import CallContext, ToolCall, ToolResult
from toolplug.catalog.plan import CallRunner, Observer, Switch
from toolplug.crashes import CodeOwner, log_crash
from toolplug.execution.results import readable
from toolplug.providers.entry import OnFailure
from toolplug.providers.generation import Generation
from toolplug.providers.hooks import PROJECT, HookSpecs
from toolplug.runtime.running_call import RunningCall

_LOG = logging.getLogger("toolplug.providers")

HOOK_S = 5.0
"""How long a hook may take."""
FAILED = "a check failed"
"""The reason that callers read where a `before_call` failed."""


class _HookFailed(Exception):
    """A hook raised or was late; the text says which, without anything of an exception but its type."""


class HookCalls(NamedTuple):
    """One provider's hooks as an observer of calls; either may be missing. They run in tasks apart from the caller.

    While one runs it counts as a call of its provider, so that the provider is not closed under it.
    """

    owner: CodeOwner
    switch: Switch
    runner: CallRunner
    before_call: HookImpl | None
    after_call: HookImpl | None
    on_failure: OnFailure

    async def before(self, call: ToolCall, context: CallContext, within_s: float) -> str | None:
        """The reason for a veto, or None."""
        if self.before_call is None:
            return None
        try:
            reason = await self._counted(self.before_call, call, context, None, min(HOOK_S, within_s))
            if reason is None or isinstance(reason, str):
                return reason if reason is None else readable(reason)
            failed = _HookFailed(f"returned {type(reason).__name__}, neither a text nor None")
        except _HookFailed as error:
            failed = error
        allowed = self.on_failure == "allow"
        then = "the call goes on (on_failure: allow)" if allowed else "the call is denied (on_failure: deny)"
        self._report("before_call", failed, call, context, then)
        return None if allowed else FAILED

    async def after(self, call: ToolCall, context: CallContext, result: ToolResult) -> None:
        """Pass the result to the hook."""
        if self.after_call is None:
            return
        try:
            await self._counted(self.after_call, call, context, result, HOOK_S)
        except _HookFailed as error:
            self._report("after_call", error, call, context, "the call keeps its result")

    async def _counted(
        self, hook: HookImpl, call: ToolCall, context: CallContext, result: ToolResult | None, within_s: float
    ) -> object:
        self.switch.running += 1
        try:
            return await self._value(hook, call, context, result, within_s)
        finally:
            self.switch.leave()

    async def _value(
        self, hook: HookImpl, call: ToolCall, context: CallContext, result: ToolResult | None, within_s: float
    ) -> object:
        """What the hook returns; raises `_HookFailed`."""
        given = {"call": call, "context": context, "result": result}

        async def target(call: ToolCall, context: CallContext) -> object:
            value = hook.function(*[given[argument] for argument in hook.argnames])
            return await value if inspect.isawaitable(value) else value

        try:
            outcome = self.runner.start(target, call, context)
        except BaseException as error:
            raise _HookFailed(f"raised {type(error).__name__}") from error
        if not isinstance(outcome, RunningCall):
            return outcome
        if not await outcome.wait(within_s):
            raise _HookFailed(f"had not ended after {within_s:.3g} s")
        if outcome.error is not None:
            raise _HookFailed(f"raised {type(outcome.error).__name__}") from outcome.error
        return outcome.value

    def _report(self, hook: str, failed: _HookFailed, call: ToolCall, context: CallContext, then: str) -> None:
        if failed.__cause__ is None:
            _LOG.error("hook %s of %s %s; %s", hook, self.owner, failed, then)
        else:
            ids = {"call_id": call.id, "request_id": context.request_id}
            log_crash(f"hook {hook}", failed.__cause__, self.owner, **ids, then=then)


def observes_calls(provider: object) -> bool:
    """Has it a host-wide hook."""
    return hasattr(provider, "before_call") or hasattr(provider, "after_call")


def observers(generations: Sequence[Generation], runner: CallRunner) -> tuple[Observer, ...]:
    """The host-wide hooks of these providers, first to last; none where nobody has any.

    pluggy knows who implements them and which arguments each takes; it is not asked to call them, since one that
    raises would keep the others from being called.
    """
    manager = pluggy.PluginManager(PROJECT)
    manager.add_hookspecs(HookSpecs)
    for generation in reversed(generations):
        manager.register(generation.provider, name=generation.entry.key)
    before = {hook.plugin_name: hook for hook in reversed(manager.hook.before_call.get_hookimpls())}
    after = {hook.plugin_name: hook for hook in reversed(manager.hook.after_call.get_hookimpls())}
    of = {generation.entry.key: generation for generation in generations}
    entries = {key: generation.entry for key, generation in of.items()}
    return tuple(
        HookCalls(entries[key].owner, of[key].switch, runner, before.get(key), after.get(key), entries[key].on_failure)
        for key in {**before, **after}
    )
