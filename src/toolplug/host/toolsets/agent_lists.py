"""The allowlists of one tenant's agents, for the command line; a running host follows the changes in the store."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from toolplug.catalog.call import Principal
from toolplug.cluster.process_requests import wait_until_applied
from toolplug.errors import ApiError, StoreConflict
from toolplug.execution.accounting import audit_block
from toolplug.host.file.toolset_entries import ToolsetEntries, is_agent_id
from toolplug.host.tenant_records import TenantRecords
from toolplug.host.toolsets.records import (
    ALLOWLISTS,
    BINDINGS,
    AllowlistRecord,
    BindingRecord,
    check_agent,
    check_toolsets,
)
from toolplug.host.toolsets.service import NOBODY
from toolplug.stores.store import Store
from toolplug.toolsets.registered import UNREADABLE, Allowlist

Edit = Callable[[tuple[str, ...]], tuple[str, ...]]
"""Returns the new toolsets of an agent for its present ones; raises `ApiError`."""


class AgentLists:
    """Reads and changes the stored lists, which take precedence over the file's. Every method may raise `StoreError`.

    A change is effective in every process of a shared store when the method returns.

    Toolsets that an application registers in code are unknown here; its host is asked over HTTP instead.
    """

    def __init__(self, entries: ToolsetEntries, store: Store, caller: Principal) -> None:
        self._entries = entries
        self._store = store
        self._lists = TenantRecords(store, ALLOWLISTS, AllowlistRecord)
        self._bindings = TenantRecords(store, BINDINGS, BindingRecord)
        self._caller = caller

    async def every(self) -> Mapping[str, Allowlist]:
        """Return the allowlists of all configured agents, by agent id."""
        tenant = self._caller.tenant
        stored = {item.agent: item.allowlist async for item in self._lists.every() if item.tenant == tenant}
        return {**{agent: await self.of(agent) for agent in self._entries.agents}, **stored}

    async def of(self, agent: str) -> Allowlist:
        """Return the allowlist of one agent; an empty one if it is not configured."""
        stored, _ = await self._read_stored(agent)
        return self._entries.agents.get(agent, NOBODY) if stored is None else stored

    async def allow(self, agent: str, toolsets: tuple[str, ...]) -> Allowlist:
        """Add toolsets to the agent's. Raises `ApiError` for an unknown one; then nothing has changed."""
        own = [item.id async for item in self._bindings.every() if item.tenant == self._caller.tenant]

        def more(has: tuple[str, ...]) -> tuple[str, ...]:
            check_toolsets(toolsets, sorted({*self._entries.toolsets, *own, *has}))
            return tuple(dict.fromkeys((*has, *toolsets)))

        return await self._edit(agent, more)

    async def revoke(self, agent: str, toolsets: tuple[str, ...]) -> Allowlist:
        """Remove toolsets from the agent's, all if none are given. Raises `ApiError`; then nothing has changed."""

        def fewer(has: tuple[str, ...]) -> tuple[str, ...]:
            for name in toolsets:
                if name not in has:
                    message = f"agent {agent!r} may not use toolset {name!r} as it is"
                    raise ApiError("unknown_toolset", message, param="toolsets")
            return tuple(name for name in has if toolsets and name not in toolsets)

        return await self._edit(agent, fewer)

    async def _edit(self, agent: str, edit: Edit) -> Allowlist:
        # What is no agent id may be any text, and is not written into the audit log.
        with audit_block("agent.toolsets", self._caller, "", lambda: agent if is_agent_id(agent) else "_unknown"):
            check_agent(agent)
            record = await self._save(agent, edit)
        # After the line of the audit log: the change is made, even if another process does not answer.
        await wait_until_applied(self._store, self._lists.key(record.tenant, agent))
        return record.allowlist

    async def _read_stored(self, agent: str) -> tuple[Allowlist | None, int]:
        """Return the stored list of an agent and its revision; an empty one for a record that cannot be read."""
        found = await self._store.read(self._lists.key(self._caller.tenant, agent))
        if found is None:
            return None, 0
        try:
            return (await self._lists.load(found.value)).allowlist, found.revision
        except ValueError:
            return UNREADABLE, found.revision

    async def _save(self, agent: str, edit: Edit) -> AllowlistRecord:
        """Return the edited record; of two concurrent edits both take effect."""
        tenant = self._caller.tenant
        while True:
            stored, revision = await self._read_stored(agent)
            has = (self._entries.agents.get(agent, NOBODY) if stored is None else stored).toolsets
            record = AllowlistRecord(
                tenant=tenant, agent=agent, toolsets=list(edit(has)), by=self._caller.subject, way="cli"
            )
            try:
                await self._lists.save(record, tenant, agent, expected=revision)
            except StoreConflict:
                continue
            return record
