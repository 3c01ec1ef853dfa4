"""The characters of a document, checked before any parser sees them."""

from __future__ import annotations

import re
from collections.abc import Iterator

from toolplug.errors import ConfigError, Problem

MAX_DOCUMENT_BYTES = 1024 * 1024

_UNPRINTABLE = re.compile(r"[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_MAX_UNPRINTABLE_REPORTS = 20


def decode_source(data: bytes, *, file: str) -> str:
    """Return the text without its byte order mark, or raise ConfigError: too large, not UTF-8, not printable."""
    if len(data) > MAX_DOCUMENT_BYTES:
        raise ConfigError([Problem(code="too_large", message="the document is larger than 1 MiB", file=file)])
    try:
        text = data.decode("utf-8").removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        raise ConfigError([_not_utf8(data, error.start, file)]) from None
    if problems := [*_unprintable(text, file), *_tag_directives(text, file)]:
        raise ConfigError(problems)
    return text


def _not_utf8(data: bytes, offset: int, file: str) -> Problem:
    before = data[:offset]
    return Problem(
        code="not_utf8",
        message=f"not UTF-8: byte 0x{data[offset]:02x} at offset {offset}",
        file=file,
        line=before.count(b"\n") + 1,
        column=len(before[before.rfind(b"\n") + 1 :].decode("utf-8")) + 1,
        hint="save the file as UTF-8",
    )


def _unprintable(text: str, file: str) -> Iterator[Problem]:
    for count, found in enumerate(_UNPRINTABLE.finditer(text)):
        if count == _MAX_UNPRINTABLE_REPORTS:
            return
        before = text[: found.start()]
        yield Problem(
            code="control_character",
            message=f"the control character U+{ord(found[0]):04X} is not allowed",
            file=file,
            line=before.count("\n") + 1,
            column=len(before) - before.rfind("\n"),
            hint=f'remove it, or write "\\u{ord(found[0]):04x}" in double quotes',
        )


def _tag_directives(text: str, file: str) -> Iterator[Problem]:
    """Find a `%TAG` line before the document: its tags would be refused, and many such lines are slow to parse."""
    for number, line in enumerate(text.splitlines(), start=1):
        if line.startswith("%TAG"):
            yield Problem(
                code="tag",
                message="the directive '%TAG' is not allowed",
                file=file,
                line=number,
                column=1,
                hint="remove the line; plain values need no tags",
            )
            return
        if line and not line.isspace() and not line.lstrip().startswith(("#", "%")):
            return
