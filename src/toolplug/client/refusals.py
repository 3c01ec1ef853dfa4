"""From what a host answered to the error that says why."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

import orjson
from httpx2 import Response

from toolplug.errors import HostError, HostRefused, HostUnreachable, SessionOver

_BUSY_S = 1.0
_FINAL = frozenset({401, 403, 404, 410})
_ANSWERS_OF_A_REQUEST = frozenset({"request_not_found", "too_late"})
"""They speak of one tool request: its session goes on."""


def refusal(response: Response) -> HostError:
    """The error behind an answer that is no success; its body has been read."""
    asked = _seconds(response.headers.get("retry-after"))
    if response.status_code >= 500:
        return HostUnreachable(f"{_origin(response)} cannot answer now: {_said(response)}", retry_after_s=asked)
    error = _error(response)
    code, param = str(error.get("code", f"http_{response.status_code}")), error.get("param")
    final = response.status_code in _FINAL and code not in _ANSWERS_OF_A_REQUEST
    return (SessionOver if final else HostRefused)(
        code,
        _said(response),
        param=param if isinstance(param, str) else None,
        retry_after_s=(_BUSY_S if asked is None else asked) if response.status_code == 429 else None,
    )


def no_host(response: Response) -> HostUnreachable:
    """The error for a success that no toolplug host would answer with."""
    return HostUnreachable(f"what answers at {response.url} is no toolplug host: {_said(response)}")


def _said(response: Response) -> str:
    message = _error(response).get("message")
    failed = "; ".join(_failures(response))
    said = message if isinstance(message, str) else f"HTTP status {response.status_code}"
    return f"{said}: {failed}" if failed else said


def _failures(response: Response) -> list[str]:
    """A line for each tool that a registration could not take."""
    failed = _object(response).get("failedTools")
    named = cast("list[object]", failed) if isinstance(failed, list) else []
    lines = [cast("Mapping[str, object]", item) for item in named if isinstance(item, dict)]
    return [f"{item.get('toolName')}: {item.get('error')}" for item in lines]


def _error(response: Response) -> Mapping[str, object]:
    error = _object(response).get("error")
    return cast("Mapping[str, object]", error) if isinstance(error, dict) else {}


def _object(response: Response) -> Mapping[str, object]:
    try:
        value: object = orjson.loads(response.content)
    except orjson.JSONDecodeError:
        return {}
    return cast("Mapping[str, object]", value) if isinstance(value, dict) else {}


def _origin(response: Response) -> str:
    return f"{response.url.scheme}://{response.url.netloc.decode('ascii')}"


def _seconds(header: str | None) -> float | None:
    try:
        return max(float(header), 0.0) if header is not None else None
    except ValueError:
        return None
