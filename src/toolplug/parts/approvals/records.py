"""What the store has of approvals: tickets, and the keys under which they are found."""

from __future__ import annotations

import hashlib
from typing import Literal, NotRequired, cast

from pydantic import TypeAdapter
from typing_extensions import TypedDict

from toolplug.catalog.call import CallContext, NobodyToAsk, ToolCall
from toolplug.catalog.plan import Plan
from toolplug.config.units import timestamp
from toolplug.execution.user_auth import ScopeOf, no_scope
from toolplug.part_protocols.approvals import Ticket, TicketState
from toolplug.signatures.values import canonical, decode_arguments, encode_value
from toolplug.stores.store import name_digest, tenant_digest

TICKETS = "approval/"
WAITING = "approval-waiting/"


class StoredRule(TypedDict):
    """What the file allowed for the tool of a call, as `GrantRule`."""

    most: float
    scope: Literal["session", "caller"]
    any: bool


class StoredApproval(TypedDict):
    """The record of one ticket."""

    tool: str
    digest: str
    body: str
    arguments: object
    subject: str
    agent: str | None
    session: bool
    state: TicketState
    expires_at: float
    asked_at: NotRequired[float]  # absent in records of 0.1
    decided_by: str | None
    decided_at: NotRequired[float]  # absent until it is decided, and in records of 0.1
    key: str | None
    goes_on: NotRequired[str]  # the ticket of a call that the tool itself has made, while it waits for it or goes on
    by_caller: bool
    credential: NotRequired[str]  # absent in records of 0.1
    asked: NotRequired[bool]  # can the person at the caller's client be asked; absent in records of 0.1
    tenant: str
    reason: NotRequired[str | None]
    asked_because: NotRequired[str | None]
    ran: NotRequired[object]  # the arguments that a person has put in place of the caller's
    grant: NotRequired[str]
    # Of the tool, so that a process without it can make a grant: its identity, what the file allows, and the names of
    # its parameters, None for any. Whether the file still allows a grant is asked at each call.
    ref: NotRequired[list[str]]
    grants: NotRequired[StoredRule]
    names: NotRequired[list[str] | None]
    # What finds the tool of the call again, as its caller sees it.
    code: NotRequired[str | None]
    scopes: NotRequired[list[str]]
    agents: NotRequired[list[str] | None]
    options: NotRequired[dict[str, object]]
    brought: NotRequired[str]  # the scope of the credentials that the caller has brought; absent without them


KEPT: TypeAdapter[StoredApproval] = TypeAdapter(StoredApproval)


async def digest_call(plan: Plan, call: ToolCall, context: CallContext, scope_of: ScopeOf = no_scope) -> str:
    """Return the digest of all that a repetition must have in common.

    That is the tool, its definition, the arguments, the caller, its credentials, whose scope `scope_of` returns, and
    the session.
    """
    ref, principal, scope = plan.ref, context.principal, await scope_of(context.credentials)
    # The definition's digest is in `ref`: an approval of one definition does not hold for the next.
    said = [*ref, decode_arguments(call.arguments), dict(context.options)]
    said += [principal.subject, context.agent, context.session, *([scope] if scope else [])]
    return hashlib.sha256(canonical(said)).hexdigest()


def parameter_names(plan: Plan) -> list[str] | None:
    """Return the names of the parameters of a tool, None if it takes any."""
    schema = plan.schema.value
    properties = schema.get("properties")
    closed = schema.get("additionalProperties") is False and isinstance(properties, dict)
    return [*cast("dict[str, object]", properties)] if closed else None


def question_of(
    plan: Plan,
    call: ToolCall,
    listed: str | None,
    context: CallContext,
    why: str | None,
    now: float,
    life_s: float,
    body: str,
) -> StoredApproval:
    """Return the record of a call that is asked about now, for so many seconds; `body` is its digest.

    `listed` is the canonical name of the tool, None for that of the call.
    """
    arguments, principal = decode_arguments(call.arguments), context.principal
    return {
        "tool": listed or call.name,
        "digest": plan.ref.digest,
        "body": body,
        "arguments": arguments,
        "subject": principal.subject,
        "agent": context.agent,
        "session": context.session is not None,
        "state": "waiting",
        "expires_at": now + life_s,
        "asked_at": now,
        "decided_by": None,
        "key": None,
        "by_caller": plan.caller_approves,
        "credential": principal.credential,
        "asked": context.conversation != "" or not isinstance(context.ask, NobodyToAsk) or context.ask.approves,
        "tenant": principal.tenant,
        "asked_because": why,
        "code": context.session,
        "scopes": sorted(principal.scopes),
        "agents": None if principal.agents is None else sorted(principal.agents),
        "options": dict(context.options),
        "ref": [*plan.ref[:3]],
        "grants": {"most": plan.grants.most, "scope": plan.grants.scope, "any": plan.grants.any},
        "names": parameter_names(plan) if plan.grants.most else None,
    }


def ticket_key(tenant: str, ticket_id: str) -> str:
    return f"{TICKETS}{tenant_digest(tenant)}/{ticket_id}"


def waiting_key(tenant: str, subject: str = "", ticket_id: str = "") -> str:
    """Return the key that counts a waiting ticket, without an id the prefix of those of a caller or a tenant."""
    of_caller = f"{name_digest(subject)[:32]}/{ticket_id}" if subject or ticket_id else ""
    return f"{WAITING}{tenant_digest(tenant)}/{of_caller}"


def approved_key(tenant: str, body: str, ticket_id: str) -> str:
    """Return the key under which the next equal call finds an approved ticket."""
    return f"approved/{tenant_digest(tenant)}/{body}/{ticket_id}"


def equal_key(kept: StoredApproval) -> str:
    """Return the key under which an equal call finds the ticket that waits.

    Equal is also who may decide, and what: of two credentials of one subject, neither decides what it has asked itself.
    """
    may = f"{kept.get('asked', False)} {kept['by_caller']} {kept.get('grants')} {kept.get('asked_because')}"
    who = name_digest(kept.get("credential", ""), may)[:32]
    return f"approval-equal/{tenant_digest(kept['tenant'])}/{kept['body']}/{who}"


def ticket_of(ticket_id: str, kept: StoredApproval) -> Ticket:
    """Return a ticket as people see it."""
    asked_at, decided_at, ran = kept.get("asked_at"), kept.get("decided_at"), kept.get("ran")
    return Ticket(
        ticket_id,
        kept["tool"],
        kept["digest"],
        kept["arguments"] if ran is None else ran,
        kept["subject"],
        kept["agent"],
        kept["session"],
        kept["state"],
        timestamp(kept["expires_at"]),
        kept["decided_by"],
        None if decided_at is None else timestamp(decided_at),
        kept["tenant"],
        kept.get("reason"),
        kept.get("asked_because"),
        None if ran is None else kept["arguments"],
        kept.get("grant"),
        None if asked_at is None else timestamp(asked_at),
    )


def changes_of(ticket: Ticket) -> dict[str, str]:
    """Return what the audit line says of arguments that a person has put in place of the caller's."""
    return {} if ticket.asked_arguments is None else {"ran": encode_value(ticket.arguments) or ""}


def show_ticket(ticket_id: str, kept: StoredApproval) -> dict[str, object]:
    """Return what the refused call says of its ticket."""
    expires_at = timestamp(kept["expires_at"])
    return {"id": ticket_id, "expires_at": expires_at, "tool": kept["tool"], "digest": kept["digest"]}
