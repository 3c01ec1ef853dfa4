"""`toolplug approvals`: the calls that wait for a person's decision."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Annotated, cast

import typer

from toolplug.catalog.exact_json import load_json
from toolplug.cli.event_loop import async_command
from toolplug.cli.options import TenantOptions, config_file, operator
from toolplug.cli.output import print_answer, print_listing
from toolplug.cli.store import open_shared_store
from toolplug.config.units import parse_duration
from toolplug.errors import InvalidJson
from toolplug.part_protocols.approvals import Decision, DecisionTerms, GrantTerms, Ticket
from toolplug.parts.approvals.running import Approvals

TicketId = Annotated[str, typer.Argument(metavar="ID", help="The approval, as `list` and the refused call show it.")]

ReasonOption = Annotated[
    str | None, typer.Option("--reason", metavar="TEXT", help="Why, for the caller of a denied call.")
]

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
async def approve(
    options: TenantOptions,
    ticket: TicketId,
    life: Annotated[
        str | None, typer.Option("--for", metavar="TIME", help="Allow like calls for so long, such as 8h.")
    ] = None,
    session: Annotated[bool, typer.Option("--session", help="Like calls of this session only.")] = False,
    where: Annotated[
        str | None,
        typer.Option(
            "--where", metavar="SCHEMA", help="Which calls are like it: a JSON Schema, or true. Default: equal ones."
        ),
    ] = None,
    calls: Annotated[int | None, typer.Option("--calls", metavar="N", help="So many like calls.")] = None,
    reason: ReasonOption = None,
) -> None:
    """Let this call run, once, when its caller repeats it; with --for, like calls too.

    Example: toolplug approvals approve 0123456789abcdef01234567 --for 1h --session --where '{"properties": {"limit":
    {"maximum": 100}}}'
    """
    if life is None and (session or where is not None or calls is not None):
        raise typer.BadParameter("--session, --where and --calls say which calls are allowed; --for says for how long")
    grant = None if life is None else _terms(life, session, where, calls)
    await _decide(ticket, "approve", options, DecisionTerms(reason, None, grant))


def _terms(life: str, session: bool, where: str | None, calls: int | None) -> GrantTerms:
    try:
        for_s = parse_duration(life)
    except ValueError as error:
        raise typer.BadParameter(f"--for {life!r} {error}") from None
    scope = "session" if session else "caller"
    if where is None:
        return GrantTerms(for_s, scope, None, calls)
    try:
        schema = load_json(where.encode())
    except InvalidJson as error:
        raise typer.BadParameter(f"--where is not JSON: {error}") from None
    if schema is not True and not isinstance(schema, dict):
        raise typer.BadParameter("--where is a JSON Schema, or true for every call")
    return GrantTerms(for_s, scope, True if schema is True else cast("dict[str, object]", schema), calls)


@async_command(app)
async def deny(options: TenantOptions, ticket: TicketId, reason: ReasonOption = None) -> None:
    """Refuse this call.

    Example: toolplug approvals deny 0123456789abcdef01234567
    """
    await _decide(ticket, "deny", options, DecisionTerms(reason))


async def _decide(ticket_id: str, decision: Decision, options: TenantOptions, terms: DecisionTerms) -> None:
    async with _approvals(options) as approvals:
        ticket = await approvals.decide(ticket_id, decision, operator(options.tenant), decided="command", terms=terms)
    text = f"{ticket.tool} {_arguments(ticket)} of {ticket.subject}: {ticket.state}"
    text += f"; like calls are allowed by grant {ticket.grant}" if ticket.grant else ""
    print_answer(options.as_json, ticket._asdict(), text)


@asynccontextmanager
async def _approvals(options: TenantOptions) -> AsyncGenerator[Approvals]:
    instead = "GET /v1/approvals and POST /v1/approvals/ID"
    async with open_shared_store(config_file(options.config), "approvals", instead) as store:
        yield Approvals(store)


def _arguments(ticket: Ticket) -> str:
    return json.dumps(ticket.arguments, ensure_ascii=False)
