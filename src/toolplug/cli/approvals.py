"""`toolplug approvals`: the calls that wait for a person, and that person's decision."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from toolplug.cli.event_loop import run_to_end
from toolplug.cli.logs import log_warnings
from toolplug.cli.options import ConfigOption, JsonOption, TenantOption, config_file, operator
from toolplug.cli.output import print_json, print_problems, print_table
from toolplug.cli.store import kept_store
from toolplug.errors import ApprovalRefused, Problem
from toolplug.execution.approvals import Approvals, Decision, Ticket
from toolplug.host.file.configuration import ConfigFiles

app: typer.Typer = typer.Typer()
approvals: typer.Typer = typer.Typer(name="approvals", help="Calls that a person must approve (policy: ask).")
app.add_typer(approvals)

_INSTEAD = "GET /v1/approvals and POST /v1/approvals/ID"

TicketId = Annotated[str, typer.Argument(metavar="ID", help="The approval, as `list` and the refused call show it.")]


@approvals.callback()
def approvals_group() -> None:
    """Look at the calls that wait for a person, and decide."""


@approvals.command("list")
def list_approvals(config: ConfigOption = None, tenant: TenantOption = "default", as_json: JsonOption = False) -> None:
    """List the calls of this tenant that wait, and those decided that can still be repeated.

    Example: toolplug approvals list
    """
    log_warnings()
    raise typer.Exit(run_to_end(_listed(config_file(config), tenant, as_json)))


@approvals.command()
def approve(
    ticket: TicketId, config: ConfigOption = None, tenant: TenantOption = "default", as_json: JsonOption = False
) -> None:
    """Let exactly this call run, once, when its caller repeats it.

    Example: toolplug approvals approve 0123456789abcdef01234567
    """
    log_warnings()
    raise typer.Exit(run_to_end(_decided(config_file(config), tenant, ticket, "approve", as_json)))


@approvals.command()
def deny(
    ticket: TicketId, config: ConfigOption = None, tenant: TenantOption = "default", as_json: JsonOption = False
) -> None:
    """Refuse this call.

    Example: toolplug approvals deny 0123456789abcdef01234567
    """
    log_warnings()
    raise typer.Exit(run_to_end(_decided(config_file(config), tenant, ticket, "deny", as_json)))


async def _listed(config: ConfigFiles, tenant: str, as_json: bool) -> int:
    async with kept_store(config, "approvals", _INSTEAD) as store:
        tickets = await Approvals(store).waiting(tenant)
    if as_json:
        print_json({"approvals": [ticket._asdict() for ticket in tickets]})
    elif tickets:
        print_table(
            ["APPROVAL", "STATE", "TOOL", "CALLER", "EXPIRES", "ARGUMENTS"],
            [(item.id, item.state, item.tool, item.subject, item.expires_at, _arguments(item)) for item in tickets],
        )
    else:
        typer.echo("no call waits for approval")
    return 0


async def _decided(config: ConfigFiles, tenant: str, ticket_id: str, decision: Decision, as_json: bool) -> int:
    async with kept_store(config, "approvals", _INSTEAD) as store:
        try:
            ticket = await Approvals(store).decide(ticket_id, decision, operator(tenant))
        except ApprovalRefused as error:
            hint = "`toolplug approvals list` shows those that there are"
            print_problems([Problem(code=error.code, message=str(error), hint=hint)], as_json=as_json)
            return 1
    if as_json:
        print_json(ticket._asdict())
    else:
        typer.echo(f"{ticket.tool} {_arguments(ticket)} of {ticket.subject}: {ticket.state}")
    return 0


def _arguments(ticket: Ticket) -> str:
    return json.dumps(ticket.arguments, ensure_ascii=False)
