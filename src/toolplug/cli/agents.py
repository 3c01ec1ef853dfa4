"""`toolplug agents`: the toolsets that each agent may use."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Annotated

import typer

from toolplug.cli.event_loop import async_command
from toolplug.cli.options import TenantOptions, config_file, operator
from toolplug.cli.output import print_answer, print_listing
from toolplug.cli.store import open_shared_store
from toolplug.host.file.configuration import read_beside_host
from toolplug.host.toolsets.agent_lists import AgentLists
from toolplug.providers.entry_points import find_installed
from toolplug.toolsets.registered import Allowlist

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
    toolsets: Annotated[list[str], typer.Argument(metavar="TOOLSET...", help="Toolsets to allow.")],
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
        list[str] | None, typer.Argument(metavar="[TOOLSET...]", help="Toolsets to revoke. Default: all.")
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
