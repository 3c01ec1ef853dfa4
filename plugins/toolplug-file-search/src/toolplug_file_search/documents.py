"""What may be searched: text in UTF-8, under a name that can be shown."""

from __future__ import annotations

import unicodedata
from pathlib import PurePosixPath

MAX_NAME_CHARACTERS = 255
MARKDOWN_SUFFIXES = frozenset({".md", ".markdown", ".mdx"})
SUFFIXES = MARKDOWN_SUFFIXES | {".txt", ".text", ".rst"}
"""What is taken from a folder; a file that is named or uploaded may be called anything."""


class UnreadableDocument(Exception):
    """Not a document that can be searched; `code` says why in one word, the text in full."""

    def __init__(self, code: str, message: str) -> None:
        self.code = code
        super().__init__(message)


def is_markdown(name: str) -> bool:
    """Are its headings to be read as Markdown."""
    return PurePosixPath(name).suffix.lower() in MARKDOWN_SUFFIXES


def document_text(name: str, content: bytes) -> str:
    """The text of a file, without a byte order mark. Raises `UnreadableDocument`."""
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        byte = content[error.start]
        raise UnreadableDocument(
            "not_utf8",
            f"{name!r} is not UTF-8 text (byte 0x{byte:02x} at {error.start}); text and Markdown can be searched",
        ) from None
    if "\0" in text:
        raise UnreadableDocument(
            "not_text", f"{name!r} is not text: it holds NUL characters; text and Markdown can be searched"
        )
    if not text.strip():
        raise UnreadableDocument("empty_file", f"{name!r} holds no text")
    return text


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
