"""`toolplug agents`: which toolsets each agent may use."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Annotated

import typer

from toolplug.cli.event_loop import run_to_end
from toolplug.cli.logs import log_warnings
from toolplug.cli.options import ConfigOption, JsonOption, TenantOption, config_file, operator
from toolplug.cli.output import print_json, print_problems, print_table
from toolplug.cli.store import kept_store
from toolplug.errors import Problem, ToolsetRefused
from toolplug.host.file.configuration import ConfigFiles, read_toolsets
from toolplug.host.toolsets.agent_lists import AgentLists
from toolplug.toolsets.registered import Allowlist

app: typer.Typer = typer.Typer()
agents: typer.Typer = typer.Typer(name="agents", help="Agents, and the toolsets they may use.")
app.add_typer(agents)

_INSTEAD = "GET and PUT /api/agents/AGENT/toolsets"

AgentId = Annotated[str, typer.Argument(metavar="AGENT", help="The agent.")]
Change = Callable[[AgentLists], Awaitable[Allowlist]]


@agents.callback()
def agents_group() -> None:
    """Look at the toolsets that agents may use, and change them; a running host follows within 250 ms."""


@agents.command("list")
def list_agents(config: ConfigOption = None, tenant: TenantOption = "default", as_json: JsonOption = False) -> None:
    """List the agents that somebody has configured, the toolsets of each, and who said so.

    Example: toolplug agents list
    """
    log_warnings()
    raise typer.Exit(run_to_end(_listed(config_file(config), tenant, as_json)))


@agents.command()
def show(
    agent: AgentId, config: ConfigOption = None, tenant: TenantOption = "default", as_json: JsonOption = False
) -> None:
    """Show the toolsets of one agent: none where nobody configured it.

    Example: toolplug agents show researcher
    """
    log_warnings()
    raise typer.Exit(
        run_to_end(_answered(config_file(config), tenant, agent, partial(AgentLists.of, agent=agent), as_json))
    )


@agents.command()
def allow(
    agent: AgentId,
    toolsets: Annotated[list[str], typer.Argument(metavar="TOOLSET...", help="Toolsets that it may use, too.")],
    config: ConfigOption = None,
    tenant: TenantOption = "default",
    as_json: JsonOption = False,
) -> None:
    """Let an agent use these toolsets besides those that it has; for this tenant, over the file.

    Example: toolplug agents allow researcher web clock
    """
    log_warnings()
    change = partial(AgentLists.allow, agent=agent, toolsets=tuple(toolsets))
    raise typer.Exit(run_to_end(_answered(config_file(config), tenant, agent, change, as_json)))


@agents.command()
def revoke(
    agent: AgentId,
    toolsets: Annotated[
        list[str] | None, typer.Argument(metavar="[TOOLSET...]", help="Toolsets that it may use no more; none: all.")
    ] = None,
    config: ConfigOption = None,
    tenant: TenantOption = "default",
    as_json: JsonOption = False,
) -> None:
    """Take these toolsets from an agent, or all that it has; for this tenant, over the file.

    Calls that run end; the next ones find nothing.

    Example: toolplug agents revoke researcher web
    """
    log_warnings()
    change = partial(AgentLists.revoke, agent=agent, toolsets=tuple(toolsets or ()))
    raise typer.Exit(run_to_end(_answered(config_file(config), tenant, agent, change, as_json)))


async def _listed(config: ConfigFiles, tenant: str, as_json: bool) -> int:
    async with _kept_agents(config, tenant) as kept:
        found = await kept.every()
    if as_json:
        print_json({"agents": [_fields(agent, allowed) for agent, allowed in found.items()]})
    elif found:
        rows = [(agent, ", ".join(allowed.toolsets), allowed.origin) for agent, allowed in found.items()]
        print_table(["AGENT", "TOOLSETS", "SAID BY"], rows)
    else:
        typer.echo("no agent is configured")
    return 0


async def _answered(config: ConfigFiles, tenant: str, agent: str, change: Change, as_json: bool) -> int:
    async with _kept_agents(config, tenant) as kept:
        try:
            allowed = await change(kept)
        except ToolsetRefused as error:
            problem = Problem(code=error.code, message=str(error), path=error.param)
            print_problems([problem], as_json=as_json)
            return 1
    if as_json:
        print_json(_fields(agent, allowed))
    else:
        typer.echo(f"{agent}: {', '.join(allowed.toolsets) or 'no toolsets'} ({allowed.origin})")
    return 0


@asynccontextmanager
async def _kept_agents(config: ConfigFiles, tenant: str) -> AsyncGenerator[AgentLists]:
    entries = read_toolsets(config, os.environ)
    async with kept_store(config, "agents", _INSTEAD) as store:
        yield AgentLists(entries, store, operator(tenant))


def _fields(agent: str, allowed: Allowlist) -> dict[str, object]:
    return {"agent": agent, "toolsets": list(allowed.toolsets), "origin": allowed.origin}
