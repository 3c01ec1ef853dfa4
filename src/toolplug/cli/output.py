"""Tables: with colour and fitted to the width on a terminal, plain aligned columns elsewhere."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping, Sequence
from types import MappingProxyType

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from toolplug.errors import ConfigError, McpServerRefused, Problem, SavedToolsetRefused


def print_json(value: object) -> None:
    """One JSON document, for programs and still readable."""
    typer.echo(json.dumps(value, indent=2, ensure_ascii=False))


_WORD = re.compile(r"(?<=[a-z])(?=[A-Z])")


def problems_in(error: Exception) -> Sequence[Problem]:
    """What an error tells, as problems."""
    if isinstance(error, ConfigError):
        return error.problems
    if isinstance(error, OSError):
        return [Problem(code="os_error", message=error.strerror or str(error), file=str(error.filename or ""))]
    if isinstance(error, SavedToolsetRefused):
        return [Problem(code=error.code, message=str(error), path=error.param)]
    if isinstance(error, McpServerRefused):
        return [Problem(code=error.code, message=str(error), path=error.param or "")]
    return [Problem(code=_WORD.sub("_", type(error).__name__).lower(), message=str(error))]


def print_problems(problems: Sequence[Problem], *, as_json: bool, answer: bool = False) -> None:
    """Show them for people on stderr (on stdout where they are the `answer`), or as JSON on stdout."""
    if as_json:
        print_json({"problems": [problem_fields(problem) for problem in problems]})
        return
    for problem in problems:
        typer.echo(str(problem), err=not answer)


def in_answer(problems: Sequence[Problem]) -> dict[str, object]:
    """What an answer in JSON says of them beside what it tells all the same; nothing where there are none."""
    return {"problems": [problem_fields(problem) for problem in problems]} if problems else {}


def problem_fields(problem: Problem) -> dict[str, object]:
    """One problem as CONTRACT.md section 10 has it."""
    return {
        "file": problem.file,
        "line": problem.line,
        "column": problem.column,
        "path": problem.path,
        "code": problem.code,
        "message": problem.message,
        "hint": problem.hint,
    }


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
