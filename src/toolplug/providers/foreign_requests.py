"""Requests to an API that somebody else extends, such as OpenAI's: what is not known in them is ignored, and said.

A client of such an API sends what its newest version has. What this host does not know cannot be refused, since the
client would then not work at all, nor dropped in silence: it is named in the answer, in a header and in the log.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from time import time
from typing import Final, cast

from pydantic import BaseModel

from toolplug.config.model_shape import Shapes, known_keys, models_in, shapes_at

HEADER: Final = "Toolplug-Warnings"
"""The header that names what was ignored, as names with commas between them."""
MOST_NAMES: Final = 10
"""Names in an answer and its header; the rest is counted."""
MOST_LOGGED: Final = 100
"""Names that the log of one process has ever said; clients choose them."""
DAY_S: Final = 86_400.0

_NAME = re.compile(r"[A-Za-z0-9_.\[\]-]{1,64}")
_INDEX = re.compile(r"\[\d+\]")
_SHOWN = 100


class IgnoredNames:
    """The log's lines of what was ignored: one for each name and day, of at most `MOST_LOGGED` names."""

    def __init__(self) -> None:
        self._said: dict[tuple[str, str], float] = {}

    def say(self, log: logging.Logger, path: str, name: str) -> None:
        """Log a name that was ignored in a request to this path, unless that was said today."""
        key, now = (path, _INDEX.sub("[]", name)), time()
        said = self._said.get(key)
        if said is None and len(self._said) >= MOST_LOGGED:
            return
        if said is None or now - said >= DAY_S:
            self._said[key] = now
            log.info("%s: clients send %s, which this host does not know and ignores", *key)


_NAMES = IgnoredNames()


class IgnoredParts:
    """What one request has that is ignored. `path` is the route's, such as `/v1/responses`, and `log` its logger."""

    def __init__(self, path: str, log: logging.Logger) -> None:
        self.warnings: list[Mapping[str, str]] = []
        self._path = path
        self._log = log
        self._more = 0

    def add(self, code: str, param: str, message: str, *, kind: str = "") -> None:
        """Note one part: its place in the request, what became of it, and its type if it has one."""
        if len(self.warnings) == MOST_NAMES:
            self._more += 1
            return
        place = param[:_SHOWN]
        self.warnings.append(
            {"code": code, "param": place, **({"type": kind[:_SHOWN]} if kind else {}), "message": message}
        )
        name = f"{place}.{kind}" if kind else place
        if _NAME.fullmatch(name):
            _NAMES.say(self._log, self._path, name)

    def listed(self) -> list[Mapping[str, str]]:
        """Return the warnings for the answer, the last of which counts those that are not named."""
        more = {"code": "more", "message": f"and {self._more:,} more"}
        return [*self.warnings, more] if self._more else self.warnings

    def leave_out(self, fields: dict[str, object], model: type[BaseModel]) -> None:
        """Remove the keys that the model does not have from the fields of a body, at every level that is a model."""
        for param in _remove_unknown(fields, (model,), ""):
            self.add("unknown_field", param, f"this host does not know the field {param[:_SHOWN]} and ignores it")


def _remove_unknown(value: object, shapes: Shapes, at: str) -> Iterator[str]:
    """Remove unknown keys, and yield the place of each."""
    if isinstance(value, list):
        inner = shapes_at(shapes, 0)
        if models_in(inner):
            for index, item in enumerate(cast("list[object]", value)):
                yield from _remove_unknown(item, inner, f"{at}[{index}]")
    models = models_in(shapes)
    if not isinstance(value, dict) or not models:
        return
    fields = cast("dict[str, object]", value)
    known = frozenset(known_keys(models))
    for key in [*fields]:
        place = f"{at}.{key}" if at else key
        if key in known:
            yield from _remove_unknown(fields[key], shapes_at(shapes, key), place)
        elif all(model.model_config.get("extra") == "forbid" for model in models):
            del fields[key]
            yield place


def name_of(warning: Mapping[str, object]) -> str:
    """Return the name of what a warning is about: its place, and its type if it has one."""
    kind = warning.get("type")
    return f"{warning.get('param', '')}.{kind}" if kind else str(warning.get("param", ""))


def warning_header(names: Sequence[str]) -> dict[str, str]:
    """Return the header for the names of an answer's warnings, of which the last may be a number; none without any."""
    sent = [name for name in names if _NAME.fullmatch(name)][:MOST_NAMES]
    more = len(names) - len(sent)
    return {HEADER: ", ".join([*sent, *([f"{more}-more"] if more else [])])} if names else {}
