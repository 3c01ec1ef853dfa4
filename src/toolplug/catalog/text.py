"""Text that a model reads: hidden characters and the heading reserved for notes are removed; and counts of nouns."""

from __future__ import annotations

import re
from functools import cache
from typing import Final, cast
from unicodedata import category


def pluralize(number: int, noun: str) -> str:
    """Return the number with the noun in its singular or plural: `1 tool`, `2 tools`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


NOTES_HEADING = "### Additional Tool Notes"
"""The heading of the notes that a user added; no text of the author follows it."""

_FORGED = re.compile(r"\s*#{1,6}\s*Additional\s+Tool\s+Notes[\s#:]*", re.IGNORECASE)
_BREAKS = re.compile("[\r\n\v\f\u0085\u2028\u2029]+")
_OTHER_LINE_BREAK = re.compile("\r\n?|[\u0085\u2028\u2029]")


def _character_class(*ranges: str) -> re.Pattern[str]:
    """Return a pattern of one character in ranges like `XXXX-XXXX XXXX`, as in the Unicode data files."""
    pairs = [item.partition("-") for text in ranges for item in text.split()]
    items = [rf"\U{int(first, 16):08x}-\U{int(last or first, 16):08x}" for first, _, last in pairs]
    return re.compile(f"[{''.join(items)}]")


# Unicode 17.0. Python's unicodedata knows the general category of its own version only, and no property:
# `tests/catalog/test_text.py` compares the tables with the package regex.
_CONTROL: Final = "0000-0008 000B-001F 007F-009F"
"""General category Cc, without TAB and LF."""
_FORMAT: Final = "0890-0891 FFF9-FFFB 110CD 13430-1343F"
"""General category Cf, as far as it is not default-ignorable and has no glyph of its own: U+0600 to U+0605, U+06DD,
U+070F, U+08E2 and U+110BD are visible signs that enclose numbers and words."""
_DEFAULT_IGNORABLE: Final = (
    "00AD 034F 061C 115F-1160 17B4-17B5 180B-180F 200B-200F 202A-202E 2060-206F 3164 FE00-FE0F FEFF FFA0 "
    "FFF0-FFF8 1BCA0-1BCA3 1D173-1D17A E0000-E0FFF"
)
"""Default_Ignorable_Code_Point, of DerivedCoreProperties.txt."""
_SEPARATORS: Final = "2028-2029"

_HIDDEN = _character_class(_CONTROL, _FORMAT, _DEFAULT_IGNORABLE, _SEPARATORS)

_EMOJI_RANGES: Final = """
00A9 00AE 203C 2049 2122 2139 2194-2199 21A9-21AA 231A-231B 2328 23CF 23E9-23F3 23F8-23FA 24C2 25AA-25AB 25B6
25C0 25FB-25FE 2600-2604 260E 2611 2614-2615 2618 261D 2620 2622-2623 2626 262A 262E-262F 2638-263A 2640 2642
2648-2653 265F-2660 2663 2665-2666 2668 267B 267E-267F 2692-2697 2699 269B-269C 26A0-26A1 26A7 26AA-26AB
26B0-26B1 26BD-26BE 26C4-26C5 26C8 26CE-26CF 26D1 26D3-26D4 26E9-26EA 26F0-26F5 26F7-26FA 26FD 2702 2705
2708-270D 270F 2712 2714 2716 271D 2721 2728 2733-2734 2744 2747 274C 274E 2753-2755 2757 2763-2764 2795-2797
27A1 27B0 27BF 2934-2935 2B05-2B07 2B1B-2B1C 2B50 2B55 3030 303D 3297 3299 1F004 1F0CF 1F170-1F171 1F17E-1F17F
1F18E 1F191-1F19A 1F1E6-1F1FF 1F201-1F202 1F21A 1F22F 1F232-1F23A 1F250-1F251 1F300-1F321 1F324-1F393
1F396-1F397 1F399-1F39B 1F39E-1F3F0 1F3F3-1F3F5 1F3F7-1F4FD 1F4FF-1F53D 1F549-1F54E 1F550-1F567 1F56F-1F570
1F573-1F57A 1F587 1F58A-1F58D 1F590 1F595-1F596 1F5A4-1F5A5 1F5A8 1F5B1-1F5B2 1F5BC 1F5C2-1F5C4 1F5D1-1F5D3
1F5DC-1F5DE 1F5E1 1F5E3 1F5E8 1F5EF 1F5F3 1F5FA-1F64F 1F680-1F6C5 1F6CB-1F6D2 1F6D5-1F6D9 1F6DC-1F6E5 1F6E9
1F6EB-1F6EC 1F6F0 1F6F3-1F6FC 1F7E0-1F7EB 1F7F0 1F90C-1F93A 1F93C-1F945 1F947-1F9FF 1FA70-1FA7C 1FA80-1FAC6
1FAC8 1FACC-1FADD 1FADF-1FAEB 1FAEF-1FAFA
"""
"""Emoji, of emoji-data.txt, without the ASCII digits, # and *."""

