"""Prints the results and problems of commands: as JSON, or as tables and lines."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterator, Sequence
from importlib import import_module
from itertools import islice
from types import MappingProxyType

import typer

from toolplug.catalog.text import clean_text, pluralize
from toolplug.cli.log_options import log_options
from toolplug.cli.standard_output import answers
from toolplug.config.masking import find_secrets, looks_secret
from toolplug.errors import ApiError, ConfigError, Problem

COLOURS = MappingProxyType(
    {
        "active": "green",
        "installed-not-enabled": "cyan",
        "disabled": "dim",
        "restarting": "yellow",
        "shadowed": "yellow",
        "import-failed": "red",
        "config-invalid": "red",
        "start-failed": "red",
        "incompatible": "red",
        "passes": "green",
        "asks": "yellow",
        "approved": "green",
        "waiting": "yellow",
        "denied": "red",
        "success": "green",
        "failed": "red",
        "refuses": "red",
        "error": "red",
        "warning": "yellow",
        "started": "green",
        "changed": "yellow",
        "stopped": "red",
        "kept": "dim",
    }
)
"""Colours of table cells, by their whole text."""

STATUS_COLOURS = MappingProxyType({"success": "green", "panic": "red", "timeout": "red", "unavailable": "red"})
"""Colours of statuses of calls; the others, errors of the caller, are yellow."""

MAX_NAMES = 8
"""Names in one cell of a table: a provider may have hundreds of tools, which make a cell of hundreds of lines."""
_MAX_LINE = 200
"""Characters of the line that a problem shows, which may be a whole document of JSON."""
_KEYS = re.compile(r"([A-Za-z_][\w-]*)[\"']?\s*:\s+(\S*)")
"""Keys on a line of YAML, and the begin of what follows each."""

_TERMINAL_TABLE = "toolplug.cli.terminal_table"
"""Imports Rich, which takes longer than the rest of what most commands print with."""

# `StoreUnavailable` becomes the code `store_unavailable`.
_WORD_BREAK = re.compile(r"(?<=[a-z])(?=[A-Z])")


def echo(text: str = "", *, err: bool = False) -> None:
    """Print a line of an answer, or with `err` a line for the person at the terminal."""
    typer.echo(text, file=None if err else answers(), err=err)


def print_json(value: object) -> None:
    """Print a value on stdout as indented JSON."""
    echo(json.dumps(value, indent=2, ensure_ascii=False))


def print_answer(as_json: bool, fields: object, text: str) -> None:
    """Print the result of a command on stdout: `fields` as JSON, or `text`."""
    print_json(fields) if as_json else echo(text)


def print_listing(
    as_json: bool, fields: object, columns: Sequence[str], rows: Sequence[Sequence[str]], empty: str
) -> None:
    """Print a list on stdout: `fields` as JSON, or the rows as a table, or the text `empty` without rows."""
    if not as_json and rows:
        print_table(columns, rows)
    else:
        print_answer(as_json, fields, empty)


def print_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table: on a terminal in colour and fitted to its width, elsewhere as aligned columns of any width."""
    if not answers().isatty():
        lines = [[column.upper() for column in columns], *rows]
        widths = [max(map(len, cells)) for cells in zip(*lines, strict=True)]
        for line in lines:
            echo("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())
        return
    import_module(_TERMINAL_TABLE).print_on_terminal(columns, rows, COLOURS, answers())


def list_names(names: Sequence[str], noun: str) -> str:
    """Return the names for a cell of a table: without `-v` only their number where there are more than eight."""
    if len(names) > MAX_NAMES and not log_options().verbose:
        return pluralize(len(names), noun)
    return ", ".join(names) or "-"


def problems_in(error: Exception) -> Sequence[Problem]:
    """Convert an error to problems, at least one."""
    match error:
        case ConfigError():
            return error.problems
        case OSError():
            return [Problem(code="os_error", message=error.strerror or str(error), file=str(error.filename or ""))]
        case ApiError(code="approval_not_found" | "approval_decided"):
            hint = "`toolplug approvals list --all-tenants` shows every one; --tenant names the tenant of the call"
            return [Problem(code=error.code, message=str(error), hint=hint)]
        case ApiError(code="grant_not_found"):
            hint = "`toolplug grants list` shows those of this tenant; --tenant names another one"
            return [Problem(code=error.code, message=str(error), hint=hint)]
        case ApiError(code="toolset_not_found"):
            hint = "--subject names the caller that saved it: anonymous, if it was saved over HTTP without auth"
            return [Problem(code=error.code, message=str(error), path=error.param or "", hint=hint)]
        case ApiError():
            return [Problem(code=error.code, message=str(error), path=error.param or "")]
        case _:
            return [Problem(code=_WORD_BREAK.sub("_", type(error).__name__).lower(), message=str(error))]


def print_problems(problems: Sequence[Problem], *, as_json: bool, answer: bool = False) -> None:
    """Print problems as JSON on stdout, or as lines on stderr, or on stdout if they are the `answer` of a command."""
    if as_json:
        print_json({"problems": problem_fields(problems)})
        return
    terminal = (answers() if answer else sys.stderr).isatty()
    for problem in problems:
        echo(str(problem), err=not answer)
        for line in _show_place(problem) if terminal else ():
            echo(line, err=not answer)


def _show_place(problem: Problem) -> Iterator[str]:
    """Yield the line of a problem with a caret below its column; nothing for a line that holds a secret."""
    if not problem.file or not problem.line or looks_secret(problem.path.split(".")):
        return
    try:
        with open(problem.file, encoding="utf-8", errors="replace") as file:
            line = next(islice(file, problem.line - 1, None), "")[:_MAX_LINE]
    except (OSError, ValueError):
        return
    text = clean_text(line.rstrip()).replace("\t", " ")
    if not text.strip() or _holds_secret(text):
        return
    number = f"{problem.line:>5} | "
    yield paint(number, "cyan") + text
    if 0 < problem.column <= len(text) + 1:
        yield " " * (len(number) + problem.column - 1) + paint("^", "red")


def _holds_secret(text: str) -> bool:
    """Return whether a value on the line is secret, or a key on it says so."""
    named = any(looks_secret((name,)) and not value.startswith(("${", "{", "[")) for name, value in _KEYS.findall(text))
    return named or bool(find_secrets(text.strip()))


def problem_fields(problems: Sequence[Problem]) -> list[dict[str, object]]:
    """Convert problems to JSON values."""
    keys = ("file", "line", "column", "path", "code", "message", "hint")
    return [{key: getattr(problem, key) for key in keys} for problem in problems]


def print_result(output: str, status: str | None, hint: str = "") -> None:
    """Print the output of a call on stdout, and its status, None for a success, on stderr.

    On a terminal an object or a list is indented and in colour; elsewhere it is as compact as the tool's answer.
    """
    pretty = output.startswith(("{", "[")) and answers().isatty()
    if not (pretty and import_module(_TERMINAL_TABLE).print_json_on_terminal(output, answers())):
        echo(output)
    if status is not None:
        shown = paint(status, STATUS_COLOURS.get(status, "yellow"))
        echo(f"{shown} ({hint})" if hint else shown, err=True)


def paint(text: str, colour: str) -> str:
    """Return the text in a colour, unless `NO_COLOR` is set or the terminal is a dumb one.

    `typer.echo` drops colours where there is no terminal.
    """
    plain = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
    return text if plain else typer.style(text, fg=colour)


def print_progress(progress: float, total: float | None = None, message: str | None = None) -> None:
    """Print the progress of a running call on stderr. Can be used as `CallContext.report`."""
    of = f" of {total:g}" if total is not None else ""
    echo(f"{progress:g}{of} {message or ''}".rstrip(), err=True)
