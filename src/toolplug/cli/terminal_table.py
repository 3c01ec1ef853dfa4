"""Tables on a terminal: in colour, and fitted to its width."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import IO

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text


def print_on_terminal(
    columns: Sequence[str], rows: Sequence[Sequence[str]], colours: Mapping[str, str], file: IO[str]
) -> None:
    """Print a table; `colours` are those of cells, by their whole text."""
    table = Table(*columns, box=SIMPLE_HEAD, pad_edge=False)
    for row in rows:
        table.add_row(*(Text(cell, style=colours.get(cell, "")) for cell in row))
    Console(file=file).print(table)
