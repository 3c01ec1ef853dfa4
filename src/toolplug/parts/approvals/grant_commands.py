"""`toolplug grants`: what people have allowed for several calls."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from toolplug.cli.event_loop import async_command
from toolplug.cli.options import TenantOptions, config_file, operator
from toolplug.cli.output import print_answer, print_listing
from toolplug.cli.store import open_shared_store
from toolplug.parts.approvals.grants import Grants
from toolplug.parts.approvals.held import Grant

_INSTEAD = "GET /v1/grants and DELETE /v1/grants/ID"

app: typer.Typer = typer.Typer(name="grants", help="What people have allowed for several calls at once.")


@async_command(app, "list")
async def list_grants(
    options: TenantOptions,
    tool: Annotated[str | None, typer.Option("--tool", metavar="TOOL", help="Those for this tool.")] = None,
    caller: Annotated[str | None, typer.Option("--caller", metavar="NAME", help="Those of this caller.")] = None,
) -> None:
    """List the grants of this tenant, the newest first.

    Example: toolplug grants list --tool query
    """

    def is_wanted(grant: Grant) -> bool:
        return tool in (None, grant.tool) and caller in (None, grant.caller)

    async with open_shared_store(config_file(options.config), "grants", _INSTEAD) as store:
        found = await Grants(store).list_grants(options.tenant, is_wanted)
    columns = ["GRANT", "TOOL", "CALLER", "SCOPE", "EXPIRES", "LEFT", "USED", "BY", "ARGUMENTS"]
    rows = [
        (
            grant.id,
            grant.tool,
            grant.caller,
            grant.scope,
            grant.expires_at,
            "any" if grant.calls_left is None else str(grant.calls_left),
            str(grant.used),
            grant.made_by,
            json.dumps(grant.arguments, ensure_ascii=False),
        )
        for grant in found
    ]
    fields = {"grants": [grant._asdict() for grant in found]}
    print_listing(options.as_json, fields, columns, rows, "there are no grants")


@async_command(app)
async def revoke(
    options: TenantOptions,
    grant: Annotated[str, typer.Argument(metavar="ID", help="The grant, as `list` shows it.")],
) -> None:
    """Revoke a grant: within a second, every process asks about such calls again.

    Example: toolplug grants revoke 0123456789abcdef0123456789abcdef
    """
    async with open_shared_store(config_file(options.config), "grants", _INSTEAD) as store:
        await Grants(store).revoke(grant, operator(options.tenant), decided="command")
    print_answer(options.as_json, {"id": grant, "revoked": True}, f"grant {grant} is revoked")
