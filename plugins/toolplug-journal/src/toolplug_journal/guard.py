"""Which calls are vetoed. What cannot be checked is vetoed too."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import NamedTuple, cast

from pydantic_core import to_jsonable_python

from toolplug_journal.argument_texts import selected, texts
from toolplug_journal.linear_pattern import LinearPattern
from toolplug_journal.settings import Rule

UNCHECKED = "the rules of this host cannot be applied to this call"


class _Compiled(NamedTuple):
    rule: Rule
    pattern: LinearPattern | None

    def matches(self, arguments: Mapping[str, object]) -> bool:
        pattern, place = self.pattern, self.rule.argument
        if pattern is None:
            return True
        found = [arguments] if place is None else selected(arguments, place)
        return any(pattern.found_in(text) for value in found for text in texts(value))


class Guard:
    """The rules of one configuration, in its order."""

    def __init__(self, rules: Sequence[Rule], log: logging.Logger) -> None:
        patterns = (None if rule.pattern is None else LinearPattern(rule.pattern) for rule in rules)
        self._rules = [_Compiled(rule, pattern) for rule, pattern in zip(rules, patterns, strict=True)]
        self._log = log

    def refusal(self, tool: str, arguments: object) -> str | None:
        """The reason of the first rule that the call breaks, or None. Raises nothing."""
        rules = [item for item in self._rules if fnmatchcase(tool, item.rule.tool)]
        if not rules:
            return None
        try:
            plain = _object(arguments)
            return next((item.rule.reason for item in rules if item.matches(plain)), None)
        except Exception as error:  # noqa: BLE001  fail closed: what cannot be checked must not run
            self._log.error("the rules cannot be applied to a call of %r: %s", tool, type(error).__name__)
            return UNCHECKED


def _object(arguments: object) -> dict[str, object]:
    """The arguments as JSON values, whatever types the tool's own conversion gave them."""
    plain: object = to_jsonable_python(arguments)
    if not isinstance(plain, dict):
        raise TypeError("the arguments are no object")
    return cast("dict[str, object]", plain)
