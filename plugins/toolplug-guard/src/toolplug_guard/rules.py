"""Rules that refuse calls. A call that cannot be checked is refused too."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple, cast

from pydantic_core import to_jsonable_python

from toolplug_guard.patterns import Pattern, compile_pattern
from toolplug_guard.settings import Rule


class CompiledRule(NamedTuple):
    """A rule with its pattern."""

    rule: Rule
    pattern: Pattern | None

    @classmethod
    def of(cls, rule: Rule) -> CompiledRule:
        """Compile a rule."""
        return cls(rule, None if rule.pattern is None else compile_pattern(rule.pattern))

    def forbids(self, arguments: Mapping[str, object]) -> bool:
        """Return whether the arguments, which are JSON values, break the rule."""
        pattern, place = self.pattern, self.rule.argument
        if pattern is None:
            return True
        found = [arguments] if place is None else _select(arguments, place)
        texts = dict.fromkeys(text for value in found for text in _texts(value))  # many are the same in a large list
        return any(pattern.search(text.encode()) is not None for text in texts)


def broken_rule(rules: Sequence[CompiledRule], arguments: object) -> Rule | None:
    """Return the first rule that a call breaks, or None; a watched one only if it breaks no other.

    Raises an error for what cannot be checked; such a call breaks a watched rule. The arguments have whatever types
    the tool's own conversion gave them.
    """
    enforced = [item for item in rules if not item.rule.watch]
    watched = [item for item in rules if item.rule.watch]
    found = _first_broken(enforced, arguments)
    if found is not None or not watched:
        return found
    try:
        return _first_broken(watched, arguments)
    except Exception:  # noqa: BLE001  of any type of the tool; a watched rule refuses no call, whatever happens
        return watched[0].rule


def _first_broken(rules: Sequence[CompiledRule], arguments: object) -> Rule | None:
    if not rules:
        return None
    if not isinstance(arguments, Mapping):
        raise TypeError("the arguments are not an object")
    plain: dict[str, object] = to_jsonable_python(dict(cast("Mapping[str, object]", arguments)))
    return next((item.rule for item in rules if item.forbids(plain)), None)


def _texts(value: object) -> Iterator[str]:
    """Yield every scalar of a JSON value and every key: a text as it is, anything else as its JSON."""
    if isinstance(value, Mapping):
        for key, item in cast("Mapping[str, object]", value).items():
            yield key
            yield from _texts(item)
    elif isinstance(value, list):
        for item in cast("list[object]", value):
            yield from _texts(item)
    else:
        yield value if isinstance(value, str) else json.dumps(value)


def _select(arguments: Mapping[str, object], place: str) -> Iterator[object]:
    """Yield the argument of this name, or the value at a JSON pointer (RFC 6901); nothing if there is none."""
    steps = [place]
    if place.startswith("/"):
        steps = [step.replace("~1", "/").replace("~0", "~") for step in place[1:].split("/")]
    value: object = arguments
    for step in steps:
        inside = _inside(value)
        if step not in inside:
            return
        value = inside[step]
    yield value


def _inside(value: object) -> Mapping[str, object]:
    if isinstance(value, Mapping):
        return cast("Mapping[str, object]", value)
    items = cast("list[object]", value) if isinstance(value, list) else ()
    return {str(index): item for index, item in enumerate(items)}
