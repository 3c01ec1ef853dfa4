"""The table of requirements and the tests that name its rows, read from both sides."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import tomllib
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent

COLLECTING_S = 240.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Requirement:
    """One row. `shown_by` is `<file>: <text in it>` where a benchmark or command shows it and no test can."""

    id: str
    source: str
    text: str
    work: str
    shown_by: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Coverage:
    """Both sides laid together; `tests` maps the id of a row to the node ids that name it."""

    rows: tuple[Requirement, ...]
    tests: Mapping[str, tuple[str, ...]]

    @property
    def unknown(self) -> dict[str, tuple[str, ...]]:
        """Ids that tests name and no row has."""
        known = {row.id for row in self.rows}
        return {row: tests for row, tests in self.tests.items() if row not in known}

    @property
    def doubled(self) -> list[str]:
        return sorted(row for row, times in Counter(row.id for row in self.rows).items() if times > 1)

    @property
    def missing(self) -> list[Requirement]:
        """Rows that nothing shows."""
        return [row for row in self.rows if not self.is_shown(row)]

    def is_shown(self, row: Requirement) -> bool:
        return row.id in self.tests or _stands_in_its_file(row.shown_by)


def read_rows(path: Path = ROOT / "tests" / "requirements.toml") -> tuple[Requirement, ...]:
    """All rows in the order of the file; a row with an unknown or missing field raises TypeError."""
    return tuple(Requirement(**row) for row in tomllib.loads(path.read_text("utf-8"))["requirement"])


def collect_links(root: Path = ROOT) -> dict[str, list[str]]:
    """Node id → ids of requirements, for every test of the project and of its plugins.

    Collected in a process of its own, so that it does not depend on what the present run selected; nobody counts which
    lines that covers.
    """
    environ = {name: value for name, value in os.environ.items() if not name.startswith("COVERAGE_")}
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "links.json")
        command = [sys.executable, "-m", "pytest", "--collect-only", "-qq", "-p", "no:cacheprovider"]
        done = subprocess.run(
            [*command, "-p", "tests.requirement_links", "--links-to", str(file)],
            cwd=root,
            capture_output=True,
            text=True,
            timeout=COLLECTING_S,
            env=environ,
            check=False,
        )
        if done.returncode != 0:
            raise RuntimeError(f"the tests cannot be collected:\n{done.stdout}{done.stderr}")
        return json.loads(file.read_text())


def lay_together(rows: Iterable[Requirement], links: Mapping[str, Iterable[str]]) -> Coverage:
    """Turns the links round: from the tests' view to the rows'."""
    tests: dict[str, tuple[str, ...]] = {}
    for test, named in links.items():
        for row in named:
            tests[row] = (*tests.get(row, ()), test)
    return Coverage(rows=tuple(rows), tests=tests)


def _stands_in_its_file(shown_by: str) -> bool:
    name, _, text = shown_by.partition(": ")
    file = ROOT / name
    return bool(text) and file.is_file() and text in file.read_text("utf-8")
