"""The sections of a document: where each heading's part begins and ends, and under which headings it stands."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from toolplug_file_search.documents.conversion import Layout
from toolplug_file_search.documents.pdf import PAGE_BREAK

MAX_HEADING = 200
"""Characters of a heading that each passage under it repeats."""
_LEVELS = 6
_BLANKS = " \t"
_INDENT = 3
"""Blanks before a heading or fence at most; more make it code."""


class Section(NamedTuple):
    """`text[start:end]`; `headings` lead from the document's first level to this one."""

    start: int
    end: int
    headings: tuple[str, ...]


class _Heading(NamedTuple):
    start: int
    end: int
    level: int
    text: str


def sections(text: str, layout: Layout) -> list[Section]:
    """The sections in order, without those that hold nothing; together they hold all that is not blank.

    A heading directly followed by another one begins the other's section, so that no section is a heading alone unless
    the document ends with it. A page is a section with its number; plain text is one section.
    """
    if layout == "pages":
        return list(_pages(text))
    found: list[Section] = []
    path: list[_Heading] = []
    start = 0
    for heading in _headings(text) if layout == "markdown" else ():
        if _says_something(text, start, heading.start, path):
            found.append(Section(start, heading.start, _names(path)))
            start = heading.start
        path = [*(above for above in path if above.level < heading.level), heading]
    if text[start:].strip():
        found.append(Section(start, len(text), _names(path)))
    return found


def _pages(text: str) -> Iterator[Section]:
    start = 0
    for number, page in enumerate(text.split(PAGE_BREAK), 1):
        if page.strip():
            yield Section(start, start + len(page), (f"page {number}",))
        start += len(page) + len(PAGE_BREAK)


def _says_something(text: str, start: int, end: int, path: list[_Heading]) -> bool:
    """Is there more between the two than headings."""
    after_heading = max(start, path[-1].end) if path else start
    return bool(text[after_heading:end].strip())


def _names(path: list[_Heading]) -> tuple[str, ...]:
    return tuple(heading.text[:MAX_HEADING] for heading in path if heading.text)


def _headings(text: str) -> Iterator[_Heading]:
    """Headings with `#`, and first-level ones underlined with `=`; none inside fenced code."""
    fence, position = "", 0
    before = ""
    for line in text.splitlines(keepends=True):
        bare = line.rstrip("\r\n")
        mark = _fence(bare)
        if mark and (not fence or mark.startswith(fence)):
            fence = "" if fence else mark
        elif not fence and (found := _read_mark(bare)):
            yield _Heading(position, position + len(line), *found)
        elif not fence and before.strip() and bare.startswith("=") and not bare.rstrip(_BLANKS).strip("="):
            yield _Heading(position - len(before), position + len(line), 1, before.strip())
        before = "" if fence or mark else line
        position += len(line)


def _fence(line: str) -> str:
    """The mark of three or more backquotes or tildes that begins or ends code, empty for none."""
    rest = line.lstrip(" ")
    sign = rest[:1]
    if sign not in ("`", "~") or not rest.startswith(sign * 3) or len(line) - len(rest) > _INDENT:
        return ""
    return rest[: len(rest) - len(rest.lstrip(sign))]


def _read_mark(line: str) -> tuple[int, str] | None:
    """The level and text of a heading such as `## Setup ##`.

    By hand: a regular expression with the optional marks at the end takes cubic time for a long line.
    """
    rest = line.lstrip(" ")
    after = rest.lstrip("#")
    level = len(rest) - len(after)
    if not 1 <= level <= _LEVELS or after[:1] not in (" ", "\t") or len(line) - len(rest) > _INDENT:
        return None
    return level, after.strip(_BLANKS).rstrip("#").strip(_BLANKS)
