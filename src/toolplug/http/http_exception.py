"""The answer that a handler gives by raising Starlette's `HTTPException`, in our shape of an error."""

from __future__ import annotations

from http import HTTPStatus

from starlette.exceptions import HTTPException

from toolplug.http.problem import HttpProblem

RETRY_AFTER_S = b"1"


def as_problem(error: HTTPException) -> HttpProblem:
    """The same answer; its code is the status's name. A 429 says when to come again."""
    headers = [(name.lower().encode(), value.encode()) for name, value in (error.headers or {}).items()]
    if error.status_code == HTTPStatus.TOO_MANY_REQUESTS and all(name != b"retry-after" for name, _ in headers):
        headers.append((b"retry-after", RETRY_AFTER_S))
    return HttpProblem(error.status_code, _code(error.status_code), str(error.detail), headers=headers)


def _code(status: int) -> str:
    try:
        return HTTPStatus(status).phrase.lower().replace(" ", "_").replace("-", "_")
    except ValueError:
        return "error"
