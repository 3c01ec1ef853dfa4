"""The nearest known name."""

from __future__ import annotations

from toolplug.config.nearest import name_hint, nearest, nearest_few


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


def test_the_nearest_of_ten_thousand_are_found_the_most_like_first() -> None:
    known = [*(f"search_orders_by_region_{index}" for index in range(10_000)), "read", "Hello"]
    assert nearest_few("search_oders_by_region_4711", known, 3)[0] == "search_orders_by_region_4711"
    assert nearest_few("raed", known, 3) == ["read"]
    assert nearest_few("helo", known, 3) == ["Hello"]
    assert nearest_few("q" * 1000, known, 3) == []


def test_of_several_near_names_those_that_are_not_much_worse_are_named() -> None:
    assert nearest_few("timeout", ["time", "time_out", "timeouts", "output"], 3) == ["timeouts", "time_out"]


def test_a_short_name_that_shares_only_its_vowels_is_not_suggested() -> None:
    assert name_hint("roots", ["tools", "env"]) == "known: 'tools', 'env'"
    assert name_hint("tolls", ["tools", "env"]) == "nearest: 'tools'"
