"""A BM25 index of tools by the words of their names, descriptions and parameters.

Written by hand, in pure Python: `bm25s` would bring numpy (70 MB, 0.1 s to import) into the core, to search ten
thousand tools in 0.3 ms instead of 0.1 to 2 ms; the target is 5 ms (benchmarks/tool_search.py). SQLite's FTS5 takes 6.
"""

from __future__ import annotations

import re
from array import array
from bisect import bisect
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from heapq import nlargest
from itertools import accumulate
from math import log
from time import sleep
from typing import NamedTuple

from toolplug.catalog.definition import ToolDefinition
from toolplug.catalog.exact_json import as_object
from toolplug.catalog.render import describe

# The usual constants of BM25, as in Lucene.
_K1, _B = 1.2, 0.75
_NAME_WEIGHT = 3
_MAX_TEXT = 2_000
"""Characters of a description that are read."""
_MAX_TERMS = 16
"""Words of a query that are looked up, the rarest first."""
_MAX_POSTINGS = 10_000
"""Places of words that one search reads. The rarest words are read first; those of half of the tools only alone."""
_STEP = 20
"""Tools, or words of tools, between two releases of the interpreter's lock: about 0.5 ms."""

_RUN = re.compile(r"[^\W_]+")
_ASCII_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")
_WITHOUT_SPACES = r"[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]+"
"""Scripts whose words are not separated, which are read as pairs of characters. Compiled at its first use: 11 ms."""


@cache
def _without_spaces() -> re.Pattern[str]:
    return re.compile(_WITHOUT_SPACES)


def words(text: str) -> Iterator[str]:
    """Yield the words of a text, folded: lower case, without a plural `s`, `camelCase` and `snake_case` divided."""
    for run in _RUN.findall(text):
        yield from _divide_run(run)


def _divide_run(run: str) -> list[str]:
    if run.isascii():
        return [_singular(word.lower()) for word in _ASCII_WORD.findall(run)]
    if _without_spaces().search(run):
        return [run[at : at + 2] for at in range(max(len(run) - 1, 1))]
    return [run.casefold()]


def _singular(word: str) -> str:
    if len(word) < 4 or not word.endswith("s") or word.endswith(("ss", "us", "is")):
        return word
    return f"{word[:-3]}y" if word.endswith("ies") else word[:-1]


class _QueryReader:
    """Reads tools; a run of letters is divided into words once, since tools of one catalog share most of theirs."""

    def __init__(self) -> None:
        self._divided: dict[str, list[str]] = {}

    def read(self, definition: ToolDefinition) -> dict[str, int]:
        """Return the words of a tool with how much each counts."""
        found: dict[str, int] = {}
        self._add(definition.name, _NAME_WEIGHT, found)
        self._add(describe(definition)[:_MAX_TEXT], 1, found)
        for name, schema in as_object(definition.parameters.value.get("properties")).items():
            self._add(name, 1, found)
            about = as_object(schema).get("description")
            if isinstance(about, str):
                self._add(about[:_MAX_TEXT], 1, found)
        return found

    def _add(self, text: str, weight: int, found: dict[str, int]) -> None:
        known = self._divided
        for run in _RUN.findall(text):
            divided = known.get(run)
            if divided is None:
                divided = known[run] = _divide_run(run)
            for word in divided:
                found[word] = found.get(word, 0) + weight


class _Postings(NamedTuple):
    """The tools that have a word, as places in the index, and how much it counts in each: most first, then in order."""

    tools: array[int]
    weights: array[float]


class ToolIndex:
    """An index of some tools, in order. It never changes.

    Making it takes 0.2 s for 10,000 tools, in small steps: it is made in a thread and must not hold the loop. Each step
    releases the lock of the interpreter (`sleep(0)`), and there are no large objects to be freed at once.
    """

    def __init__(self, definitions: Iterable[ToolDefinition]) -> None:
        self.definitions: Sequence[ToolDefinition] = tuple(definitions)
        reader = _QueryReader()
        lengths = array("I")
        counted: dict[str, _Postings] = {}
        for place, definition in enumerate(self.definitions):
            if place % _STEP == 0:
                sleep(0)
            found = reader.read(definition)
            lengths.append(sum(found.values()))
            for word, count in found.items():
                postings = counted.get(word)
                if postings is None:
                    postings = counted[word] = _Postings(array("I"), array("f"))
                postings.tools.append(place)
                postings.weights.append(count)
        mean = sum(lengths) / max(len(lengths), 1)
        norms = array("f", (_K1 * (1 - _B + _B * length / mean) if mean else _K1 for length in lengths))
        self._postings: dict[str, _Postings] = {}
        for step, (word, postings) in enumerate(counted.items()):
            if step % _STEP == 0 or len(postings.tools) > _STEP:
                sleep(0)
            self._postings[word] = _weigh(postings, norms)

    def postings(self, word: str) -> _Postings:
        """Return the tools that have this word, as `words` gives it."""
        return self._postings.get(word, _NONE)


def _weigh(counted: _Postings, norms: array[float]) -> _Postings:
    """Return the postings of a word by their weights, from how often each tool has it."""
    tools, counts = counted
    weights = [count * (_K1 + 1) / (count + norms[place]) for place, count in zip(tools, counts, strict=True)]
    order = sorted(range(len(tools)), key=weights.__getitem__, reverse=True)
    return _Postings(array("I", map(tools.__getitem__, order)), array("f", map(weights.__getitem__, order)))


_NONE = _Postings(array("I"), array("f"))


class Hits(NamedTuple):
    """The best tools of a search, the best first, and the number of all that have a word of the query."""

    best: Sequence[ToolDefinition]
    matches: int


def search(indexes: Sequence[ToolIndex], query: str, most: int) -> Hits:
    """Return at most `most` tools for a query; of equal ones the first.

    A single word takes 0.02 ms however many tools have it, since its postings are in order; several take up to 2 ms.
    """
    terms = list(dict.fromkeys(words(query)))
    size = sum(len(index.definitions) for index in indexes)
    spread = {term: sum(len(index.postings(term).tools) for index in indexes) for term in terms}
    starts = list(accumulate((len(index.definitions) for index in indexes), initial=0))
    read = sorted(filter(spread.get, terms), key=spread.__getitem__)[:_MAX_TERMS]
    read = [term for place, term in enumerate(read) if not place or 2 * spread[term] <= size]
    left = most if len(read) == 1 else _MAX_POSTINGS
    scores: dict[int, float] = {}
    for term in read:
        rarity = log(1 + (size - spread[term] + 0.5) / (spread[term] + 0.5))
        for start, index in zip(starts, indexes, strict=False):
            tools, weights = index.postings(term)
            # `map` of bound methods: the loop over up to 10,000 places then runs in C.
            weighted = zip(map(start.__add__, tools[:left]), map(rarity.__mul__, weights), strict=False)
            # Nothing is there yet to be added to.
            if term is read[0]:
                scores.update(weighted)
            else:
                for place, weight in weighted:
                    scores[place] = scores.get(place, 0.0) + weight
            left -= min(left, len(tools)) if len(read) > 1 else 0
    best: list[ToolDefinition] = []
    for found in nlargest(most, scores, key=scores.__getitem__):
        number = bisect(starts, found) - 1
        best.append(indexes[number].definitions[found - starts[number]])
    return Hits(best, spread[read[0]] if len(read) == 1 else len(scores))
