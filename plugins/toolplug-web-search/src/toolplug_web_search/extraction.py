"""The text of a page, which is read in a process of its own (`toolplug.apart`).

A page is a stranger's file. The parsers of HTML and PDF can take any time and memory over one, and nothing can end a
thread; a process is limited and killed.
"""

from __future__ import annotations

import codecs
import io
import json
import re
import zlib
from collections.abc import Mapping
from importlib import import_module
from typing import Any, NamedTuple

from toolplug.foreign import clean_text, in_one_line

MAX_CHARACTERS = 400_000
"""Characters of a page that are read; what follows is cut off."""
MAX_EXPANDED_BYTES = 64 * 1024 * 1024
"""Of a page that is compressed with gzip."""

_GZIP = b"\x1f\x8b"
_PDF_BEGINS = 1024
"""Bytes that may come before the begin of a PDF, as its readers agree."""
_MARKS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_CONTROLS = re.compile("[\x01-\x08\x0e-\x1a\x1c-\x1f]")
_MARKUP = re.compile(rb"<(?:!doctype|html|head|body|title|article|p|div)\b", re.IGNORECASE)


class UnreadablePage(Exception):
    """A page without a text that can be read; the text says why."""


class PageText(NamedTuple):
    """The text of a page, in Markdown if it was HTML; `date` is a day such as 2026-11-24."""

    text: str
    title: str = ""
    date: str | None = None
    cut: bool = False


def page_text(data: bytes, media_type: str, charset: str) -> PageText:
    """Return the text of a page, without characters that nobody can see. Raises `UnreadablePage`.

    The content decides what a page is; `media_type` and `charset`, which its server declares, are hints.
    """
    found = _text_of(_expand(data), media_type, charset)
    title = in_one_line(clean_text(found.title))
    return found._replace(text=clean_text(found.text), title=" ".join(title.split()))


def _text_of(data: bytes, media_type: str, charset: str) -> PageText:
    if not data.strip(b"\0 \t\r\n\f\v"):
        raise UnreadablePage("the page is empty")
    if b"%PDF-" in data[:_PDF_BEGINS]:
        try:
            return _pdf(data)
        except UnreadablePage:
            # a text that only speaks of PDFs is a text
            if media_type == "application/pdf" or not _is_text(data):
                raise
    charset = _own_charset(data) or charset
    if b"\0" in data[:4096] and not charset.startswith(("utf-16", "utf-32")) and not _is_text(data):
        raise UnreadablePage(f"this is no text but {media_type or 'binary data'}")
    if "html" in media_type or _MARKUP.search(data[:4096].replace(b"\0", b"")):
        return _html(data, charset)
    text = _decode(data, charset)
    return PageText(text[:MAX_CHARACTERS], cut=len(text) > MAX_CHARACTERS)


def _expand(data: bytes) -> bytes:
    """Return the content of a page that is stored with gzip. Raises `UnreadablePage`."""
    if not data.startswith(_GZIP):
        return data
    reader = zlib.decompressobj(wbits=31)
    try:
        found = reader.decompress(data, MAX_EXPANDED_BYTES)
    except zlib.error:
        raise UnreadablePage("the page is compressed with gzip, and damaged") from None
    if reader.unconsumed_tail:
        raise UnreadablePage(f"the page is compressed, and has more than {MAX_EXPANDED_BYTES:,} bytes")
    return found


def _own_charset(data: bytes) -> str:
    """Return the charset that the content itself shows: by a mark, or as UTF-16 of Latin letters; else nothing."""
    for mark, name in _MARKS:
        if data.startswith(mark):
            return name
    head = data[:4096]
    half = len(head) // 2
    for name, high, low in (("utf-16-le", head[1::2], head[::2]), ("utf-16-be", head[::2], head[1::2])):
        if half > 4 and high.count(0) > 0.7 * half and low.count(0) < 0.1 * half:
            return name
    return ""


def _is_text(data: bytes) -> bool:
    """Return whether bytes are a text in UTF-8, such as a log, in which a NUL may be."""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return False
    return len(_CONTROLS.findall(text)) + text.count("\0") <= len(text) // 50


