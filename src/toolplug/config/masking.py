"""Masking secrets in messages: values of secret-looking keys and arguments, of the environment and of secret files."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple
from urllib.parse import unquote

from toolplug.config.yaml_tree import KeyPath

_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")
_SECRET_WORD = re.compile(
    r"apikey|auth|authorization|cookie|credentials?|dsn|keys?|pass(phrase|wd|words?)|pwd|secrets?|tokens?"
)
_SECRET_PARENTS = frozenset(("env", "environment", "headers", "cookies", "secrets", "credentials"))
MASK = "***"


def looks_secret(path: KeyPath) -> bool:
    """Whether the value at the path is one to keep to oneself, by the words of its key or by where it stands."""
    keys = [part for part in path if isinstance(part, str)]
    if not keys:
        return False
    if any(key in _SECRET_PARENTS for key in keys[:-1]):
        return True
    return any(_SECRET_WORD.fullmatch(word.lower()) for word in _WORD.findall(keys[-1]))


def holds_credentials(text: str) -> bool:
    """Whether the text looks like an address with a user or a password in it."""
    return "@" in text.partition("//")[2]


def masked(text: str, secrets: Iterable[str]) -> str:
    """Return the text with each secret replaced, also where it stands escaped; short ones only as whole words."""
    for secret in sorted(secrets, key=len, reverse=True):
        for form in {secret, repr(secret)[1:-1], json.dumps(secret)[1:-1]}:
            if len(form) >= 4:
                text = text.replace(form, MASK)
            elif form:
                text = re.sub(rf"(?<!\w){re.escape(form)}(?!\w)", MASK, text)
    return text


_NAMED = re.compile(r"(?P<before>(?P<name>[A-Za-z_][\w-]*)(?:=|: *))(?P<value>[^/\s].*)", re.DOTALL)
"""`TOKEN=x`, as behind `--env`, and `Authorization: x`, as behind `--header`; an address is neither."""
_PASSWORD = re.compile(r"(?P<before>[A-Za-z][\w+.-]*://[^/@\s:]*:)(?P<password>[^/\s]+)(?P<after>@.*)", re.DOTALL)
_SCHEME = re.compile(r"(?:Bearer|Basic|Token) +(?P<secret>\S+)", re.IGNORECASE)


class NamedArgument(NamedTuple):
    """One argument, which is `before` and `value` together; `name` says what the value is, empty where nothing does."""

    before: str
    name: str
    value: str

    @property
    def secret(self) -> bool:
        """Whether the name is one of a secret."""
        return looks_secret((self.name,))


class Password(NamedTuple):
    """An address in three parts, of which the middle is the password."""

    before: str
    password: str
    after: str


def named_arguments(args: Iterable[str]) -> Iterator[NamedArgument]:
    """Each argument: `--token=X`, `TOKEN=X` and `Token: X` name what X is, and so does `--token` before it."""
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
    """What the value says of itself counts where its flag tells nothing."""
    if not looks_secret((name,)) and (found := _NAMED.fullmatch(value)):
        return NamedArgument(before + found["before"], found["name"], found["value"])
    return NamedArgument(before, name, value)


def password_in(address: str) -> Password | None:
    """The password of `scheme://user:password@place`; None where there is none."""
    found = _PASSWORD.fullmatch(address)
    return Password(found["before"], found["password"], found["after"]) if found else None


def secrets_in(args: Iterable[str]) -> Iterator[str]:
    """Every text among the arguments that nobody should read, also as it stands behind `Bearer`."""
    for argument in named_arguments(args):
        if argument.secret:
            yield argument.value
            if scheme := _SCHEME.fullmatch(argument.value):
                yield scheme["secret"]
        elif address := password_in(argument.value):
            yield address.password
            yield unquote(address.password)
