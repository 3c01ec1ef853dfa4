"""The parts of an entered host that are open: those whose section the file has, or had when they were opened."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Collection, Coroutine, Hashable, Iterable, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from importlib import import_module
from typing import Any, NamedTuple, Protocol, Self, TypeVar
from weakref import WeakValueDictionary

from toolplug import library_types
from toolplug.catalog.call import CallContext, Principal, ToolCall
from toolplug.catalog.catalog import Catalog, merged
from toolplug.catalog.definition import ToolDefinition, check_provider_tool_name
from toolplug.catalog.plan import Plan, Tool
from toolplug.crashes import CodeOwner, log_crash
from toolplug.errors import ConfigError, InvalidDefinition, ProviderError, ToolUnavailable
from toolplug.execution.limiters import SourceSwitch
from toolplug.execution.live import LiveCatalog
from toolplug.execution.plans import CallServices, PlanBuilder, PlanSource
from toolplug.execution.resolved_limits import LimitLevel
from toolplug.host.file.configuration import Configuration
from toolplug.part_protocols.approvals import NO_APPROVALS, HostApprovals, PartApprovals
from toolplug.part_protocols.host_part import (
    NO_SESSIONS,
    HostPart,
    HostSession,
    HostSessions,
    PartGate,
    PartServices,
    RunningPart,
)
from toolplug.providers.lifecycle import CLOSE_S, START_S, await_step, run_step
from toolplug.runtime.lru import LeastRecentlyUsed
from toolplug.runtime.tasks import SingleFlight

_LOG = logging.getLogger("toolplug.host")

P = TypeVar("P")

READY_S = 5.0
"""Seconds that the part of a plugin may take to answer whether it is ready."""

KIND = "part"
"""The `kind` of the `ref` of a tool that a part lists."""
MAX_PLANS = 5_000
"""Tools of all parts whose plans are kept, for callers who are listed the same."""

# Compared with by identity: a part that does not override it is never asked, and costs callers nothing.
_NONE = RunningPart[Any].tools_for


class PartTools:
    """The executors of callers over the tools of parts; an executor lives as long as somebody uses it."""

    def __init__(self, services: CallServices) -> None:
        self._services = services
        self._parts: dict[str, tuple[HostPart[Any], RunningPart[Any]]] = {}
        self._of: WeakValueDictionary[Principal, LiveCatalog] = WeakValueDictionary()
        self._plans: LeastRecentlyUsed[Hashable, Tool] = LeastRecentlyUsed(MAX_PLANS)

    def list(self, parts: Sequence[tuple[HostPart[Any], RunningPart[Any]]]) -> None:
        """List the tools of these parts, of which most have none, and no others."""
        before = self._parts
        self._parts = {
            part.name: (part, running)
            for part, running in parts
            if getattr(type(running), "tools_for", _NONE) is not _NONE
        }
        if before or self._parts:
            self._plans = LeastRecentlyUsed(MAX_PLANS)
            self.refresh()

    def of(self, caller: Principal) -> LiveCatalog:
        """Return the tools that the parts list to this caller, now none perhaps: a reload may open a part with some."""
        live = self._of.get(caller)
        if live is None:
            live = self._of[caller] = LiveCatalog(self._services.unknown, self._catalog(caller))
        return live

    def refresh(self) -> None:
        """Ask the parts again for every caller that has an executor."""
        for caller, live in [*self._of.items()]:
            live.publish(self._catalog(caller))

    def _catalog(self, caller: Principal) -> Catalog:
        """Return the tools of every part; the first of a name wins."""
        return merged([Catalog(self._tools(part, running, caller)) for part, running in self._parts.values()])[0]

    def _tools(self, part: HostPart[Any], running: RunningPart[Any], caller: Principal) -> list[Tool]:
        owner = None if part.entry is None else part.entry.owner
        tools: dict[str, Tool] = {}
        try:
            for definition in running.tools_for(caller):
                tools.setdefault(definition.name, self._tool(part.name, definition, owner))
        except InvalidDefinition as error:
            _LOG.error("the part %r lists no tools: %s", part.name, error)
            return []
        except BaseException as error:  # noqa: BLE001  code of a plugin
            log_crash(f"tools_for() of the part {part.name!r}", error, owner, then="it lists no tools")
            return []
        return [*tools.values()]

    def _tool(self, part: str, given: ToolDefinition, owner: CodeOwner | None) -> Tool:
        """Return a tool with its plan. Raises `InvalidDefinition`."""
        definition = given.owned_by(KIND, part)
        key = (definition.ref, definition.signature, definition.timeout_s)
        tool = self._plans.get(key)
        if tool is None:
            check_provider_tool_name(definition.name)
            definition.parameters.check()
            tool = Tool(definition, self._plan(part, definition, owner))
            self._plans.put(key, tool)
        return tool

    def _plan(self, part: str, definition: ToolDefinition, owner: CodeOwner | None) -> Plan:
        accounting = self._services.accounting
        counters = accounting.capped_counters(f"{KIND}:{part}", definition.ref.name)
        source = PlanSource(partial(self._call, part), SourceSwitch(), counters, accounting.abandoned_limit(KIND, part))
        builder = PlanBuilder(self._services, LimitLevel((KIND, part)), owner=owner)
        return builder.build(definition, source, author_timeout_s=definition.timeout_s)

    async def _call(self, part: str, call: ToolCall, context: CallContext) -> object:
        # By name, at each call: the plan of an older catalog then reaches the part that a reload has opened in place of
        # the old one.
        found = self._parts.get(part)
        if found is None:
            raise ToolUnavailable(f"the part {part!r} of the host is off", code="part_off")
        return await found[1].execute(call, context)


_METRICS = "toolplug.host.part_metrics"
"""Imports prometheus-client."""


class ShownMetrics(Protocol):
    """The metrics of a plugin's part."""

    def show_in(self, host: library_types.CollectorRegistry | None) -> None:
        """Have the metrics in the host's, None: no longer. Raises `ValueError` for a name that is taken."""
        ...


