"""Text in any common encoding: marked, UTF-8, UTF-16 and UTF-32 without a mark, or what fits best."""

from __future__ import annotations

import codecs
import unicodedata
from importlib import import_module
from typing import Any, NamedTuple

from toolplug_file_search.documents.formats import KNOWN, UnreadableDocument

SAMPLE_BYTES = 64 * 1024
"""So much of a file is looked at to find out its encoding."""
_BOMS = (codecs.BOM_UTF8, codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE, codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
_BOM_ENCODINGS = ("utf-8-sig", "utf-32", "utf-32", "utf-16", "utf-16")
_MOST_CONTROLS, _MOST_NUL, _LARGEST_HOLE = 0.05, 0.3, 0.6
"""Shares of a text that are control characters, NUL here and there, and NUL after a crash, at most. Random bytes have
11 % of control characters, and Latin letters in UTF-16 50 % of NUL."""
_FEW, _AROUND_A_HOLE = 2, 100
_CONTROLS = bytes(code for code in range(1, 32) if code not in b"\t\n\r\f\v\b\x1b")
_PLAUSIBLE = 0.95
_BLANKS = " \n\t、。"
_REPLACEMENT = "\ufffd"


class Decoded(NamedTuple):
    """The text of a file; `left_out` says what of it could not be read, empty for nothing."""

    text: str
    left_out: str = ""


def looks_like_text(content: bytes) -> bool:
    """Return whether the beginning of a file may be text, in time that its length does not change."""
    return _encoding(content[:SAMPLE_BYTES]) is not None


def decode(name: str, content: bytes) -> Decoded:
    """Return the text of a file. Raises `UnreadableDocument` for one that is no text.

    NUL characters are left out, and bytes that the encoding does not have become U+FFFD.
    """
    encoding = _encoding(content[:SAMPLE_BYTES])
    if encoding is None:
        raise UnreadableDocument("not_text", f"{name!r} is not text: it holds control characters; {KNOWN}")
    try:
        text = content.decode(encoding or "utf-8")
    except UnicodeDecodeError:
        text = content.decode(encoding, "replace") if encoding else _guess(name, content)
    left_out: list[str] = []
    if bad := text.count(_REPLACEMENT):
        left_out.append(f"{bad} characters that its encoding does not have")
    if nul := text.count("\0"):
        text = text.replace("\0", "")
        left_out.append(f"{nul} NUL characters")
    return Decoded(text, ", ".join(left_out))


def _encoding(sample: bytes) -> str | None:
    """The encoding that a beginning is surely in; empty for UTF-8 or another of single bytes, None for no text."""
    marked = next((found for bom, found in zip(_BOMS, _BOM_ENCODINGS, strict=True) if sample.startswith(bom)), None)
    if marked is not None:
        return marked
    rest = sample.replace(b"\0", b"")
    nul = len(sample) - len(rest)
    few_controls = len(rest) - len(rest.translate(None, _CONTROLS)) <= max(_FEW, _MOST_CONTROLS * len(rest))
    if few_controls and (nul == 0 or (nul <= _MOST_NUL * len(sample) and _is_utf8(rest))):
        return ""
    wide = _wide_encoding(sample)
    has_hole = len(rest) >= _AROUND_A_HOLE and few_controls and nul <= _LARGEST_HOLE * len(sample) and _is_utf8(rest)
    return "" if wide is None and has_hole else wide


def _is_utf8(sample: bytes) -> bool:
    """Return whether a sample, whose last character may be cut, is UTF-8."""
    try:
        codecs.getincrementaldecoder("utf-8")().decode(sample)
    except UnicodeDecodeError:
        return False
    return True


def _wide_encoding(sample: bytes) -> str | None:
    """The encoding of two or four bytes a character that makes a sample text; of several the one with most blanks."""
    found: list[tuple[int, str]] = []
    for encoding, width in (("utf-32-le", 4), ("utf-32-be", 4), ("utf-16-le", 2), ("utf-16-be", 2)):
        text = sample[: len(sample) // width * width].decode(encoding, "replace")
        if len(text) > 1 and sum(map(_is_common, text)) >= _PLAUSIBLE * len(text):
            found.append((sum(map(text.count, _BLANKS)), encoding))
    return max(found)[1] if found else None


def _is_common(character: str) -> bool:
    return character in "\t\n\r" or (character != _REPLACEMENT and unicodedata.category(character)[0] in "LMNPSZ")


def _guess(name: str, content: bytes) -> str:
    """Decode what is not UTF-8, or not throughout, with the encoding that fits best."""
    text = content.decode("utf-8", "replace")
    bad = text.count(_REPLACEMENT)
    good = sum(not character.isascii() for character in text) - bad
    if good > 10 * bad:  # damaged in some places
        return text
    detector: Any = import_module("charset_normalizer")
    best = detector.from_bytes(content[:SAMPLE_BYTES]).best()
    if best is not None:
        return content.decode(best.encoding, "replace")
    if bad <= _MOST_CONTROLS * len(text):
        return text
    raise UnreadableDocument("not_text", f"{name!r} is not text in any encoding that is known here; {KNOWN}")
