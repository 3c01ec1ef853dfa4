"""The command `toolplug journal`, which reads the journal's file; the host may run or not."""

from __future__ import annotations

import json
import sqlite3
from datetime import UTC, datetime
from math import inf
from pathlib import Path
from time import time
from typing import Annotated

import typer

from toolplug import StoreError, TenantOption, state_folder
from toolplug_journal.database import FILE, Database, Retention
from toolplug_journal.entry import StoredEntry, shown

COLUMNS = ("WHEN", "TOOL", "STATUS", "SECONDS", "SUBJECT", "CALL")


def add_command(app: typer.Typer) -> None:
    """Add the command."""
    app.command("journal")(_journal)


def _journal(
    tool: Annotated[str | None, typer.Option("--tool", metavar="TOOL", help="Only calls of this tool.")] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, max=10_000, help="How many calls at most.")] = 20,
    tenant: TenantOption = "default",
    key: Annotated[str, typer.Option("--key", metavar="KEY", help="The journal's key in the file.")] = "journal",
    config: Annotated[Path | None, typer.Option("--config", "-c", metavar="FILE", help="The configuration.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, problems included.")] = False,
) -> None:
    """List the newest tool calls that have ended, the newest first.

    Reads the journal's file, next to a running host or without one. Nothing is started.

    Example: toolplug journal --tool hello --limit 5
    """
    file = state_folder(key, config) / FILE
    try:
        database = Database(file, Retention(inf, 0))
        calls = database.newest(tenant, tool, limit, time()) if file.exists() else []
    except sqlite3.Error as error:
        raise StoreError(f"{file} cannot be read: {error}") from error
    if as_json:
        typer.echo(json.dumps({"calls": [shown(call) for call in calls]}, indent=2, ensure_ascii=False))
    elif calls:
        _print_table([COLUMNS, *map(_row, calls)])
    else:
        typer.echo("no calls")


def _row(call: StoredEntry) -> tuple[str, ...]:
    when = datetime.fromtimestamp(call.ts, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    seconds = "-" if call.duration_s is None else f"{call.duration_s:.3f}"
    return when, _printable(call.tool), call.status or "-", seconds, _printable(call.subject), _printable(call.call_id)


def _printable(text: str) -> str:
    """Return a text that a caller chose, without characters that control a terminal."""
    return "".join(each if each.isprintable() else "\ufffd" for each in text)


def _print_table(rows: list[tuple[str, ...]]) -> None:
    widths = [max(map(len, cells)) for cells in zip(*rows, strict=True)]
    for row in rows:
        typer.echo("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
