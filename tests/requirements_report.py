"""`python -m tests.requirements_report [--missing]`: every row with the tests that show it, and the counts."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from itertools import groupby

from tests.requirement_table import Coverage, Requirement, collect_links, lay_together, read_rows


def section(row: Requirement) -> str:
    """The document and the place in it, without the row's own number."""
    return row.source.split(", scenario")[0].removesuffix(f" {row.id}")


def grouped(rows: Sequence[Requirement]) -> str:
    """The rows under their sections, one line each."""
    lines: list[str] = []
    for place, members in groupby(rows, key=section):
        lines.append(place)
        lines.extend(f"  {row.id}: {row.text}" for row in members)
    return "\n".join(lines)


def full(coverage: Coverage) -> str:
    """Every row: `+` shown, `-` missing; under it the tests that name it."""
    lines: list[str] = []
    for place, members in groupby(coverage.rows, key=section):
        lines.append(place)
        for row in members:
            sign = "+" if coverage.is_shown(row) else "-"
            lines.append(f"{sign} {row.id} [{row.work}]: {row.text}")
            lines.extend(f"      {test}" for test in coverage.tests.get(row.id, ()))
            if row.shown_by:
                lines.append(f"      {row.shown_by}")
    return "\n".join(lines)


def counts(coverage: Coverage) -> str:
    rows, missing = len(coverage.rows), len(coverage.missing)
    return f"{rows} requirements: {rows - missing} shown, {missing} missing"


def main(arguments: Sequence[str]) -> int:
    """Exit code 1 where a row is missing or a test names an unknown one."""
    coverage = lay_together(read_rows(), collect_links())
    print(grouped(coverage.missing) if "--missing" in arguments else full(coverage))
    for row, tests in coverage.unknown.items():
        print(f"? {row}: no such row, named by {', '.join(tests)}")
    print(counts(coverage))
    return 1 if coverage.missing or coverage.unknown else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
