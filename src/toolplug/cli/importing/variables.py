"""Secrets of an imported file become references to the environment, so that the configuration holds none."""

from __future__ import annotations

import re
from collections.abc import Mapping

from toolplug.config.masking import looks_secret

_NAME = r"[A-Za-z_][A-Za-z0-9_]*"
_REFERENCE = re.compile(rf"\$\{{{_NAME}(?::-[^}}]*)?\}}")
_FOREIGN = re.compile(r"\$\{(?P<kind>env|input):(?P<name>[^}]+)\}")
"""How editors write a variable of the environment, and what they ask the user for."""
_SCHEME = re.compile(r"(?P<scheme>Bearer|Basic|Token) +(?P<secret>\S+)", re.IGNORECASE)
_SHAPES = re.compile(r"(?:sk-|gh[a-z]_|github_pat_|glpat-|xox[a-z]-|AKIA|eyJ)[\w.-]{8,}.*")
"""How the keys of well-known services begin."""
_ILLEGAL = re.compile(r"[^A-Za-z0-9]+")


class Variables:
    """The environment variables that the imported servers need. No value of one is ever written or shown."""

    def __init__(self) -> None:
        self._values: dict[str, str] = {}
        self._uses: dict[str, str] = {}

    @property
    def uses(self) -> Mapping[str, str]:
        """What each is for, by name: those whose value stood in the file, or was asked for."""
        return self._uses

    def referring(self, server: str, kind: str, name: str, value: str) -> str:
        """The value as it goes into the configuration: with a reference in place of what looks like a secret.

        `kind` is where it stands (`env`, `header` …), `name` its own name there.
        """
        for found in _FOREIGN.finditer(value):
            if found["kind"] == "input":
                variable = _variable(found["name"])
                self._values.setdefault(variable, found[0])
                self._uses.setdefault(variable, f"{kind} {name} of {server}")
        text = _own_references(value)
        if _REFERENCE.search(text):
            return _escaped(text)
        if not text or not (looks_secret((name,)) or _SHAPES.fullmatch(text)):
            return _escaped(text)
        scheme = _SCHEME.fullmatch(text)
        secret = scheme["secret"] if scheme else text
        variable = self._named(server, kind, name, secret)
        self._uses.setdefault(variable, f"{kind} {name} of {server}")
        return f"{scheme['scheme']} ${{{variable}}}" if scheme else f"${{{variable}}}"

    def plain(self, text: str) -> str:
        """A text that is no secret, as it goes into the configuration."""
        return _escaped(_own_references(text))

    def _named(self, server: str, kind: str, name: str, secret: str) -> str:
        """The variable's own name under `env`; with the server's before it elsewhere, and where two would meet."""
        wanted = _variable(name) if kind == "env" else _variable(f"{server}_{name}")
        number = 1
        while self._values.setdefault(wanted, secret) != secret:
            wanted = _variable(f"{server}_{name}" if number == 1 else f"{server}_{name}_{number}")
            number += 1
        return wanted


def _own_references(text: str) -> str:
    return _FOREIGN.sub(lambda found: f"${{{_variable(found['name'])}}}", text)


def _variable(text: str) -> str:
    name = _ILLEGAL.sub("_", text).strip("_").upper()
    return name if name and not name[0].isdigit() else f"_{name}"


def _escaped(text: str) -> str:
    """Every `${` that begins no reference as the configuration writes it literally."""
    parts: list[str] = []
    end = 0
    for found in _REFERENCE.finditer(text):
        parts += [text[end : found.start()].replace("${", "$${"), found[0]]
        end = found.end()
    return "".join([*parts, text[end:].replace("${", "$${")])
