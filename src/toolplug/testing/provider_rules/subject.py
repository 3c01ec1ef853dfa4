"""The provider that is checked, and a temporary registry to run it in."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

from prometheus_client import CollectorRegistry

from toolplug.catalog.call import CallContext, Principal, ToolCall, ToolResult
from toolplug.config.run_settings import IN_PROCESS, RunSettings
from toolplug.execution.resolved_limits import Limits
from toolplug.providers.entry import DesiredProvider, ProviderEntry
from toolplug.providers.generation import Generation
from toolplug.providers.provider import FunctionProvider
from toolplug.providers.registry import FunctionRegistry

DRAIN_S = 0.5
CONCURRENT = 20
CALL_ID = "call-of-the-check"

TESTER = Principal(subject="tester", tenant="tested", scopes=frozenset({"admin"}))


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """A provider to check. `calls`: arguments of successful calls by tool, in the order of the calls.

    `prompts` and `resources`: arguments by prompt, and values of the variables by URI template. `run`: where it
    runs.
    """

    make: Callable[[], FunctionProvider]
    key: str
    calls: Mapping[str, Mapping[str, object]]
    prompts: Mapping[str, Mapping[str, object]]
    resources: Mapping[str, Mapping[str, object]]
    uncalled: Sequence[str]
    principal: Principal
    within_s: float
    run: RunSettings = IN_PROCESS

    def entry(self) -> ProviderEntry:
        """Return the provider's entry, with a drain of `DRAIN_S` seconds."""
        return ProviderEntry(
            key=self.key, type=self.key, limits=Limits.model_validate({"drain": DRAIN_S}), run=self.run
        )


@dataclass(frozen=True, slots=True)
class Started:
    """A started instance of the provider in a registry of its own."""

    subject: Subject
    registry: FunctionRegistry
    generation: Generation
    metrics: CollectorRegistry

    async def call(self, tool: str, arguments: Mapping[str, object], *, call_id: str = CALL_ID) -> ToolResult:
        """Call a tool as the subject's principal."""
        context = CallContext(principal=self.subject.principal)
        return await self.registry.execute(ToolCall(call_id, tool, arguments), context)

    async def quiet(self) -> bool:
        """Wait up to `subject.within_s` seconds for running calls; return whether all have ended."""
        return await self.generation.switch.drain(self.subject.within_s)

    def examples(self) -> list[tuple[str, Mapping[str, object]]]:
        """Return the example calls of listed tools: name and arguments."""
        return [(name, given) for name, given in self.subject.calls.items() if name in self.registry.catalog]


@asynccontextmanager
async def start_subject(subject: Subject) -> AsyncGenerator[Started]:
    """Start a new instance, and close it at the end. Raises `ConfigError` if it does not start."""
    metrics = CollectorRegistry()
    async with FunctionRegistry(metrics=metrics) as registry:
        await registry.apply([DesiredProvider(subject.entry(), subject.make)])
        yield Started(subject, registry, registry.running()[subject.key], metrics)
