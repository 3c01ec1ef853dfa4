"""Finds secrets in keys, addresses and command-line arguments, and masks them in messages."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple, cast
from urllib.parse import unquote, urlsplit, urlunsplit

_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")
_SECRET_WORD = re.compile(
    r"apikey|auth|authorization|bearer|cookie|credentials?|dsn|keys?|pass(code|phrase|wd|words?)?|pat|pwd|sas|secrets?"
    r"|sig|signature|tokens?|\w+(apikey|pass(phrase|wd|word)|secret|token)"  # the last ones as in PGPASSWORD
)
_SECRET_PARENTS = frozenset(("env", "environment", "headers", "cookies", "secrets", "credentials"))
MASK = "***"


def looks_secret(path: Sequence[str | int]) -> bool:
    """Return whether the value at the path is secret, by the words of its key or by a parent such as `headers`."""
    *parents, key = [part for part in path if isinstance(part, str)] or [""]
    if not _SECRET_PARENTS.isdisjoint(parents):
        return True
    return any(_SECRET_WORD.fullmatch(word.lower()) for word in _WORD.findall(key))


def holds_credentials(text: str) -> bool:
    """Return whether the text looks like an address with a user or a password."""
    return "@" in text.partition("//")[2]


def mask_secrets(text: str, secrets: Iterable[str]) -> str:
    """Return the text with each secret masked, escaped forms included; one of up to 3 characters only as a word."""
    # The longest first: one secret may be a part of another, whose rest would stay readable.
    for secret in sorted(secrets, key=len, reverse=True):
        # Messages quote values as Python or as JSON, with quotation marks and line breaks escaped.
        for form in {secret, repr(secret)[1:-1], json.dumps(secret)[1:-1]}:
            if len(form) >= 4:
                text = text.replace(form, MASK)
            # A text of up to three characters occurs in words by chance, and would mask half of a message.
            elif form:
                text = re.sub(rf"(?<!\w){re.escape(form)}(?!\w)", MASK, text)
    return text


_NAMED = re.compile(r"(?P<before>(?P<name>[A-Za-z_][\w.-]*)(?:=|: *))(?P<value>[^/\s].*)", re.DOTALL)
"""`TOKEN=x`, as after `--env`, or `Authorization: x`, as after `--header`, but no address."""
_PASSWORD = re.compile(r"(?<![\w+.-])[A-Za-z][\w+.-]*://[^/@\s:]*:(?P<password>[^/\s]+)@")
_QUERY = re.compile(r"(?<![\w+.-])[A-Za-z][\w+.-]*://[^?\s]*\?(?P<query>[^#\s]+)")
_SCHEME = re.compile(r"(?:Bearer|Basic|Token) +(?P<secret>\S+)", re.IGNORECASE)
# Prefixes of OpenAI, GitHub, GitLab, Slack and AWS, and `eyJ`, with which every JSON Web Token begins.
_KEY = re.compile(r"(?<![\w-])(?:sk-|gh[a-z]_|github_pat_|glpat-|xox[a-z]-|AKIA|eyJ)[\w.-]{8,}")
"""API keys of well-known services, by their prefixes."""
_WORDLIKE = re.compile(r"(?<![A-Za-z0-9_+-])[A-Za-z0-9_-]{16,}(?![A-Za-z0-9_+-])")
_HEX = re.compile(r"[0-9a-f]{32,}", re.IGNORECASE)
_MIXED = 0.45
"""Of the neighbours in random letters and digits 62 % differ in kind; in names such as `MyServer2024` a third do."""
_REFERENCE = re.compile(r"\$\{[^}]*\}")
_MOST_NESTED = 8
"""Levels of text within text that are looked into, such as a header within JSON within an argument."""

_SHORT = 4


class Secret(NamedTuple):
    """A secret as it is written in a longer text, with the name that it has there; empty for none."""

    name: str
    text: str


class NamedArgument(NamedTuple):
    """An argument, split into `before` and `value`; `name` is that of the value, or empty."""

    before: str
    name: str
    value: str


def named_arguments(args: Iterable[str]) -> Iterator[NamedArgument]:
    """Yield each argument; X is named by `--token=X`, `TOKEN=X`, `Token: X`, and by an argument `--token` before it."""
    flag = ""
    for text in args:
        if text.startswith("--") or (text.startswith("-") and not looks_secret((flag,))):
            name, equals, value = text.partition("=")
            yield _read_named(f"{name}=", name.strip("-"), value) if equals else NamedArgument("", "", text)
            flag = "" if equals else name.strip("-")
        else:
            yield _read_named("", flag, text)
            flag = ""


def _read_named(before: str, name: str, value: str) -> NamedArgument:
    # A name in the value itself counts unless its flag already names a secret.
    if not looks_secret((name,)) and (found := _NAMED.fullmatch(value)):
        return NamedArgument(before + found["before"], found["name"], found["value"])
    return NamedArgument(before, name, value)


def find_secrets(text: str, name: str = "", *, _depth: int = 0) -> list[Secret]:
    """Return the secrets in a value, in its order. `name`: what the value is called where it is written.

    The one function that decides what is a secret within a value, of whatever place: what its name says is one (of
    `Bearer x` only x), also as a parameter of an address, a pair `name=value;`, a key of JSON or a header; passwords of
    addresses; the keys of well-known services; and what looks random, as other keys do. References to the environment,
    `${NAME}`, are none.
    """
    # Each level is a text within a text: without a limit a crafted argument decides how deep it goes.
    if not text or _depth > _MOST_NESTED or not _REFERENCE.sub("", text).strip():
        return []
    if scheme := _SCHEME.fullmatch(text):
        return [] if _REFERENCE.search(scheme["secret"]) else [Secret(name, scheme["secret"])]
    if looks_secret((name,)):
        return [] if _REFERENCE.search(text) else [Secret(name, text)]
    # Taken apart first, so that only the secret itself is masked, and the rest of a message stays readable.
    parts = _json_leaves(text) or _pairs(text)
    found = [secret for key, part in parts for secret in find_secrets(part, key or name, _depth=_depth + 1)]
    if not parts:
        found += [Secret("password", part[1]) for part in _PASSWORD.finditer(text)]
        found += [Secret(name, part[0]) for part in _KEY.finditer(text)]
        known = {secret.text for secret in found}  # as a password, which has a name of its own
        words = (part[0] for part in _WORDLIKE.finditer(text))
        found += [Secret(name, word) for word in words if word not in known and _looks_random(word, text)]
    found = [_as_written(item, text) for item in dict.fromkeys(found) if not _REFERENCE.search(item.text)]
    # One that cannot be told from the rest of the text takes the rest with it.
    return [Secret(name, text)] if any(_is_lost_in(text, item.text) for item in found) else found


def _looks_random(word: str, text: str) -> bool:
    """Return whether a word has small and capital letters and digits, mixed as no name has them.

    A whole text of hexadecimal digits is random too; within one they are the digest of a commit or an image.
    """
    if _HEX.fullmatch(word):
        return word == text
    kinds = [1 if each.isdigit() else 2 if each.isupper() else 3 for each in word if each not in "-_"]
    changes = sum(one != other for one, other in pairwise(kinds))
    found = Counter(kinds)
    return min(found[1], found[2], found[3]) > 1 and changes >= _MIXED * (len(kinds) - 1)


def _is_lost_in(text: str, secret: str) -> bool:
    """Return whether a secret cannot be told from the rest of the text: it is missing, or short and there twice."""
    return secret not in text or (len(secret) < _SHORT and text.find(secret) < text.rfind(secret))


def _as_written(secret: Secret, text: str) -> Secret:
    """Return a secret with its text as it is in this one: escaped as in JSON, and in JSON within that, or as it is."""
    once = json.dumps(secret.text)[1:-1]
    forms = (secret.text, once, json.dumps(once)[1:-1])
    return secret._replace(text=next((form for form in forms if form in text), secret.text))


def _json_leaves(text: str) -> list[tuple[str, str]]:
    """Return the texts of a JSON object or list with their keys."""
    if text.lstrip()[:1] not in ("{", "["):
        return []
    try:
        whole = json.loads(text)
    except (ValueError, RecursionError):
        return []
    found: list[tuple[str, str]] = []
    waiting: list[tuple[str, object]] = [("", whole)]
    while waiting:
        key, value = waiting.pop()
        if isinstance(value, dict):
            waiting.extend(cast("dict[str, object]", value).items())
        elif isinstance(value, list):
            waiting.extend((key, item) for item in cast("list[object]", value))
        elif isinstance(value, str):
            found.append((key, value))
    return found


def _pairs(text: str) -> list[tuple[str, str]]:
    """Return the parameters of an address, the pairs of `a=1;b=2`, or the one of `NAME=value` or `Name: value`."""
    if query := _QUERY.search(text):
        pairs = [pair.partition("=") for pair in query["query"].split("&")]
        before = text[: query.start("query")]
        return [("", before), *((unquote(key), value) for key, _, value in pairs)]
    if ";" in text and "=" in text:
        pairs = [pair.partition("=") for pair in text.split(";")]
        return [(key.strip(), value.strip()) for key, _, value in pairs]
    if named := _NAMED.fullmatch(text):
        return [(named["name"], named["value"])]
    return []


def secrets_in(args: Iterable[str]) -> Iterator[str]:
    """Yield the secrets among the arguments; of `Bearer X` both the whole and X, of a password its decoded form too."""
    for argument in named_arguments(args):
        for secret in find_secrets(argument.value, argument.name):
            yield from forms_of(secret.text, argument.value)


def forms_of(secret: str, value: str) -> Iterator[str]:
    """Yield the forms in which a message may repeat a secret of this value."""
    if value != secret and _SCHEME.fullmatch(value):
        yield value
    yield secret
    # Libraries show a password as it was sent, and as they have decoded it.
    if (decoded := unquote(secret)) != secret:
        yield decoded


def without_secrets(args: Iterable[str]) -> Iterator[str]:
    """Yield the arguments with their secrets masked."""
    for argument in named_arguments(args):
        value = MASK if looks_secret((argument.name,)) and argument.value else argument.value
        if "://" in value:
            value = without_credentials(value)
        for secret in find_secrets(value, argument.name):
            value = value.replace(secret.text, MASK)
        yield f"{argument.before}{value}"


def without_credentials(url: str) -> str:
    """Return an address with user, password and query masked."""
    if not holds_credentials(url) and "?" not in url:
        return url
    try:
        parts = urlsplit(url)
    except ValueError:
        return MASK
    _, at, host = parts.netloc.rpartition("@")
    netloc = f"{MASK}@{host}" if at else parts.netloc
    return urlunsplit(parts._replace(netloc=netloc, query=MASK if parts.query else ""))
