"""`toolplug agents`: the toolsets that each agent may use."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Annotated

import typer

from toolplug.catalog.call import Principal
from toolplug.cli.event_loop import async_command
from toolplug.cli.options import TenantOptions, config_file, operator
from toolplug.cli.output import print_answer, print_listing
from toolplug.cli.store import open_shared_store
from toolplug.cluster.processes import wait_until_applied
from toolplug.errors import ApiError, StoreConflict
from toolplug.execution.accounting import audit_block
from toolplug.host.file.configuration import read_beside_host
from toolplug.host.file.toolset_entries import ToolsetEntries, is_agent_id
from toolplug.host.store_records import TenantRecords
from toolplug.host.toolsets.records import (
    ALLOWLISTS,
    BINDINGS,
    AllowlistRecord,
    BindingRecord,
    check_agent,
    check_toolsets,
)
from toolplug.host.toolsets.service import NOBODY
from toolplug.packages.entry_points import find_installed
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


AgentId = Annotated[str, typer.Argument(metavar="AGENT", help="The agent.")]

app: typer.Typer = typer.Typer(name="agents", help="Agents, and the toolsets they may use.")


@async_command(app, "list")
async def list_agents(options: TenantOptions) -> None:
    """List the configured agents, the toolsets of each, and where that is configured.

    Example: toolplug agents list
    """
    async with _agent_lists(options) as lists:
        found = await lists.every()
    fields = {"agents": [_fields(agent, allowed) for agent, allowed in found.items()]}
    rows = [(agent, ", ".join(allowed.toolsets), allowed.origin) for agent, allowed in found.items()]
    print_listing(options.as_json, fields, ["AGENT", "TOOLSETS", "SOURCE"], rows, "no agent is configured")


@async_command(app)
async def show(options: TenantOptions, agent: AgentId) -> None:
    """Show the toolsets of one agent: none if it is not configured.

    Example: toolplug agents show researcher
    """
    async with _agent_lists(options) as lists:
        _print(agent, await lists.of(agent), options.as_json)


@async_command(app)
async def allow(
    options: TenantOptions,
    agent: AgentId,
    toolsets: Annotated[list[str], typer.Argument(metavar="TOOLSET…", help="Toolsets to allow.")],
) -> None:
    """Allow an agent more toolsets, for this tenant; takes precedence over the file.

    Example: toolplug agents allow researcher web clock
    """
    async with _agent_lists(options) as lists:
        _print(agent, await lists.allow(agent, tuple(toolsets)), options.as_json)


@async_command(app)
async def revoke(
    options: TenantOptions,
    agent: AgentId,
    toolsets: Annotated[
        list[str] | None, typer.Argument(metavar="TOOLSET…", help="Toolsets to revoke. Default: all.")
    ] = None,
) -> None:
    """Revoke these toolsets of an agent, or all of them, for this tenant; takes precedence over the file.

    Running calls finish; later calls do not find the tools.

    Example: toolplug agents revoke researcher web
    """
    async with _agent_lists(options) as lists:
        _print(agent, await lists.revoke(agent, tuple(toolsets or ())), options.as_json)


@asynccontextmanager
async def _agent_lists(options: TenantOptions) -> AsyncGenerator[AgentLists]:
    files = config_file(options.config)
    entries = read_beside_host(files, os.environ, find_installed()).toolsets
    async with open_shared_store(files, "agents", "GET and PUT /api/agents/AGENT/toolsets") as store:
        yield AgentLists(entries, store, operator(options.tenant))


def _print(agent: str, allowed: Allowlist, as_json: bool) -> None:
    text = f"{agent}: {', '.join(allowed.toolsets) or 'no toolsets'} ({allowed.origin})"
    print_answer(as_json, _fields(agent, allowed), text)


def _fields(agent: str, allowed: Allowlist) -> dict[str, object]:
    return {"agent": agent, "toolsets": list(allowed.toolsets), "origin": allowed.origin}
