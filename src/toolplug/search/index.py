"""An index of tools by the words of their names and descriptions, which `toolplug.search.ranking` searches.

Written by hand, in pure Python: `bm25s` would bring numpy (70 MB, 0.1 s to import) into the core for 0.3 ms a search of
ten thousand tools, which is of the same order (benchmarks/tool_search.py). SQLite's FTS5 takes 6.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from copy import copy
from functools import cache
from itertools import chain, compress, count, filterfalse, islice, repeat
from operator import is_, is_not
from typing import Final, NamedTuple
from unicodedata import normalize

from toolplug.catalog.definition import ToolDefinition
from toolplug.catalog.render import describe
from toolplug.runtime.lru import LeastRecentlyUsed
from toolplug.runtime.threads import release_interpreter

_RUN = re.compile(r"[^\W_]+")
"""Letters and digits that are written together."""
_MARKED_RUN = re.compile(r"(?:[^\W_]|[\u0300-\u036f\u0900-\u0963\u0966-\u096f\u0971-\u0df3])+")
"""The same with their marks: the vowels of the scripts of India are marks, and `\\w` has none of them."""
_ACCENTS = re.compile("[\u0300-\u036f]")
_STROKES = str.maketrans("đħłøŧ", "dhlot")
"""Letters with an accent that cannot be taken off."""
_ASCII_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")
_WITHOUT_SPACES = r"[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]+"
"""Scripts whose words are not separated, which are read as pairs of characters. Compiled at its first use: 11 ms."""
_NO_LETTERS = bytes(code if code > 127 or chr(code).isalnum() else 32 for code in range(256))
"""A space for each byte that divides runs."""
_LOWER = bytes(range(256)).lower()
_NO_NAME = bytes(code for code in range(128) if not chr(code).isalnum())
"""Bytes between the words of a name."""


@cache
def _without_spaces() -> re.Pattern[str]:
    return re.compile(_WITHOUT_SPACES)


def split_text(text: str) -> list[str]:
    """Return what is written together in a text, in order, for `divide_run`.

    In bytes, as an expression takes four times as long. Signs that are not ASCII stay at what they are written at.
    """
    return text.encode().translate(_NO_LETTERS).decode().split()


def split_name(name: str) -> list[str]:
    """Return the runs of letters and digits of a tool's name, in order."""
    runs = name.split("_")
    # A point, a hyphen or a slash stays where it is until `divide_run`.
    return split_text(name) if "" in runs else runs


def words(text: str) -> Iterator[str]:
    """Yield the words of a text, folded: lower case and without a plural `s`.

    A run of letters that is written in `camelCase` is yielded whole after its parts: `MySQL` is my, sql and mysql.
    """
    for run in split_text(text):
        yield from divide_run(run)


def compose(text: str) -> str:
    """Return a text with one spelling of each sign, however it was written: `é` can be two signs, `Ａ` a wide one.

    It is no longer than four times the text: single signs stand for up to eighteen others.
    """
    return text if text.isascii() else normalize("NFKC", text)[: 4 * len(text)]


def split_runs(text: str) -> list[str]:
    """Return what is written together in a text, with no sign between."""
    return _RUN.findall(text) if text.isascii() else _MARKED_RUN.findall(compose(text))


def divide_run(run: str) -> list[str]:
    """Return the words of what is written together."""
    if run.isascii() and run.isalnum():
        if run.islower() and run.isalpha():
            return [_singular(run)]
        if run.isdigit():
            return [run]
        parts = [_singular(word.lower()) for word in _ASCII_WORD.findall(run)]
        return parts if len(parts) < 2 else [*parts, _singular(run.lower())]
    return [word for each in split_runs(run) for word in _divide_letters(each)]


def _divide_letters(run: str) -> list[str]:
    if run.isascii():
        return divide_run(run)
    if _without_spaces().search(run):
        return list(_divide_without_spaces(run))
    return [without_accents(_singular(run.casefold()))]


