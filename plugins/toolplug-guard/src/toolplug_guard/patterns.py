"""The kinds of secrets and personal data, and patterns whose search takes time linear in the text.

Results are untrusted, so patterns are those of RE2: no backtracking, 2 ms for 1 MiB, and other threads can run.
The two checksums are written here: the packages that have both are LGPL and 6 MB, or bring names of all countries.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import accumulate
from time import thread_time
from typing import NamedTuple, Protocol

import re2

Span = tuple[int, int]


class _Match(Protocol):
    def span(self, group: int = 0) -> Span: ...


class Pattern(Protocol):
    """A compiled pattern, for UTF-8 text."""

    @property
    def pattern(self) -> str: ...
    @property
    def groups(self) -> int: ...
    def search(self, text: bytes, pos: int = 0) -> _Match | None: ...
    def finditer(self, text: bytes) -> Iterator[_Match]: ...


# google-re2 has no types.
_compile: Callable[..., Pattern] = re2.compile  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
_Error: type[Exception] = re2.error  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]


def compile_pattern(pattern: str, *, groups: bool = True) -> Pattern:
    """Compile a pattern of RE2. Raises `ValueError`, also for look-around and back-references."""
    options = re2.Options()
    options.log_errors = False
    options.never_capture = not groups
    try:
        return _compile(pattern, options)
    except _Error as error:
        reason: bytes = error.args[0]
        raise ValueError(f"{pattern!r} is not a pattern of RE2: {reason.decode(errors='replace')}") from None


class Kind(NamedTuple):
    """One kind of text to find: all of a match, or its first group if the pattern has one.

    `checked` returns how many bytes of a match are valid, 0 if it is something else.
    """

    name: str
    pattern: Pattern
    checked: Callable[[bytes], int] = len

    def spans(self, text: bytes, until: float) -> Iterator[Span]:
        """Yield the places of this kind in a text, in order. Raises `TimeoutError` at that time of `thread_time`."""
        if self.checked is len:
            yield from self._each_match(text, until)
            return
        group = min(self.pattern.groups, 1)
        place = 0
        while place <= len(text) and (match := self.pattern.search(text, place)) is not None:
            if thread_time() > until:
                raise TimeoutError(f"the search for {self.name} takes too long in this text")
            start, end = match.span(group)
            valid = self.checked(text[start:end]) if start >= 0 else 0
            if valid:
                yield start, start + valid
            # After a match with a wrong checksum, a valid one may begin inside it: matches of these kinds are short.
            place = max(start + max(valid, 1), place + 1)

    def _each_match(self, text: bytes, until: float) -> Iterator[Span]:
        """The same for a kind without a checksum, in half the time."""
        group = min(self.pattern.groups, 1)
        for match in self.pattern.finditer(text):
            if thread_time() > until:
                raise TimeoutError(f"the search for {self.name} takes too long in this text")
            start, end = match.span(group)
            if start >= 0 and end > start:
                yield start, end


SHORT_BYTES = 1024
"""Texts up to this size are searched together."""
SEPARATOR = b"\n\0\n"
"""Between texts that are searched together: no built-in kind has a match that goes across it."""


def _any_of(kinds: Sequence[Kind]) -> Pattern:
    return compile_pattern("|".join(f"(?:{kind.pattern.pattern})" for kind in kinds), groups=False)


class Detector:
    """Finds texts of several kinds. A text without any is searched once, for all of them together."""

    def __init__(self, kinds: Sequence[Kind]) -> None:
        self._kinds = kinds
        self._any = _any_of(kinds)
        # An operator's own pattern may match across texts that are joined, or only at the ends of one.
        self._own_kinds = [kind for kind in kinds if KINDS.get(kind.name) is not kind]
        self._own = _any_of(self._own_kinds) if self._own_kinds else None
        self._built_in = [kind for kind in kinds if KINDS.get(kind.name) is kind]

    def findings_of(self, texts: Sequence[str], until: float) -> dict[int, list[tuple[Span, str]]]:
        """Return the findings of each text that has any, by the text's place. Raises `TimeoutError`.

        The built-in kinds are searched in all short texts at once: a search takes microseconds, and most are short.
        """
        encoded = [text.encode() for text in texts]
        long = ((at, text) for at, text in enumerate(encoded) if len(text) > SHORT_BYTES)
        found = {at: hits for at, text in long if (hits := [*self.findings(text, until)])}
        short = [text if len(text) <= SHORT_BYTES else b"" for text in encoded]
        whole = SEPARATOR.join(short)
        ends = [*accumulate(len(text) + len(SEPARATOR) for text in short)]
        for kind in self._built_in:
            for start, end in kind.spans(whole, until):
                at = bisect_right(ends, start)
                begin = ends[at] - len(SEPARATOR) - len(short[at])
                found.setdefault(at, []).append(((start - begin, min(end - begin, len(short[at]))), kind.name))
        for at, text in enumerate(short) if self._own is not None else ():
            if thread_time() > until:
                raise TimeoutError("the search for the operator's own kinds takes too long in this result")
            if self._own is not None and self._own.search(text) is not None:
                hits = [(span, kind.name) for kind in self._own_kinds for span in kind.spans(text, until)]
                found[at] = [*found.get(at, ()), *hits]
        return found

    def findings(self, text: bytes, until: float) -> Iterator[tuple[Span, str]]:
        """Yield the place and the kind of each finding; places of different kinds may overlap."""
        if self._any.search(text) is not None:
            yield from ((span, kind.name) for kind in self._kinds for span in kind.spans(text, until))


_DOUBLED = str.maketrans("0123456789", "0246813579")
"""Each digit doubled, with the digits of the result added."""


def _card(found: bytes) -> int:
    """Return the length of a card number, whose last digit is the check digit of ISO/IEC 7812.

    The last group of what was found may be something else, such as the security code.
    """
    text = found.decode("ascii").replace("-", " ")
    while len(digits := text.replace(" ", "")) >= 13:
        if sum(map(int, digits[-1::-2] + digits[-2::-2].translate(_DOUBLED))) % 10 == 0:
            return len(text)
        text = text.rpartition(" ")[0]
    return 0


_IBAN_LENGTHS = {
    countries[place : place + 2]: length
    for length, countries in (
        (15, "NO"),
        (16, "BE"),
        (18, "DKFIFKFOGLNLSD"),
        (19, "MKSI"),
        (20, "ATBAEEKZLTLUMNXK"),
        (21, "CHHRLILV"),
        (22, "BGBHCRDEGBGEIEMERSVA"),
        (23, "AEGIILIQOMSOTL"),
        (24, "ADCZESMDPKROSASESKTNVG"),
        (25, "LYPTST"),
        (26, "ISTR"),
        (27, "BIDJFRGRITMCMRSM"),
        (28, "ALAZBYCYDOGTHNHULBNIPLSV"),
        (29, "BREGPSQAUA"),
        (30, "JOKWMUYE"),
        (31, "MTSC"),
        (32, "LC"),
        (33, "RU"),
    )
    for place in range(0, len(countries), 2)
}
"""Characters of an IBAN by country: SWIFT's IBAN registry, release 101."""

