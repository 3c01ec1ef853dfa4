"""Text as the index keeps it: words in one form, by script and language.

A word is folded (case, width, ß) and stemmed by the rules of its document's language, then loses its accents. Scripts
that do not separate words become overlapping pairs of characters, and names such as `convertAmount` their parts too.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator
from functools import cache
from importlib import import_module
from threading import Lock
from types import MappingProxyType
from typing import Any, NamedTuple

ENGLISH = "english"
ALGORITHMS = MappingProxyType(
    {
        "ar": "arabic", "ca": "catalan", "da": "danish", "de": "german", "el": "greek", "en": "english",
        "es": "spanish", "et": "estonian", "eu": "basque", "fi": "finnish", "fr": "french", "hi": "hindi",
        "hu": "hungarian", "id": "indonesian", "it": "italian", "lt": "lithuanian", "nl": "dutch", "no": "norwegian",
        "pl": "polish", "pt": "portuguese", "ro": "romanian", "ru": "russian", "sv": "swedish", "ta": "tamil",
        "tr": "turkish",
    }
)  # fmt: skip
"""The languages that are told apart, and Snowball's names of them."""
COMPOUNDING = frozenset({"german", "dutch", "danish", "swedish", "norwegian", "finnish", "hungarian", "estonian"})
"""Languages that write several words as one."""

MAX_WORD = 64
"""Letters of a word; what is longer, such as encoded data, is not looked for."""
MAX_CACHED = 16 * 1024 * 1024
"""Bytes of the table of stems, about."""
_ENTRY = 300
"""Bytes of an entry of it, not counting its letters."""
_SAMPLE = 4_000
_PIECE = 500
"""Characters that are normalized at once: a run of combining marks takes quadratic time."""
_MARKS = "\u0300-\u036f\u0591-\u05c7\u0610-\u061a\u064b-\u065f\u0670\u0900-\u0dff"
_DENSE = (
    "\u0e00-\u0fff\u1000-\u109f\u1780-\u17ff\u3005-\u3007\u3040-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff"
    "\uac00-\ud7af\uf900-\ufaff\U00020000-\U0003ffff"
)
_WORD = re.compile(f"(?P<dense>[{_DENSE}]+)|(?P<word>(?:[^\\W{_DENSE}]|[{_MARKS}])+)")
_PART = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[^\W\dA-Z_]+|[A-Z]+|\d+|[^\W_]")
_NAME = re.compile(r"[a-z][A-Z]|_|\d[^\W\d]|[^\W\d]\d")
_ACCENT = re.compile("[\u0300-\u036f\u0591-\u05c7\u0610-\u061a\u064b-\u065f\u0670]+")


class Word(NamedTuple):
    """A piece of text as it is looked for. `dense`: a pair of characters of a script without spaces."""

    text: str
    dense: bool = False


class Analyzer:
    """Finds languages and stems. What it knows of words is cached; it may be used by several threads."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._stemmers: dict[str, Any] = {}
        self._tokens: dict[tuple[str, str], str] = {}
        self.cached_bytes: int = 0
        """What the table of stems takes, about."""

    def language(self, text: str) -> str:
        """Return the language of a document, as Snowball calls it; English where nothing tells."""
        sample = " ".join(found["word"] for found in _WORD.finditer(text[: 2 * _SAMPLE]) if found["word"])[:_SAMPLE]
        if not any(character.isalpha() for character in sample):
            return ENGLISH
        with self._lock:
            return ALGORITHMS[_identifier().classify(sample)[0]]

    def tokens(self, words: Iterable[Word], language: str) -> list[str]:
        """Return the form of each word in this language, in order."""
        known = self._tokens
        return [
            word.text if word.dense else known.get((language, word.text)) or self._stem(word.text, language)
            for word in words
        ]

    def _stem(self, word: str, language: str) -> str:
        with self._lock:
            if language not in self._stemmers:
                self._stemmers[language] = import_module("Stemmer").Stemmer(language, 0)  # without a cache of its own
            token = without_accents(str(self._stemmers[language].stemWord(word))) or word
            size = _ENTRY + 4 * (len(word) + len(token))
            if self.cached_bytes + size > MAX_CACHED:
                self._tokens.clear()
                self.cached_bytes = 0
            self._tokens[language, word] = token
            self.cached_bytes += size
        return token


@cache
def _identifier() -> Any:
    """The model of languages, which never changes: 0.3 s, once a process and only where documents come in."""
    identifier = import_module("py3langid.langid").LanguageIdentifier.from_model_file("data/model.npz.xz")
    identifier.set_languages(list(ALGORITHMS))
    return identifier


def words(text: str) -> Iterator[Word]:
    """Yield the words of a text in order, folded; of a name such as `fetch_rates` its parts and then the whole.

    What is longer than `MAX_WORD` is left out.
    """
    for found in _WORD.finditer(_normalize(text)):
        run = found[0]
        if found.lastgroup == "dense":
            for start in range(len(run) - 1):
                yield Word(run[start : start + 2], dense=True)
            yield Word(run[-1], dense=True)  # with it each character begins a token, so a single one can be found
        else:
            yield from (word for word in _spellings(run) if len(word.text) <= MAX_WORD)


def _spellings(run: str) -> Iterator[Word]:
    if not _NAME.search(run):
        yield Word(run.casefold())
        return
    parts = [part.casefold() for part in _PART.findall(run)]
    yield from map(Word, parts)
    if len(parts) > 1:
        yield Word("".join(parts))


def _normalize(text: str) -> str:
    if text.isascii():
        return text
    pieces = (text[start : start + _PIECE] for start in range(0, len(text), _PIECE))
    return "".join(unicodedata.normalize("NFKC", piece) for piece in pieces)


def without_accents(word: str) -> str:
    """Return the word without accents, points and the like."""
    if word.isascii():
        return word
    return unicodedata.normalize("NFC", _ACCENT.sub("", unicodedata.normalize("NFD", word)))