def without_accents(word: str) -> str:
    """Return a word as it is often typed: `meteo` for `météo`. The marks of other scripts are letters, and stay."""
    return normalize("NFC", _ACCENTS.sub("", normalize("NFD", word.translate(_STROKES))))


def _divide_without_spaces(run: str) -> Iterator[str]:
    """Yield pairs of characters where words are not separated, and the words of other scripts between them."""
    at = 0
    for match in _without_spaces().finditer(run):
        if match.start() > at:
            yield from divide_run(run[at : match.start()])
        part, at = match[0], match.end()
        yield from (part[place : place + 2] for place in range(max(len(part) - 1, 1)))
    if at < len(run):
        yield from divide_run(run[at:])


def _singular(word: str) -> str:
    if len(word) < 4 or not word.endswith("s") or word.endswith(("ss", "us", "is")):
        return word
    return f"{word[:-3]}y" if word.endswith("ies") else word[:-1]


def is_word(run: str) -> bool:
    """Return True for most runs that are a word as they are; others are divided by `divide_run`."""
    return run.isdigit() or (run.islower() and run.isalpha() and run[-1] != "s" and run.isascii())


def fold_name(name: str) -> bytes:
    """Return a name as queries are compared with it: `shareInvoice` and `share_invoice` are the same."""
    return name.encode(errors="ignore").translate(_LOWER, _NO_NAME)


def name_words(name: str) -> Iterator[str]:
    """Yield the words of a name, without the runs that have several."""
    for run in split_runs(name):
        yield from map(_singular, map(str.lower, _ASCII_WORD.findall(run))) if run.isascii() else (run,)


def is_camel(word: str) -> bool:
    """Return whether a word is one of several, such as `sendMail`."""
    return word.isascii() and len(_ASCII_WORD.findall(word)) > 1


# The usual constants of BM25, as in Lucene.
_K1, _B = 1.2, 0.75
_NAME_WEIGHT = 3
MAX_TEXT: Final = 2_000
"""Characters of a description that are read."""
_STEP = 50
"""Tools between two releases of the interpreter's lock: about 0.5 ms."""
_WORDS_A_STEP = 1_000
"""Words between two releases: about 0.3 ms."""
_MOST_SOUGHT = 16
"""Tools that are sought in an index one after the other; for more their places are listed."""
_FEW = 100
"""Bits that are set one by one; more are written as digits."""
_STEM = 5
"""The least letters that two words have to begin with to be akin; with four, `paris` is akin to `parity`."""
_MOST_AKIN = 4
"""Words that are looked up instead of one that no tool has."""
_MOST_CHANGES = 256
"""Tools that changed since an index was made; with more it is made anew, as a search passes over those gone."""
_MOST_BLOCKS = 8
"""Places at which two lists of tools may differ, until the rest is compared tool by tool."""
_MOST_WORDS = 256
"""Words whose tools are kept as sets: those that were asked for last, at about 50 bytes for each tool with the word."""

_MOST_ALIKE = 256
"""Words that are kept of those that begin with the same `_STEM` letters, as all of them are looked at."""

Places = Mapping[str, list[int]]
"""Of each word the places of the tools that have it, in order and each once."""


class WordTools:
    """The tools that have one word.

    * `spread`: how many there are

    Of a word that thousands of tools have, making the sets takes longer than a search; a query with a rarer word does
    not need them.
    """

    __slots__ = ("_bits", "_in_names", "_in_texts", "_names", "_size", "_texts", "spread")

    def __init__(self, in_names: Sequence[int], in_texts: Sequence[int], size: int) -> None:
        self._in_names, self._in_texts, self._size = in_names, in_texts, size
        self._names: frozenset[int] | None = None
        self._texts: frozenset[int] | None = None
        self._bits: int | None = None
        few, many = sorted((in_names, in_texts), key=len)
        self.spread: int = _count_all(few, many, size)

    @property
    def names(self) -> frozenset[int]:
        """Those with it in their name."""
        if self._names is None:
            self._names = frozenset(self._in_names)
        return self._names

    @property
    def texts(self) -> frozenset[int]:
        """Those with it in their description."""
        if self._texts is None:
            self._texts = frozenset(self._in_texts)
        return self._texts

    @property
    def bits(self) -> int:
        """A number with the bits of these tools: of two words, those of both are found at once."""
        if self._bits is None:
            self._bits = bits_of(self.names | self.texts, self._size)
        return self._bits

    def first(self, most: int, gone: frozenset[int]) -> Iterable[int]:
        """Return the shortest that have it in the name, and in the description, but for those that are gone."""
        if not gone:
            return chain(self._in_names[:most], self._in_texts[:most])
        left = gone.__contains__
        return chain(islice(filterfalse(left, self._in_names), most), islice(filterfalse(left, self._in_texts), most))


