"""The search of tools: which of an index a query means, and when it says that none fits."""

from __future__ import annotations

import re
from bisect import bisect
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from math import log
from typing import NamedTuple

from toolplug.catalog.definition import ToolDefinition
from toolplug.catalog.render import describe
from toolplug.search.index import (
    MAX_TEXT,
    ToolIndex,
    WordTools,
    compose,
    divide_run,
    is_camel,
    split_runs,
    without_accents,
    words,
)

_STOP = (
    "a about all am an and any are as at be by can could do does doing done for from get give had has have how i if in"
    " into is it its let like m make me my need no not of on one or our out please re s so some t than that the their"
    " them then there these this to too tool tools up us use using ve want was we were what when where which who whose"
    " why will with would you your d ll now just it's i'm"
    " aber als am an auf aus bei bitte das dass dem den der des die dies diese diesem diesen dieser ein eine einem"
    " einen einer er es für hat haben ich ihm ihr ihre ist kann können mach mache mein meine meinem meinen meiner mich"
    " mir mit nach nicht oder sich sie sind so soll über um und uns unsere unser vom von vor war was wer wem wann wie"
    " will wir wird wo zu zum zur"
    " au aux avec ce ces cet cette dans de des du elle en est et il ils j je l la le les leur ma mais me mes moi mon n"
    " ne nos notre nous on où par pas pour qu que quel quelle quelles quels qui quand sa se ses son sont sur ta te tes"
    " toi ton tu un une vos votre vous y à combien comment faire fais peux veux"
    " al algo como con cuál cuánto cuándo del donde dónde el ella es esa ese eso esta este esto está están hacer haz he"
    " hay las lo los más mi mis muy no nos o para pero por puede puedo qué que quién quiero se ser si sin sobre su sus"
    " te tengo tiene una unas unos yo"
    " а без был бы в во все вы для до если ещё же за и из или их к как ко ли меня мне мы на над не но о об от по под"
    " при с со так то у уже что чтобы эта эти это этот я"
    " إلى أن أنا أو التي الذي عن على في كل كيف لا لي ما مع من هذا هذه هل هو هي و يا"
    " των της τις τη την το τον του τους τα για και με να ο η οι σε στη στην στο στον μου ένα μια"
    " את אני אל של על עם לי זה זאת או כל מה איך"
    " का की के को से में पर है हैं और या यह एक मुझे मेरे मेरी मेरा क्या"
)
_STOP_AS_WRITTEN = frozenset(_STOP.casefold().split())
STOP_WORDS: frozenset[str] = _STOP_AS_WRITTEN | {*map(without_accents, _STOP_AS_WRITTEN)} - {"fur", "uber"}
"""Words that say nothing about which tool is meant: English, German, French, Spanish, Russian, Arabic, Greek, Hebrew,
Hindi. Those of more languages in Latin letters would be words about tools in another one: `door` is one in Dutch,
and so would `für` and `über` without accents."""

_TALK = (
    "away back big later left much next now open please quickly say says show soon today tomorrow tonight until week"
    " yesterday monday tuesday wednesday thursday friday saturday sunday morgen gestern heute jetzt bis egal nächste"
    " woche montag dienstag mittwoch donnerstag freitag samstag sonntag demain hier aujourd hui maintenant lundi mardi"
    " mercredi jeudi vendredi samedi dimanche hoy ayer mañana ahora hasta semana lunes martes miércoles jueves viernes"
    " sábado domingo"
)
SMALL_TALK: frozenset[str] = frozenset([*_TALK.split(), *map(without_accents, _TALK.split())])
"""Words of time and of politeness: a request has them, and that no tool has one says nothing."""

_MAX_TERMS = 16
"""Words of a query that are looked up, the rarest first."""
_COVER_BONUS = 0.3
"""How much more a tool counts of which the query has every word of the name: chosen on a judged set, see the docs."""
_SHORTEST = 12
"""Tools of each word that are compared in any case: the shortest with it in the name, and in the description."""
_COMPARED = 40
"""Tools with two or more of the words that are compared, those with the most words first and of them the shortest. Of
10,000 tools the first five are in 0.99 the same as if all were compared, and the first one always."""
_MOST_AKIN = 4
"""Words that are looked up instead of one that no tool has."""
_FITS = 0.5
"""The least share of the query's words, stop words aside, that some tool has; else no tool fits."""
_SHORT_QUERY = 3
"""Words of a query of which less than `_FITS` may be enough."""
_NEAR = 3
"""Tools that are named where none fits."""
_FIRST_SENTENCE = re.compile(r"[.!?。！？](?:\s|$)|\n")
_WORD = re.compile(r"[^\s,;:!?()\[\]{}<>\"'`]+")
"""What may be a tool's name in a query."""


