"""One call as the journal keeps it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import NamedTuple

from pydantic_core import to_json

MAX_TEXT = 256
MAX_ARGUMENT_BYTES = 16 * 1024
DECISIONS = ("approval_approved", "approval_denied", "grant_revoked")
"""The statuses of what is no call."""


class Entry(NamedTuple):
    """A call that begins, or has ended: then it has a `status`. `uid` is the same for both.

    `arguments` is JSON text, None where they are not kept. `duration_s` is None where its tool was not reached. `more`
    says who allowed it. A decision of a person is an entry too, with one of `DECISIONS` as its status.
    """

    uid: str
    began_at: float
    tenant: str
    subject: str
    tool: str
    call_id: str
    arguments: str | None = None
    status: str | None = None
    duration_s: float | None = None
    more: Mapping[str, str] | None = None


class StoredEntry(NamedTuple):
    """One entry as it is read. `id` is its place: microseconds since the epoch, strictly rising."""

    id: int
    ts: float
    subject: str
    tool: str
    call_id: str
    arguments: str | None
    status: str | None
    duration_s: float | None
    more: str | None


def short(text: str) -> str:
    """A text that a caller chose, as long as the journal keeps it, and made Unicode."""
    return text[:MAX_TEXT].encode("utf-8", "replace").decode()


def argument_text(arguments: object) -> str:
    """Arguments as JSON text; of large ones only their size."""
    text = to_json(arguments, serialize_unknown=True, bytes_mode="base64")
    return text.decode() if len(text) <= MAX_ARGUMENT_BYTES else f'{{"$omitted_bytes":{len(text)}}}'


def show_call(kept: StoredEntry) -> dict[str, object]:
    """An entry as callers see it; `status` is null while the call runs.

    `arguments` is there where they are kept, and so is who allowed it: `approval`, `decided_by`, `reason`, `grant`,
    `revoked_by`, `granted_by`.
    """
    fields: dict[str, object] = {
        "id": kept.id,
        "ts": round(kept.ts, 3),
        "subject": kept.subject,
        "tool": kept.tool,
        "call_id": kept.call_id,
        "status": kept.status,
        "duration_s": None if kept.duration_s is None else round(kept.duration_s, 6),
    }
    if kept.arguments is not None:
        fields["arguments"] = json.loads(kept.arguments)
    return {**fields, **said_by(kept)}


def said_by(kept: StoredEntry) -> dict[str, str]:
    """Who allowed a call, or has decided; nothing for a call that needed nobody."""
    return {} if kept.more is None else json.loads(kept.more)