_JOINERS: Final = "\u200c\u200d"
_EMOJI_STYLE: Final = "\ufe0f"
_ALLOWED = re.compile(f"[{_JOINERS}{_EMOJI_STYLE}]")


@cache
def _emoji() -> re.Pattern[str]:
    """Return the pattern of one emoji; compiling it takes a millisecond that few texts need."""
    return _character_class(_EMOJI_RANGES)


def hidden_character(text: str) -> str | None:
    """Return the first character that is invisible or changes direction, such as `U+202E`; None if there is none.

    That is one that Unicode calls default-ignorable, a control character except TAB and LF, a format character, or a
    line or paragraph separator. One U+200C, U+200D or U+FE0F is allowed directly after a letter, a mark or an emoji,
    where Persian, Hindi and emoji need it, and U+FE0F after a digit, `#` or `*`. Visible format signs are allowed.
    """
    if text.isascii() and text.isprintable():
        return None
    for found in _HIDDEN.finditer(text):
        start = found.start()
        if not _belongs(found[0], text[start - 1 : start], text[start - 2 : start - 1]):
            return f"U+{ord(found[0]):04X}"
    return None


MAX_IDENTITY = 256
"""Characters of a tenant's or subject's name."""


def is_identity(text: str) -> bool:
    """Return whether the text can name a tenant or a subject: one line that looks like no other name.

    It has 1 to `MAX_IDENTITY` visible characters; the only blank is U+0020, and none is at its ends.
    """
    visible = text.isprintable() and hidden_character(text) is None and text == text.strip()
    return 0 < len(text) <= MAX_IDENTITY and visible


def clean_text(text: str) -> str:
    """Return the text without hidden characters (`hidden_character`); CR, CRLF, U+0085, U+2028 and U+2029 become LF.

    A joiner is allowed or removed by the characters before it that are left.
    """
    if text.isascii() and text.isprintable():
        return text
    text = _OTHER_LINE_BREAK.sub("\n", text)
    kept, end = "", 0
    for found in _HIDDEN.finditer(text):
        kept += text[end : found.start()]
        if _belongs(found[0], kept[-1:], kept[-2:-1]):
            kept += found[0]
        end = found.end()
    return kept + text[end:]


def _belongs(character: str, last: str, before: str) -> bool:
    """Return True if a hidden character is allowed after these two, which may be allowed hidden ones themselves."""
    if not last or last in _JOINERS or character not in _JOINERS + _EMOJI_STYLE:
        return False
    # An emoji with its style may be joined to the next one: a heart on fire is U+2764 U+FE0F U+200D U+1F525.
    if last == _EMOJI_STYLE:
        return character in _JOINERS and _emoji().match(before) is not None
    if _emoji().match(last) or category(last)[0] in "LM":
        return True
    # Keycaps: digits, # and * are no emoji by themselves.
    return character == _EMOJI_STYLE and (last in "#*" or last.isdecimal())


def cleaned_json(value: object) -> object:
    """Return a JSON value with every text in it cleaned, keys too; the caller has checked its depth."""
    if isinstance(value, str):
        return clean_text(value)
    if isinstance(value, dict):
        return {clean_text(key): cleaned_json(item) for key, item in cast("dict[str, object]", value).items()}
    if isinstance(value, list):
        return [cleaned_json(item) for item in cast("list[object]", value)]
    return value


def cleaned_description(text: str) -> str:
    """Return the cleaned description of a tool, without lines that look like the heading of the user's notes."""
    seen = clean_text(text)
    if "#" not in seen:
        return seen
    # Joiners are left out: one between two letters is allowed, and would hide the heading from this.
    return "".join(line for line in seen.splitlines(keepends=True) if not _FORGED.fullmatch(_ALLOWED.sub("", line)))


def in_one_line(text: str) -> str:
    """Return the stripped text, with each run of line breaks as one space."""
    return _BREAKS.sub(" ", text).strip()