class _OpenPart(NamedTuple):
    """A part and its running form. Code of a plugin costs the host nothing but the part: it is logged if it raises."""

    part: HostPart[Any]
    running: RunningPart[Any]
    metrics: ShownMetrics | None = None

    def goes_on_as(self, part: HostPart[Any]) -> bool:
        """Return whether it goes on as this part: a reload may have read other code of a plugin."""
        if part.entry is None:
            return True
        # A hook returns a new `HostPart` at each reading of the file, so its class of settings is compared, which is
        # another one only if the module was imported again.
        same = self.part.settings is part.settings
        return same and (part.settings is not None or self.part.open is part.open)

    def call(self, what: str, function: Callable[[], object]) -> None:
        entry = self.part.entry
        if entry is None:
            function()
            return
        try:
            function()
        except BaseException as error:  # noqa: BLE001  code of a plugin
            log_crash(f"{what} of the part {self.part.name!r}", error, entry.owner)

    def explain(self, name: str, tool: Tool | None, session: HostSession | None) -> Sequence[PartGate]:
        """Return what it decides about a call of this tool, or of a name that no catalog lists."""
        gates: list[PartGate] = []
        self.call("explain()", lambda: gates.extend(self.running.explain(name, tool, session)))
        return gates

    async def reason(self) -> str:
        """Return why it cannot do its work now; empty if it can."""
        entry, said = self.part.entry, [""]
        if entry is None:
            return await self.running.ready()

        async def ask() -> None:
            said[0] = str(await self.running.ready())

        try:
            await await_step(entry, "ready()", ask, READY_S)
        except ProviderError as error:
            return error.summary
        return said[0]

    async def finish(self) -> None:
        """Let it keep the results of drained calls."""
        await self._end("finish()", self.running.finish)

    async def aclose(self) -> None:
        await self._end("aclose()", self.running.aclose)

    async def _end(self, what: str, step: Callable[[], Coroutine[Any, Any, None]]) -> None:
        entry = self.part.entry
        if entry is None:
            await step()
            return
        try:
            await await_step(entry, what, step, CLOSE_S)
        except ProviderError as error:
            log_crash(f"closing the part {self.part.name!r}", error, entry.owner)


