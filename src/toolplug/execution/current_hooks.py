"""Host-wide hooks as they are at a call, for tools whose plans outlive the providers that hear them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from toolplug.catalog.call import CallContext, ToolCall, ToolResult
from toolplug.catalog.plan import Observer

Hooks = Callable[[], Sequence[Observer]]
"""The host-wide hooks that there are now."""


class CurrentHooks:
    """An observer that asks those that there are when a call comes."""

    def __init__(self, hooks: Hooks) -> None:
        self._hooks = hooks

    async def before(self, call: ToolCall, context: CallContext) -> str | None:
        for hook in self._hooks():
            reason = await hook.before(call, context)
            if reason is not None:
                return reason
        return None

    async def after(self, call: ToolCall, context: CallContext, result: ToolResult) -> None:
        for hook in self._hooks():
            await hook.after(call, context, result)
