"""What importing a file would do to a configuration, before anything is written."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from toolplug.cli.importing.claude_file import read_claude_file
from toolplug.cli.importing.insertion import section_text, with_servers
from toolplug.cli.importing.legal_ids import legal_ids
from toolplug.cli.importing.server_entry import remarks, server_entry
from toolplug.cli.importing.variables import Variables
from toolplug.config.document import parse_document, read_document
from toolplug.config.node import Value
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
