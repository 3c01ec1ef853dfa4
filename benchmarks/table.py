"""The table that a run prints."""

from __future__ import annotations

import platform
import sys
from collections.abc import Iterable, Iterator
from os import cpu_count

from benchmarks.frame import Figure

_WIDTHS = (62, 14, 14, 10, 20, 8, 8)


def heading() -> Iterator[str]:
    """What the figures stand on, and the names of the columns."""
    yield (
        f"Python {platform.python_version()}, {platform.system()} {platform.machine()}, {cpu_count()} cores; median of "
        "interleaved pairs, quartiles in brackets; garbage collector on, earlier heap frozen"
    )
    yield ""
    yield _line(("row", "ours", "other", "ratio", "quartiles", "hold", "aim"), "verdict")
    yield "-" * (sum(_WIDTHS) + 9)


def lines(figure: Figure) -> Iterator[str]:
    """One row, as two lines where it names what it is compared with."""
    row, unit = figure.row, figure.row.unit
    yield _line(
        (
            f"{row.name} / {row.against}" if row.against else row.name,
            f"{figure.ours * unit.scale:.3f} {unit.name}",
            "" if figure.other is None else f"{figure.other * unit.scale:.3f} {unit.name}",
            _number(figure.median),
            f"[{_number(figure.low)} {_number(figure.high)}]",
            _number(row.hold),
            _number(row.aim),
        ),
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


def _number(value: float | None) -> str:
    """Small ratios as 1/n, as their limits are written."""
    if value is None:
        return ""
    return f"1/{1 / value:.1f}" if 0 < value < 0.6 else f"{value:.2f}"


def _line(cells: tuple[str, ...], last: str) -> str:
    first, *rest = cells
    return (
        first.ljust(_WIDTHS[0])
        + "".join(cell.rjust(w) for cell, w in zip(rest, _WIDTHS[1:], strict=True))
        + f"  {last}"
    )