def telling_words(definition: ToolDefinition) -> list[str]:
    """Return the words by which a tool is found, those of its name first."""
    found = dict.fromkeys([*words(definition.name), *words(describe(definition)[:MAX_TEXT])])
    return [word for word in found if word not in STOP_WORDS]


def find_unfindable(definitions: Iterable[ToolDefinition], most: int) -> Iterator[ToolDefinition]:
    """Yield the tools that are not among the first `most` for the first sentence of their own description.

    A query with the name of a tool finds it in any case; those who search do not know the name.
    """
    listed = [*definitions]
    index = ToolIndex(listed)
    for definition in listed:
        if definition not in search([index], _FIRST_SENTENCE.split(definition.description, 1)[0], most).best:
            yield definition


class Hits(NamedTuple):
    """The best tools of a search, the best first, and the words of the query that no tool has.

    If no tool fits, because fewer than half of the words are known, `best` is empty and `near` has the nearest ones.
    `of` is the number of tools that were searched.
    """

    best: Sequence[ToolDefinition]
    unmatched: Sequence[str]
    of: int
    near: Sequence[ToolDefinition] = ()


class _AskedQuery(NamedTuple):
    """The words of a query that are looked up, those that no tool has, and whether too few are known."""

    terms: Sequence[str]
    unmatched: Sequence[str]
    hopeless: bool


def search(indexes: Sequence[ToolIndex], query: str, most: int) -> Hits:
    """Return at most `most` tools for a query: those that it names, in order, then the best.

    How long it takes hardly grows with the tools, but for the first search for a common word
    (benchmarks/tool_search.py).
    """
    asking, query = _Search(indexes), compose(query)
    asked = asking.read(query)
    named = asking.find_named(query)
    ranked = asking.rank(asked.terms, most) if len(named) < most else []
    best = [asking.definition(place) for place in [*named, *(each for each in ranked if each not in named)][:most]]
    if asked.hopeless and not named:
        return Hits((), asked.unmatched, asking.size, best[:_NEAR])
    return Hits(best, asked.unmatched, asking.size)


class _Search:
    """One search of some indexes, whose tools are counted through."""

    def __init__(self, indexes: Sequence[ToolIndex]) -> None:
        self._indexes = indexes
        self._starts = list(accumulate((len(index.definitions) for index in indexes), initial=0))
        self.size = self._starts[-1] - sum(len(index.gone) for index in indexes)
        self._found: dict[str, Sequence[WordTools]] = {}

    def definition(self, place: int) -> ToolDefinition:
        number = bisect(self._starts, place) - 1
        return self._indexes[number].definitions[place - self._starts[number]]

    def _spread(self, word: str) -> int:
        found = self._found.get(word)
        if found is None:
            found = self._found[word] = [index.find_word(word) for index in self._indexes]
        return sum(each.spread for each in found)

    def read(self, query: str) -> _AskedQuery:
        """Divide a query into words."""
        terms: dict[str, int] = {}
        unmatched: list[str] = []
        known: list[bool] = []
        stopped: list[str] = []
        for run in dict.fromkeys(split_runs(query)):
            folded = run.casefold()
            if folded in STOP_WORDS:
                stopped.append(run)
                continue
            spreads = self._look_up(run)
            if spreads:
                known.append(True)
                terms.update(spreads)
            elif folded not in SMALL_TALK and not run.isnumeric():
                known.append(False)
                unmatched.append(folded)
        telling = {term: spread for term, spread in terms.items() if term not in STOP_WORDS} or terms
        for run in () if telling else stopped:
            telling.update((part, spread) for part in divide_run(run) if (spread := self._spread(part)))
        read = sorted(telling, key=telling.__getitem__)[:_MAX_TERMS]
        limit = self._starts[-1] / 2
        read = [term for place, term in enumerate(read) if not place or telling[term] <= limit]
        return _AskedQuery(read, unmatched[:_MAX_TERMS], not read or _is_too_little(known))

    def _look_up(self, run: str) -> dict[str, int]:
        """Return in how many tools each word of a run is, or else each akin to one of them; without those in none."""
        parts = divide_run(run)
        spreads = {part: spread for part in parts if (spread := self._spread(part))}
        if spreads or run.isnumeric():
            return spreads
        akin = {word for index in self._indexes for part in parts for word in index.akin(part)}
        return {word: self._spread(word) for word in sorted(akin)[:_MOST_AKIN]}

    def find_named(self, query: str) -> list[int]:
        """Return the places of the tools that a query names; a name of one word has to be the whole query."""
        whole = self._place(query.strip())
        if whole is not None:
            return [whole]
        places: dict[int, None] = {}
        for word in _WORD.findall(query)[: 4 * _MAX_TERMS]:
            place = self._place(word.rstrip(".")) if _has_parts(word) else None
            if place is not None:
                places[place] = None
        return list(places)

    def _place(self, name: str) -> int | None:
        for start, index in zip(self._starts, self._indexes, strict=False):
            place = index.find_named(name)
            if place is not None:
                return start + place
        return None

    def rank(self, terms: Sequence[str], most: int) -> list[int]:
        """Return the places of the best tools by the words of a query, the best first."""
        scores: dict[int, float] = {}
        rarities = [self._rarity(term) for term in terms]
        for number, (start, index) in enumerate(zip(self._starts, self._indexes, strict=False)):
            found = _score(index, [self._found[term][number] for term in terms], rarities, most)
            scores.update((start + place, score) for place, score in found.items())
        return sorted(scores, key=scores.__getitem__, reverse=True)[:most]

    def _rarity(self, term: str) -> float:
        spread = self._spread(term)
        return log(1 + (max(self.size - spread, 0) + 0.5) / (spread + 0.5))


