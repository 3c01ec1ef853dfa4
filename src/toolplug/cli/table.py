"""Tables: with colour and fitted to the width on a terminal, plain aligned columns elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from types import MappingProxyType

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

COLOURS = MappingProxyType(
    {
        "active": "green",
        "installed-not-enabled": "cyan",
        "disabled": "dim",
        "shadowed": "yellow",
        "import-failed": "red",
        "config-invalid": "red",
        "start-failed": "red",
        "incompatible": "red",
        "open": "green",
        "refused": "red",
        "wrong": "red",
        "doubtful": "yellow",
        "started": "green",
        "changed": "yellow",
        "stopped": "red",
        "kept": "dim",
    }
)
"""The colour of a cell that is one of these words."""


def print_table(columns: Sequence[str], rows: Sequence[Sequence[str]], colours: Mapping[str, str] = COLOURS) -> None:
    """Print rows of texts under their columns, whole: nothing is cut where no terminal says how wide it is."""
    if not sys.stdout.isatty():
        for line in _plain(columns, rows):
            typer.echo(line)
        return
    table = Table(*columns, box=SIMPLE_HEAD, pad_edge=False)
    for row in rows:
        table.add_row(*(Text(cell, style=colours.get(cell, "")) for cell in row))
    Console().print(table)


def _plain(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    lines = [[column.upper() for column in columns], *rows]
    widths = [max(len(line[index]) for line in lines) for index in range(len(columns))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines]
