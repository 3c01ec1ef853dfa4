"""A BM25 index of tools by the words of their names, descriptions and parameters.

Written by hand, in pure Python: `bm25s` would bring numpy (70 MB, 0.1 s to import) into the core, to search ten
thousand tools in 0.3 ms instead of about 1 ms; the target is 5 ms (benchmarks/tool_search.py). SQLite's FTS5 takes 6.
"""

from __future__ import annotations

import re
from array import array
from bisect import bisect
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from heapq import nlargest
from itertools import accumulate
from math import log
from typing import NamedTuple

from toolplug.catalog.definition import ToolDefinition
from toolplug.catalog.render import described
from toolplug.signatures.values import as_object

_K1, _B = 1.2, 0.75
_NAME_WEIGHT = 3
_MAX_TEXT = 2_000
"""Characters of a description that are read."""
_MAX_TERMS = 16
"""Words of a query that are looked up, the rarest first."""
_MAX_POSTINGS = 10_000
"""Places of words that one search reads. The rarest words are read first; those of half of the tools only alone."""

_RUN = re.compile(r"[^\W_]+")
_ASCII_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")
_WITHOUT_SPACES = re.compile(r"[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]+")
"""Scripts whose words are not separated, which are read as pairs of characters."""


def words(text: str) -> Iterator[str]:
    """Yield the words of a text, folded: lower case, without a plural `s`, `camelCase` and `snake_case` divided."""
    for run in _RUN.findall(text):
        if run.isascii():
            for word in _ASCII_WORD.findall(run):
                yield _singular(word.lower())
        elif _WITHOUT_SPACES.search(run):
            yield from (run[at : at + 2] for at in range(max(len(run) - 1, 1)))
        else:
            yield run.casefold()


def _singular(word: str) -> str:
    if len(word) < 4 or not word.endswith("s") or word.endswith(("ss", "us", "is")):
        return word
    return f"{word[:-3]}y" if word.endswith("ies") else word[:-1]


def _read(definition: ToolDefinition) -> Counter[str]:
    """Return the words of a tool with how much each counts."""
    found: Counter[str] = Counter()
    for word in words(definition.name):
        found[word] += _NAME_WEIGHT
    found.update(words(described(definition)[:_MAX_TEXT]))
    for name, schema in as_object(definition.parameters.value.get("properties")).items():
        found.update(words(name))
        about = as_object(schema).get("description")
        if isinstance(about, str):
            found.update(words(about[:_MAX_TEXT]))
    return found


class _Postings(NamedTuple):
    """The tools that have a word, as places in the index, and how much it counts in each."""

    tools: array[int]
    weights: array[float]


class ToolIndex:
    """An index of some tools, in order. It never changes, and may be made in a thread."""

    def __init__(self, definitions: Iterable[ToolDefinition]) -> None:
        self.definitions: Sequence[ToolDefinition] = tuple(definitions)
        counts = [_read(definition) for definition in self.definitions]
        mean = sum(found.total() for found in counts) / max(len(counts), 1)
        self._postings: dict[str, _Postings] = {}
        for place, found in enumerate(counts):
            length = _K1 * (1 - _B + _B * found.total() / mean) if mean else _K1
            for word, count in found.items():
                postings = self._postings.get(word)
                if postings is None:
                    postings = self._postings[word] = _Postings(array("I"), array("f"))
                postings.tools.append(place)
                postings.weights.append(count * (_K1 + 1) / (count + length))

    def postings(self, word: str) -> _Postings:
        """Return the tools that have this word, as `words` gives it."""
        return self._postings.get(word, _NONE)


_NONE = _Postings(array("I"), array("f"))


class Hits(NamedTuple):
    """The best tools of a search, the best first, and the number of all that have a word of the query."""

    best: Sequence[ToolDefinition]
    matches: int


def search(indexes: Sequence[ToolIndex], query: str, most: int) -> Hits:
    """Return at most `most` tools for a query; of equal ones the first. Takes about 1 ms for any query."""
    terms = list(dict.fromkeys(words(query)))
    size = sum(len(index.definitions) for index in indexes)
    spread = {term: sum(len(index.postings(term).tools) for index in indexes) for term in terms}
    starts = list(accumulate((len(index.definitions) for index in indexes), initial=0))
    scores: dict[int, float] = {}
    left = _MAX_POSTINGS
    for term in sorted(filter(spread.get, terms), key=spread.__getitem__)[:_MAX_TERMS]:
        if scores and 2 * spread[term] > size:
            break
        is_first = not scores
        rarity = log(1 + (size - spread[term] + 0.5) / (spread[term] + 0.5))
        for start, index in zip(starts, indexes, strict=False):
            tools, weights = index.postings(term)
            weighted = zip(map(start.__add__, tools[:left]), map(rarity.__mul__, weights), strict=False)
            if is_first:
                scores.update(weighted)
            else:
                for place, weight in weighted:
                    scores[place] = scores.get(place, 0.0) + weight
            left -= min(left, len(tools))
    best: list[ToolDefinition] = []
    for found in nlargest(most, scores, key=scores.__getitem__):
        number = bisect(starts, found) - 1
        best.append(indexes[number].definitions[found - starts[number]])
    return Hits(best, len(scores))
