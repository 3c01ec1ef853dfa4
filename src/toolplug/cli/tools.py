"""`toolplug tools`: the catalog."""

from __future__ import annotations

import json
from typing import Annotated, Literal, cast

import typer

from toolplug.catalog.call import Principal
from toolplug.catalog.catalog import Catalog
from toolplug.catalog.exact_json import as_object
from toolplug.catalog.schema import Schema
from toolplug.catalog.text import pluralize
from toolplug.cli.completion import keep_for_completion
from toolplug.cli.event_loop import async_command, enter_host
from toolplug.cli.log_options import log_options
from toolplug.cli.options import CallerOptions, config_file, operator
from toolplug.cli.output import echo, print_json, print_table
from toolplug.cli.standard_output import answers
from toolplug.host.host import Host, open_host
from toolplug.providers.entry import ProviderState

app: typer.Typer = typer.Typer()

MAX_ROWS = 60
"""Tools that a terminal lists whole, two screens of a small one."""
MAX_OF_PROVIDER = 10
"""Tools of one provider where there are more in all."""

Format = Literal["chat", "responses", "anthropic", "mcp"]
"""The dialects of model APIs."""


@async_command(app)
async def tools(
    options: CallerOptions,
    format: Annotated[  # noqa: A002  the name of the option and of the query of GET /v1/tools
        Format | None, typer.Option("--format", help="As JSON in the dialect of a model API. --json alone: chat.")
    ] = None,
) -> None:
    """List the tools that a caller of this tenant can call, in the order in which models see them.

    A terminal shows them by their providers, and where there are many, ten of each: -v lists all. Without --agent and
    --session it also shows the number of tools of each agent, and the MCP servers whose tools are
    not known yet.

    Examples: toolplug tools --format anthropic · toolplug tools --agent researcher
    """
    dialect = "chat" if options.as_json and format is None else format
    agent, session = options.agent, options.session
    async with enter_host(open_host(config_file(options.config), serving=False)) as host:
        caller = operator(options.tenant)
        if session is not None:
            await host.sessions.find(session, options.tenant)
        catalog = await host.catalog_for(caller, agent=agent, session=session)
        if session is None:
            keep_for_completion(catalog, options.config, options.tenant, agent)
        if dialect is not None:
            print_json({"tools": json.loads(catalog.render(dialect))})
        elif catalog:
            _print_tools(catalog)
        else:
            echo(_reason(host, agent, session))
        if dialect is None and agent is None and session is None:
            for line in await _elsewhere(host, caller):
                echo(line, err=True)


def _print_tools(catalog: Catalog) -> None:
    """Print the tools: on a terminal by their providers, and of each so many that all of them can be seen."""
    rows = [
        (name, tool.definition.ref.source, _parameters(tool.definition.parameters), tool.definition.description)
        for name, tool in catalog.items()
    ]
    left: dict[str, int] = {}
    # What another program reads has every tool, in the order of models.
    if answers().isatty():
        by_source: dict[str, list[tuple[str, str, str, str]]] = {}
        for row in rows:
            by_source.setdefault(row[1], []).append(row)
        most = len(rows) if log_options().verbose or len(rows) <= MAX_ROWS else MAX_OF_PROVIDER
        rows = [row for group in by_source.values() for row in group[:most]]
        left = {source: len(group) - most for source, group in by_source.items() if len(group) > most}
    print_table(("tool", "provider", "parameters", "description"), rows)
    for source, number in left.items():
        echo(f"and {number} more of {source}; toolplug tools -v lists all", err=True)


def _reason(host: Host, agent: str | None, session: str | None) -> str:
    """Return why the list is empty, and a command that says more."""
    if agent is not None or session is not None:
        which = f"agent {agent!r}" if agent is not None else "the session"
        return f"no tools for {which}; toolplug explain TOOL says why it does not have one"
    if any(record.state is ProviderState.ACTIVE for record in host.records()):
        return "no tools: the enabled providers have none"
    return "no tools: no provider is enabled; toolplug providers shows what there is"


async def _elsewhere(host: Host, caller: Principal) -> list[str]:
    """Return lines about tools that a caller without agent does not see: of agents, and of servers not yet listed."""
    lines: list[str] = []
    for agent in sorted(host.toolsets.tools.allowlists.agents(caller.tenant)):
        catalog = await host.catalog_for(caller, agent=agent)
        if catalog:
            lines.append(f"agent {agent}: {pluralize(len(catalog), 'tool')} (toolplug tools --agent {agent})")
    for server in host.servers.servers(caller.tenant):
        if server.enabled and server.record.status == "never":
            lines.append(f"MCP server {server.id}: its tools are not known yet (toolplug discover {server.id})")
    return lines


def _parameters(schema: Schema) -> str:
    """Return the names of the parameters, each optional one with a question mark."""
    shape = schema.value
    required = cast("list[str]", shape.get("required", []))
    return ", ".join(name if name in required else f"{name}?" for name in as_object(shape.get("properties"))) or "-"
