"""Whatever is asked becomes words that the index looks for."""

from __future__ import annotations

import sqlite3
from collections.abc import Generator
from contextlib import closing

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from toolplug_file_search.documents.analysis import Analyzer, words
from toolplug_file_search.search.terms import MAX_WORDS, Term, expression, terms
from toolplug_file_search.storage.database import TimeLimit
from toolplug_file_search.storage.schema import made_corpus, passages, prepare


@pytest.fixture
def index() -> Generator[sqlite3.Connection]:
    """An index with an empty corpus, number 1."""
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        prepare(connection)
        made_corpus(connection, "one")
        yield connection


def asked(query: str, index: sqlite3.Connection) -> list[Term]:
    return terms(query, index, [1], Analyzer(), TimeLimit())


def test_words_come_before_the_pairs_of_neighbours(index: sqlite3.Connection) -> None:
    assert asked("Draining running calls", index) == [
        Term("draining", {"drain": 1.0}),
        Term("running", {"run": 1.0}),
        Term("calls", {"call": 1.0}),
        Term("draining running", {"drain run": 1.0}, 0.5, ("draining", "running")),
        Term("running calls", {"run call": 1.0}, 0.5, ("running", "calls")),
    ]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", []),
        ("  \t\n", []),
        ('"*():^-+{}?!', []),
        ('text: "a* OR b" NEAR(c, 2) NOT d', ["text", "a", "or", "b", "near", "c", "2", "not", "d"]),
        ("providers.yaml:7", ["providers", "yaml", "7"]),
        ("a\0b", ["a", "b"]),
        ("Ünïcode otter🦦s", ["ünïcode", "otter", "s"]),
        ("Straße ＡＢＣ", ["strasse", "abc"]),
        ("\ud800x", ["x"]),
        ("fetchLatestRates", ["fetch", "latest", "rates", "fetchlatestrates"]),
        ("ERR_SNAPSHOT_47", ["err", "snapshot", "47", "errsnapshot47"]),
        ("HTTPServer2", ["http", "server", "2", "httpserver2"]),
        ("東京大学", ["東京", "京大", "大学", "学"]),
        ("서울 nine", ["서울", "울", "nine"]),
        ("प्रबन्धन", ["प्रबन्धन"]),
    ],
)
def test_everything_but_letters_digits_and_marks_separates(text: str, found: list[str]) -> None:
    assert [word.text for word in words(text)] == found


def test_of_a_very_long_query_the_first_words_count(index: sqlite3.Connection) -> None:
    found = asked(" ".join(f"word{chr(97 + number % 26)}{chr(97 + number // 26)}" for number in range(600)), index)
    assert len(found) <= 2 * MAX_WORDS
    assert found[0] == Term("wordaa", {"wordaa": 1.0})


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(query=st.text(max_size=200))
def test_no_query_is_a_wrong_expression(query: str, index: sqlite3.Connection) -> None:
    for term in asked(query, index):
        for form in term.forms:
            index.execute(f"SELECT 1 FROM {passages(1)} WHERE {passages(1)} MATCH ?", (expression(form),)).fetchone()
