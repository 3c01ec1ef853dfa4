"""How a refusal is shown: a line for each problem on stderr, or as JSON on stdout."""

from __future__ import annotations

import re
from collections.abc import Sequence

import typer

from toolplug.cli.answer import print_json
from toolplug.errors import ConfigError, McpServerRefused, Problem, SavedToolsetRefused

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
