"""Words of names, descriptions and queries: how runs of letters are divided, and which say nothing about a tool."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from unicodedata import normalize

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


def _without_accents(word: str) -> str:
    """Return a word as it is often typed: `meteo` for `météo`. The marks of other scripts are letters, and stay."""
    return normalize("NFC", _ACCENTS.sub("", normalize("NFD", word.translate(_STROKES))))


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
STOP_WORDS: frozenset[str] = _STOP_AS_WRITTEN | {*map(_without_accents, _STOP_AS_WRITTEN)} - {"fur", "uber"}
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
SMALL_TALK: frozenset[str] = frozenset([*_TALK.split(), *map(_without_accents, _TALK.split())])
"""Words of time and of politeness: a request has them, and that no tool has one says nothing."""


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
    return [_without_accents(_singular(run.casefold()))]


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
