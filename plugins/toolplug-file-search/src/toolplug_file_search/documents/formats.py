"""The formats that can be searched, detected from the content of a file, then from its name."""

from __future__ import annotations

import unicodedata
from enum import StrEnum
from pathlib import PurePosixPath
from types import MappingProxyType

MAX_NAME_CHARACTERS = 255


class Format(StrEnum):
    """What a file is."""

    TEXT = "text"
    MARKDOWN = "markdown"
    CSV = "csv"
    HTML = "html"
    PDF = "pdf"
    DOCX = "docx"


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
_PDF, _ZIP = b"%PDF-", b"PK\x03\x04"
_OTHERS = MappingProxyType(
    {
        b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1": "an encrypted Office file, or one of a version before 2007",
        _ZIP: "a ZIP archive that holds no Word document",
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


def detect(name: str, content: bytes, *, is_text: bool) -> Format:
    """Return the format of a file, whatever its name says. Raises `UnreadableDocument` for one that is no document.

    `is_text`: its beginning may be text. A text that begins like another kind of file, or mentions one, is text.
    """
    if not content or content.isspace():
        raise UnreadableDocument("empty_file", f"{name!r} is empty")
    if content[:1024].lstrip().startswith(_PDF) or (not is_text and _PDF in content[:1024]):
        return Format.PDF  # something may stand before its header, which is no text then
    if content.startswith(_ZIP) and (b"word/" in content or b"word\\" in content):
        return Format.DOCX
    for magic, what in _OTHERS.items():
        if content.startswith(magic) and not (is_text and magic.isascii()):
            raise UnreadableDocument("unsupported_file", f"{name!r} is {what}; {KNOWN}")
    if not is_text:
        raise UnreadableDocument("not_text", f"{name!r} is not text; {KNOWN}")
    return named_format(name, content)


def named_format(name: str, content: bytes) -> Format:
    """Return the format of a text: as its name says, but a page of HTML where it begins like one."""
    named = SUFFIXES.get(PurePosixPath(name).suffix.lower(), Format.TEXT)
    if named in (Format.PDF, Format.DOCX):  # it says so, and is none: what is it?
        named = Format.TEXT
    if named is Format.TEXT and content[:512].lstrip().lower().startswith((b"<!doctype html", b"<html")):
        return Format.HTML
    return named


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
