"""The nearest known name."""

from __future__ import annotations

from toolplug.config.nearest import name_hint, nearest


def test_the_most_similar_name_is_found_whatever_its_case() -> None:
    known = ["max_results", "Min_Results", "url"]

    assert nearest("max_result", known) == "max_results"
    assert nearest("MIN_RESULTS", known) == "Min_Results"
    assert nearest("zzz", known) is None
    assert nearest("", []) is None


def test_a_hint_names_the_nearest_or_the_first_twelve() -> None:
    assert name_hint("ur", ["url"]) == "nearest: 'url'"
    assert name_hint("zzz", ["a", "b", "a"]) == "known: 'a', 'b'"
    assert name_hint("zzz", [f"a{number}" for number in range(14)]).endswith("'a10', 'a11' and 2 more")
    assert name_hint("zzz", []) == ""
