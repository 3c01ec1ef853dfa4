"""The table of requirements and the tests that name its rows, read from both sides."""

from __future__ import annotations

import ast
import re
import tomllib
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent


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
    """Both sides laid together; `tests` maps the id of a row to the marks that name it."""

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


_MARK = re.compile(r"\bmark\.requirement\(([^()]*)\)")


def collect_links(root: Path = ROOT) -> dict[str, list[str]]:
    """`file:line` of each mark → its ids of requirements, in every test of the project and of its plugins.

    Read from the text: to collect the tests would import every library that one of them uses, for forty seconds, and to
    parse all files whole takes five.
    """
    links: dict[str, list[str]] = {}
    for file in sorted([*root.glob("tests/**/*.py"), *root.glob("plugins/*/tests/**/*.py")]):
        text = file.read_text("utf-8")
        for found in _MARK.finditer(text):
            place = f"{file.relative_to(root)}:{text.count(chr(10), 0, found.start()) + 1}"
            call = ast.parse(f"mark({found[1]})", mode="eval").body
            assert isinstance(call, ast.Call)
            links[place] = [row for given in call.args for row in _ids_in(given, text, place)]
    return links


def _ids_in(given: ast.expr, text: str, place: str) -> Iterable[str]:
    if isinstance(given, ast.Constant):
        return [given.value]
    if isinstance(given, ast.Starred) and isinstance(given.value, ast.Name):
        ids = _constants(text).get(given.value.id)
        if ids is not None:
            return ids
    raise ValueError(f"{place}: write the ids of the requirement, or a tuple of the module: {ast.unparse(given)}")


def _constants(text: str) -> dict[str, tuple[str, ...]]:
    """Return the tuples of words that a module gives a name, by name."""
    return {
        target.id: ast.literal_eval(node.value)
        for node in ast.parse(text).body
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Tuple)
        for target in node.targets
        if isinstance(target, ast.Name) and all(isinstance(each, ast.Constant) for each in node.value.elts)
    }


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
