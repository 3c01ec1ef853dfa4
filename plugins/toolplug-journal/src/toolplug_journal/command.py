"""The command `toolplug journal`, which reads the journal's file; the host may run or not."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing, nullcontext
from datetime import UTC, datetime
from enum import StrEnum
from itertools import islice
from math import inf
from pathlib import Path
from time import time
from typing import Annotated

import typer

from toolplug import StoreError, TenantOption, state_folder
from toolplug_journal import chain
from toolplug_journal.database import FILE, Database, Retention
from toolplug_journal.entry import StoredEntry, said_by, show_call


class Action(StrEnum):
    """What the command does."""

    LIST = "list"
    EXPORT = "export"
    VERIFY = "verify"


class Form(StrEnum):
    """How lines of the chain are written."""

    JSONL = "jsonl"
    OTLP = "otlp"


AT_ONCE = 500
"""Records of one OTLP request, which is one line: a collector takes some megabytes."""
COLUMNS = ("WHEN", "TOOL", "STATUS", "SECONDS", "SUBJECT", "CALL", "BY")


def add_command(app: typer.Typer) -> None:
    """Add the command."""
    app.command("journal")(_journal)


def _journal(
    action: Annotated[
        Action, typer.Argument(help="list the calls, export the chain of all calls, or verify it.", show_default=False)
    ] = Action.LIST,
    tool: Annotated[str | None, typer.Option("--tool", metavar="TOOL", help="Only calls of this tool.")] = None,
    limit: Annotated[int, typer.Option("--limit", metavar="N", min=1, max=10_000, help="How many calls at most.")] = 20,
    tenant: TenantOption = "default",
    key: Annotated[str, typer.Option("--key", metavar="KEY", help="The journal's key in the file.")] = "journal",
    config: Annotated[Path | None, typer.Option("--config", "-c", metavar="FILE", help="The configuration.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, problems included.")] = False,
    form: Annotated[Form, typer.Option("--format", help="Of an export: JSON lines, or OTLP logs.")] = Form.JSONL,
    after: Annotated[int, typer.Option("--after", metavar="N", min=0, help="Export the lines after this number.")] = 0,
    source: Annotated[
        Path | None, typer.Option("--file", metavar="FILE", help="Verify an export in JSON lines.", exists=True)
    ] = None,
    known: Annotated[
        str | None, typer.Option("--hash", metavar="HASH", help="Verify that a line of this hash is there.")
    ] = None,
) -> None:
    """List the newest tool calls that have ended, the newest first; export or verify the chain of all calls.

    What people have decided is listed too: BY is who has decided, or the grant that has allowed a call.

    Reads the journal's file, next to a running host or without one. Nothing is started. The chain has the calls of
    every tenant.

    Example: toolplug journal --tool hello --limit 5
    """
    file = state_folder(key, config) / FILE
    if action is not Action.LIST:
        _use_chain(action, file, form, after, source, known)
        return
    try:
        database = Database(file, Retention(inf, 0))
        calls = database.newest(tenant, tool, limit, time()) if file.exists() else []
    except sqlite3.Error as error:
        raise StoreError(f"{file} cannot be read: {error}") from error
    if as_json:
        typer.echo(json.dumps({"calls": [show_call(call) for call in calls]}, indent=2, ensure_ascii=False))
    elif calls:
        _print_table([COLUMNS, *map(_row, calls)])
    else:
        typer.echo("no calls")


def _use_chain(action: Action, file: Path, form: Form, after: int, source: Path | None, known: str | None) -> None:
    """Export or verify the chain. Raises `StoreError` and `typer.Exit`."""
    try:
        if action is Action.VERIFY and source is not None:
            with source.open(encoding="utf-8") as lines:
                _print_verdict(chain.verify(map(json.loads, lines), known=known))
            return
        with closing(Database(file, Retention(inf, 0)).connect()) if file.exists() else nullcontext() as connection:
            lines = iter(()) if connection is None else chain.read(connection, after)
            if action is Action.VERIFY:
                _print_verdict(chain.verify(lines, known=known))
            elif form is Form.JSONL:
                for line in lines:
                    typer.echo(json.dumps(line))
            else:
                while batch := list(islice(lines, AT_ONCE)):
                    typer.echo(json.dumps(chain.otlp(batch)))
    except sqlite3.Error as error:
        raise StoreError(f"{file} cannot be read: {error}") from error
    except json.JSONDecodeError as error:
        raise StoreError(f"{source} is not an export in JSON lines: {error}") from error


def _print_verdict(found: tuple[int, str | None] | chain.Broken) -> None:
    if isinstance(found, chain.Broken):
        typer.echo(f"the chain is broken at line {found.place}: {found.why}", err=True)
        raise typer.Exit(1)
    count, newest = found
    typer.echo(f"{count} lines, unbroken" + ("" if newest is None else f"; the newest hash is {newest}"))


def _row(call: StoredEntry) -> tuple[str, ...]:
    when = datetime.fromtimestamp(call.ts, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    seconds = "-" if call.duration_s is None else f"{call.duration_s:.3f}"
    texts = [_printable(text) for text in (call.tool, call.subject, call.call_id or "-")]
    said = said_by(call)
    by = next((said[name] for name in ("decided_by", "revoked_by", "granted_by") if name in said), "")
    return when, texts[0], call.status or "-", seconds, *texts[1:], _printable(by)


def _printable(text: str) -> str:
    """Return a text that a caller chose, without characters that control a terminal."""
    return "".join(each if each.isprintable() else "\ufffd" for each in text)


def _print_table(rows: list[tuple[str, ...]]) -> None:
    widths = [max(map(len, cells)) for cells in zip(*rows, strict=True)]
    for row in rows:
        typer.echo("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
