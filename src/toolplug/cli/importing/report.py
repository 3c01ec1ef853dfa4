"""What an import did, or would do."""

from __future__ import annotations

from collections.abc import Iterator

import typer

from toolplug.catalog.counted import counted
from toolplug.cli.importing.plan import ImportPlan


def print_import(plan: ImportPlan, *, written: bool) -> None:
    """Show it to people: on stdout what was done, or the lines that would be added, with the rest on stderr."""
    if not written and plan.entries:
        typer.echo(plan.text)
    for line in _lines(plan, "added" if written else "to add"):
        typer.echo(line, err=not written)
    if plan.entries and written:
        typer.echo("toolplug discover lists their tools")


def import_fields(plan: ImportPlan, *, written: bool) -> dict[str, object]:
    """The same as JSON values."""
    return {
        "file": str(plan.config),
        "written": written,
        "servers": plan.entries,
        "kept": list(plan.kept),
        "notes": {name: list(notes) for name, notes in plan.notes.items() if notes},
        "variables": plan.variables,
        "yaml": plan.text,
    }


def _lines(plan: ImportPlan, done: str) -> Iterator[str]:
    names = f": {', '.join(plan.entries)}" if plan.entries else ""
    yield f"{plan.config}: {counted(len(plan.entries), 'server')} {done}{names}"
    yield from (f"{name}: stands there already, and stays as it is" for name in plan.kept)
    yield from (f"{name}: {note}" for name, notes in plan.notes.items() for note in notes)
    for name, use in plan.variables.items():
        yield f"set the environment variable {name}: it stands for the {use}"
