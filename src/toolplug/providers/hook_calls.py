"""The host-wide hooks of provider packages, called one by one and each guarded.

A hook that raises or does not end within its time is logged, and the call goes on as if it had said nothing: one
broken package never costs another its calls.
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
from toolplug.execution.task_runner import RunningCall
from toolplug.providers.generation import Generation
from toolplug.providers.hooks import PROJECT, HookSpecs

_LOG = logging.getLogger("toolplug.providers")

HOOK_S = 5.0


class HookCalls(NamedTuple):
    """One provider's hooks as an observer of calls; either may be missing. They run in tasks apart from the caller.

    While one runs it counts as a call of its provider, so that the provider is not closed under it.
    """

    owner: CodeOwner
    switch: Switch
    runner: CallRunner
    before_call: HookImpl | None
    after_call: HookImpl | None

    async def before(self, call: ToolCall, context: CallContext) -> str | None:
        """The reason for a veto, or None."""
        if self.before_call is None:
            return None
        reason = await self._counted(self.before_call, call, context)
        return None if reason is None else str(reason)

    async def after(self, call: ToolCall, context: CallContext, result: ToolResult) -> None:
        """Let the hook hear the result."""
        if self.after_call is not None:
            await self._counted(self.after_call, call, context, result)

    async def _counted(
        self, hook: HookImpl, call: ToolCall, context: CallContext, result: ToolResult | None = None
    ) -> object:
        self.switch.running += 1
        try:
            return await self._guarded(hook, call, context, result)
        finally:
            self.switch.leave()

    async def _guarded(self, hook: HookImpl, call: ToolCall, context: CallContext, result: ToolResult | None) -> object:
        name = hook.function.__name__
        given = {"call": call, "context": context, "result": result}

        async def target(call: ToolCall, context: CallContext) -> object:
            value = hook.function(*[given[argument] for argument in hook.argnames])
            return await value if inspect.isawaitable(value) else value

        try:
            outcome = self.runner.start(target, call, context)
        except BaseException as error:  # noqa: BLE001  a hook that exits must not take the host with it
            return self._crashed(name, error, call, context)
        if not isinstance(outcome, RunningCall):
            return outcome
        if not await outcome.wait(HOOK_S):
            _LOG.error("hook %s of %s has not ended after %g s; the call goes on without it", name, self.owner, HOOK_S)
            return None
        if outcome.error is not None:
            return self._crashed(name, outcome.error, call, context)
        return outcome.value

    def _crashed(self, name: str, error: BaseException, call: ToolCall, context: CallContext) -> None:
        ids = {"call_id": call.id, "request_id": context.request_id}
        log_crash(f"hook {name}", error, self.owner, **ids, then="the call goes on without it")


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
    known = {generation.entry.key: generation for generation in generations}
    return tuple(
        HookCalls(known[key].entry.owner, known[key].switch, runner, before.get(key), after.get(key))
        for key in {**before, **after}
    )
