"""The tools of agents as executors, which follow changes of toolsets and allowlists.

Toolsets with an executor for each session, for each call, or on first use.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Hashable
from contextlib import asynccontextmanager
from typing import NamedTuple
from weakref import WeakValueDictionary

from toolplug.catalog.catalog import EMPTY_CATALOG, Catalog
from toolplug.catalog.offering import EMPTY_OFFERING, Offering
from toolplug.execution.executor import ToolExecutor
from toolplug.execution.limiters import SourceSwitch
from toolplug.execution.live import LiveCatalog, MergedExecutor
from toolplug.execution.plans import CallServices, add_limits
from toolplug.runtime.tasks import BackgroundTasks
from toolplug.toolsets.registered import Allowlists, Toolsets
from toolplug.toolsets.toolset import NotOpened, OnDemand, Opened, PerSession, SharedSource, Toolset, declare_tools

_LOG = logging.getLogger("toolplug.toolsets")


class LazyToolset:
    """Lists the tools of the session's own executor; `live` has them under the toolset's prefix, by `reshape`."""

    def __init__(
        self, toolset: Toolset, source: OnDemand, services: CallServices, reshape: Callable[[Catalog, Toolset], Catalog]
    ) -> None:
        self._name = toolset.id
        self._executor = source.make()
        self._joint = MergedExecutor(services.unknown, self._executor)
        self.live: LiveCatalog = self._joint.view(lambda catalog: reshape(catalog, toolset))

    @property
    def offering(self) -> Offering:
        """The prompts and resources of the session's own executor, without the prefix."""
        return self._executor.offering

    async def aclose(self) -> None:
        """List no tools, and close the executor."""
        self._joint.join()
        try:
            await self._executor.aclose()
        except Exception:  # noqa: BLE001  a session's end must reach its other toolsets
            _LOG.exception("toolset %r: the executor of a session could not be closed", self._name)


class PerCallToolset:
    """Lists the declared tools; each call has its own executor, which is closed after the call.

    Without declared tools it lists nothing. `live` has the tools under the toolset's prefix.
    """

    def __init__(self, toolset: Toolset, source: PerSession, services: CallServices) -> None:
        self._toolset = toolset
        self._source = source
        self._switch = SourceSwitch()
        listed = EMPTY_CATALOG.prefixed(toolset.prefix)
        if source.tools is not None:
            listed = declare_tools(toolset, source.tools, services, self._switch, self._opened_once)
        self.live: LiveCatalog = LiveCatalog(services.unknown, listed)

    def retire(self) -> None:
        """Refuse new calls; running ones go on."""
        self._switch.open = False

    @asynccontextmanager
    async def _opened_once(self) -> AsyncGenerator[ToolExecutor]:
        opened = Opened(self._toolset.id, self._source.factory)
        try:
            yield await opened.executor()
        finally:
            await opened.aclose()


class SessionToolset:
    """Lists the declared tools, or none, until the factory has run; then those of its executor.

    `live` has them under the toolset's prefix. A factory that fails is not run again for this session.
    """

    def __init__(self, toolset: Toolset, source: PerSession, services: CallServices) -> None:
        self._opened = Opened(toolset.id, source.factory)
        self._switch = SourceSwitch()
        self._joint = MergedExecutor(services.unknown)
        self.waits: bool = source.tools is None
        if source.tools is None:
            self._declared = LiveCatalog(services.unknown)
            self.live: LiveCatalog = self._joint.view(toolset.rename_tools)
        else:
            tools = declare_tools(toolset, source.tools, services, self._switch, self._kept_open)
            self.live = self._declared = LiveCatalog(services.unknown, tools)

    async def open(self) -> None:
        """Run the factory of a toolset without declared tools, so that its tools are listed; ignore its failure."""
        if not self.waits:
            return
        try:
            executor = await self._opened.executor()
        except NotOpened:
            self.waits = False
            return
        # Asked again: the session may have ended while the factory ran.
        if self.waits:
            self.waits = False
            self._joint.join(executor)

    async def aclose(self) -> None:
        """Refuse new calls, list no tools, and close what the factory made."""
        self._switch.open = self.waits = False
        self._joint.join()
        self._declared.publish(EMPTY_CATALOG)
        await self._opened.aclose()

    @asynccontextmanager
    async def _kept_open(self) -> AsyncGenerator[ToolExecutor]:
        yield await self._opened.executor()


