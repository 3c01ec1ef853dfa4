"""A provider with more to say than fits into one message of its process."""

from __future__ import annotations

from collections.abc import Sequence

from prometheus_client import Gauge

from toolplug import CallContext, FunctionProvider, ProviderContext, ToolCall, ToolDefinition, tool


class Large(FunctionProvider):
    """Has many tools and many series."""

    async def start(self, site: ProviderContext) -> None:
        """Make the series."""
        self._gauge = Gauge("large_series", "Many.", ["name"], registry=None)
        for number in range(6_000):
            self._gauge.labels(f"{number}{'x' * 200}").set(number)

    def collectors(self) -> Sequence[Gauge]:
        """Return them."""
        return [self._gauge]

    def tools(self) -> Sequence[ToolDefinition]:
        """Return the tools."""
        many = [ToolDefinition(name=f"tool_{number}", description="d" * 2_000) for number in range(700)]
        return [*super().tools(), *many]

    async def execute(self, call: ToolCall, context: CallContext) -> object:
        """Answer a call of one of them."""
        return await super().execute(call, context) if call.name == "report" else call.name

    @tool
    async def report(self, context: CallContext) -> str:
        "Report what cannot be told as it is."
        context.report(1, 2, "y" * 2_000_000)
        context.report(2, float("inf"), None)
        context.report(3, None, "a\ud800")
        self._gauge.labels("reported").set(1)
        return "reported"
