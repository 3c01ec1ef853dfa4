"""The text of PDF files, page by page: a damaged page, table of objects or end costs itself alone."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from importlib import import_module
from time import process_time
from typing import Any

from toolplug_file_search.documents.budget import OutOfTime, at_most
from toolplug_file_search.documents.formats import UnreadableDocument

PAGE_BREAK = "\f"
PAGE_S, PAGES_S = 10.0, 40.0
"""Seconds of CPU time that one page may take, and all together."""
MAX_PAGES = 20_000
_DAMAGED = "\0"
_SHOWN = 20
"""So many pages that are left out are named."""
_OBJECT = re.compile(rb"(?<!\d)(\d{1,9})[ \t\r\n]{1,4}(\d{1,5})[ \t\r\n]{1,4}obj")


def read_pdf(name: str, content: bytes, max_text: int) -> tuple[str, list[str]]:
    """Return the text of the pages and what of it could not be read. Raises `UnreadableDocument`."""
    texts: list[str] = []
    damaged: list[int] = []
    left_out: list[str] = []
    size, began = 0, process_time()
    for number, page in enumerate(_pages(name, content), 1):
        if size > max_text or number > MAX_PAGES or process_time() - began > PAGES_S:
            left_out.append(f"the pages from {number} on: the document is too large")
            break
        texts.append(_text(page))
        size += len(texts[-1])
        if texts[-1] == _DAMAGED:
            texts[-1] = ""
            damaged.append(number)
    if len(damaged) == len(texts):
        raise UnreadableDocument("damaged_file", f"{name!r} cannot be read as PDF: none of its pages can be read")
    if damaged:
        more = f" and {len(damaged) - _SHOWN} more" if len(damaged) > _SHOWN else ""
        word = "page" if len(damaged) == 1 else "pages"
        left_out.insert(0, f"{word} {', '.join(map(str, damaged[:_SHOWN]))}{more}: damaged, or too much work")
    return PAGE_BREAK.join(texts), left_out


def _text(page: Any) -> str:
    try:
        with at_most(PAGE_S):
            text = str(page.extract_text()).replace(PAGE_BREAK, "\n")
    except (Exception, OutOfTime):  # noqa: BLE001  pypdf raises anything for damaged pages
        return _DAMAGED
    return _DAMAGED if 2 * text.count("\ufffd") > len(text) else text  # its fonts do not say what they show


def _pages(name: str, content: bytes) -> Iterator[Any]:
    """The pages of a file as they are listed; of one whose list is damaged as they are found."""
    pypdf: Any = import_module("pypdf")
    cause: Exception | None = None
    for candidate in (content, _with_new_table(content)):
        try:
            reader = pypdf.PdfReader(io.BytesIO(candidate))
            if reader.is_encrypted and not reader.decrypt(""):
                raise UnreadableDocument("encrypted_file", f"{name!r} is encrypted: it needs a password")
            pages = _list_pages(reader) or _found(reader)
        except UnreadableDocument:
            raise
        except Exception as error:  # noqa: BLE001  pypdf raises anything for damaged files
            cause = cause or error
        else:
            if pages:
                return iter(pages)
    reason = "it has no pages" if cause is None else f"{type(cause).__name__}: {cause}"[:200].splitlines()[0]
    raise UnreadableDocument("damaged_file", f"{name!r} cannot be read as PDF: {reason}")


def _list_pages(reader: Any) -> list[Any]:
    """The pages that the tree of pages leads to, each once: it may be a circle. None for what is damaged."""
    pages: list[Any] = []
    try:
        waiting = [reader.trailer["/Root"].raw_get("/Pages")]
    except Exception:  # noqa: BLE001  anything, for damaged files
        return pages
    seen: set[int] = set()
    while waiting and len(pages) <= MAX_PAGES:
        reference = waiting.pop()
        number = getattr(reference, "idnum", 0)
        if number and number in seen:
            continue
        seen.add(number)
        try:
            node = reference.get_object()
            if "/Kids" in node:
                waiting.extend(reversed(node["/Kids"]))
            elif node.get("/Type", "/Page") == "/Page":
                pages.append(_page(reader, reference, node))
        except Exception:  # noqa: BLE001  a damaged branch of the tree
            pages.append(None)
    return pages if any(page is not None for page in pages) else []


def _found(reader: Any) -> list[Any]:
    """The objects of the file that say that they are pages."""
    pages: list[Any] = []
    for number in sorted({number for table in reader.xref.values() for number in table} | set(reader.xref_objStm)):
        try:
            reference = import_module("pypdf.generic").IndirectObject(number, 0, reader)
            node = reference.get_object()
            if node["/Type"] == "/Page":
                pages.append(_page(reader, reference, node))
        except Exception:  # noqa: BLE001  a damaged object, or one of another kind
            continue
    return pages


def _page(reader: Any, reference: Any, node: Any) -> Any:
    page: Any = import_module("pypdf").PageObject(reader, reference)
    page.update(node)
    return page


def _with_new_table(content: bytes) -> bytes:
    """The file with a new table of its objects at the end, for one whose own is damaged or missing."""
    places: dict[int, tuple[int, int]] = {}
    for found in _OBJECT.finditer(content):
        places[int(found[1])] = (found.start(), int(found[2]))
    root = 0
    for number, (start, _) in places.items():
        if re.match(rb"[^>]{0,200}/Type\s{0,9}/Catalog\b", content[start : start + 400], re.DOTALL):
            root = number
    table = [b"xref\n"]
    for number, (start, generation) in sorted(places.items()):
        table.append(b"%d 1\n%010d %05d n \n" % (number, start, generation))
    size = max(places, default=0) + 1
    end = b"trailer\n<</Size %d/Root %d 0 R>>\nstartxref\n%d\n%%%%EOF\n" % (size, root, len(content) + 1)
    return b"".join([content, b"\n", *table, end])