def _html(data: bytes, charset: str) -> PageText:
    trafilatura = import_module("trafilatura")  # 0.2 s, which the provider's process does not need
    if b"<html" not in data[:4096].lower() and not charset.startswith(("utf-16", "utf-32")):
        # HTML may leave the tag out, and trafilatura takes nothing without it.
        data = b"<html>" + data.removeprefix(codecs.BOM_UTF8)
    given = _decode(data, charset) if charset else data
    text = trafilatura.extract(given, output_format="markdown", include_tables=True, favor_recall=True)
    text = text or trafilatura.html2txt(given)  # all that is there, menus too, where no main text is found
    if not text.strip():
        raise UnreadablePage("the page has no text; it may be written by JavaScript, which is not run")
    tree = trafilatura.load_html(given)
    about = None if tree is None else trafilatura.extract_metadata(tree)
    title, date = ("", None) if about is None else (about.title or "", about.date)
    return PageText(text[:MAX_CHARACTERS], title[:500], date, len(text) > MAX_CHARACTERS)


def _pdf(data: bytes) -> PageText:
    pypdf, errors = import_module("pypdf"), import_module("pypdf.errors")  # as above
    try:
        try:
            reader = pypdf.PdfReader(io.BytesIO(data))
        except errors.PyPdfError:
            reader = pypdf.PdfReader(io.BytesIO(data + _table_of(data)))
        if reader.is_encrypted and not reader.decrypt(""):
            raise UnreadablePage("the PDF is encrypted, and needs a password")
        parts: list[str] = []
        length = 0
        for number in range(len(reader.pages)):
            parts.append(f"[page {number + 1}]\n{_page_text(reader, number)}")
            length += len(parts[-1])
            if length > MAX_CHARACTERS:
                break
        about = reader.metadata
        title = str((about and about.title) or "")[:500]
    except errors.DependencyError:
        raise UnreadablePage("the PDF is encrypted in a way that is not supported") from None
    except (errors.PyPdfError, ValueError, KeyError, TypeError, AttributeError, IndexError, RecursionError) as error:
        raise UnreadablePage(f"the PDF is damaged ({type(error).__name__})") from None
    text = "\n\n".join(parts)
    if not re.sub(rf"\[page \d+\]\n(?:{re.escape(_NO_PAGE)})?", "", text).strip():
        raise UnreadablePage("the PDF has no text; its pages may be images")
    return PageText(text[:MAX_CHARACTERS], title, None, length > MAX_CHARACTERS)


def _table_of(data: bytes) -> bytes:
    """Return an end for a PDF without a cross-reference table, as of one that was cut: pypdf then looks for objects."""
    catalog = data.find(b"/Catalog")
    numbers = data[: data.rfind(b" obj", 0, max(catalog, 0))][-20:].split()[-2:]
    root = b" ".join(numbers) if len(numbers) == 2 and all(each.isdigit() for each in numbers) else b"1 0"
    return b"\ntrailer\n<</Root %s R>>\nstartxref\n0\n%%%%EOF\n" % root


_NO_PAGE = "(this page cannot be read)"


def _page_text(reader: Any, number: int) -> str:
    """Return the text of one page; what is wrong with a page costs no other."""
    try:
        text: str = reader.pages[number].extract_text()
    except MemoryError:
        raise
    except Exception:  # noqa: BLE001  a stranger's file: pypdf raises whatever its parts raise
        return _NO_PAGE
    return text


def _decode(data: bytes, charset: str) -> str:
    for name in (charset, "utf-8-sig"):
        try:
            return data.decode(name or "utf-8-sig")
        except (LookupError, UnicodeDecodeError):
            continue
    return data.decode("utf-8", "replace")


def read_page(request: bytes) -> bytes:
    """Return the text of a page as JSON, or `unreadable`: why it has none. A request is a line of JSON and the page."""
    head, _, page = request.partition(b"\n")
    given: Mapping[str, str] = json.loads(head)
    import_module("trafilatura")  # whatever the page is: a reader that cannot read HTML is found at its first page
    try:
        answer: Mapping[str, object] = page_text(page, given["media_type"], given["charset"])._asdict()
    except UnreadablePage as error:
        answer = {"unreadable": str(error)}
    except RecursionError:
        answer = {"unreadable": "the page nests too deep to be read"}
    return json.dumps(answer).encode()
