"""`toolplug approvals`: the calls that wait for a person's decision."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Annotated

import typer

from toolplug.cli.event_loop import async_command
from toolplug.cli.options import TenantOptions, config_file, operator
from toolplug.cli.output import print_answer, print_listing
from toolplug.cli.store import open_shared_store
from toolplug.execution.host_approvals import Decision, Ticket
from toolplug.parts.approvals.running import Approvals

TicketId = Annotated[str, typer.Argument(metavar="ID", help="The approval, as `list` and the refused call show it.")]

app: typer.Typer = typer.Typer(name="approvals", help="Calls that a person must approve (policy: ask).")


@async_command(app, "list")
async def list_approvals(
    options: TenantOptions,
    all_tenants: Annotated[
        bool, typer.Option("--all-tenants", "-A", help="Those of every tenant, with a column for it.")
    ] = False,
) -> None:
    """List the calls of this tenant that wait for a decision, and the decided ones that can still be repeated.

    A call of another tenant is decided with --tenant.

    Example: toolplug approvals list --all-tenants
    """
    async with _approvals(options) as approvals:
        tickets = await (approvals.everywhere() if all_tenants else approvals.waiting(options.tenant))
    columns = ["APPROVAL", "STATE", "TOOL", "CALLER", "EXPIRES", "ARGUMENTS"]
    rows = [(item.id, item.state, item.tool, item.subject, item.expires_at, _arguments(item)) for item in tickets]
    if all_tenants:
        columns.insert(0, "TENANT")
        rows = [(ticket.tenant, *row) for ticket, row in zip(tickets, rows, strict=True)]
    fields = {"approvals": [ticket._asdict() for ticket in tickets]}
    print_listing(options.as_json, fields, columns, rows, "no call waits for approval")


@async_command(app)
async def approve(options: TenantOptions, ticket: TicketId) -> None:
    """Let exactly this call run, once, when its caller repeats it.

    Example: toolplug approvals approve 0123456789abcdef01234567
    """
    await _decide(ticket, "approve", options)


@async_command(app)
async def deny(options: TenantOptions, ticket: TicketId) -> None:
    """Refuse this call.

    Example: toolplug approvals deny 0123456789abcdef01234567
    """
    await _decide(ticket, "deny", options)


async def _decide(ticket_id: str, decision: Decision, options: TenantOptions) -> None:
    async with _approvals(options) as approvals:
        ticket = await approvals.decide(ticket_id, decision, operator(options.tenant), decided="command")
    text = f"{ticket.tool} {_arguments(ticket)} of {ticket.subject}: {ticket.state}"
    print_answer(options.as_json, ticket._asdict(), text)


@asynccontextmanager
async def _approvals(options: TenantOptions) -> AsyncGenerator[Approvals]:
    instead = "GET /v1/approvals and POST /v1/approvals/ID"
    async with open_shared_store(config_file(options.config), "approvals", instead) as store:
        yield Approvals(store)


def _arguments(ticket: Ticket) -> str:
    return json.dumps(ticket.arguments, ensure_ascii=False)
