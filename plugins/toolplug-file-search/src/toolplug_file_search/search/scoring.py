"""BM25 of the candidates of a search, with numpy."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

from toolplug_file_search.search.ranking import COLUMNS, K1, SATURATION, B, Candidate, Weighed


def scores(found: Sequence[Candidate], weighed: Sequence[Weighed]) -> list[float]:
    """BM25 of each candidate, with a weight for each column; of a term the best alternative counts."""
    if not found:
        return []
    texts = zip(*(candidate.columns for candidate in found), strict=True)
    columns = [_Column(weight, each) for weight, each in zip(COLUMNS, texts, strict=True)]
    lengths = np.sum([column.lengths for column in columns], axis=0)
    norms = K1 * (1 - B + B * lengths / lengths.mean())
    total = np.zeros(len(found))
    for term, _, rarity in weighed:
        best = np.zeros(len(found))
        for form, weight in term.forms.items():
            often = sum(column.often(form) for column in columns)
            np.maximum(best, weight * often * SATURATION / (often + norms), out=best)
        total += term.weight * rarity * best
    return total.tolist()


class _Column:
    """A column of all candidates.

    Its different texts follow each other in one string, which is searched faster than each of them.
    """

    def __init__(self, weight: float, texts: Sequence[str]) -> None:
        self._weight = weight
        numbers = {text: number for number, text in enumerate(dict.fromkeys(texts))}
        self._numbers = np.array([numbers[text] for text in texts])
        bounded = [f" {text} " for text in numbers]  # two spaces between texts: no form is found across them
        self._text = "".join(bounded)
        self._ends = np.cumsum([len(text) for text in bounded])
        words = np.array([1 + text.count(" ") if text else 0 for text in numbers], dtype=np.float64)
        self.lengths: npt.NDArray[np.float64] = words[self._numbers]
        """How many words each candidate has."""
        self._starts: dict[str, Sequence[int]] = {}

    def often(self, form: str) -> npt.NDArray[np.float64] | float:
        """How often a form is in each candidate, times the weight of the column."""
        starts = self._starts_of(form)
        if not starts:
            return 0.0
        counts = np.bincount(np.searchsorted(self._ends, starts, side="right"), minlength=len(self._ends))
        return np.multiply(self._weight, counts[self._numbers], dtype=np.float64)

    def _starts_of(self, form: str) -> Sequence[int]:
        """Where a form begins. Two adjacent words are looked for where the rarer of those that were counted is."""
        if form not in self._starts:
            first, _, second = form.partition(" ")
            self._starts[form] = self._pairs(first, second) if second else list(_found(_bound_word(form), self._text))
        return self._starts[form]

    def _pairs(self, first: str, second: str) -> Sequence[int]:
        both = f" {first} {second} "
        counted = [word for word in (first, second) if word in self._starts]
        rarer = min(counted, key=lambda word: len(self._starts[word]), default=first)
        before = 0 if rarer == first else len(first) + 1
        starts = (start - before for start in self._starts_of(rarer))
        return [start for start in starts if start >= 0 and self._text.startswith(both, start)]


def _bound_word(form: str) -> str:
    return f" {form[:-1]}" if form.endswith("*") else f" {form} "


def _found(sought: str, text: str) -> Iterator[int]:
    start = text.find(sought)
    while start >= 0:
        yield start
        start = text.find(sought, start + 1)
