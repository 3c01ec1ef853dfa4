"""What the search finds in the judged set, and when it says that nothing fits."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product
from unicodedata import normalize

import pytest
from tests.search.judged_sets import LANGUAGES, JudgedSet, read_judged_set

from toolplug.search import index as index_module
from toolplug.search import ranking
from toolplug.search.index import ToolIndex
from toolplug.search.ranking import search

pytestmark = [pytest.mark.judge, pytest.mark.requirement("I34-search")]

FOUND_FIRST, FOUND_AMONG_FIVE, NOTHING_FITS, NAMED_FIRST = 0.93, 0.96, 0.90, 0.98
"""Of all prompts of the five languages; measured when the search was made: 0.950, 0.985, 0.917, 1.000."""


@pytest.fixture(scope="module")
def judged() -> list[tuple[JudgedSet, ToolIndex]]:
    """The set of each language with its index."""
    sets = [read_judged_set(language) for language in LANGUAGES]
    return [(each, ToolIndex(each.tools)) for each in sets]


def answers(judged: list[tuple[JudgedSet, ToolIndex]], most: int, typed: Callable[[str], str] = str) -> Iterator[bool]:
    """Yield for each prompt whether the right tool is among so many."""
    for each, index in judged:
        for prompt in each.answerable:
            yield prompt.tool in [tool.name for tool in search([index], typed(prompt.text), most).best]


def without_accents(text: str) -> str:
    return normalize("NFC", "".join(sign for sign in normalize("NFD", text) if not "\u0300" <= sign <= "\u036f"))


def test_the_set_has_what_it_promises(judged: list[tuple[JudgedSet, ToolIndex]]) -> None:
    assert {(len(each.tools), len(each.prompts), len(each.hopeless)) for each, _ in judged} == {(150, 80, 12)}
    assert all({prompt.tool for prompt in each.answerable} <= {tool.name for tool in each.tools} for each, _ in judged)


@pytest.mark.parametrize("typed", [str, without_accents])
@pytest.mark.parametrize(("most", "least"), [(1, FOUND_FIRST), (5, FOUND_AMONG_FIVE)])
def test_the_right_tool_is_found(
    judged: list[tuple[JudgedSet, ToolIndex]], most: int, least: float, typed: Callable[[str], str]
) -> None:
    found = list(answers(judged, most, typed))
    assert sum(found) / len(found) >= least


def test_it_is_said_that_nothing_fits(judged: list[tuple[JudgedSet, ToolIndex]]) -> None:
    said = [not search([index], prompt.text, 5).best for each, index in judged for prompt in each.hopeless]
    assert sum(said) / len(said) >= NOTHING_FITS


def test_names_come_first_and_in_their_order(judged: list[tuple[JudgedSet, ToolIndex]]) -> None:
    right: list[bool] = []
    for each, index in judged:
        names = [tool.name for tool in each.tools]
        for first in range(0, len(names), 3):
            asked = names[first : first + 3][::-1]
            right.append([tool.name for tool in search([index], f"use {', '.join(asked)} please", 3).best] == asked)
        right += [search([index], name, 5).best[0].name == name for name in names]
    assert sum(right) / len(right) >= NAMED_FIRST


NAME_WEIGHTS, COVER_BONUSES = (1, 2, 3, 4, 6), (0.0, 0.15, 0.3, 0.6, 1.0)
"""The settings of which the search has one, 3 and 0.3."""


def test_settings_that_are_chosen_on_one_half_hold_on_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cross-validation: whether the weights fit prompts that they were not chosen on."""
    sets = [read_judged_set(language) for language in LANGUAGES]
    places: dict[tuple[int, float], list[int]] = {}
    for weight in NAME_WEIGHTS:
        monkeypatch.setattr(index_module, "_NAME_WEIGHT", weight)
        indexes = [ToolIndex(each.tools) for each in sets]
        for bonus in COVER_BONUSES:
            monkeypatch.setattr(ranking, "_COVER_BONUS", bonus)
            places[weight, bonus] = [
                (names.index(prompt.tool) if prompt.tool in names else 5)
                for each, index in zip(sets, indexes, strict=True)
                for prompt in each.answerable
                for names in [[tool.name for tool in search([index], prompt.text, 5).best]]
            ]
    first, among_five = list[bool](), list[bool]()
    for half in (0, 1):
        chosen = max(places.values(), key=lambda found: sum(place == 0 for place in found[half::2]))
        first += [place == 0 for place in chosen[1 - half :: 2]]
        among_five += [place < 5 for place in chosen[1 - half :: 2]]
    shares = [sum(each) / len(each) for each in (first, among_five)]
    assert shares[0] >= FOUND_FIRST
    assert shares[1] >= FOUND_AMONG_FIVE


SHARES, SHORT_QUERIES = (0.34, 0.4, 0.5, 0.6), (0, 1, 2, 3, 4)
"""The settings of when nothing fits, of which the search has one: a share of the words, and how many are few."""
TODAY = (ranking._FITS, ranking._SHORT_QUERY)
COST = 3
"""A tool that is there and not found costs three times what an answer to a hopeless prompt does."""
GAIN = 0.02


def test_no_other_rule_of_when_nothing_fits_does_better_on_prompts_that_it_was_not_chosen_on(
    judged: list[tuple[JudgedSet, ToolIndex]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Cross-validation: whether the rule, which was chosen while looking at the set, should be another."""
    right: dict[tuple[float, int], tuple[list[bool], list[bool]]] = {}
    for share, words in product(SHARES, SHORT_QUERIES):
        monkeypatch.setattr(ranking, "_FITS", share)
        monkeypatch.setattr(ranking, "_SHORT_QUERY", words)
        said = [not search([index], prompt.text, 5).best for each, index in judged for prompt in each.hopeless]
        right[share, words] = said, list(answers(judged, 5))

    def score(setting: tuple[float, int], half: int) -> float:
        said, found = (each[half::2] for each in right[setting])
        return sum(said) / len(said) + COST * sum(found) / len(found)

    chosen = [score(max(right, key=lambda each: score(each, half)), 1 - half) for half in (0, 1)]
    today = [score(TODAY, half) for half in (1, 0)]
    assert sum(chosen) / 2 <= sum(today) / 2 + GAIN, (chosen, today)
