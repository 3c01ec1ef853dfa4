"""The chain of all calls: one line for each that has ended, for each decision on one, and for each grant that was
revoked, with the hash of the line before it.

A line that is changed, removed or inserted breaks the chain at its place. Lines that are removed at its end leave a
chain that is valid: keep the newest hash elsewhere, or export often.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, cast

from toolplug_journal.entry import Entry

TABLES = """
CREATE TABLE IF NOT EXISTS chain (
    seq INTEGER PRIMARY KEY,    -- without gaps, from 1
    ended_at REAL NOT NULL,
    line TEXT NOT NULL,         -- JSON with the fields in order, without the hash
    hash TEXT NOT NULL
);
CREATE INDEX IF NOT EXISTS chain_by_age ON chain (ended_at);
"""
FIRST = "0" * 64
"""What the first line has for the hash of the line before it."""

_APPEND = "INSERT INTO chain (seq, ended_at, line, hash) VALUES (?, ?, ?, ?)"
_NEWEST = "SELECT seq, hash FROM chain ORDER BY seq DESC LIMIT 1"
_READ = "SELECT line, hash FROM chain WHERE seq > ? ORDER BY seq"

Line = Mapping[str, object]


class Broken(NamedTuple):
    """Where a chain is broken, and why; `place` is the number of the line that was read, from 1."""

    place: int
    why: str


def append(connection: sqlite3.Connection, entries: Sequence[Entry], now: float) -> None:
    """Append a line for each of these that has ended, within the transaction that writes them."""
    ended = [entry for entry in entries if entry.status is not None]
    if not ended:
        return
    seq, before = connection.execute(_NEWEST).fetchone() or (0, FIRST)
    for entry in ended:
        seq += 1
        fields = {
            "seq": seq,
            "ended_at": round(now, 6),
            "began_at": round(entry.began_at, 6),
            "tenant": entry.tenant,
            "subject": entry.subject,
            "tool": entry.tool,
            "call_id": entry.call_id,
            "status": entry.status,
            "duration_s": None if entry.duration_s is None else round(entry.duration_s, 6),
            "arguments": None if entry.arguments is None else json.loads(entry.arguments),
            "prev": before,
            **(entry.more or {}),
        }
        line = _text(fields)
        before = hashlib.sha256(line.encode()).hexdigest()
        connection.execute(_APPEND, (seq, now, line, before))


def drop_older(connection: sqlite3.Connection, before: float) -> None:
    """Drop the lines from the beginning that are older; the newest stays, so that the chain goes on from it."""
    last = "(SELECT max(seq) FROM chain)"
    connection.execute(f"DELETE FROM chain WHERE ended_at < ? AND seq < {last}", (before,))


def read(connection: sqlite3.Connection, after: int) -> Iterator[Line]:
    """Yield the lines after a number, the oldest first, each with its `hash`."""
    for line, digest in connection.execute(_READ, (after,)):
        yield {**cast("dict[str, object]", json.loads(line)), "hash": digest}


def verify(lines: Iterable[Line], *, known: str | None = None) -> tuple[int, str | None] | Broken:
    """Return how many lines there are and the newest hash, or where the chain is broken.

    Lines that were dropped at the beginning are no break. `known` is a hash that one of them, or the line before the
    first, must have.
    """
    count, before, seq = 0, None, None
    met = known is None
    for line in lines:
        count += 1
        fields = {name: value for name, value in line.items() if name != "hash"}
        digest = hashlib.sha256(_text(fields).encode()).hexdigest()
        if digest != line.get("hash"):
            return Broken(count, "its hash is not that of its fields: it was changed")
        if before is not None and fields.get("prev") != before:
            return Broken(count, "it does not follow the line before it: one was removed, inserted or moved")
        if seq is not None and fields.get("seq") != seq + 1:
            return Broken(count, f"its number does not follow {seq}")
        met = met or known in (digest, fields.get("prev"))
        before, seq = digest, cast("int", fields.get("seq"))
    return (count, before) if met else Broken(count, "no line has the hash that was to be found: lines are missing")


def otlp(lines: Sequence[Line]) -> dict[str, object]:
    """Return an `ExportLogsServiceRequest` of OTLP in JSON."""
    records = [_record(line) for line in lines]
    resource = {"attributes": [{"key": "service.name", "value": {"stringValue": "toolplug"}}]}
    scope_logs = [{"scope": {"name": "toolplug-journal"}, "logRecords": records}]
    return {"resourceLogs": [{"resource": resource, "scopeLogs": scope_logs}]}


def _record(line: Line) -> dict[str, object]:
    refused = line["status"] not in ("success", "tool_error", "approval_approved", "grant_revoked")
    names = {"tool": "gen_ai.tool.name", "call_id": "gen_ai.tool.call.id", "subject": "enduser.id"}
    attributes = [
        {"key": names.get(name, f"toolplug.{name}"), "value": {"stringValue": _attribute(value)}}
        for name, value in line.items()
        if value is not None
    ]
    return {
        "timeUnixNano": str(int(cast("float", line["ended_at"]) * 1e9)),
        "severityNumber": 13 if refused else 9,
        "severityText": "WARN" if refused else "INFO",
        "body": {"stringValue": f"{line['tool']} of {line['subject']}: {line['status']}"},
        "attributes": attributes,
    }


def _attribute(value: object) -> str:
    return value if isinstance(value, str) else _text(value)


def _text(value: object) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
