"""The text of a document, in a worker process. What parses PDF, docx and HTML is imported on demand."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence
from typing import Any, Literal, NamedTuple

from toolplug_file_search.documents.decoding import Decoded, decode, looks_like_text
from toolplug_file_search.documents.docx import read_docx
from toolplug_file_search.documents.formats import Format, UnreadableDocument, detect, named_format
from toolplug_file_search.documents.html import read_html
from toolplug_file_search.documents.pdf import read_pdf

Layout = Literal["plain", "markdown", "pages"]

MAX_TEXT = 20_000_000
"""Characters of a document that are searched at most; what follows them is left out."""
MAX_COLUMN_NAME = 100
"""Characters of the name of a column that each row of a table repeats."""
_ROW = "; "


class Document(NamedTuple):
    """The text of a file; `layout` says how its sections are found: none, Markdown headings, or pages.

    `left_out` names what of the file could not be read, an item for each kind.
    """

    text: str
    layout: Layout
    left_out: Sequence[str] = ()


def check(name: str, content: bytes) -> None:
    """Raise `UnreadableDocument` for what is no document at first sight: a bounded look at its beginning.

    What its reader says comes later.
    """
    detect(name, content, is_text=looks_like_text(content))


def convert(name: str, content: bytes) -> Document:
    """Return the text of a file. Raises `UnreadableDocument`; a hostile file may raise anything."""
    is_text = looks_like_text(content)
    kind = detect(name, content, is_text=is_text)
    try:
        document = _convert(kind, name, content)
    except UnreadableDocument as error:
        own = name.lower().endswith((".pdf", ".docx"))
        if error.code != "damaged_file" or own or not is_text:
            raise
        kind = named_format(name, content)  # it only begins like one
        document = _convert(kind, name, content)
    if len(document.text) > MAX_TEXT:
        left_out = [*document.left_out, f"what follows its first {MAX_TEXT} characters"]
        document = document._replace(text=document.text[:MAX_TEXT], left_out=left_out)
    if not document.text.strip():
        reason = "no text; pages that are images need text recognition first" if kind is Format.PDF else "no text"
        raise UnreadableDocument("empty_file", f"{name!r} holds {reason}")
    return document


def _convert(kind: Format, name: str, content: bytes) -> Document:
    if kind is Format.PDF:
        text, left_out = read_pdf(name, content, MAX_TEXT)
        return Document(text, "pages", left_out)
    if kind is Format.DOCX:
        text, left_out = read_docx(name, content)
        return Document(text, "markdown", left_out)
    decoded = decode(name, content)
    if kind is Format.CSV:
        return _table(decoded)
    left_out = [decoded.left_out] if decoded.left_out else []
    if kind is Format.HTML:
        return Document(read_html(decoded.text), "markdown", left_out)
    return Document(decoded.text, "markdown" if kind is Format.MARKDOWN else "plain", left_out)


def _table(decoded: Decoded) -> Document:
    """As many rows as `MAX_TEXT` allows: rows repeat the names of columns, so that a small file may be a long text."""
    rows: list[str] = []
    left_out = [decoded.left_out] if decoded.left_out else []
    size = 0
    for row in _rows(decoded.text):
        size += len(row) + 2
        if size > MAX_TEXT:
            left_out.append(f"the rows after the first {len(rows)}")
            break
        rows.append(row)
    return Document("\n\n".join(rows), "plain", left_out)


def _rows(text: str) -> Iterator[str]:
    """Each row with the names of its columns, so that a passage of a long table says what its values are."""
    try:
        dialect: Any = csv.Sniffer().sniff(text[:4096], delimiters=",;\t|")
    except csv.Error:
        dialect = csv.excel
    header: list[str] = []
    try:
        for row in csv.reader(io.StringIO(text, newline=""), dialect):
            if header:
                pairs = zip([*header, *[""] * (len(row) - len(header))], row, strict=False)
                shown = _ROW.join(f"{column}: {value}" if column else value for column, value in pairs if value.strip())
                if shown:
                    yield shown
            else:
                header = [column[:MAX_COLUMN_NAME] for column in row]
                if header != row:
                    yield _ROW.join(row)
    except csv.Error:  # a field over the limit of the module, such as a quote that is never closed
        yield text
    else:
        if header and "\n" not in text.strip():
            yield _ROW.join(header)
