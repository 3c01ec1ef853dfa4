"""The formats that can be searched, detected from the content of a file, then from its name."""

from __future__ import annotations

import codecs
import unicodedata
from enum import StrEnum
from importlib import import_module
from pathlib import PurePosixPath
from types import MappingProxyType
from typing import Any

MAX_NAME_CHARACTERS = 255
SAMPLE_BYTES = 64 * 1024
"""So much of a file is looked at to find out its encoding."""


class Format(StrEnum):
    """What a file is."""

    TEXT = "text"
    MARKDOWN = "markdown"
    CSV = "csv"
    HTML = "html"
    PDF = "pdf"
    DOCX = "docx"


PARSED = frozenset({Format.PDF, Format.DOCX, Format.HTML})
"""What a parser reads."""
_CODE = (
    *(".bash", ".bat", ".c", ".cc", ".cfg", ".cmake", ".conf", ".cpp", ".cs", ".css", ".dart", ".ex", ".exs", ".go"),
    *(".gradle", ".graphql", ".groovy", ".h", ".hpp", ".hs", ".ini", ".java", ".jl", ".js", ".json", ".jsonl", ".jsx"),
    *(".kt", ".lua", ".m", ".mjs", ".php", ".pl", ".proto", ".ps1", ".py", ".pyi", ".r", ".rb", ".rs", ".scala"),
    *(".scss", ".sh", ".sql", ".swift", ".tex", ".tf", ".toml", ".ts", ".tsx", ".vue", ".xml", ".yaml", ".yml", ".zig"),
)
SUFFIXES = MappingProxyType(
    {
        **dict.fromkeys((".md", ".markdown", ".mdx"), Format.MARKDOWN),
        **dict.fromkeys((".txt", ".text", ".rst", ".log", *_CODE), Format.TEXT),
        **dict.fromkeys((".csv", ".tsv"), Format.CSV),
        **dict.fromkeys((".html", ".htm", ".xhtml"), Format.HTML),
        ".pdf": Format.PDF,
        ".docx": Format.DOCX,
    }
)
"""What is taken from a folder, by suffix; a file that is named or uploaded may be called anything."""

KNOWN = "text, Markdown, HTML, CSV, source code, PDF and docx can be searched"
_BOMS = (codecs.BOM_UTF8, codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE, codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
_BOM_ENCODINGS = ("utf-8-sig", "utf-32", "utf-32", "utf-16", "utf-16")
_OTHERS = MappingProxyType(
    {
        b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1": "an encrypted Office file, or one of a version before 2007",
        b"PK\x03\x04": "a ZIP archive that holds no Word document",
        b"\x89PNG": "an image",
        b"\xff\xd8\xff": "an image",
        b"GIF8": "an image",
        b"\x1f\x8b": "a gzip archive",
        b"\x7fELF": "a program",
        b"SQLite format 3\0": "a database",
    }
)


class UnreadableDocument(Exception):
    """Not a document that can be searched; `code` says why in one word, the text in full."""

    def __init__(self, code: str, message: str) -> None:
        self.code = code
        super().__init__(message)


def detect(name: str, content: bytes) -> Format:
    """Return the format of a file, whatever its name says. Raises `UnreadableDocument` for one that is no document."""
    if not content.strip():
        raise UnreadableDocument("empty_file", f"{name!r} is empty")
    if content[:1024].find(b"%PDF-") >= 0:
        return Format.PDF
    if content.startswith(b"PK\x03\x04") and b"word/" in content:
        return Format.DOCX
    for magic, what in _OTHERS.items():
        if content.startswith(magic):
            raise UnreadableDocument("unsupported_file", f"{name!r} is {what}; {KNOWN}")
    named = SUFFIXES.get(PurePosixPath(name).suffix.lower(), Format.TEXT)
    if named in (Format.PDF, Format.DOCX):  # it says so, and is none: what is it?
        named = Format.TEXT
    if named is Format.TEXT and content[:512].lstrip().lower().startswith((b"<!doctype html", b"<html")):
        return Format.HTML
    return named


def check(name: str, content: bytes) -> None:
    """Raise `UnreadableDocument` for what is no document at first sight; what a parser says comes later."""
    if detect(name, content) not in PARSED and not decoded(name, content).strip():
        raise UnreadableDocument("empty_file", f"{name!r} holds no text")


def decoded(name: str, content: bytes) -> str:
    """Return the text of a file in any common encoding. Raises `UnreadableDocument` where it is no text."""
    encoding = next((found for bom, found in zip(_BOMS, _BOM_ENCODINGS, strict=True) if content.startswith(bom)), None)
    try:
        text = content.decode(encoding or "utf-8")
    except UnicodeDecodeError:
        text = _guessed(name, content)
    if "\0" in text:
        raise UnreadableDocument("not_text", f"{name!r} is not text: it holds NUL characters; {KNOWN}")
    return text


def _guessed(name: str, content: bytes) -> str:
    """Decode with the encoding that fits best; charset-normalizer is imported for such files only."""
    detector: Any = import_module("charset_normalizer")
    best = detector.from_bytes(content[:SAMPLE_BYTES]).best()
    if best is not None and b"\0" not in content:
        try:
            return content.decode(best.encoding)
        except UnicodeDecodeError:
            pass
    raise UnreadableDocument("not_text", f"{name!r} is not text in any encoding that is known here; {KNOWN}")


def check_name(name: str) -> None:
    """Raise `UnreadableDocument` for a name that cannot be kept and shown as it is."""
    if not name.strip():
        raise UnreadableDocument("invalid_file_name", "the file has no name")
    if len(name) > MAX_NAME_CHARACTERS:
        raise UnreadableDocument(
            "invalid_file_name", f"the file's name has {len(name)} characters, {MAX_NAME_CHARACTERS} are allowed"
        )
    if any(unicodedata.category(character) in ("Cc", "Cf", "Cs", "Zl", "Zp") for character in name):
        raise UnreadableDocument("invalid_file_name", f"the file's name {name!r} holds characters that cannot be shown")
