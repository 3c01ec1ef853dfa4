"""The text of a document. What parses PDF, docx and HTML is imported on demand, in a worker process only."""

from __future__ import annotations

import csv
import io
import zipfile
from collections.abc import Iterator
from importlib import import_module
from typing import Any, Literal, NamedTuple

from toolplug_file_search.documents.formats import Format, UnreadableDocument, decoded

Layout = Literal["plain", "markdown", "pages"]

MAX_TEXT = 20_000_000
"""Characters that the text of a document has at most."""
MAX_UNPACKED = 100 * 1024 * 1024
"""Bytes that the parts of a docx have at most, unpacked."""
PAGE_BREAK = "\f"
_SILENT = ("script", "style", "noscript", "template", "svg", "nav")
_ROW = "; "


class Document(NamedTuple):
    """The text of a file; `layout` says how its sections are found: none, Markdown headings, or pages."""

    text: str
    layout: Layout


def convert(kind: Format, name: str, content: bytes) -> Document:
    """Return the text of a file of this format. Raises `UnreadableDocument`; a hostile file may raise anything."""
    document = _convert(kind, name, content)
    if len(document.text) > MAX_TEXT:
        raise UnreadableDocument("file_too_large", f"{name!r} holds more than {MAX_TEXT} characters of text")
    if not document.text.strip():
        reason = "no text; pages that are images need text recognition first" if kind is Format.PDF else "no text"
        raise UnreadableDocument("empty_file", f"{name!r} holds {reason}")
    return document


def _convert(kind: Format, name: str, content: bytes) -> Document:
    if kind is Format.PDF:
        return Document(_pdf(name, content), "pages")
    if kind is Format.DOCX:
        return Document(_docx(name, content), "markdown")
    text = decoded(name, content)
    if kind is Format.HTML:
        return Document(_markdown(text), "markdown")
    if kind is Format.CSV:
        return Document("\n\n".join(_rows(text)), "plain")
    return Document(text, "markdown" if kind is Format.MARKDOWN else "plain")


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
                yield _ROW.join(f"{column}: {value}" if column else value for column, value in pairs if value.strip())
            else:
                header = row
    except csv.Error:  # a field over the limit of the module, such as a quote that is never closed
        yield text
    else:
        if header and "\n" not in text.strip():
            yield _ROW.join(header)


def _pdf(name: str, content: bytes) -> str:
    pypdf: Any = import_module("pypdf")
    try:
        reader = pypdf.PdfReader(io.BytesIO(content))
        if reader.is_encrypted and not reader.decrypt(""):
            raise UnreadableDocument("encrypted_file", f"{name!r} is encrypted: it needs a password")
        pages: list[str] = []
        size = 0
        for page in reader.pages:
            pages.append(page.extract_text())
            size += len(pages[-1])
            if size > MAX_TEXT:
                break
    except UnreadableDocument:
        raise
    except Exception as error:  # noqa: BLE001  pypdf raises anything for damaged files
        raise UnreadableDocument("damaged_file", f"{name!r} cannot be read as PDF: {_reason(error)}") from None
    return PAGE_BREAK.join(pages)


def _docx(name: str, content: bytes) -> str:
    mammoth: Any = import_module("mammoth")
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            size = sum(part.file_size for part in archive.infolist())
        if size > MAX_UNPACKED:
            raise UnreadableDocument(
                "file_too_large", f"{name!r} has {size} bytes unpacked, at most {MAX_UNPACKED} are read"
            )
        drop_images = mammoth.images.img_element(_no_image)
        page = mammoth.convert_to_html(io.BytesIO(content), convert_image=drop_images).value
    except UnreadableDocument:
        raise
    except Exception as error:  # noqa: BLE001  so does mammoth
        raise UnreadableDocument("damaged_file", f"{name!r} cannot be read as docx: {_reason(error)}") from None
    return _markdown(page)


def _no_image(image: object) -> dict[str, str]:
    return {}


def _markdown(page: str) -> str:
    """HTML as Markdown, so that its headings are found; without scripts, styles, navigation, links and images."""
    soup: Any = import_module("bs4").BeautifulSoup(page, "html.parser")
    converter: Any = import_module("markdownify").MarkdownConverter(
        heading_style="ATX", strip=["a", "img"], escape_asterisks=False, escape_underscores=False, bullets="-"
    )
    title = soup.title.get_text(" ", strip=True) if soup.title else ""
    for part in soup([*_SILENT, "title"]):
        part.decompose()
    text = str(converter.convert_soup(soup)).strip()
    return text if not title or title in text else f"# {title}\n\n{text}"


def _reason(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"[:200].splitlines()[0]
