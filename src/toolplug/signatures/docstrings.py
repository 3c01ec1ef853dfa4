"""The docstring of a function: its summary, and the descriptions of its parameters."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import NamedTuple

_SECTIONS = "toolplug.signatures.docstring_sections"
"""Imports the parsers of docstrings."""
_MAY_HAVE_SECTIONS = re.compile(r":|---|===")
"""A section of Google's style and a field of reST have a colon, one of NumPy's is underlined."""
_STRUCTURED = re.compile(r"[ \t]|[-*+>|#] ?|\d+[.)] |```")
"""The start of a line that must not be reflowed: of a list, a table, a quotation, or code."""


class Described(NamedTuple):
    """A docstring in parts: `summary` is the text up to the first section, `parameters` has one line for each name."""

    summary: str
    parameters: Mapping[str, str]


def read_docstring(function: object) -> Described:
    """Read the docstring of a function; without one, summary and parameters are empty."""
    text = inspect.getdoc(function) or ""
    if _MAY_HAVE_SECTIONS.search(text) is None:
        return Described(summary_of(text), {})
    read: Callable[[str], Described] = import_module(_SECTIONS).read_sections
    return read(text)


def summary_of(text: str) -> str:
    """Return a text without sections, with each paragraph in one line unless it is a list or code."""
    return "\n\n".join(_reflow(paragraph) for paragraph in re.split(r"\n\s*\n", text.strip()))


def _reflow(paragraph: str) -> str:
    lines = paragraph.splitlines()
    if any(_STRUCTURED.match(line) for line in lines):
        return "\n".join(line.rstrip() for line in lines)
    return one_line(paragraph)


def one_line(text: str) -> str:
    """Return a text without line breaks, its words with one space between them."""
    return " ".join(text.split())
