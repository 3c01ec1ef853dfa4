"""References to environment variables: `${NAME}`, `${NAME:-default}`, and `$${` for a literal `${`.

They are expanded after parsing, and only in the requested sub-tree: a disabled entry may refer to variables that are
not set. As in a shell, the default of `:-` also replaces an empty value.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from toolplug.config.document import Document, Section
from toolplug.config.yaml_tree import (
    MAX_PROBLEMS,
    KeyPath,
    ListNode,
    MappingNode,
    Node,
    ScalarNode,
    ScalarValue,
    Value,
    resolve_scalar,
)
from toolplug.errors import Problem

_REFERENCE = re.compile(r"\$\$\{|\$\{(?P<body>[^}]*)(?P<end>\}?)")
_BODY = re.compile(r"(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?::-(?P<default>(?:(?!\$\{).)*))?", re.DOTALL)
"""A default cannot contain a reference: its end would be ambiguous."""


def expand(document: Document, path: KeyPath, environ: Mapping[str, str]) -> Section:
    """Return the values at the path with every reference expanded. Raises `KeyError` for a path not in the file."""
    expansion = _Expansion(document=document, environ=environ)
    value = expansion.expand(document.node(path), path)
    return Section(
        document=document,
        path=path,
        value=value,
        problems=tuple(expansion.problems),
        broken=frozenset(expansion.broken),
        withheld=frozenset(expansion.withheld),
    )


def has_reference(text: str) -> bool:
    """Return whether the text contains a reference, valid or not."""
    return any(found["body"] is not None for found in _REFERENCE.finditer(text))


def list_variables(node: Node) -> list[str]:
    """Return the names of the variables to which the node and what is below it refer, each once, in file order."""
    found: dict[str, None] = {}
    waiting = [node]
    while waiting:
        match waiting.pop():
            case ScalarNode(value=str(text)):
                bodies = (_BODY.fullmatch(each["body"] or "") for each in _REFERENCE.finditer(text))
                found |= dict.fromkeys(body["name"] for body in bodies if body is not None)
            case ListNode(items=items):
                waiting += reversed(items)
            case MappingNode(entries=entries):
                waiting += reversed([entry.node for entry in entries.values()])
            case _:
                pass
    return [*found]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Expansion:
    """The expansion of one sub-tree, and its results."""

    document: Document
    environ: Mapping[str, str]
    problems: list[Problem] = field(default_factory=list[Problem])
    broken: set[KeyPath] = field(default_factory=set[KeyPath])
    withheld: set[str] = field(default_factory=set[str])

    def expand(self, node: Node, path: KeyPath) -> Value:
        match node:
            # The look for the two characters first: most scalars have none, and the pattern is slower.
            case ScalarNode(value=str(text)) if "${" in text:
                return self._scalar(text, path, plain=node.plain)
            case ScalarNode():
                return node.value
            case ListNode():
                return [self.expand(item, (*path, index)) for index, item in enumerate(node.items)]
            case MappingNode():
                return {key: self.expand(entry.node, (*path, key)) for key, entry in node.entries.items()}

    def _scalar(self, text: str, path: KeyPath, *, plain: bool) -> ScalarValue:
        expanded = _REFERENCE.sub(lambda found: self._replacement(found, path), text)
        if path in self.broken:
            return None
        # `port: ${PORT}` becomes a number, as if it had been written there; a part of a longer text stays text.
        whole = _REFERENCE.fullmatch(text)
        return resolve_scalar(expanded) if plain and whole and whole["body"] is not None else expanded

    def _replacement(self, found: re.Match[str], path: KeyPath) -> str:
        if found["body"] is None:
            return "${"
        body = _BODY.fullmatch(found["body"])
        if body is None or not found["end"]:
            hint = "write ${NAME} or ${NAME:-default}; '$${' is a literal '${'"
            return self._break(path, "bad_reference", "'${' does not begin a reference", hint)
        name, default = body["name"], body["default"]
        value = self.environ.get(name)
        # An empty value counts as unset here, as with `:-` in a shell.
        if default is not None and not value:
            return default
        if value is None:
            hint = f"set it, or write ${{{name}:-default}}"
            return self._break(path, "unset_variable", f"the environment variable {name!r} is not set", hint)
        # Python decodes bytes that are no UTF-8 as surrogates, which nothing can be written with.
        if not value.isprintable() and any("\ud800" <= character <= "\udfff" for character in value):
            return self._break(path, "not_text", f"the environment variable {name!r} is not UTF-8 text", "")
        if value:
            # Every value of the environment is masked in messages: which of them are secrets nobody can say.
            self.withheld.add(value)
        return value

    def _break(self, path: KeyPath, code: str, message: str, hint: str) -> str:
        self.broken.add(path)
        if len(self.problems) < MAX_PROBLEMS:
            self.problems.append(self.document.problem(path, code=code, message=message, hint=hint))
        return ""


def expanded_keys(document: Document, path: KeyPath, keys: Iterable[str], environ: Mapping[str, str]) -> Section:
    """Return the section of some keys of a mapping, with every reference expanded."""
    parts = {key: expand(document, (*path, key), environ) for key in keys}
    return Section(
        document=document,
        path=path,
        value={key: part.value for key, part in parts.items()},
        problems=tuple(problem for part in parts.values() for problem in part.problems),
        broken=frozenset(item for part in parts.values() for item in part.broken),
        withheld=frozenset(item for part in parts.values() for item in part.withheld),
    )
