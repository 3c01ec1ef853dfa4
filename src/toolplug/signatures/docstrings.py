"""Docstrings: the summary of a function, and the descriptions of its parameters in Google, NumPy or reST style."""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping
from typing import NamedTuple

from docstring_parser import ParseError, google, numpydoc, rest

_GOOGLE = frozenset(f"{section[0]}:" for section in google.DEFAULT_SECTIONS)
_NUMPY = frozenset(section.title for section in numpydoc.DEFAULT_SECTIONS)
_UNDERLINE = re.compile(r"-{3,}|={3,}")
_REST_FIELD = re.compile(
    r":(param|parameter|arg|argument|key|keyword|type|raises?|except|exception|returns?|rtype|yields?|ytype)\b[^:]*:"
)
_STRUCTURED = re.compile(r"[ \t]|[-*+>|#] ?|\d+[.)] |```")
"""The start of a line that must not be reflowed: of a list, a table, a quotation, or code."""


class Described(NamedTuple):
    """A docstring in parts: `summary` is the text up to the first section, `parameters` has one line for each name."""

    summary: str
    parameters: Mapping[str, str]


def read_docstring(function: object) -> Described:
    """Read the docstring of a function; without one, summary and parameters are empty."""
    text = inspect.getdoc(function) or ""
    return Described(_summary(text), _parameters(text))


def _summary(text: str) -> str:
    """Return the text up to its first section, with each paragraph in one line unless it is a list or code."""
    lines = text.splitlines()
    end = next((number for number in range(len(lines)) if _begins_section(lines, number)), len(lines))
    paragraphs = re.split(r"\n\s*\n", "\n".join(lines[:end]).strip())
    return "\n\n".join(_reflow(paragraph) for paragraph in paragraphs)


def _reflow(paragraph: str) -> str:
    lines = paragraph.splitlines()
    if any(_STRUCTURED.match(line) for line in lines):
        return "\n".join(line.rstrip() for line in lines)
    return _line(paragraph)


def _begins_section(lines: list[str], number: int) -> bool:
    line, following = lines[number].strip(), lines[number + 1 : number + 2]
    underlined = bool(following) and _UNDERLINE.fullmatch(following[0].strip()) is not None
    return line in _GOOGLE or (line in _NUMPY and underlined) or _REST_FIELD.match(line) is not None


def _parameters(text: str) -> Mapping[str, str]:
    """Return the parameters as read in the style that finds most of them."""
    found: dict[str, str] = {}
    for style in (google, numpydoc, rest):
        try:
            parsed = style.parse(f"…\n\n{text}")  # a docstring that begins with a section is an error to the parser
        except ParseError:
            continue
        # in NumPy style several may share one description: `first, second : int`
        named = {
            name.strip().lstrip("*"): _line(item.description or "")
            for item in parsed.params
            for name in item.arg_name.split(",")
        }
        found = named if len(named) > len(found) else found
    return found


def _line(text: str) -> str:
    return " ".join(text.split())
