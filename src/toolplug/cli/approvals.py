"""`toolplug approvals`: the calls that wait for a person's decision."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated

import typer

from toolplug.cli.event_loop import async_command
from toolplug.cli.options import ConfigOption, JsonOption, TenantOption, config_file, operator
from toolplug.cli.output import print_answer, print_listing
from toolplug.cli.store import open_shared_store
from toolplug.execution.approvals import Approvals, Decision, Ticket

TicketId = Annotated[str, typer.Argument(metavar="ID", help="The approval, as `list` and the refused call show it.")]

app: typer.Typer = typer.Typer(name="approvals", help="Calls that a person must approve (policy: ask).")


@app.command("list")
@async_command
async def list_approvals(
    config: ConfigOption = None, tenant: TenantOption = "default", as_json: JsonOption = False
) -> None:
    """List the calls of this tenant that wait, and those decided that can still be repeated.

    Example: toolplug approvals list
    """
    async with _approvals(config) as approvals:
        tickets = await approvals.waiting(tenant)
    columns = ["APPROVAL", "STATE", "TOOL", "CALLER", "EXPIRES", "ARGUMENTS"]
    rows = [(item.id, item.state, item.tool, item.subject, item.expires_at, _arguments(item)) for item in tickets]
    fields = {"approvals": [ticket._asdict() for ticket in tickets]}
    print_listing(as_json, fields, columns, rows, "no call waits for approval")


@app.command()
@async_command
async def approve(
    ticket: TicketId, config: ConfigOption = None, tenant: TenantOption = "default", as_json: JsonOption = False
) -> None:
    """Let exactly this call run, once, when its caller repeats it.

    Example: toolplug approvals approve 0123456789abcdef01234567
    """
    await _decide(config, tenant, ticket, "approve", as_json)


@app.command()
@async_command
async def deny(
    ticket: TicketId, config: ConfigOption = None, tenant: TenantOption = "default", as_json: JsonOption = False
) -> None:
    """Refuse this call.

    Example: toolplug approvals deny 0123456789abcdef01234567
    """
    await _decide(config, tenant, ticket, "deny", as_json)


async def _decide(config: Path | None, tenant: str, ticket_id: str, decision: Decision, as_json: bool) -> None:
    async with _approvals(config) as approvals:
        ticket = await approvals.decide(ticket_id, decision, operator(tenant), decided="command")
    print_answer(as_json, ticket._asdict(), f"{ticket.tool} {_arguments(ticket)} of {ticket.subject}: {ticket.state}")


@asynccontextmanager
async def _approvals(config: Path | None) -> AsyncGenerator[Approvals]:
    instead = "GET /v1/approvals and POST /v1/approvals/ID"
    async with open_shared_store(config_file(config), "approvals", instead) as store:
        yield Approvals(store)


def _arguments(ticket: Ticket) -> str:
    return json.dumps(ticket.arguments, ensure_ascii=False)
