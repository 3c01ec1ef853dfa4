"""Hidden characters in texts of strangers: what is found, what is removed, and what people need."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from functools import cache

import pytest
import regex
from hypothesis import given
from hypothesis import strategies as st
from tests.catalog.smuggling import HONEST, SMUGGLED

from toolplug.catalog.text import clean_text, cleaned_json, hidden_character

VISIBLE = {*map(chr, range(0x0600, 0x0606)), "\u06dd", "\u070f", "\u08e2", "\U000110bd"}


@cache
def scalars() -> Sequence[str]:
    """Every character that is one, made when it is asked for: each process of a run imports this module."""
    return [chr(code) for code in range(0x110000) if not 0xD800 <= code <= 0xDFFF]


@pytest.mark.requirement("C-8-hidden-text")
@pytest.mark.parametrize("name", SMUGGLED)
def test_what_is_smuggled_is_found_and_removed(name: str) -> None:
    text, left = SMUGGLED[name]
    assert hidden_character(text) is not None
    assert clean_text(text) == left


@pytest.mark.requirement("C-8-hidden-text")
@pytest.mark.parametrize("name", HONEST)
def test_what_people_write_stays(name: str) -> None:
    assert hidden_character(HONEST[name]) is None
    assert clean_text(HONEST[name]) == HONEST[name]


@pytest.mark.judge
@pytest.mark.requirement("C-8-hidden-text")
def test_the_characters_are_those_of_the_unicode_properties() -> None:
    expected = regex.compile(r"[\p{Default_Ignorable_Code_Point}\p{Cc}\p{Cf}\u2028\u2029]")
    found = {character for character in scalars() if hidden_character(character)}
    assert found == {character for character in scalars() if expected.match(character)} - {"\n", "\t"} - VISIBLE


@pytest.mark.judge
def test_the_characters_cover_the_categories_of_this_python() -> None:
    of_category = {character for character in scalars() if unicodedata.category(character) in ("Cc", "Cf", "Zl", "Zp")}
    assert of_category - VISIBLE - {"\n", "\t"} <= {character for character in scalars() if hidden_character(character)}


@cache
def visible_characters() -> tuple[str, ...]:
    """All that this version of Python knows."""
    known = (character for character in scalars() if unicodedata.category(character) != "Cn")
    return tuple(character for character in known if hidden_character(character) is None)


@pytest.mark.judge
@pytest.mark.requirement("C-8-hidden-text")
@pytest.mark.parametrize("joiner", ["\u200c", "\u200d", "\ufe0f"])
def test_a_joiner_is_allowed_after_every_letter_mark_and_emoji_and_nothing_else(joiner: str) -> None:
    before = regex.compile(r"[[\p{L}\p{M}\p{Emoji}]--[\p{Default_Ignorable_Code_Point}0-9#*]]", regex.V1)
    digit = regex.compile(r"[\p{Nd}#*]")
    for character in visible_characters():
        allowed = before.match(character) is not None or (joiner == "\ufe0f" and digit.match(character) is not None)
        assert (hidden_character(character + joiner) is None) == allowed, f"U+{ord(character):04X}"


def test_the_first_hidden_character_is_named() -> None:
    assert hidden_character("a\u200d\U000e0041\u202e") == "U+E0041"


@pytest.mark.requirement("C-8-hidden-text")
@given(st.text(st.sampled_from("a1#é❤👩\u0301\u200c\u200d\ufe0f\u200b\u202e\u2028\r\n \U000e0041")))
def test_cleaning_leaves_nothing_to_find(text: str) -> None:
    once = clean_text(text)
    assert hidden_character(once) is None
    assert clean_text(once) == once


def test_every_text_of_a_json_value_is_cleaned() -> None:
    assert cleaned_json({"a\u200b": ["b\u202e", 1, None, {"c": "d\r"}]}) == {"a": ["b", 1, None, {"c": "d\n"}]}
