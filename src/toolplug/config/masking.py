"""What a message may not show: values of secret-looking keys, and texts from the environment or from secret files."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable

from toolplug.config.key_path import KeyPath

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
