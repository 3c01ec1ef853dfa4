"""What the YAML parser stumbled over, in words that help."""

from __future__ import annotations

import yaml

from toolplug.errors import Problem


def syntax_problem(error: yaml.YAMLError, *, text: str, file: str) -> Problem:
    """Return the problem; the parser's own words name characters and never values."""
    if not isinstance(error, yaml.MarkedYAMLError) or error.problem_mark is None:
        return Problem(code="syntax", message="not valid YAML", file=file)
    mark, begun = error.problem_mark, error.context_mark
    lines = text.splitlines()
    line = lines[mark.line] if mark.line < len(lines) else ""
    code, message, hint = "syntax", f"not valid YAML: {error.problem}", ""
    if error.context:
        message += f" {error.context}"
        if begun is not None and begun.line != mark.line:
            message += f" that begins on line {begun.line + 1}"
    before = line[: mark.column + 1]
    if "\t" in before and not before.strip():
        code, message, hint = "tab", "a tab cannot indent YAML", "indent with spaces"
    elif "${" in line:
        hint = 'inside { } and [ ] a reference is written in quotes: "${NAME}"'
    return Problem(code=code, message=message, file=file, line=mark.line + 1, column=mark.column + 1, hint=hint)
