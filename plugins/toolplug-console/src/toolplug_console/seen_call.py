"""One answered call as visitors of the console may see it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from hashlib import blake2s
from operator import attrgetter
from typing import cast

from toolplug import Principal, ToolStatus
from toolplug_console.notes import Arguments, Note, Origin

ADMIN = "admin"
OPERATOR = "operator"
"""The scope of visitors who see the calls of all tenants."""
MAX_BYTES = 4096
MAX_NAME = 256

HOSTS_OWN = frozenset(ToolStatus) - {ToolStatus.SUCCESS, ToolStatus.TOOL_ERROR}
"""Statuses whose text is the host's own; that of the others is a result, or an error of the tool."""
NOT_REACHED = frozenset({ToolStatus.DENIED, ToolStatus.INVALID_ARGUMENTS, ToolStatus.LIMITED, ToolStatus.UNKNOWN_TOOL})
"""Statuses of calls that the host answered itself: how long that took says nothing of a tool."""
_REASON = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenCall:
    """One call. `place` is where its tool crashed, for `admin` alone; `arguments` and `output` are None if not kept.

    `conversation` names that of the Responses API in which it was made, and `approval` the ticket that it waits for or
    was made with; `would` is the watched rule that would have denied it. They are empty for none. `asked`
    is true of a call that was not run but asked about, and not of one that a person has denied.
    """

    id: int
    ts: float
    tool: str
    kind: str
    source: str
    tenant: str
    subject: str
    agent: str | None
    session: str | None
    call_id: str
    request_id: str
    trace_id: str
    conversation: str
    approval: str
    status: str
    reason: str
    duration_s: float
    sensitive: bool
    would: str = ""
    asked: bool = False
    place: str = ""
    arguments: str | None = field(default=None, repr=False)
    output: str | None = field(default=None, repr=False)

    def as_listed(self) -> dict[str, object]:
        """Return the call as it is listed for everyone who may see it, without what is empty."""
        return {name: value for name, value in zip(SHARED, _shared_of(self), strict=True) if value not in _EMPTY}

    def as_shared(self) -> dict[str, object]:
        """Return the call as other processes are told of it: without its arguments, its output and its line."""
        # A process of a release without them reads what it knows.
        listed = zip(SHARED, _shared_of(self), strict=True)
        return {name: value for name, value in listed if value or name not in ("would", "asked")}

    def detail(self, visitor: Principal) -> dict[str, object]:
        """Return what this visitor may see of it: arguments and output of its own calls, and everything for `admin`.

        The visitor has the tenant of the call, or is an operator.
        """
        manages = visitor.has_scope(ADMIN)
        own = manages or (visitor.tenant, visitor.subject) == (self.tenant, self.subject)
        texts = {"arguments": self.arguments, "output": self.output} if own and self.arguments is not None else {}
        return {**self.as_listed(), "own": own, "place": self.place if manages else "", **texts}


_EMPTY = ("", None, False)
SHARED = tuple(name for name in SeenCall.__dataclass_fields__ if name not in ("place", "arguments", "output"))
"""The fields that are listed for everyone who may see the call, and that other processes are told."""
_shared_of: Callable[[SeenCall], tuple[object, ...]] = attrgetter(*SHARED)


def seen_call(note: Note, number: int, place_of: Callable[[str, str], str], *, sensitive: bool) -> SeenCall:
    """Return the call of a note, with its arguments and its output if they are kept and it is not sensitive.

    `place_of` returns where the call with these ids, its own and that of its request, has crashed; empty for nowhere.
    """
    tool, origin, texts = note.tool, Origin._make(note.origin), None if sensitive else note.texts
    return SeenCall(
        id=number,
        ts=round(note.ended_at, 3),
        tool=note.title[:MAX_NAME],
        kind="" if tool is None else tool.ref.kind,
        source="" if tool is None else tool.ref.source,
        tenant=note.principal.tenant,
        subject=note.principal.subject,
        agent=origin.agent,
        session=origin.session,
        call_id=note.call_id[:MAX_NAME],
        request_id=origin.request_id,
        trace_id=_trace_id(origin.trace_context),
        conversation=_name_of(origin.conversation),
        approval=(origin.approval or note.ticket)[:MAX_NAME],
        status=note.status.value,
        reason=note.reason[:_REASON],
        duration_s=round(note.duration_s, 7),
        sensitive=sensitive,
        would=note.would,
        asked=bool(note.ticket),
        place=place_of(note.call_id, origin.request_id),
        arguments=None if texts is None else _argument_text(texts[0]),
        output=None if texts is None else _cut(texts[1]),
    )


def asked_ticket(metadata: Mapping[str, object]) -> str:
    """Return the ticket that an answer asks a person about; empty for none."""
    asked = metadata.get("approval")
    named = cast("Mapping[str, object]", asked).get("id") if isinstance(asked, Mapping) else None
    return named if isinstance(named, str) else ""


def _name_of(conversation: str) -> str:
    """Return a short name of a conversation. Its key finds open toolsets, and is for nobody to read."""
    return blake2s(conversation.encode(), digest_size=6).hexdigest() if conversation else ""


def _trace_id(headers: Mapping[str, str]) -> str:
    parts = headers.get("traceparent", "").split("-")
    return parts[1] if len(parts) > 2 else ""


def _argument_text(arguments: Arguments) -> str:
    """Return arguments as JSON text; no more of a large object is written than is kept."""
    if isinstance(arguments, bytes):
        return _cut(arguments[: MAX_BYTES + 4].decode("utf-8", "replace"))
    if isinstance(arguments, str):
        return _cut(arguments)
    parts: list[str] = []
    size = 0
    for part in json.JSONEncoder(ensure_ascii=False, default=repr).iterencode(dict(arguments)):
        parts.append(part)
        size += len(part)
        if size > MAX_BYTES:
            break
    return _cut("".join(parts))


def _cut(text: str) -> str:
    """Return at most 4 KiB of a text, cut at a character, made Unicode."""
    head = text[: MAX_BYTES + 1].encode("utf-8", "replace")
    return head.decode() if len(head) <= MAX_BYTES else f"{head[: MAX_BYTES - 4].decode('utf-8', 'ignore')}…"
