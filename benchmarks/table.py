"""The table that a run prints."""

from __future__ import annotations

import platform
import sys
from collections.abc import Iterable, Iterator
from os import cpu_count

from benchmarks.frame import Figure, Row

_NAME = 72
_CELLS = (14, 14, 9, 18, 8, 8, 9)


def heading() -> Iterator[str]:
    """What the figures stand on, and the names of the columns."""
    yield (
        f"Python {platform.python_version()}, {platform.system()} {platform.machine()}, {cpu_count()} cores; median of "
        "interleaved pairs, quartiles in brackets; CPU time (deadlines, start-up, waits: wall clock); "
        "garbage collector on"
    )
    yield ""
    yield _joined("row", "ours", "other", "ratio", "quartiles", "hold", "aim", "verdict")
    yield "-" * (_NAME + sum(_CELLS))


def line(figure: Figure) -> str:
    """One row. A row that is compared with nothing has its limits in its own unit, and no ratio."""
    row, unit = figure.row, figure.row.unit
    if figure.other is None:
        ours, other, shown = f"{figure.median:.3f} {unit.name}", "", ""
    else:
        ours, other = (f"{cost * unit.scale:.3f} {unit.name}" for cost in (figure.ours, figure.other))
        shown = ratio(figure.median)
    return _joined(
        title(row),
        ours,
        other,
        shown,
        f"[{_shown(figure, figure.low)} {_shown(figure, figure.high)}]",
        _shown(figure, row.hold),
        _shown(figure, row.aim),
        verdict(figure),
    )


def verdict(figure: Figure) -> str:
    """`aim`, `held` or `MISSED`; `shown` for a row without limits."""
    row = figure.row
    if row.hold is None or row.aim is None:
        return "shown"
    if figure.median <= row.aim:
        return "aim"
    return "held" if figure.median <= row.hold else "MISSED"


def summary(figures: Iterable[Figure]) -> str:
    """How many rows reached what, and the interpreter they ran in."""
    verdicts = [verdict(figure) for figure in figures]
    counts = ", ".join(f"{verdicts.count(word)} {word}" for word in ("aim", "held", "MISSED", "shown"))
    return f"{len(verdicts)} rows: {counts} ({sys.executable})"


def _shown(figure: Figure, value: float | None) -> str:
    if value is None:
        return ""
    return ratio(value) if figure.row.other else f"{value:.3g}"


def title(row: Row) -> str:
    """The name of a row, with what it is compared with."""
    return f"{row.name} / {row.against}" if row.against else row.name


def ratio(value: float) -> str:
    """Small ratios as 1/n, as their limits are written."""
    return f"1/{1 / value:.1f}" if 0 < value < 0.6 else f"{value:.2f}"


def _joined(name: str, *cells: str) -> str:
    return name.ljust(_NAME) + "".join(cell.rjust(width) for cell, width in zip(cells, _CELLS, strict=True))
