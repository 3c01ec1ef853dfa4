"""Messages: what is sent of a ticket, or of several at once, and its signature."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from collections.abc import Mapping, Sequence
from secrets import token_hex
from typing import Literal, NamedTuple

from toolplug import Ticket

Event = Literal["approval.waiting", "approval.decided"]

MAX_ARGUMENT_BYTES = 16 * 1024
"""Arguments over this size are left out: a channel shows a screen of text."""
MAX_IDS = 100
"""Approvals that a digest names."""
_MAX_NAME = 120
# Characters that channels read as markup or as a mention of everybody: names are those of callers and servers.
_UNSAFE = str.maketrans({"`": "'", "<": "‹", ">": "›", "&": "+", "@": "(at)"})


class Message(NamedTuple):
    """What is sent: `id` is the same for each try, so that a receiver knows a repetition."""

    id: str
    fields: Mapping[str, object]

    def body(self) -> bytes:
        """Return the JSON text."""
        return json.dumps(self.fields, ensure_ascii=False).encode("utf-8", "replace")


def of_ticket(event: Event, ticket: Ticket, *, console: str | None, with_arguments: bool) -> Message:
    """Return the message of one ticket."""
    link = link_to(console, ticket.id)
    fields: dict[str, object] = {
        "event": event,
        "text": _sentence(event, ticket, link),
        "id": ticket.id,
        "tool": ticket.tool,
        "caller": ticket.subject,
        "tenant": ticket.tenant,
        "agent": ticket.agent,
        "session": ticket.session,
        "expires_at": ticket.expires_at,
        "link": link,
    }
    if event == "approval.decided":
        fields |= {"decision": ticket.state, "decided_by": ticket.decided_by, "reason": ticket.reason}
    if with_arguments:
        size = len(json.dumps(ticket.arguments, ensure_ascii=False).encode("utf-8", "replace"))
        if size <= MAX_ARGUMENT_BYTES:
            fields["arguments"] = ticket.arguments
        else:
            fields["arguments_omitted_bytes"] = size
    return Message(f"msg_{ticket.id}_{event.rpartition('.')[2]}", fields)


def of_several(tickets: Sequence[tuple[Event, Ticket]], missed: int, *, console: str | None) -> Message:
    """Return one message of a tenant's tickets, and of so many that were not kept."""
    waiting = [ticket for event, ticket in tickets if event == "approval.waiting"]
    decided = len(tickets) - len(waiting)
    link = link_to(console, "")
    parts = [f"{len(waiting)} calls wait for approval"] if len(waiting) != 1 else ["1 call waits for approval"]
    parts = parts if waiting else []
    parts += [f"{decided} {'was' if decided == 1 else 'were'} decided"] if decided else []
    parts += [f"{missed} more have come or were decided"] if missed else []
    tenant = tickets[0][1].tenant
    fields: dict[str, object] = {
        "event": "approval.waiting" if waiting else "approval.decided",
        "text": f"{' and '.join(parts)} in tenant {_name(tenant)}{f': {link}' if link else '.'}",
        "id": None,
        "tool": _common([ticket.tool for _, ticket in tickets]),
        "caller": _common([ticket.subject for _, ticket in tickets]),
        "tenant": tenant,
        "agent": None,
        "session": None,
        "expires_at": min((ticket.expires_at for ticket in waiting), default=None),
        "link": link,
        "waiting": len(waiting),
        "decided": decided,
        "missed": missed,
        "ids": [ticket.id for _, ticket in tickets][:MAX_IDS],
    }
    return Message(f"msg_{token_hex(12)}", fields)


def link_to(console: str | None, ticket_id: str) -> str | None:
    """Return the address of an approval in the console, of all without an id; None if the console is not known."""
    if console is None:
        return None
    return f"{console.rstrip('/')}#/approvals{f'/{ticket_id}' if ticket_id else ''}"


def signature(key: bytes, message_id: str, timestamp: int, body: bytes) -> str:
    """Return the value of `webhook-signature`, as Standard Webhooks say."""
    signed = b".".join((message_id.encode(), str(timestamp).encode(), body))
    return f"v1,{base64.b64encode(hmac.digest(key, signed, hashlib.sha256)).decode()}"


def _sentence(event: Event, ticket: Ticket, link: str | None) -> str:
    who = _name(ticket.subject)
    who += f" as agent {_name(ticket.agent)}" if ticket.agent else ""
    end = f": {link}" if link else "."
    if event == "approval.waiting":
        return f"{who} asks to call {_name(ticket.tool)}, which waits until {ticket.expires_at}{end}"
    by = f" by {_name(ticket.decided_by)}" if ticket.decided_by else ""
    return f"The call of {_name(ticket.tool)} for {who} was {ticket.state}{by}{end}"


def _name(text: str) -> str:
    shown = "".join(each if each.isprintable() else " " for each in text[: _MAX_NAME + 1]).translate(_UNSAFE)
    return f"`{shown[:_MAX_NAME]}…`" if len(text) > _MAX_NAME else f"`{shown}`"


def _common(values: Sequence[str]) -> str | None:
    return values[0] if len(set(values)) == 1 else None