def _score(index: ToolIndex, found: Sequence[WordTools], rarities: Sequence[float], most: int) -> dict[int, float]:
    """Return the scores of the tools of an index that can be among the best."""
    candidates = _find_candidates(index, found, most)
    scores = dict.fromkeys(sorted(candidates), 0.0)
    covered = dict.fromkeys(candidates, 0)
    once, in_name, in_both = index.weights
    for word, rarity in zip(found, rarities, strict=True):
        names, texts = candidates & word.names, candidates & word.texts
        for place in texts - names:
            scores[place] += rarity * once[place]
        for place in names:
            scores[place] += rarity * (in_both if place in texts else in_name)[place]
            covered[place] += 1
    lengths = index.name_lengths
    for place, times in covered.items():
        if times:
            scores[place] *= 1 + _COVER_BONUS * min(times / lengths[place], 1)
    return scores


def _find_candidates(index: ToolIndex, found: Sequence[WordTools], most: int) -> set[int]:
    """Return the places of the shortest tools of each word, and of those with the most of several words."""
    candidates: set[int] = set()
    for word in found:
        candidates.update(word.first(max(_SHORTEST, most), index.gone))
    if len(found) < 2:
        return candidates
    # Of each number of words the tools that have as many or more. Adding one word takes a few operations on numbers
    # of as many bits as there are tools, and no look at each tool.
    levels: list[int] = []
    for word in found:
        rest = word.bits
        for number, level in enumerate(levels):
            levels[number], rest = level | rest, level & rest
        levels.append(rest)
    seen, left = index.gone_bits, max(_COMPARED, 2 * most)
    for level in reversed(levels[1:]):
        fresh = level & ~seen
        if fresh:
            places = _lowest_bits(fresh, left)
            candidates.update(places)
            left -= len(places)
        if left <= 0:
            break
        seen |= level
    return candidates


def _lowest_bits(number: int, most: int) -> list[int]:
    """Return the places of the lowest bits that are set."""
    digits = bin(number)
    end, places = len(digits), list[int]()
    while len(places) < most and (end := digits.rfind("1", 0, end)) > 0:
        places.append(len(digits) - 1 - end)
    return places


def _has_parts(word: str) -> bool:
    """Return whether a word of a query may be a name: more than one run, or `camelCase`."""
    if word.isalnum():
        return not word.islower() and is_camel(word)
    return len(split_runs(word)) > 1


def _is_too_little(known: Sequence[bool]) -> bool:
    """Return whether too few words of a query are known, by which of them are, in order.

    Of three words one is enough, unless it is the first: that is the verb in most requests, which says little alone
    ("book a flight to Paris", against "blue mugs in stock").
    """
    if sum(known) >= _FITS * len(known):
        return False
    return len(known) > _SHORT_QUERY or not any(known[1:])
