"""What is checked, and a host around it that is as strict as the real one and forgets everything."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

from toolplug.catalog.call import CallContext, Principal, ToolCall, ToolResult
from toolplug.execution.resolved_limits import Limits
from toolplug.providers.entry import DesiredProvider, ProviderEntry
from toolplug.providers.generation import Generation
from toolplug.providers.provider import FunctionProvider
from toolplug.providers.registry import FunctionRegistry

DRAIN_S = 0.5
CONCURRENT = 20

TESTER = Principal(subject="tester", tenant="tested", scopes=frozenset({"admin"}))


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """`calls`: for each tool, in the order in which they are made, arguments with which it must succeed."""

    make: Callable[[], FunctionProvider]
    key: str
    calls: Mapping[str, Mapping[str, object]]
    uncalled: Sequence[str]
    principal: Principal
    within_s: float

    def entry(self) -> ProviderEntry:
        """Its entry: calls that will not end are given up soon."""
        return ProviderEntry(key=self.key, type=self.key, limits=Limits.model_validate({"drain": DRAIN_S}))


@dataclass(frozen=True, slots=True)
class Started:
    """A started instance of the provider in a registry of its own."""

    subject: Subject
    registry: FunctionRegistry
    generation: Generation

    async def call(self, tool: str, arguments: Mapping[str, object], *, call_id: str = "call") -> ToolResult:
        """The result of one call by the subject's principal."""
        context = CallContext(principal=self.subject.principal)
        return await self.registry.execute(ToolCall(call_id, tool, arguments), context)

    async def quiet(self) -> bool:
        """Has every call ended, at the latest after the time that the subject has for it."""
        return await self.generation.switch.drained(self.subject.within_s)

    def examples(self) -> list[tuple[str, Mapping[str, object]]]:
        """The example calls of tools that are listed."""
        return [(name, given) for name, given in self.subject.calls.items() if name in self.registry.catalog]


@asynccontextmanager
async def started(subject: Subject) -> AsyncGenerator[Started]:
    """A fresh instance, started; closed at the end. Raises `ConfigError` where it does not start."""
    async with FunctionRegistry() as registry:
        await registry.apply([DesiredProvider(subject.entry(), subject.make)])
        yield Started(subject, registry, registry.running()[subject.key])