class RunningParts:
    """Opens the parts that need no section or that a configuration has one for, and closes them in reverse order.

    `tools` lists those of the parts to their callers. `sessions` and `approvals` are those of the part that
    has them.
    """

    def __init__(self, services: PartServices, configuration: Configuration, approvals: PartApprovals) -> None:
        self.tools: PartTools = PartTools(services.calls)
        self._approvals = approvals
        self._services = services._replace(tools_changed=self.tools.refresh)
        self._first = configuration
        self._open: dict[str, _OpenPart] = {}
        self._begun: dict[str, _OpenPart] = {}
        self._asking = SingleFlight(self._ask, "toolplug-ready-parts")
        self.sessions: HostSessions = NO_SESSIONS

    @property
    def approvals(self) -> HostApprovals:
        """Those of the part that has them."""
        return self._approvals.current

    async def __aenter__(self) -> Self:
        try:
            async with self.opening(self._first):
                await self.configure(self._first)
        except BaseException:
            await self._close_all()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._asking.aclose()
        await self._close_all()

    @asynccontextmanager
    async def opening(self, configuration: Configuration, off: Collection[str] = ()) -> AsyncGenerator[None]:
        """Open what this configuration has besides, for `configure`; what that has not taken is closed at the end.

        `off` are the keys of providers that are switched off, whose parts are off too. Raises `ConfigError` and
        `StoreError` of a part that cannot be opened; then those that are open go on as they were.
        """
        self._begun = {}
        try:
            # What is always on is opened first, and so closed last: a response has its session until it has ended.
            for part in sorted(configuration.parts, key=lambda part: part.settings is not None and not part.always):
                opened = self._open.get(part.name)
                if _is_wanted(part, configuration, off) and (opened is None or not opened.goes_on_as(part)):
                    await self._begin(part, part.settings_in(configuration.settings))
            yield
        finally:
            for name, opened in reversed(self._begun.items()):
                # Not taken by `configure`: the older part gets its metrics back before this one is closed.
                self._show_metrics(self._open.get(name), opened)
            await _close_each(self._begun.values())
            self._begun = {}

    async def configure(self, configuration: Configuration, off: Collection[str] = ()) -> None:
        """Apply a configuration within its `opening`: tell the parts that are open, and have those opened for it.

        The part of a plugin whose section or plugin is gone or switched off is closed, and so is one whose code has
        changed, once the one in its place is open. Nobody is listed the tools of a part that is closed.
        """
        begun, self._begun = self._begun, {}
        before, after = self._open, {**self._open, **begun}
        known = {part.name: part for part in configuration.parts}
        for name, opened in before.items():
            part = known.get(name)
            if name in begun:
                continue
            if part is None or not (
                opened.goes_on_as(part) and (part.entry is None or _is_wanted(part, configuration, off))
            ):
                del after[name]
                self._show_metrics(None, opened)
            else:
                settings = part.settings_in(configuration.settings)
                opened.call("configure()", partial(opened.running.configure, settings))
        self._open = after
        # Before the older parts are closed, so that no call begins in one that is closing.
        self.tools.list([(opened.part, opened.running) for opened in after.values()])
        of_parts = (opened.running.sessions for opened in after.values())
        self.sessions = next((sessions for sessions in of_parts if sessions is not None), NO_SESSIONS)
        asked = (opened.running.approvals for opened in after.values())
        given = (opened.running.credentials for opened in after.values())
        self._services.calls.credentials.current = next((each for each in given if each is not None), None)
        self._approvals.use(next((approvals for approvals in asked if approvals is not None), NO_APPROVALS))
        try:
            await _close_each(opened for name, opened in before.items() if after.get(name) is not opened)
        finally:
            # Even if closing an older part raises: the new ones are listed already and must begin.
            for opened in begun.values():
                opened.call("begin()", opened.running.begin)

    async def _begin(self, part: HostPart[Any], settings: object) -> None:
        """Open a part for `configure`. Raises `ConfigError` and `StoreError`, unless it is not required."""
        entry = part.entry
        if entry is None:
            self._begun[part.name] = _OpenPart(part, await part.open(self._services, settings))
            return
        begun: list[_OpenPart] = []
        metrics = import_module(_METRICS).PartMetrics()

        async def begin() -> None:
            running = await part.open(self._services._replace(metrics=metrics), settings)
            if RunningPart not in type(running).__mro__:
                raise InvalidDefinition(f"{type(running).__name__} is no RunningPart; inherit from it")
            begun.append(_OpenPart(part, running, metrics))

        what = f"open() of the part {part.name!r}"
        try:
            await await_step(entry, what, begin, START_S, while_working=True)
            run_step(entry, what, partial(self._show_metrics, begun[0], self._open.get(part.name)))
        except ProviderError as error:
            await _close_each(begun)
            if entry.required:
                raise ConfigError([entry.failure(error)]) from None
            _LOG.error("%s; going on without it (required: false); %s", error, error.fix)
            return
        self._begun[part.name] = begun[0]

    def _show_metrics(self, opened: _OpenPart | None, older: _OpenPart | None) -> None:
        """Have the metrics of a part in place of an older one's. Raises `ValueError` for a name that is taken."""
        metrics = self._services.metrics
        if older is not None and older.metrics is not None:
            older.metrics.show_in(None)
        if opened is None or opened.metrics is None:
            return
        try:
            opened.metrics.show_in(metrics)
        except BaseException:
            if older is not None and older.metrics is not None:
                older.metrics.show_in(metrics)
            raise

    async def _close_all(self) -> None:
        """Close every part, in reverse order."""
        opened, self._open = self._open, {}
        self.tools.list(())
        await _close_each(opened.values())

    async def down(self) -> list[tuple[str, str]]:
        """Return the name and the reason of each part that cannot do its work now, in order.

        The parts are asked side by side, and all that ask at once share their answers.
        """
        return await self._asking.join()

    async def _ask(self) -> list[tuple[str, str]]:
        asked = {**self._open}
        reasons = await asyncio.gather(*(opened.reason() for opened in asked.values()))
        return [(name, reason) for name, reason in zip(asked, reasons, strict=True) if reason]

    def session_over(self, code: str) -> None:
        """Let each part forget a session that has ended."""
        for opened in self._open.values():
            opened.call("session_over()", partial(opened.running.session_over, code))

    def explain(self, name: str, tool: Tool | None, session: HostSession | None) -> Iterator[PartGate]:
        """Yield what each part decides about a call of this tool, or of a name that no catalog lists."""
        for opened in self._open.values():
            yield from opened.explain(name, tool, session)

    def stop(self) -> None:
        """Let each part end its event streams."""
        for opened in self._open.values():
            opened.call("stop()", opened.running.stop)

    async def finish(self) -> None:
        """Let each part keep the results of drained calls, side by side."""
        await asyncio.gather(*(opened.finish() for opened in self._open.values()))

    def find(self, kind: type[P]) -> P | None:
        """Return the open part of this class, None if there is none."""
        return next((each.running for each in self._open.values() if isinstance(each.running, kind)), None)


def _is_wanted(part: HostPart[Any], configuration: Configuration, off: Collection[str]) -> bool:
    """Return whether a part is to be open: it needs no section or has one, and its plugin is not switched off."""
    if part.entry is not None and part.entry.key in off:
        return False
    return part.settings is None or part.settings_in(configuration.settings) is not None


async def _close_each(parts: Iterable[_OpenPart]) -> None:
    """Close parts in reverse order, each of them whatever another raises."""
    async with AsyncExitStack() as life:
        for opened in parts:
            life.push_async_callback(opened.aclose)