def _count_all(few: Sequence[int], many: Sequence[int], size: int) -> int:
    """Return how many of so many places are in one of two lists, of which the first is the shorter."""
    if not few or len(many) == size:
        return len(many)
    return len(few) + len(many) - len(frozenset(few).intersection(many))


def bits_of(places: Collection[int], size: int) -> int:
    """Return a number of which these bits are set, all below `size`."""
    if len(places) < _FEW:
        # Sets have no place twice, so that adding is setting.
        return sum(map((1).__lshift__, places))
    digits = bytearray(b"0") * size
    for place in places:
        digits[~place] = 49  # the digit 1
    return int(digits, 2)


_NONE = WordTools((), (), 0)


class ToolIndex:
    """An index of some tools. It never changes, but for what it remembers of the words that were asked for.

    Tools have places by the lengths of their descriptions, the shortest first: of many tools with a word these count
    most. Making it is done in small steps: in a thread, which must not hold the loop. Each step releases the lock of
    the interpreter (`release_interpreter`), and there are no large objects to be freed at once.
    """

    def __init__(self, definitions: Iterable[ToolDefinition]) -> None:
        listed = [*definitions]
        texts = [describe(each) if each.notes else each.description for each in listed]
        release_interpreter()
        spaces = [text.count(" ") for text in texts]
        release_interpreter()
        order = sorted(range(len(listed)), key=spaces.__getitem__)
        self.definitions: Sequence[ToolDefinition] = [listed[at] for at in order]
        self.gone: frozenset[int] = frozenset()
        self.gone_bits: int = 0
        self._names: dict[bytes, int] = {}
        self._alike: dict[bytes, list[int]] = {}
        self.name_lengths: array[int] = array("B")
        """How many words each tool's name has."""
        lengths, in_names, in_texts = self._read([texts[at] for at in order])
        self._in_names, self._in_texts = _divide_runs(in_names), _divide_runs(in_texts)
        self._alike_words = _group_by_stem({**self._in_names, **self._in_texts})
        mean = sum(lengths) / max(len(lengths), 1) or 1
        norms = {length: _K1 * (1 - _B + _B * length / mean) for length in set(lengths)}
        # A tool has a word in its description, in its name, or in both.
        self.weights: Sequence[Sequence[float]] = [
            _weigh(times, lengths, norms) for times in (1, _NAME_WEIGHT, _NAME_WEIGHT + 1)
        ]
        """How much a word counts in each tool that has it in its description, in its name, and in both."""
        self._asked: LeastRecentlyUsed[str, WordTools] = LeastRecentlyUsed(_MOST_WORDS)

    def _read(self, texts: Sequence[str]) -> tuple[list[int], dict[str, list[int]], dict[str, list[int]]]:
        """Return how many runs each tool has, and the places of each run in names and in descriptions."""
        lengths: list[int] = []
        in_names: dict[str, list[int]] = {}
        in_texts: dict[str, list[int]] = {}
        names, add_length, add_name_length = self._names, lengths.append, self.name_lengths.append
        # No call that can be avoided: this loop is nearly all of the work.
        for place, (definition, text) in enumerate(zip(self.definitions, texts, strict=True)):
            if place % _STEP == 0:
                release_interpreter()
            name, runs = definition.name, split_text(text[:MAX_TEXT])
            name_runs = split_name(name)
            add_length(_NAME_WEIGHT * len(name_runs) + len(runs))
            add_name_length(len(name_runs) if name.islower() else sum(1 for _ in name_words(name)))
            for run in dict.fromkeys(runs):
                try:
                    in_texts[run].append(place)
                except KeyError:
                    in_texts[run] = [place]
            for run in dict.fromkeys(name_runs):
                try:
                    in_names[run].append(place)
                except KeyError:
                    in_names[run] = [place]
            key = fold_name(name)
            if names.setdefault(key, place) != place:
                self._alike.setdefault(key, []).append(place)
            if definition.wire is not name:
                names.setdefault(fold_name(definition.wire), place)
        return lengths, in_names, in_texts

    def find_word(self, word: str) -> WordTools:
        """Return the tools that have this word, as `words` gives it."""
        known = self._asked.get(word)
        if known is None:
            in_names, in_texts = self._in_names.get(word, ()), self._in_texts.get(word, ())
            if not in_names and not in_texts:
                return _NONE  # not remembered: strangers ask for them
            known = WordTools(in_names, in_texts, len(self.definitions))
            self._asked.put(word, known)
        return known

    @property
    def present(self) -> Sequence[ToolDefinition]:
        """The tools that are not gone."""
        if not self.gone:
            return self.definitions
        return [each for place, each in enumerate(self.definitions) if place not in self.gone]

    def akin(self, word: str) -> Sequence[str]:
        """Return a few words of the tools that begin as this one does: `modified` is akin to `modification`."""
        stem = word[: max(_STEM, -(-7 * len(word) // 10))]
        if len(stem) < _STEM or not stem.isalpha():
            return ()
        alike = self._alike_words.get(stem[:_STEM], ())
        return sorted(each for each in alike if each.startswith(stem))[:_MOST_AKIN]

    def find_places(self, tools: Sequence[ToolDefinition]) -> Iterable[int]:
        """Return the places of those of these very tools that are here."""
        if len(tools) <= _MOST_SOUGHT:
            # In C, and a tenth of the time that it takes to list the places of ten thousand tools.
            places = [_find(each, self.definitions) for each in tools]
            return [place for place in places if place is not None]
        identities = frozenset(map(id, tools))
        return [place for place, each in enumerate(self.definitions) if id(each) in identities]

    def find_named(self, name: str) -> int | None:
        """Return the place of the tool of this name, however its words are joined; None if there is none."""
        key = fold_name(name)
        place = self._names.get(key)
        if place is None or (key not in self._alike and place not in self.gone):
            return place
        there = [each for each in (place, *self._alike.get(key, ())) if each not in self.gone]
        exact = [each for each in there if self.definitions[each].name == name]
        return next(iter([*exact, *there]), None)

    def without(self, places: Iterable[int]) -> ToolIndex:
        """Return this index without some tools; it shares everything with this one."""
        index = copy(self)
        index.gone = frozenset(places)
        index.gone_bits = bits_of(index.gone, len(self.definitions))
        return index


def _weigh(times: int, lengths: Sequence[int], norms: Mapping[int, float]) -> array[float]:
    """Return the part of BM25 for a word that tools of these lengths have so many times."""
    release_interpreter()
    weights = {length: times * (_K1 + 1) / (times + norm) for length, norm in norms.items()}
    return array("f", map(weights.__getitem__, lengths))


def _divide_runs(places: dict[str, list[int]]) -> Places:
    """Return the places of each word, from those of the runs that have it."""
    others = [run for run in places if not is_word(run)]
    for number, run in enumerate(others):
        if number % _STEP == 0:
            release_interpreter()
        at = places.pop(run)
        for word in divide_run(run):
            known = places.get(word)
            places[word] = at if known is None else sorted({*known, *at})
    return places


def _group_by_stem(words: Iterable[str]) -> Mapping[str, Sequence[str]]:
    """Return the words by their first letters. Sorting all of them would hold the interpreter's lock for long."""
    groups: dict[str, list[str]] = {}
    for number, word in enumerate(words):
        if number % _WORDS_A_STEP == 0:
            release_interpreter()
        if len(word) >= _STEM:
            group = groups.setdefault(word[:_STEM], [])
            if len(group) < _MOST_ALIKE:
                group.append(word)
    return groups


class ToolIndexes(NamedTuple):
    """The index of a catalog: that of an earlier one without what is gone, and one of what came since.

    `listed` are its tools, in the order of the catalog.

    ```python
    from toolplug import ToolDefinition
    from toolplug.search import ToolIndexes, make_indexes, search

    tools = [ToolDefinition(name="send_mail", description="Send a mail."), ToolDefinition(name="read_file")]
    indexes: ToolIndexes = make_indexes(tools)
    assert [each.name for each in search(indexes.both, "mail", 5).best] == ["send_mail"]
    ```
    """

    old: ToolIndex
    new: ToolIndex
    listed: Sequence[ToolDefinition]

    @property
    def both(self) -> Sequence[ToolIndex]:
        """The two to search."""
        return (self.old, self.new) if self.new.definitions else (self.old,)


def make_indexes(definitions: Sequence[ToolDefinition], known: ToolIndexes | None = None) -> ToolIndexes:
    """Return the index of some tools, from that of an earlier catalog if few have changed since.

    Of 10,000 tools of which one has changed that is a fiftieth of the work.
    """
    if known is not None:
        left, came = _compare(known.listed, definitions)
        old, new = known.old, known.new.definitions
        # Of those that came some have been there before, as a server that comes and goes has them.
        back = {id(old.definitions[place]): place for place in old.gone}
        gone = old.gone.union(old.find_places(left)).difference(back[id(each)] for each in came if id(each) in back)
        lost = frozenset(map(id, left))
        kept = [each for each in new if id(each) not in lost]
        kept += [each for each in came if id(each) not in back]
        if len(kept) + len(gone) <= min(_MOST_CHANGES, len(old.definitions)):
            return ToolIndexes(old.without(gone), ToolIndex(kept) if kept else _EMPTY, definitions)
    return ToolIndexes(ToolIndex(definitions), _EMPTY, definitions)


def _compare(
    before: Sequence[ToolDefinition], now: Sequence[ToolDefinition]
) -> tuple[Sequence[ToolDefinition], Sequence[ToolDefinition]]:
    """Return the tools that are gone, and those that came.

    What two lists have in common is passed over in C, and not copied: mostly one tool has changed.
    """
    left: list[ToolDefinition] = []
    came: list[ToolDefinition] = []
    old = new = 0
    for _ in range(_MOST_BLOCKS):
        same = _count_common(before, now, old, new)
        old, new = old + same, new + same
        if old == len(before) or new == len(now):
            break
        place = _find(now[new], before, old)
        if place is not None:
            left += before[old:place]
            old = place
        else:
            place = _find(before[old], now, new) or new + 1
            came += now[new:place]
            new = place
    left += before[old:]
    came += now[new:]
    # Some have only moved.
    were, are = frozenset(map(id, left)), frozenset(map(id, came))
    return [each for each in left if id(each) not in are], [each for each in came if id(each) not in were]


def _count_common(before: Sequence[ToolDefinition], now: Sequence[ToolDefinition], old: int, new: int) -> int:
    """Return how many objects two lists have in common from these places on."""
    differ = map(is_not, islice(before, old, None), islice(now, new, None))
    return next(compress(count(), differ), min(len(before) - old, len(now) - new))


def _find(definition: ToolDefinition, listed: Sequence[ToolDefinition], start: int = 0) -> int | None:
    """Return the place of this very object."""
    return next(compress(count(start), map(is_, islice(listed, start, None), repeat(definition))), None)


_EMPTY = ToolIndex(())
