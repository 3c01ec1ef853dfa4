"""Tables and JSON on a terminal: in colour, tables fitted to its width."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import IO

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.json import JSON
from rich.table import Table
from rich.text import Text


def print_on_terminal(
    columns: Sequence[str], rows: Sequence[Sequence[str]], colours: Mapping[str, str], file: IO[str]
) -> None:
    """Print a table; `colours` are those of cells, by their whole text."""
    # Without edges: they are empty lines, and the pages show what a pipe gets, which has none.
    table = Table(box=SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for index, column in enumerate(columns):
        # Names and states stay whole as long as there is room; elsewhere a long word goes on in the next line.
        whole = index == 0 or any(row[index] in colours for row in rows)
        table.add_column(column.upper(), no_wrap=whole, overflow="fold")
    for row in rows:
        table.add_row(*(Text(cell, style=colours.get(cell, "")) for cell in row))
    Console(file=file).print(table)


def print_json_on_terminal(text: str, file: IO[str]) -> bool:
    """Print a JSON text indented and in colour; return False, with nothing printed, for a text that is no JSON."""
    try:
        value = JSON(text, ensure_ascii=False)
    except (ValueError, RecursionError):
        return False
    # Not folded at the width of the terminal: what is copied from it should be the value.
    Console(file=file, soft_wrap=True).print(value)
    return True
