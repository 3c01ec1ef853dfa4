"""Requests to an API that somebody else extends, such as OpenAI's: what is not known in them is ignored, and said.

A client of such an API sends what its newest version has. What this host does not know cannot be refused, since the
client would then not work at all, nor dropped in silence: it is named in the answer, in a header and in the log.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from time import monotonic
from typing import Final, Self, cast

from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from toolplug.catalog.exact_json import as_object, dump_json, load_json
from toolplug.config.problems import Shapes, known_keys, models_in, shapes_at
from toolplug.model_apis.stubs import CHOICE

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
        key, now = (path, _INDEX.sub("[]", name)), monotonic()
        said = self._said.get(key)
        if said is None and len(self._said) >= MOST_LOGGED:
            return
        if said is None or now - said >= DAY_S:
            self._said[key] = now
            log.info("%s: clients send %s, which this host does not know and ignores", *key)


_NAMES = IgnoredNames()


class IgnoredParts:
    """What one request has that is ignored, named in its answer. `path` is the API's, and `log` its logger.

    A handler makes one with `of`, calls `leave_out` before it validates the fields, and answers through `say_in`.

    ```python
    import logging

    from starlette.requests import Request
    from starlette.responses import JSONResponse, Response
    from toolplug.http import IgnoredParts

    async def create(request: Request) -> Response:
        ignored = IgnoredParts.of(request, logging.getLogger("acme"))
        ignored.add("unknown_field", "colour", "colour is not known here; it is ignored")
        return ignored.say_in(JSONResponse({"created": True}))
    ```
    """

    def __init__(self, path: str, log: logging.Logger) -> None:
        self.warnings: list[Mapping[str, object]] = []
        self._path = path
        self._log = log
        self._more = 0

    @classmethod
    def of(cls, request: Request, log: logging.Logger) -> Self:
        """Return an empty list for a request, under the first two segments of its path, which no client chooses."""
        return cls("/".join(request.url.path.split("/")[:3]), log)

    def add(self, code: str, param: str, message: str, *, kind: str = "") -> None:
        """Note one part: its place in the request, what became of it, and its type if it has one."""
        if len(self.warnings) == MOST_NAMES:
            self._more += 1
            return
        place = param[:_SHOWN]
        if any(warning["param"] == place for warning in self.warnings):
            return
        self.warnings.append(
            {"code": code, "param": place, **({"type": kind[:_SHOWN]} if kind else {}), "message": message}
        )
        name = _name_of(self.warnings[-1])
        if _NAME.fullmatch(name):
            _NAMES.say(self._log, self._path, name)

    def keep_known(
        self, parts: Sequence[object], at: str, is_known: Callable[[str], bool], text_type: str
    ) -> list[object]:
        """Return the known parts of a content; where there are none, a text of this type says what was left out."""
        known: list[object] = []
        kinds: list[str] = []
        for index, part in enumerate(parts):
            kind = as_object(part).get("type")
            if isinstance(kind, str) and not is_known(kind):
                place = f"{at}[{index}]"
                self.add(
                    "unknown_part", place, f"{place}: parts of this type are not known here; it is ignored", kind=kind
                )
                kinds.append(kind)
            else:
                known.append(part)
        if kinds and not known:
            known.append({"type": text_type, "text": f"[left out: {kinds[0][:64]}]"})
        return known

    def list_warnings(self) -> list[Mapping[str, object]]:
        """Return the warnings for the answer, the last of which counts those that are not named."""
        more = {"code": "more", "count": self._more, "message": f"and {self._more:,} more"}
        return [*self.warnings, more] if self._more else self.warnings

    def leave_out(self, fields: dict[str, object], model: type[BaseModel]) -> None:
        """Remove the keys that the model does not have from the fields of a body, at every level that is a model."""
        self._remove_unknown(fields, (model,), "")

    def _remove_unknown(self, value: object, shapes: Shapes, at: str) -> None:
        if isinstance(value, list):
            inner = shapes_at(shapes, 0)
            if models_in(inner):
                for index, item in enumerate(cast("list[object]", value)):
                    self._remove_unknown(item, inner, f"{at}[{index}]")
        models = models_in(shapes)
        if not isinstance(value, dict) or not models:
            return
        fields = cast("dict[str, object]", value)
        known, closed = _known_in(models)
        prefix = f"{at}." if at else ""
        unknown = [key for key in fields if key not in known]
        if closed:
            self._leave_out_keys(fields, unknown, prefix)
        for key in [key for key in fields if key in known]:
            if isinstance(fields[key], dict | list):
                self._remove_unknown(fields[key], known[key], f"{prefix}{key}")

    # A client's object may have 65,000 unknown keys: only those that the answer names get a text (390 ms otherwise).
    def _leave_out_keys(self, fields: dict[str, object], keys: Sequence[str], prefix: str) -> None:
        for key in keys:
            del fields[key]
        for key in keys[:MOST_NAMES]:
            place = f"{prefix}{key}"
            self.add("unknown_field", place, f"this host does not know the field {place[:_SHOWN]} and ignores it")
        self._more += max(0, len(keys) - MOST_NAMES)

    def say_in(self, response: Response) -> Response:
        """Return the answer with the warnings: a header, and `toolplug.warnings` in a JSON object."""
        if not self.warnings:
            return response
        listed = self.list_warnings()
        response.headers.update(warning_header(listed))
        if isinstance(response, StreamingResponse) or response.headers.get("content-type") != "application/json":
            return response
        answer = load_json(bytes(response.body))
        if not isinstance(answer, dict):
            return response
        body = dump_json({**cast("dict[str, object]", answer), "toolplug": {"warnings": listed}})
        headers = {name: value for name, value in response.headers.items() if name != "content-length"}
        return Response(body, response.status_code, headers)


# A list may have thousands of items of the same models, and asking a model for its keys takes 0.2 ms.
@lru_cache(maxsize=256)
def _known_in(models: tuple[type[BaseModel], ...]) -> tuple[Mapping[str, Shapes], bool]:
    """Return the keys of the models, each with the shapes of its value, and whether the models have no others."""
    closed = all(model.model_config.get("extra") == "forbid" for model in models)
    return {key: shapes_at(models, key) for key in known_keys(models)}, closed


def warning_header(warnings: Sequence[Mapping[str, object]]) -> dict[str, str]:
    """Return the header that names what the warnings of an answer are about; none without warnings.

    A name is a place, with the type of what is there. The last may be a number: how many have no name in it.
    """
    names = [_name_of(warning) for warning in warnings]
    sent = [name for name in names if _NAME.fullmatch(name)][:MOST_NAMES]
    more = sum(cast("int", warning.get("count", 1)) for warning in warnings) - len(sent)
    return {HEADER: ", ".join([*sent, *([f"{more}-more"] if more else [])])} if warnings else {}


def _name_of(warning: Mapping[str, object]) -> str:
    kind, index = warning.get("type"), warning.get("index")
    place = warning.get("param", "") if index is None else "tool_choice" if index == CHOICE else f"tools[{index}]"
    return f"{place}.{kind}" if kind else str(place)
