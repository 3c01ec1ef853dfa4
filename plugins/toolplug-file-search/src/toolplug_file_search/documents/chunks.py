"""Documents in passages: pieces of at most a size, cut where the text pauses, each overlapping the one before it."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator
from typing import NamedTuple

from toolplug_file_search.documents.conversion import Layout
from toolplug_file_search.documents.sections import sections

_PARAGRAPH = re.compile(r"\S[\s\S]*?(?=\n[ \t\r]*\n|\Z)")
_WORD = re.compile(r"\S")
_SPACE = re.compile(r"\s+")
_PAUSES = (re.compile(r"\n"), re.compile(r"[.!?…。!?][\"')\]]*\s+|[。!?]"), _SPACE)
"""Where a paragraph that is too long is cut: after a line, a sentence, a word; the first that is found late enough."""


class Chunk(NamedTuple):
    """`text` is `document[start:end]`; lines count from 1 and include the last."""

    text: str
    headings: tuple[str, ...]
    start: int
    end: int
    first_line: int
    last_line: int


class Span(NamedTuple):
    """A piece of a document."""

    start: int
    end: int


def chunks(text: str, *, size: int, overlap: int, layout: Layout) -> Iterator[Chunk]:
    """Cut a document. No chunk is longer than `size` characters nor reaches over a heading.

    `overlap` is at most half of `size`: so many characters of a chunk may come again in the next one of its section.
    """
    lines = [0, *(found.end() for found in re.finditer(r"\n", text))]
    for section in sections(text, layout):
        pieces = list(_pieces(text, section.start, section.end, size - overlap))
        for span in _pack(text, pieces, size, overlap):
            yield Chunk(
                text=text[span.start : span.end],
                headings=section.headings,
                start=span.start,
                end=span.end,
                first_line=bisect_right(lines, span.start),
                last_line=bisect_right(lines, span.end - 1),
            )


def _pieces(text: str, start: int, end: int, longest: int) -> Iterator[Span]:
    """Paragraphs without the blank around them; one that is too long in several."""
    for found in _PARAGRAPH.finditer(text, start, end):
        at = found.start()
        while found.end() - at > longest:
            cut = _pause(text, at, at + longest)
            yield _trim(text, at, cut)
            following = _WORD.search(text, cut, found.end())
            if following is None:
                break
            at = following.start()
        else:
            yield _trim(text, at, found.end())


def _trim(text: str, start: int, end: int) -> Span:
    return Span(start, start + len(text[start:end].rstrip()))


def _pause(text: str, start: int, latest: int) -> int:
    """The last good place to cut in the second half of the span; its end where there is none."""
    middle = (start + latest) // 2
    for pause in _PAUSES:
        ends = [found.end() for found in pause.finditer(text, middle, latest)]
        if ends:
            return ends[-1]
    return latest


def _pack(text: str, pieces: list[Span], size: int, overlap: int) -> Iterator[Span]:
    """As many pieces together as fit."""
    if not pieces:
        return
    start, end = pieces[0]
    for piece in pieces[1:]:
        if piece.end - start > size:
            yield Span(start, end)
            start = _restart(text, pieces, Span(start, end), piece, overlap)
        end = piece.end
    yield Span(start, end)


def _restart(text: str, pieces: list[Span], last: Span, piece: Span, overlap: int) -> int:
    """Where the next chunk begins: with whole pieces of the one before, else with some of its last words.

    A piece is at most size minus overlap, so that it fits after what is repeated, unless the blank between is long.
    """
    earliest = max(last.end - overlap, last.start + 1, piece.start - overlap)
    index = bisect_right(pieces, Span(earliest - 1, len(text)))
    if pieces[index].start < last.end:
        return pieces[index].start
    space = _SPACE.search(text, earliest - 1, last.end)
    return space.end() if space else piece.start
