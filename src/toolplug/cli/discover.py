"""`toolplug discover`: the tools of the MCP servers, listed anew; servers of another program's file imported."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, NamedTuple

import typer

from toolplug.cli.event_loop import entered, run_to_end
from toolplug.cli.importing.plan import ImportPlan, import_fields, plan_import, print_import
from toolplug.cli.logs import log_warnings
from toolplug.cli.options import ConfigOption, JsonOption, TenantOption, config_file, operator
from toolplug.cli.output import print_json, print_problems, print_table, problem_fields
from toolplug.errors import Problem
from toolplug.host.file.configuration import ConfigFiles
from toolplug.host.file.server_entries import LONGEST_DISCOVERY_S
from toolplug.host.inspection import open_servers_only
from toolplug.host.servers.view import ServerView
from toolplug.http.servers.handlers import server_fields

EVERY = "*"

_PATIENCE_S = LONGEST_DISCOVERY_S + 10
"""Each discovery ends by itself within its server's own time."""

app: typer.Typer = typer.Typer()


class _Wish(NamedTuple):
    """What to do with the servers; `accept` None: nothing is accepted."""

    server: str | None
    accept: Sequence[str] | None
    tenant: str


@app.command()
def discover(
    server: Annotated[
        str | None,
        typer.Argument(metavar="[SERVER]", help="Its id. Default: all that are enabled.", show_default=False),
    ] = None,
    file: Annotated[
        Path | None,
        typer.Option(
            "--import",
            metavar="FILE",
            help="Add the servers of a desktop client's file, {mcpServers: {…}}, to the configuration.",
            show_default=False,
        ),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="With --import: print what would be added.")] = False,
    accept: Annotated[
        list[str] | None,
        typer.Option(
            "--accept",
            metavar="TOOL",
            help=f"Accept the changed definition of a quarantined tool; {EVERY} for all of SERVER. Can be repeated.",
            show_default=False,
        ),
    ] = None,
    config: ConfigOption = None,
    tenant: TenantOption = "default",
    as_json: JsonOption = False,
) -> None:
    """List the tools of MCP servers anew, and keep what was found for listings and the catalog.

    Starts or reaches each server, waits for it, and leaves nothing running. Exits 1 where one failed; what it listed
    before is kept then. `cut` counts what was removed from definitions at the door, --json says what. A running host
    of the same store sees the result at once.

    --import writes the servers of the file under `mcp_servers`, and starts nothing unless SERVER is named. The text of
    the configuration stays as it is, comments too, and so do servers that it has already. What looks like a secret is
    written as ${NAME}, which the environment is to give.

    Examples: toolplug discover time --json · toolplug discover --import mcp.json --dry-run
    """
    log_warnings()
    if dry_run and file is None:
        raise typer.BadParameter("--dry-run is for --import FILE")
    if accept and server is None:
        raise typer.BadParameter("--accept needs the SERVER whose tools it names")
    files = config_file(config)
    plan = None if file is None else plan_import(file, files.file)
    if plan is not None and not dry_run:
        plan.write()
    wish = None if dry_run or (plan is not None and server is None) else _Wish(server, accept or None, tenant)
    raise typer.Exit(run_to_end(_done(files, plan, wish, dry_run=dry_run, as_json=as_json)))


async def _done(
    files: ConfigFiles, plan: ImportPlan | None, wish: _Wish | None, *, dry_run: bool, as_json: bool
) -> int:
    problems: list[Problem] = [*plan.problems] if plan is not None else []
    views = () if wish is None else await _discovered(files, wish, problems)
    failed = [view for view in views if view.record.error is not None]
    if as_json:
        answer: dict[str, object] = {} if plan is None else {"imported": import_fields(plan, written=not dry_run)}
        if wish is not None:
            answer["servers"] = [server_fields(view, transport=True) for view in views]
        print_json({**answer, "problems": [problem_fields(problem) for problem in problems]})
    else:
        if plan is not None:
            print_import(plan, written=not dry_run)
        if wish is not None:
            _print_servers(views, files)
        print_problems(problems, as_json=False)
    return 1 if problems or failed else 0


async def _discovered(files: ConfigFiles, wish: _Wish, problems: list[Problem]) -> Sequence[ServerView]:
    """The servers as they are after it. Raises `McpServerRefused` for one that is not there or is off."""
    by = operator(wish.tenant)
    async with entered(open_servers_only(files, problems)) as host:
        desk = host.servers
        if wish.server is not None and wish.accept is not None:
            await desk.accept(wish.server, None if EVERY in wish.accept else wish.accept, by=by, request_id="")
        wanted = [view.id for view in desk.servers(wish.tenant) if view.enabled]
        if wish.server is not None:
            wanted = [wish.server]
        return await asyncio.gather(*(desk.discover(name, by=by, wait_s=_PATIENCE_S, request_id="") for name in wanted))


def _print_servers(views: Sequence[ServerView], files: ConfigFiles) -> None:
    if not views:
        typer.echo(f"{files} has no MCP server that is enabled; toolplug discover --import FILE adds some")
        return
    print_table(("server", "status", "tools", "cut", "error"), [_row(view) for view in views])
    for view in views:
        held = [tool.name for tool in view.record.tools if tool.quarantined]
        if held:
            typer.echo(f"\n{view.id}: changed, and held back until accepted: {', '.join(held)}")
            typer.echo(f"  toolplug discover {view.id} --accept '{EVERY}'")


def _row(view: ServerView) -> tuple[str, ...]:
    record = view.record
    cut = sum(len(tool.cut) for tool in record.tools) + len(record.left_out)
    tools = f"{len(record.tools)} stale" if record.stale else str(len(record.tools))
    return view.id, record.status, tools, str(cut), record.error or ""
