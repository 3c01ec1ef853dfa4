"""`toolplug call`: one tool call without server, network, key or model."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from toolplug.catalog.call import CallContext, Principal, ToolCall, ToolStatus
from toolplug.catalog.exact_json import load_json
from toolplug.cli.arguments import ArgumentWords, arguments_from
from toolplug.cli.completion import complete_tool, keep_for_completion
from toolplug.cli.crashes import code_keys
from toolplug.cli.event_loop import async_command, enter_host
from toolplug.cli.logs import log_warnings
from toolplug.cli.options import CallerOptions, config_file, operator
from toolplug.cli.output import echo, print_json, print_progress, print_result
from toolplug.cli.serving.watchdog import Watchdog
from toolplug.config.nearest import name_hint
from toolplug.execution.results import call_answer
from toolplug.host.file.settings import MCP, split_source
from toolplug.host.host import Host, open_host

app: typer.Typer = typer.Typer()

_BY_SETTING = frozenset((ToolStatus.DENIED, ToolStatus.LIMITED, ToolStatus.TIMEOUT))
"""A setting has decided, which the result, as it is for models, does not name."""


@async_command(app)
async def call(
    options: CallerOptions,
    name: Annotated[str, typer.Argument(metavar="NAME", help="The tool.", autocompletion=complete_tool)],
    arguments: ArgumentWords = None,
    approval: Annotated[
        str | None, typer.Option("--approval", metavar="ID", help="The approval under which the call is repeated.")
    ] = None,
) -> int:
    """Call one tool and print its result. Needs no server, and acts with all scopes.

    Exits 1 when the result is an error; its status is printed to stderr. A crash is printed there with its whole trace,
    and `toolplug why cli` prints it again. If the tools of the MCP server that the name begins with are not known yet,
    they are listed first, as toolplug discover does.

    A Python file before the name is called without a configuration, as toolplug serve takes it.

    Examples: toolplug call hello name=Ada · toolplug call search '{"query": "otters"}' · toolplug call
    clock.get_time --agent researcher
    """
    # As `serve` and `dev` take a file of code.
    if name.endswith(".py") and options.config is None:
        if not arguments:
            raise typer.BadParameter(f"name a tool of {name}: toolplug call {name} TOOL")
        options, name, arguments = replace(options, config=Path(name)), arguments[0], arguments[1:]
    log_warnings(options.config, traces=True)
    caller, agent, session = operator(options.tenant), options.agent, options.session
    async with (
        enter_host(open_host(config_file(options.config), serving=False)) as host,
        Watchdog(partial(code_keys, host), names_host=False),
    ):
        if session is not None:
            # Loads a session that another process has created; `executor_for` knows only those that are loaded.
            await host.sessions.find(session, options.tenant)
        executor = host.executor_for(caller, agent=agent, session=session)
        catalog = await host.catalog_for(caller, agent=agent, session=session)
        # Completion does not know sessions, which end.
        if session is None:
            keep_for_completion(catalog, options.config, options.tenant, agent)
        if catalog.find(name) is None and await _list_server_of(name, host, caller):
            catalog = await host.catalog_for(caller, agent=agent, session=session)
        tool = catalog.find(name)
        given = arguments_from(arguments or [], tool.definition.parameters.value if tool is not None else {})
        context = CallContext(caller, session, agent, approval=approval, report=print_progress)
        result = await executor.execute(ToolCall(id="cli", name=name, arguments=given), context)
        if options.as_json:
            print_json(load_json(call_answer(result)))
        else:
            unknown = result.is_error and catalog.find(result.name) is None
            asked = f"toolplug explain {name}" + (f" -c {options.config}" if options.config is not None else "")
            why = f"{asked} shows the setting, and its line" if result.status in _BY_SETTING else ""
            print_result(
                result.output,
                result.status if result.is_error else None,
                name_hint(result.name, catalog) if unknown else why,
            )
            if isinstance(result.metadata.get("truncated"), dict):
                echo(f"the result is longer than max_result_bytes ({asked} shows its line)", err=True)
        return int(result.is_error)


async def _list_server_of(name: str, host: Host, caller: Principal) -> bool:
    """List the tools of the MCP server whose prefix the name begins with, if they are not known yet.

    Returns False if there is no such server, or it could not be listed, which is then said.
    """
    toolsets = host.toolsets.tools.toolsets
    named = {split_source(item.shown): item.prefix for item in toolsets.of(caller.tenant).values()}
    named |= {(MCP, item.id): item.prefix for item in toolsets.servers.values()}
    for server in host.servers.servers(caller.tenant):
        prefix = named.get((MCP, server.id))
        is_of = prefix is not None and name.startswith((f"{prefix}.", f"{prefix}__"))
        if not is_of or not server.enabled or server.record.status != "never":
            continue
        echo(f"MCP server {server.id}: its tools are not known yet, and are listed now", err=True)
        record = await host.servers.discover(caller, server.id)
        if record.error is None:
            return True
        echo(f"MCP server {server.id}: {record.error} (toolplug discover {server.id} tries it again)", err=True)
    return False
