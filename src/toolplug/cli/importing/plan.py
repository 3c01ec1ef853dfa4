"""What importing a file would do to a configuration, before anything is written."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import typer

from toolplug.catalog.text import counted
from toolplug.cli.importing.client_config import Variables, legal_ids, read_claude_file, remarks, server_entry
from toolplug.cli.importing.yaml_insertion import section_text, with_servers
from toolplug.config.document import parse_document, read_document
from toolplug.config.yaml_tree import Value
from toolplug.errors import Problem
from toolplug.host.file.server_entries import SECTION


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportPlan:
    """The entries to add, the ids that stand there already and stay as they are, and what there is to say.

    `notes` are by id; `variables` say what each environment variable is for whose value stood in the file; `problems`
    are the servers that cannot be had.
    """

    config: Path
    entries: Mapping[str, Mapping[str, Value]]
    kept: tuple[str, ...]
    notes: Mapping[str, tuple[str, ...]]
    variables: Mapping[str, str]
    problems: tuple[Problem, ...]

    @property
    def text(self) -> str:
        """The entries as YAML."""
        return section_text(self.entries) if self.entries else ""

    def write(self) -> None:
        """Add the entries to the configuration. Raises `ConfigError` and `OSError`; then it is as it was."""
        if not self.entries:
            return
        file = self.config.resolve()
        data = file.read_bytes()
        changed = with_servers(data, parse_document(data, file=str(self.config)), self.entries)
        beside = file.with_name(f".{file.name}.new")
        try:
            beside.write_bytes(changed)
            beside.chmod(file.stat().st_mode & 0o777)
            beside.replace(file)
        finally:
            beside.unlink(missing_ok=True)


def plan_import(file: Path, config: Path) -> ImportPlan:
    """Read both files. Raises `ConfigError` where either cannot be read, and `OSError`."""
    reading = read_claude_file(file)
    section = read_document(config).value.get(SECTION)
    there = set(section) if isinstance(section, dict) else set[str]()
    variables = Variables()
    entries: dict[str, Mapping[str, Value]] = {}
    notes: dict[str, tuple[str, ...]] = {}
    ids = legal_ids(reading.servers)
    for name, server in reading.servers.items():
        made = ids[name]
        if made not in there:
            entries[made] = server_entry(server, made, variables)
            notes[made] = tuple(_notes(name, made, remarks(server)))
    return ImportPlan(
        config=config,
        entries=entries,
        kept=tuple(made for made in ids.values() if made in there),
        notes=notes,
        variables=variables.uses,
        problems=reading.problems,
    )


def _notes(name: str, made: str, said: Iterator[str]) -> Iterator[str]:
    if name != made:
        yield f"called {name!r} in the file"
    yield from said


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
