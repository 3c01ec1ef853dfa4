"""Tables and JSON on a terminal: in colour, tables fitted to its width."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import IO

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.json import JSON
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

_BETWEEN = 3
"""Columns of the terminal between two of the table."""


def print_on_terminal(
    columns: Sequence[str], rows: Sequence[Sequence[str]], colours: Mapping[str, str], file: IO[str]
) -> None:
    """Print a table whose words are whole, or where it has no room for that each row as a list of its cells.

    `colours` are those of cells, by their whole text.
    """
    console = Console(file=file, highlight=False)
    cells = [[Text(cell, style=colours.get(cell, "")) for cell in row] for row in rows]
    heads = [column.upper() for column in columns]
    least, most = zip(
        *[_widths(console, head, column) for head, *column in zip(heads, *cells, strict=True)], strict=True
    )
    spare = console.width - _BETWEEN * (len(columns) - 1) - sum(least)
    if spare < 0:
        _print_lists(console, heads, cells)
        return
    widths = list(least)
    # Those that need least more get it first, so that a long text gets all that the others leave.
    order = sorted(range(len(heads)), key=lambda index: most[index] - least[index])
    for place, index in enumerate(order):
        more = min(most[index] - least[index], spare // (len(order) - place))
        widths[index] += more
        spare -= more
    # Without edges: they are empty lines, and the pages show what a pipe gets, which has none.
    table = Table(box=SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for head, width in zip(heads, widths, strict=True):
        table.add_column(head, width=width)
    for row in cells:
        table.add_row(*row)
    console.print(table)


def _widths(console: Console, head: str, column: Sequence[Text]) -> tuple[int, int]:
    """Return the width of the longest word of a column, and of its longest line."""
    measured = [Measurement.get(console, console.options, cell) for cell in (Text(head), *column)]
    return max(each.minimum for each in measured), max(each.maximum for each in measured)


def _print_lists(console: Console, heads: Sequence[str], rows: Sequence[Sequence[Text]]) -> None:
    for first, *rest in rows:
        console.print(first, style="bold", soft_wrap=True)
        for head, cell in zip(heads[1:], rest, strict=True):
            console.print(Text.assemble(f"  {head.lower()}: ", cell), soft_wrap=True)


def print_json_on_terminal(text: str, file: IO[str]) -> bool:
    """Print a JSON text indented and in colour; return False, with nothing printed, for a text that is no JSON."""
    try:
        value = JSON(text, ensure_ascii=False)
    except (ValueError, RecursionError):
        return False
    # Not folded at the width of the terminal: what is copied from it should be the value.
    Console(file=file, soft_wrap=True).print(value)
    return True
