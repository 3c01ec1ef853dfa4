"""Documents as the index takes them in: passages, words and counts, in lines of JSON that are short each.

Made in a worker process. The host reads one line at a time and writes it into the index, so that neither its memory nor
its interpreter's lock depends on the document.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import PurePosixPath

from toolplug_file_search.documents.analysis import COMPOUNDING, Analyzer, without_accents, words
from toolplug_file_search.documents.chunks import chunks
from toolplug_file_search.documents.conversion import convert

HEADING_SEPARATOR = " > "
MAX_PASSAGES = 100_000
"""Passages of a document that are searched at most: headings alone could make one of every six characters."""
MAX_WORDS = 200_000
"""Different words of a document that are found where they are misspelled, or parts of others; all are as written."""
BATCH = 500
"""Words in one line."""
_MAX_NOTES, _MAX_NOTE = 20, 300
"""Of what is left out: so many parts are named, with so many characters each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cutting:
    """How documents are cut, in characters."""

    size: int
    overlap: int


def prepare(name: str, content: bytes, cutting: Cutting, analyzer: Analyzer) -> Iterator[Mapping[str, object]]:
    """Yield a document: its head, each passage, its words and their counts in batches, and `end`.

    * `{"compounds": bool, "language": …, "name": …}`: Snowball's name; the words of the file's name
    * `{"passage": [text, headings, start, end, first line, last line], "words": [of its headings, of its text]}`
    * `{"surfaces": [[word, token], …]}`, `{"tokens": [[token, passages that have it], …]}`
    * `{"end": passages, "left_out": what could not be read, empty for nothing}`

    Raises `UnreadableDocument`; a hostile document may raise anything.
    """
    document = convert(name, content)
    language = analyzer.language(document.text)
    seen = _Words(analyzer, language)
    shown = seen.add(PurePosixPath(name).with_suffix("").as_posix())
    yield {"compounds": language in COMPOUNDING, "language": language, "name": shown}
    left_out = list(document.left_out)
    count = 0
    for chunk in chunks(document.text, size=cutting.size, overlap=cutting.overlap, layout=document.layout):
        if count == MAX_PASSAGES:
            left_out.append(f"what follows passage {MAX_PASSAGES}, which ends in line {chunk.first_line}")
            break
        count += 1
        found = [seen.add(" ".join(chunk.headings)), seen.add(chunk.text)]
        seen.count((shown, *found))
        place = [chunk.start, chunk.end, chunk.first_line, chunk.last_line]
        yield {"passage": [chunk.text, HEADING_SEPARATOR.join(chunk.headings), *place], "words": found}
    yield from ({"surfaces": batch} for batch in _batches(seen.surfaces))
    yield from ({"tokens": batch} for batch in _batches(seen.passages.items()))
    notes = [note[:_MAX_NOTE] for note in left_out[:_MAX_NOTES]]
    if len(left_out) > _MAX_NOTES:
        notes.append(f"{len(left_out) - _MAX_NOTES} more parts")
    yield {"end": count, "left_out": "; ".join(notes)}


class _Words:
    """The different words of a document, in the form of its language."""

    def __init__(self, analyzer: Analyzer, language: str) -> None:
        self._analyzer = analyzer
        self._language = language
        self.surfaces: dict[tuple[str, str], None] = {}
        """Words as they are written, folded and without accents, with their tokens."""
        self.passages = Counter[str]()
        """How many passages have each token."""

    def add(self, text: str) -> str:
        """Return the tokens of a text, and note its words."""
        found = list(words(text))
        tokens = self._analyzer.tokens(found, self._language)
        for word, token in zip(found, tokens, strict=True):
            if not word.dense and len(self.surfaces) < MAX_WORDS:
                self.surfaces.setdefault((without_accents(word.text), token))
        return " ".join(tokens)

    def count(self, columns: Iterable[str]) -> None:
        """Count the different tokens of a passage."""
        self.passages.update(set(" ".join(columns).split()))


def _batches(items: Iterable[tuple[object, object]]) -> Iterator[list[tuple[object, object]]]:
    waiting = iter(items)
    while batch := list(islice(waiting, BATCH)):
        yield batch