_LETTERS = {ord("A") + place: str(10 + place) for place in range(26)}


def _iban(found: bytes) -> int:
    """Return the length of an IBAN with its spaces; its check digits are those of ISO 13616. Words may follow it."""
    text = found.decode("ascii")
    end = length = _IBAN_LENGTHS.get(text[:2], 0)
    while end < length + text.count(" ", 0, end):
        end = length + text.count(" ", 0, end)
    iban = text[:end].replace(" ", "")
    if not length or len(iban) != length or text[end : end + 1].strip():
        return 0
    return end if int((iban[4:] + iban[:4]).translate(_LETTERS)) % 97 == 1 else 0


_API_KEYS = "|".join(
    (
        r"sk-[A-Za-z0-9_-]{20,}",  # OpenAI, Anthropic and others
        r"(?:sk|rk)_(?:live|test)_[A-Za-z0-9]{16,}",  # Stripe
        r"gh[oprsu]_[A-Za-z0-9]{36,}|github_pat_[A-Za-z0-9_]{22,}",
        r"glpat-[A-Za-z0-9_-]{20,}",  # GitLab
        r"(?:AKIA|ASIA)[A-Z0-9]{16}",  # AWS
        r"AIza[A-Za-z0-9_-]{35}",  # Google
        r"xox[abeoprs]-[A-Za-z0-9-]{10,}|xapp-[A-Za-z0-9-]{10,}",  # Slack
        r"SG\.[A-Za-z0-9_-]{16,}\.[A-Za-z0-9_-]{16,}",  # SendGrid
        r"npm_[A-Za-z0-9]{36}|pypi-[A-Za-z0-9_-]{50,}|hf_[A-Za-z0-9]{30,}",
    )
)
_CARD_ISSUERS = r"(?:4\d{3}|5[1-5]\d\d|2[2-7]\d\d|6011|6[25]\d\d|64[4-9]\d|35\d\d)"
_KEY_LINE = r"[A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----"

KINDS: Mapping[str, Kind] = {
    kind.name: kind
    for kind in (
        Kind("api_keys", compile_pattern(rf"\b(?:{_API_KEYS})")),
        # Without its last line, as in a text that was cut, a key ends where no key goes on.
        Kind(
            "private_keys",
            compile_pattern(rf"-----BEGIN {_KEY_LINE}(?:[\w+/=\s\\:,.()]|-[A-Za-z0-9])*(?:-----END {_KEY_LINE})?"),
        ),
        Kind("jwt", compile_pattern(r"\beyJ[\w-]{8,}\.eyJ[\w-]{8,}\.[\w-]*")),
        Kind("url_passwords", compile_pattern(r"://[^\s/:@]*:([^\s/@]+)@")),
        Kind(
            "credit_cards",
            compile_pattern(
                rf"\b{_CARD_ISSUERS}(?:[ -]?\d{{4}}){{2}}[ -]?\d{{1,4}}(?:[ -]?\d{{1,3}})?\b"
                r"|\b3[04-9]\d\d[ -]?\d{6}[ -]?\d{4,5}\b"
            ),
            _card,
        ),
        Kind(
            "iban",
            compile_pattern(r"\b[A-Z]{2}\d\d(?: ?[A-Z0-9]{4}){2,7}(?: ?[A-Z0-9]{1,3})?\b"),
            _iban,
        ),
        Kind("email", compile_pattern(r"\b[\w.%+-]{1,64}@(?:[A-Za-z0-9-]{1,63}\.)+[A-Za-z]{2,63}\b")),
        # International numbers, and North American ones in groups.
        Kind(
            "phone", compile_pattern(r"\B\+\d(?:[ ().-]{0,2}\d){6,14}\b|(?:\B\(\d{3}\) ?|\b\d{3}[-.])\d{3}[-.]\d{4}\b")
        ),
    )
}
"""The built-in kinds by name."""

SECRETS = ("api_keys", "private_keys", "jwt", "url_passwords")
"""The kinds that are masked by default: no tool's result needs them."""
