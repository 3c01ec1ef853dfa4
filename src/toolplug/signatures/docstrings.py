"""What a docstring says to a model: its first paragraph, and Google-style `Args:`."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from itertools import takewhile
from typing import NamedTuple

from docstring_parser import ParseError
from docstring_parser.google import DEFAULT_SECTIONS, parse

_HEADINGS = frozenset(f"{section[0]}:" for section in DEFAULT_SECTIONS)


class Described(NamedTuple):
    """`summary` is one line; `parameters` maps names to one line each."""

    summary: str
    parameters: Mapping[str, str]


def described(function: object) -> Described:
    """Read the docstring; without one, everything is empty. Sections that are not Google-style are passed over."""
    text = inspect.getdoc(function) or ""
    first = takewhile(lambda line: line.strip() and line.strip() not in _HEADINGS, text.splitlines())
    return Described(_line(" ".join(first)), _parameters(text))


def _parameters(text: str) -> Mapping[str, str]:
    try:
        parsed = parse(f"…\n\n{text}")  # a docstring that begins with a section is an error to the parser
    except ParseError:
        return {}
    return {item.arg_name: _line(item.description or "") for item in parsed.params}


def _line(text: str) -> str:
    return " ".join(text.split())
