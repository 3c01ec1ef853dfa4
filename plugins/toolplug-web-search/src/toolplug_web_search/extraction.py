"""The text of a page, in a process of its own: `python -m toolplug_web_search.extraction`.

A page is a stranger's file. The parsers of HTML and PDF can take any time and memory over one, and nothing can end a
thread; a process is limited and killed. It reads a line of JSON and the page from standard input, and writes JSON.
"""

from __future__ import annotations

import codecs
import io
import json
import logging
import re
import sys
from collections.abc import Mapping
from importlib import import_module
from typing import NamedTuple

MAX_CHARACTERS = 400_000
"""Characters of a page that are read; what follows is cut off."""
MAX_MEMORY_BYTES = 1024 * 1024 * 1024
MAX_CPU_S = 20

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
    """Return the text of a page. Raises `UnreadablePage`.

    The content decides what a page is; `media_type` and `charset`, which its server declares, are hints.
    """
    if not data.strip():
        raise UnreadablePage("the page is empty")
    if b"%PDF-" in data[:1024]:
        return _pdf(data)
    if b"\0" in data[:4096] and not charset.startswith("utf-16"):
        raise UnreadablePage(f"this is no text but {media_type or 'binary data'}")
    if "html" in media_type or _MARKUP.search(data[:4096]):
        return _html(data, charset)
    text = _decoded(data, charset)
    return PageText(text[:MAX_CHARACTERS], cut=len(text) > MAX_CHARACTERS)


def _html(data: bytes, charset: str) -> PageText:
    trafilatura = import_module("trafilatura")  # takes 0.2 s, and pages of other kinds do not need it
    if b"<html" not in data[:4096].lower() and not charset.startswith("utf-16"):
        # HTML may leave the tag out, and trafilatura takes nothing without it.
        data = b"<html>" + data.removeprefix(codecs.BOM_UTF8)
    given = _decoded(data, charset) if charset else data
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
        reader = pypdf.PdfReader(io.BytesIO(data))
        if reader.is_encrypted and not reader.decrypt(""):
            raise UnreadablePage("the PDF is encrypted, and needs a password")
        parts: list[str] = []
        length = 0
        for number, page in enumerate(reader.pages, 1):
            parts.append(f"[page {number}]\n{page.extract_text()}")
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
    if not re.sub(r"\[page \d+\]", "", text).strip():
        raise UnreadablePage("the PDF has no text; its pages may be images")
    return PageText(text[:MAX_CHARACTERS], title, None, length > MAX_CHARACTERS)


def _decoded(data: bytes, charset: str) -> str:
    for name in (charset, "utf-8-sig"):
        try:
            return data.decode(name or "utf-8-sig")
        except (LookupError, UnicodeDecodeError):
            continue
    return data.decode("utf-8", "replace")


def _limit() -> None:
    try:
        resource = import_module("resource")
    except ImportError:  # on Windows
        return
    resource.setrlimit(resource.RLIMIT_AS, (MAX_MEMORY_BYTES, MAX_MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CPU, (MAX_CPU_S, MAX_CPU_S))


def main() -> None:
    """Read a page from standard input and write its text, or why it has none, to standard output."""
    _limit()
    logging.disable()
    given: Mapping[str, str] = json.loads(sys.stdin.buffer.readline())
    try:
        found = page_text(sys.stdin.buffer.read(), given["media_type"], given["charset"])
        answer: Mapping[str, object] = found._asdict()
    except UnreadablePage as error:
        answer = {"unreadable": str(error)}
    except (MemoryError, RecursionError):
        answer = {"unreadable": "the page takes too much memory to read"}
    sys.stdout.buffer.write(json.dumps(answer).encode())


if __name__ == "__main__":
    main()
