"""What an unquoted scalar stands for."""

from __future__ import annotations

import math

import pytest

from toolplug.config.document import parse_document
from toolplug.config.yaml_tree import resolve_scalar


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("", None),
        ("~", None),
        ("null", None),
        ("true", True),
        ("False", False),
        ("0", 0),
        ("-17", -17),
        ("+3", 3),
        ("0o17", 15),
        ("0xFf", 255),
        ("1.5", 1.5),
        ("-.5", -0.5),
        ("2.", 2.0),
        ("1e3", 1000.0),
        ("1.0e-2", 0.01),
        (".inf", math.inf),
        ("-.Inf", -math.inf),
    ],
)
def test_the_core_schema_decides(text: str, value: object) -> None:
    resolved = resolve_scalar(text)

    assert (resolved, type(resolved)) == (value, type(value))


def test_nan_is_a_number() -> None:
    value = resolve_scalar(".nan")

    assert isinstance(value, float)
    assert math.isnan(value)


TEXTS = """
    yes No on OFF y 1_000 60:30 1:2:3.5 010 -007 00.5 0b1 0x 1e e3 . - nUll tRue １２ inf 1.2.3 = 2026-11-01
"""


@pytest.mark.parametrize("text", [*TEXTS.split(), "2026-11-01 10:00:00", " 1", "1\n"])
def test_what_is_nothing_else_is_text(text: str) -> None:
    assert resolve_scalar(text) == text


def test_a_number_of_more_than_300_digits_is_text() -> None:
    assert resolve_scalar("1" * 300) == int("1" * 300)
    assert resolve_scalar("1" * 301) == "1" * 301


def test_quotes_make_text() -> None:
    document = parse_document(b"a: \"1\"\nb: 'true'\nc: |-\n  null\nd: >-\n  1.5\n", file="p.yaml")

    assert document.value == {"a": "1", "b": "true", "c": "null", "d": "1.5"}
