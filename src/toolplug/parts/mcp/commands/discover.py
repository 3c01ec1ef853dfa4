"""`toolplug discover`: lists the tools of MCP servers again, and imports servers from another program's file."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from toolplug.catalog.call import Principal
from toolplug.cli.event_loop import async_command, enter_host
from toolplug.cli.options import TenantOptions, config_file, operator
from toolplug.cli.output import echo, print_json, print_problems, print_table, problem_fields
from toolplug.cli.progress import progress
from toolplug.errors import Problem
from toolplug.foreign.client_files import expand_path
from toolplug.host.file.configuration import ConfigFiles
from toolplug.host.inspection import open_servers_only
from toolplug.parts.mcp.client_files.import_plan import import_fields, plan_import, print_import
from toolplug.parts.mcp.http.servers import server_fields
from toolplug.parts.mcp.limits import LONGEST_DISCOVERY_S
from toolplug.parts.mcp.server_records import ServerView
from toolplug.parts.mcp.servers import servers_of

EVERY = "*"

_WAIT_S = LONGEST_DISCOVERY_S + 10
"""Seconds; each discovery ends before, by the timeout of its server."""

app: typer.Typer = typer.Typer()


@async_command(app)
async def discover(
    options: TenantOptions,
    server: Annotated[
        str | None,
        typer.Argument(metavar="SERVER", help="A server's id. Default: all enabled servers.", show_default=False),
    ] = None,
    file: Annotated[
        str | None,
        typer.Option(
            "--import",
            metavar="FILE",
            help="Add the servers of another program's file (Claude, VS Code, Zed, Codex …) to the configuration.",
            show_default=False,
        ),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="With --import: print what would be added.")] = False,
    accept: Annotated[
        list[str] | None,
        typer.Option(
            "--accept",
            metavar="TOOL",
            help=f"Accept a quarantined tool as it is now; {EVERY} for all of SERVER. Can be repeated.",
            show_default=False,
        ),
    ] = None,
) -> int:
    """List the tools of MCP servers again, and keep the result for listings and the catalog.

    Starts or connects to each server, waits for it, and leaves nothing running. Exits 1 if one fails; its earlier list
    is then kept. `removed` counts what was removed from definitions, --json shows it. A running host with the same
    store sees the result at once.

    --import adds the servers of the file to `mcp_servers`, and starts nothing unless SERVER is named. The rest of the
    configuration, its comments and its existing servers stay as they are. What looks like a secret is written as
    ${NAME}, to be set in the environment.

    Examples: toolplug discover time --json · toolplug discover --import mcp.json --dry-run
    """
    if dry_run and file is None:
        raise typer.BadParameter("--dry-run is for --import FILE")
    if accept and server is None:
        raise typer.BadParameter("--accept needs the SERVER whose tools it names")
    files = config_file(options.config)
    plan = None if file is None else plan_import(expand_path(file, os.environ, home=Path.home()), files.file)
    if plan is not None and not dry_run:
        plan.write()
    problems = [*plan.problems] if plan is not None else []
    lists = not dry_run and (plan is None or server is not None)
    views = await _discover(files, server, accept or [], operator(options.tenant), problems) if lists else ()
    if options.as_json:
        imported = {} if plan is None else {"imported": import_fields(plan, written=not dry_run)}
        servers = {"servers": [server_fields(view, operator(options.tenant)) for view in views]} if lists else {}
        print_json({**imported, **servers, "problems": problem_fields(problems)})
    else:
        if plan is not None:
            print_import(plan, written=not dry_run)
        if lists:
            _print_servers(views, files)
        print_problems(problems, as_json=False)
    return 1 if problems or any(view.record.error is not None for view in views) else 0


async def _discover(
    files: ConfigFiles, server: str | None, accept: Sequence[str], by: Principal, problems: list[Problem]
) -> Sequence[ServerView]:
    """List one server, after accepting its tools, or all enabled ones. Raises `ApiError`.

    Problems with entries of the configuration are added to `problems`.
    """
    async with enter_host(open_servers_only(files, problems)) as host:
        servers = await servers_of(host)
        if server is not None and accept:
            await servers.accept(server, None if EVERY in accept else accept, by=by, request_id="")
        wanted = [view.id for view in servers.servers(by.tenant) if view.enabled] if server is None else [server]
        with progress("listing the tools of MCP servers", len(wanted)) as done:

            async def discover_server(name: str) -> ServerView:
                try:
                    return await servers.discover(name, by=by, wait_s=_WAIT_S, request_id="")
                finally:
                    done()

            return await asyncio.gather(*map(discover_server, wanted))


def _print_servers(views: Sequence[ServerView], files: ConfigFiles) -> None:
    if not views:
        echo(f"{files} has no MCP server that is enabled; toolplug discover --import FILE adds some")
        return
    print_table(("server", "status", "tools", "removed", "error"), [_row(view) for view in views])
    for view in views:
        for line in filter(_is_unlisted, view.record.left_out):
            echo(f"\n{view.id}: {line.partition(': ')[2]}")
        held = [tool.name for tool in view.record.tools if tool.quarantined]
        if held:
            echo(f"\n{view.id}: changed, and held back until accepted: {', '.join(held)}")
            echo(f"  toolplug discover {view.id} --accept '{EVERY}'")


def _is_unlisted(line: str) -> bool:
    """Return True for a line about a whole list that the server did not give: nothing was removed from it."""
    return line.startswith(("/prompts: ", "/resources: ", "/resourceTemplates: "))


def _row(view: ServerView) -> tuple[str, ...]:
    record = view.record
    left_out = sum(not _is_unlisted(line) for line in record.left_out)
    cut = sum(len(tool.cut) for tool in record.tools) + left_out
    tools = f"{len(record.tools)} stale" if record.stale else str(len(record.tools))
    return view.id, record.status, tools, str(cut), record.error or ""
