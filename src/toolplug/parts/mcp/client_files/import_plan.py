"""The plan of an import: the entries to add to a configuration, and its output."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from toolplug.catalog.text import pluralize
from toolplug.cli.output import echo
from toolplug.config.document import parse_document, read_document
from toolplug.config.yaml_tree import Value
from toolplug.errors import Problem
from toolplug.parts.mcp.client_files.imported_entries import Variables, legal_ids, remarks, server_entry
from toolplug.parts.mcp.client_files.reading import read_client_file
from toolplug.parts.mcp.client_files.yaml_insertion import section_text, with_servers
from toolplug.parts.mcp.settings import SECTION

MAX_PREFIX = 32


@dataclass(frozen=True, slots=True)
class ImportPlan:
    """The entries to add to the configuration `config`, by id.

    `comments`: a line to write below an entry, by id. `kept`: ids already in the configuration, which is not changed.
    `notes`: for the user, by id. `own`: what is built into the program of the file. `variables`: the environment
    variables to set, with their uses. `problems`: of the invalid servers.
    """

    config: Path
    entries: Mapping[str, Mapping[str, Value]]
    comments: Mapping[str, str]
    kept: Sequence[str]
    notes: Mapping[str, Sequence[str]]
    own: Sequence[str]
    variables: Mapping[str, str]
    problems: Sequence[Problem]

    @property
    def text(self) -> str:
        """The entries as YAML; empty without entries."""
        return section_text(self.entries, self.comments) if self.entries else ""

    def write(self) -> None:
        """Add the entries to the configuration. Raises `ConfigError` and `OSError`, and then changes nothing."""
        if not self.entries:
            return
        file = self.config.resolve()
        data = file.read_bytes()
        changed = with_servers(data, parse_document(data, file=str(self.config)), self.entries, self.comments)
        new = file.with_name(f".{file.name}.new")
        try:
            new.write_bytes(changed)
            new.chmod(file.stat().st_mode & 0o777)
            new.replace(file)
        finally:
            new.unlink(missing_ok=True)


def plan_import(file: Path, config: Path) -> ImportPlan:
    """Read the file to import and the configuration. Raises `OSError`, and `ConfigError` if either is invalid."""
    reading = read_client_file(file)
    document = read_document(config).value
    section = document.get(SECTION)
    present = set(section) if isinstance(section, dict) else set[str]()
    variables = Variables()
    entries: dict[str, Mapping[str, Value]] = {}
    comments: dict[str, str] = {}
    notes: dict[str, Sequence[str]] = {}
    taken = _prefixes(document)
    ids = legal_ids(reading.servers)
    for name, server in reading.servers.items():
        key = ids[name]
        if key not in present:
            reason = _no_prefix(key, taken, has_auth="auth" in document)
            entry = server_entry(server, key, variables)
            entries[key] = {**entry, "prefix": key} if reason is None else entry
            if reason is not None:
                comments[key] = f"prefix: {key[:MAX_PREFIX]}  # {reason}"
            taken.add(key)
            notes[key] = [*([f"called {name!r} in the file"] if name != key else ()), *remarks(server)]
    kept = [key for key in ids.values() if key in present]
    return ImportPlan(config, entries, comments, kept, notes, reading.own, variables.uses, reading.problems)


def _prefixes(document: Mapping[str, Value]) -> set[str]:
    """Return the prefixes that the configuration uses."""
    sections = [section for name in (SECTION, "toolsets") if isinstance(section := document.get(name), dict)]
    entries = [entry for section in sections for entry in section.values() if isinstance(entry, dict)]
    return {prefix for entry in entries if isinstance(prefix := entry.get("prefix"), str)}


def _no_prefix(key: str, taken: set[str], *, has_auth: bool) -> str | None:
    """Return why the server gets no prefix, which would list its tools for callers without agent; None if it does."""
    if has_auth:
        return "would give its tools to every key that names no agents"
    if key in taken:
        return "is used already"
    return None if len(key) <= MAX_PREFIX else f"is the id cut to {MAX_PREFIX} characters"


def print_import(plan: ImportPlan, *, written: bool) -> None:
    """Print the plan: what was done on stdout, or else the lines to add on stdout and the rest on stderr."""
    if not written and plan.entries:
        echo(plan.text)
    for line in _lines(plan, "added" if written else "to add"):
        echo(line, err=not written)
    if plan.entries and written:
        echo("toolplug discover lists their tools")


def import_fields(plan: ImportPlan, *, written: bool) -> dict[str, object]:
    """Convert the plan to JSON values."""
    return {
        "file": str(plan.config),
        "written": written,
        "servers": plan.entries,
        "comments": plan.comments,
        "kept": plan.kept,
        "notes": {name: notes for name, notes in plan.notes.items() if notes},
        "builtIn": [*plan.own],
        "variables": plan.variables,
        "yaml": plan.text,
    }


def _lines(plan: ImportPlan, done: str) -> Iterator[str]:
    names = f": {', '.join(plan.entries)}" if plan.entries else ""
    yield f"{plan.config}: {pluralize(len(plan.entries), 'server')} {done}{names}"
    yield from (f"{name}: exists already and is unchanged" for name in plan.kept)
    yield from (f"{name}: no prefix, which {line.partition('  # ')[2]}" for name, line in plan.comments.items())
    yield from (f"{name}: {note}" for name, notes in plan.notes.items() for note in notes)
    if plan.own:
        yield f"left out, as the file's own program alone has them: {', '.join(plan.own)}"
    for name, use in plan.variables.items():
        yield f"set the environment variable {name}: its value is the {use}"
