"""Finds secrets in keys, addresses and command-line arguments, and masks them in messages."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple
from urllib.parse import unquote, urlsplit, urlunsplit

_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")
_SECRET_WORD = re.compile(
    r"apikey|auth|authorization|cookie|credentials?|dsn|keys?|pass(phrase|wd|words?)|pwd|secrets?|tokens?"
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


def masked(text: str, secrets: Iterable[str]) -> str:
    """Return the text with each secret masked, escaped forms included; one of up to 3 characters only as a word."""
    for secret in sorted(secrets, key=len, reverse=True):
        for form in {secret, repr(secret)[1:-1], json.dumps(secret)[1:-1]}:
            if len(form) >= 4:
                text = text.replace(form, MASK)
            elif form:
                text = re.sub(rf"(?<!\w){re.escape(form)}(?!\w)", MASK, text)
    return text


_NAMED = re.compile(r"(?P<before>(?P<name>[A-Za-z_][\w-]*)(?:=|: *))(?P<value>[^/\s].*)", re.DOTALL)
"""`TOKEN=x`, as after `--env`, or `Authorization: x`, as after `--header`, but no address."""
_PASSWORD = re.compile(r"(?P<before>[A-Za-z][\w+.-]*://[^/@\s:]*:)(?P<password>[^/\s]+)(?P<after>@.*)", re.DOTALL)
_SCHEME = re.compile(r"(?:Bearer|Basic|Token) +(?P<secret>\S+)", re.IGNORECASE)


class NamedArgument(NamedTuple):
    """An argument, split into `before` and `value`; `name` is that of the value, or empty."""

    before: str
    name: str
    value: str

    @property
    def secret(self) -> bool:
        """True if the name is that of a secret."""
        return looks_secret((self.name,))


class Password(NamedTuple):
    """An address in three parts: the text before its password, the password, and the text after it."""

    before: str
    password: str
    after: str


def named_arguments(args: Iterable[str]) -> Iterator[NamedArgument]:
    """Yield each argument; X is named by `--token=X`, `TOKEN=X`, `Token: X`, and by an argument `--token` before it."""
    flag = ""
    for text in args:
        if text.startswith("--") or (text.startswith("-") and not looks_secret((flag,))):
            name, equals, value = text.partition("=")
            yield _named(f"{name}=", name.strip("-"), value) if equals else NamedArgument("", "", text)
            flag = "" if equals else name.strip("-")
        else:
            yield _named("", flag, text)
            flag = ""


def _named(before: str, name: str, value: str) -> NamedArgument:
    # A name in the value itself counts unless its flag already names a secret.
    if not looks_secret((name,)) and (found := _NAMED.fullmatch(value)):
        return NamedArgument(before + found["before"], found["name"], found["value"])
    return NamedArgument(before, name, value)


def password_in(address: str) -> Password | None:
    """Split an address `scheme://user:password@place` at its password; None if it has none."""
    found = _PASSWORD.fullmatch(address)
    return Password(**found.groupdict()) if found else None


def secrets_in(args: Iterable[str]) -> Iterator[str]:
    """Yield the secrets among the arguments; of `Bearer X` both the whole and X."""
    for argument in named_arguments(args):
        if argument.secret:
            yield argument.value
            if scheme := _SCHEME.fullmatch(argument.value):
                yield scheme["secret"]
        elif address := password_in(argument.value):
            yield address.password
            yield unquote(address.password)


def without_secrets(args: Iterable[str]) -> Iterator[str]:
    """Yield the arguments with values of secret options and passwords in addresses masked."""
    for argument in named_arguments(args):
        if argument.secret:
            yield f"{argument.before}{MASK}"
        else:
            value = argument.value
            yield f"{argument.before}{without_credentials(value) if '://' in value else value}"


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