_MOST_TOGETHER = 256
"""Combinations of toolsets that are kept as one map each; who holds an executor keeps its own."""


class Choice(NamedTuple):
    """A choice of toolsets: those on the allowlist of a tenant's agent, or, without an agent, those with the given ids.

    `servers`: the MCP servers that have a prefix, instead of toolsets. `only` and `without` are the ids that a request
    selects or excludes.
    """

    tenant: str
    agent: str | None = None
    toolsets: tuple[str, ...] = ()
    only: frozenset[str] | None = None
    without: frozenset[str] = frozenset()
    servers: bool = False

    def takes(self, toolset: str) -> bool:
        """Return whether the request selects the toolset of this id."""
        return toolset not in self.without and (self.only is None or toolset in self.only)


class AgentTools:
    """Creates executors that follow all changes of toolsets and allowlists, and opens and closes what sessions need.

    A session is any hashable key; `end` or `close` closes what was opened for it. Callers with the same shared toolsets
    have the same catalog. `some_wait` is true if some toolset lists no tools until its factory has run.
    """

    def __init__(self, services: CallServices) -> None:
        self._services = services
        self.toolsets: Toolsets = Toolsets()
        self.allowlists: Allowlists = Allowlists()
        self._shared: dict[Toolset, LiveCatalog] = {}
        self._lone: dict[Toolset, PerCallToolset] = {}
        self._sessions: dict[Hashable, dict[Toolset, SessionToolset | LazyToolset]] = {}
        self._together: dict[tuple[LiveCatalog, ...], LiveCatalog] = {}
        self._live: dict[Hashable, WeakValueDictionary[Choice, MergedExecutor]] = {}
        self._closing = BackgroundTasks()
        self._offerings: dict[Toolset, tuple[Offering, Offering]] = {}
        self.some_wait: bool = False

    def change(self, *, toolsets: Toolsets | None = None, allowlists: Allowlists | None = None) -> None:
        """Adopt these; all executors, also those in use, follow from the next call on."""
        before, kept = self.allowlists, toolsets is None or toolsets is self.toolsets
        self.toolsets = self.toolsets if toolsets is None else toolsets
        self.allowlists = self.allowlists if allowlists is None else allowlists
        if not kept:
            self.some_wait = any(_lists_later(item) for item in self.toolsets.every())
            self._drop_unregistered()
            self._together = {}
        for session, joints in self._live.items():
            # A copy: the dictionary is weak, and loses entries while it is walked.
            for choice, joint in list(joints.items()):
                # A change of one allowlist leaves the executors of all other agents as they are.
                if not kept or _list_of(choice, before) != _list_of(choice, self.allowlists):
                    joint.join(*self._parts(choice, session))
        self._services.offering_changed.send()

    def executor(self, choice: Choice, session: Hashable = None) -> LiveCatalog:
        """Return an executor of these toolsets, in the order of the allowlist; the same one as long as it is in use."""
        joints = self._live.get(session)
        if joints is None:
            # The first executor of a session: its toolsets learn once that it begins.
            joints = self._live[session] = WeakValueDictionary()
            for toolset in self.choose(choice) if session is not None else ():
                toolset.used()
        joint = joints.get(choice)
        if joint is None:
            joint = joints[choice] = MergedExecutor(self._services.unknown, *self._parts(choice, session))
        return joint

    @property
    def servers(self) -> LiveCatalog:
        """Return an executor of the MCP servers that have a prefix."""
        return self.executor(Choice("", servers=True))

    def part(self, toolset: Toolset, session: Hashable = None) -> LiveCatalog:
        """Return an executor of one toolset under its prefix, for a session or shared."""
        source = toolset.source
        if isinstance(source, SharedSource):
            return self._shared_part(toolset, source.executor)
        if session is not None and session in self._live:
            return self._session_part(toolset, source, session).live
        if isinstance(source, OnDemand):
            return self._shared_part(toolset, source.lone)
        return self._lone_part(toolset, source)

    def offerings(self, choice: Choice, session: Hashable = None) -> list[Offering]:
        """Return the prompts and resources of each toolset of a choice under its prefix, for a session or shared."""
        return [self._add_prefix(item, self._offering(item, session)) for item in self.choose(choice)]

    def _offering(self, toolset: Toolset, session: Hashable) -> Offering:
        source = toolset.source
        if isinstance(source, PerSession):
            return EMPTY_OFFERING
        if isinstance(source, OnDemand) and session is not None and session in self._live:
            part = self._session_part(toolset, source, session)
            return part.offering if isinstance(part, LazyToolset) else EMPTY_OFFERING
        return source.offering()

    def _add_prefix(self, toolset: Toolset, offering: Offering) -> Offering:
        known = self._offerings.get(toolset)
        # By identity: an offering that has not changed keeps its prefixed form.
        if known is None or known[0] is not offering:
            known = self._offerings[toolset] = (offering, offering.prefixed(toolset.prefix))
        return known[1]

    def session_catalog(self, toolset: Toolset, session: Hashable) -> LiveCatalog | None:
        """Return the session's own executor of a toolset, under the prefix; None if it has none."""
        part = self._sessions.get(session, {}).get(toolset)
        return None if part is None else part.live

    def choose(self, choice: Choice) -> list[Toolset]:
        """Return the registered toolsets of a choice, in order."""
        if choice.servers:
            return list(self.toolsets.servers.values())
        ids = choice.toolsets if choice.agent is None else _list_of(choice, self.allowlists)
        known = self.toolsets.of(choice.tenant)
        return [known[name] for name in dict.fromkeys(ids) if name in known and choice.takes(name)]

    def waits(self, choice: Choice, session: Hashable, name: str = "") -> bool:
        """Return whether a toolset must be opened before it can list a tool of this name, or any tool.

        Without a session, each toolset without declared tools must; in a session that is over, none.
        """
        if session is not None:
            return bool(self._waiting(choice, session, name))
        return any(_lists_later(item) and _could_be_of(name, item.prefix) for item in self.choose(choice))

    async def open(self, choice: Choice, session: Hashable, name: str = "") -> None:
        """Open, for a session that has an executor, the toolsets for which `waits` is true.

        A factory that fails affects only its own toolset.
        """
        await asyncio.gather(*(part.open() for part in self._waiting(choice, session, name)))

    def end(self, session: Hashable) -> list[asyncio.Task[None]]:
        """Start to close what was opened for this session, each once. Its executors list no tools from then on."""
        joints = self._live.pop(session, None)
        for joint in joints.values() if joints is not None else ():
            joint.join()
        return [self._retire(part) for part in self._sessions.pop(session, {}).values()]

    async def close(self, session: Hashable) -> None:
        """Close what was opened for this session, and wait for it; the closing goes on if the caller is cancelled."""
        closing = self.end(session)
        if closing:
            await asyncio.shield(asyncio.gather(*closing))

    async def aclose(self) -> None:
        """Close what was opened for all sessions, concurrently."""
        for session in list(self._sessions):
            self.end(session)
        await self._closing.wait()

    def _waiting(self, choice: Choice, session: Hashable, name: str) -> list[SessionToolset]:
        parts = self._sessions.get(session, {})
        chosen = [parts[item] for item in self.choose(choice) if item in parts and _could_be_of(name, item.prefix)]
        return [part for part in chosen if isinstance(part, SessionToolset) and part.waits]

    def _parts(self, choice: Choice, session: Hashable) -> list[LiveCatalog]:
        """Return the parts that an executor joins: one shared part if none is a session's own."""
        parts: list[LiveCatalog] = []
        alone = True
        for toolset in self.choose(choice):
            parts.append(self.part(toolset, session))
            alone = alone and (session is None or isinstance(toolset.source, SharedSource))
        return [self._join(tuple(parts))] if alone and parts else parts

    def _join(self, parts: tuple[LiveCatalog, ...]) -> LiveCatalog:
        """Return one executor of these parts, which many callers share."""
        if len(parts) == 1:
            return parts[0]
        joint = self._together.get(parts)
        if joint is None:
            if len(self._together) >= _MOST_TOGETHER:
                self._together = {}
            # As one map: a call then needs one look-up, not one in each toolset.
            joint = self._together[parts] = MergedExecutor(self._services.unknown, *parts).view(_flat)
        return joint

    def _shared_part(self, toolset: Toolset, executor: ToolExecutor) -> LiveCatalog:
        part = self._shared.get(toolset)
        if part is None:
            merged = MergedExecutor(self._services.unknown, executor)
            part = self._shared[toolset] = merged.view(lambda catalog: self._of_toolset(catalog, toolset))
        return part

    def _of_toolset(self, catalog: Catalog, toolset: Toolset) -> Catalog:
        if toolset.limits is not None:
            catalog = add_limits(catalog, toolset.limits, self._services)
        return toolset.rename_tools(catalog)

    def _lone_part(self, toolset: Toolset, source: PerSession) -> LiveCatalog:
        part = self._lone.get(toolset)
        if part is None:
            part = self._lone[toolset] = PerCallToolset(toolset, source, self._services)
        return part.live

    def _session_part(
        self, toolset: Toolset, source: PerSession | OnDemand, session: Hashable
    ) -> SessionToolset | LazyToolset:
        parts = self._sessions.setdefault(session, {})
        part = parts.get(toolset)
        if part is None:
            if isinstance(source, OnDemand):
                part = LazyToolset(toolset, source, self._services, self._of_toolset)
            else:
                part = SessionToolset(toolset, source, self._services)
            parts[toolset] = part
        return part

    def _drop_unregistered(self) -> None:
        """Forget and close what was created for toolsets that are no longer registered."""
        known = set(self.toolsets.every())
        self._shared = {toolset: part for toolset, part in self._shared.items() if toolset in known}
        self._offerings = {toolset: part for toolset, part in self._offerings.items() if toolset in known}
        for toolset in [toolset for toolset in self._lone if toolset not in known]:
            self._lone.pop(toolset).retire()
        for parts in self._sessions.values():
            for toolset in [toolset for toolset in parts if toolset not in known]:
                self._retire(parts.pop(toolset))

    def _retire(self, part: SessionToolset | LazyToolset) -> asyncio.Task[None]:
        return self._closing.start(part.aclose(), "toolplug-toolset-close")


def _list_of(choice: Choice, allowlists: Allowlists) -> tuple[str, ...]:
    """Return the toolsets on the allowlist of the choice's agent."""
    allowlist = None if choice.agent is None else allowlists.of(choice.tenant, choice.agent)
    return () if allowlist is None else allowlist.toolsets


def _flat(catalog: Catalog) -> Catalog:
    return Catalog(catalog.values(), prefixes=catalog.prefixes, unavailable=catalog.unavailable)


def _lists_later(toolset: Toolset) -> bool:
    return isinstance(toolset.source, PerSession) and toolset.source.tools is None


def _could_be_of(name: str, prefix: str) -> bool:
    """Return whether this may be the canonical or wire name of a tool with this prefix; True without a name."""
    return not name or name.startswith((f"{prefix}.", f"{prefix}_"))
