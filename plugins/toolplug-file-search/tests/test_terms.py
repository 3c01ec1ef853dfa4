"""Whatever is asked becomes words that the index looks for."""

from __future__ import annotations

import sqlite3

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolplug_file_search.terms import MAX_WORDS, Term, terms


def words(query: str) -> list[str]:
    return [term.expression for term in terms(query) if term.weight == 1.0]


def test_words_come_before_the_pairs_of_neighbours() -> None:
    assert terms("Draining running calls") == [
        Term('"draining"', 1.0),
        Term('"running"', 1.0),
        Term('"calls"', 1.0),
        Term('"draining running"', 0.5),
        Term('"running calls"', 0.5),
    ]


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("", []),
        ("  \t\n", []),
        ('"*():^-+{}?!', []),
        ('text: "a* OR b" NEAR(c, 2) NOT d', ["text", "a", "or", "b", "near", "c", "2", "not", "d"]),
        ("providers.yaml:7", ["providers", "yaml", "7"]),
        ("a\0b", ["a", "b"]),
        ("Ünïcode 木木 otter🦦s", ["ünïcode", "木木", "otter", "s"]),
        ("one One ONE", ["one"]),
        ("\ud800x", ["x"]),
    ],
)
def test_everything_but_letters_digits_and_marks_separates(query: str, found: list[str]) -> None:
    assert words(query) == [f'"{word}"' for word in found]


def test_of_a_very_long_query_the_first_words_count() -> None:
    asked = terms(" ".join(f"w{number}" for number in range(5000)))
    assert len(asked) <= 2 * MAX_WORDS
    assert asked[0] == Term('"w0"', 1.0)


@given(query=st.text(max_size=200))
def test_no_query_is_a_wrong_expression(query: str) -> None:
    with sqlite3.connect(":memory:") as connection:
        connection.execute("CREATE VIRTUAL TABLE t USING fts5 (x, tokenize = 'porter unicode61 remove_diacritics 2')")
        connection.execute("INSERT INTO t VALUES ('some text')")
        for term in terms(query):
            connection.execute("SELECT count(*) FROM t WHERE t MATCH ?", (term.expression,)).fetchone()
    connection.close()
