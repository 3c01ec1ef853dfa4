"""The sections of a docstring: the descriptions of its parameters in Google, NumPy or reST style."""

from __future__ import annotations

import re
from collections.abc import Mapping

from docstring_parser import ParseError, google, numpydoc, rest

from toolplug.signatures.docstrings import Described, one_line, summary_of

_GOOGLE = frozenset(f"{section[0]}:" for section in google.DEFAULT_SECTIONS)
_NUMPY = frozenset(section.title for section in numpydoc.DEFAULT_SECTIONS)
_UNDERLINE = re.compile(r"-{3,}|={3,}")
_REST_FIELD = re.compile(
    r":(param|parameter|arg|argument|key|keyword|type|raises?|except|exception|returns?|rtype|yields?|ytype)\b[^:]*:"
)


def read_sections(text: str) -> Described:
    """Return the summary and the parameters of a docstring that may have sections."""
    lines = text.splitlines()
    end = next((number for number in range(len(lines)) if _begins_section(lines, number)), len(lines))
    return Described(summary_of("\n".join(lines[:end])), _parameters(text))


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
            name.strip().lstrip("*"): one_line(item.description or "")
            for item in parsed.params
            for name in item.arg_name.split(",")
        }
        # Each parser reads text of another style as a few odd parameters, or none.
        found = named if len(named) > len(found) else found
    return found
