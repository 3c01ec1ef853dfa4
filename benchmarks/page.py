"""The table of docs/reference/benchmarks.md: names and limits as the rows have them, figures of the last run.

`python -m benchmarks --page [FAMILY…]` measures and writes; the rows of other families keep their figures.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from benchmarks.frame import Figure, Row
from benchmarks.table import ratio, title

PAGE = Path(__file__).parent.parent / "docs" / "reference" / "benchmarks.md"
_TABLE = re.compile(
    r"^\| row \| hold \| aim \| seen \|\n\| --- \| --- \| --- \| --- \|\n(?P<rows>(?:\|.*\n)+)", re.MULTILINE
)


def write_page(rows: Iterable[Row], figures: Sequence[Figure], page: Path = PAGE) -> None:
    """Write the table of all rows, in their order. A row that was not measured keeps the figure that the page has."""
    text = page.read_text("utf-8")
    seen = {cells[0]: cells[3] for cells in table_of(text)}
    seen |= {title(figure.row): _figure(figure.row, figure.median) for figure in figures}
    start, end = _rows_of(text).span("rows")
    page.write_text(text[:start] + "".join(_lines(rows, seen)) + text[end:], "utf-8")


def table_of(text: str) -> list[tuple[str, ...]]:
    """Return the four cells of each row of the page."""
    return [tuple(cell.strip() for cell in line.split("|")[1:-1]) for line in _rows_of(text)["rows"].splitlines()]


def limits(row: Row) -> tuple[str, str, str]:
    """Return the first three cells of a row: its name, and what it must hold and aims at."""
    return title(row), _limit(row, row.hold), _limit(row, row.aim)


def _rows_of(text: str) -> re.Match[str]:
    found = _TABLE.search(text)
    if found is None:
        raise ValueError("the page has no table of rows")
    return found


def _lines(rows: Iterable[Row], seen: Mapping[str, str]) -> Iterable[str]:
    for row in rows:
        yield f"| {' | '.join((*limits(row), seen.get(title(row), '')))} |\n"


def _figure(row: Row, value: float) -> str:
    return ratio(value) if row.against else f"{value:,.3g} {row.unit.name}"


def _limit(row: Row, value: float | None) -> str:
    if value is None:
        return ""
    return re.sub(r"\.0+$", "", ratio(value)) if row.against else f"{value:,g} {row.unit.name}"
