"""The allowlists of one tenant's agents, for the command line: beside a running host, which follows the store."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from toolplug.catalog.call import Principal
from toolplug.errors import ApiError, StoreConflict
from toolplug.execution.accounting import audit
from toolplug.host.file.toolset_entries import ToolsetEntries, is_agent_id
from toolplug.host.toolsets.records import CHANGES, AllowlistRecord, ToolsetRecords, check_agent, check_toolsets
from toolplug.host.toolsets.service import NOBODY
from toolplug.stores.change_log import ChangeLog
from toolplug.stores.store import Store
from toolplug.toolsets.registered import Allowlist

Edit = Callable[[tuple[str, ...]], tuple[str, ...]]
"""From the toolsets that an agent has to those that it shall have; raises `ApiError`."""


class AgentLists:
    """Reads and changes the lists that are kept, over those of the file. Every method may raise `StoreError`.

    What only the code of an application registers is not known here: that host is asked over HTTP.
    """

    def __init__(self, entries: ToolsetEntries, store: Store, caller: Principal) -> None:
        self._entries = entries
        self._records = ToolsetRecords(store)
        self._log = ChangeLog(store, CHANGES)
        self._caller = caller

    async def every(self) -> Mapping[str, Allowlist]:
        """Those of all agents that somebody has configured, by agent."""
        kept = {record.agent: record.allowlist for record in await self._records.allowlists(self._caller.tenant)}
        return {**self._entries.agents, **kept}

    async def of(self, agent: str) -> Allowlist:
        """That of one agent; nothing where nobody configured it."""
        record, _ = await self._records.allowlist(self._caller.tenant, agent)
        return self._entries.agents.get(agent, NOBODY) if record is None else record.allowlist

    async def allow(self, agent: str, toolsets: tuple[str, ...]) -> Allowlist:
        """Let the agent use these, too. Raises `ApiError`; then nothing has changed."""
        known = {*self._entries.toolsets, *(item.id for item in await self._records.bindings(self._caller.tenant))}

        def more(has: tuple[str, ...]) -> tuple[str, ...]:
            check_toolsets(toolsets, sorted({*known, *has}))
            return tuple(dict.fromkeys((*has, *toolsets)))

        return await self._edited(agent, more)

    async def revoke(self, agent: str, toolsets: tuple[str, ...]) -> Allowlist:
        """Take these from the agent; nothing: all that it has. Raises `ApiError`; then nothing has changed."""

        def fewer(has: tuple[str, ...]) -> tuple[str, ...]:
            for name in toolsets:
                if name not in has:
                    message = f"agent {agent!r} may not use toolset {name!r} as it is"
                    raise ApiError("unknown_toolset", message, param="toolsets")
            return tuple(name for name in has if toolsets and name not in toolsets)

        return await self._edited(agent, fewer)

    async def _edited(self, agent: str, edit: Edit) -> Allowlist:
        caller = self._caller
        try:
            check_agent(agent)
            record, change = await self._kept(agent, edit)
        except Exception:
            audit("agent.toolsets", "refused", caller, agent if is_agent_id(agent) else "_unknown", "")
            raise
        audit("agent.toolsets", "done", caller, agent, "")
        await self._log.announce(change)
        return record.allowlist

    async def _kept(self, agent: str, edit: Edit) -> tuple[AllowlistRecord, bytes]:
        """The record as it is now and its key; two who change it at once both find theirs in it."""
        tenant = self._caller.tenant
        while True:
            kept, revision = await self._records.allowlist(tenant, agent)
            has = self._entries.agents.get(agent, NOBODY).toolsets if kept is None else tuple(kept.toolsets)
            record = AllowlistRecord(
                tenant=tenant, agent=agent, toolsets=list(edit(has)), by=self._caller.subject, way="cli"
            )
            try:
                return record, await self._records.keep_allowlist(record, expected=revision)
            except StoreConflict:
                continue
