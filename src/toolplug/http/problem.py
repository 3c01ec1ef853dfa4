"""What went wrong with a request, as every client sees it (CONTRACT.md section 5, *Errors*)."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from traceback import extract_tb
from types import MappingProxyType

import orjson

_LOG = logging.getLogger("toolplug.http")


def log_fault(what: str, error: BaseException, request_id: str) -> None:
    """One line with the exception's type and innermost place; the traceback only for those who debug."""
    frames = extract_tb(error.__traceback__)
    place = f"{frames[-1].filename}:{frames[-1].lineno}" if frames else "an unknown place"
    _LOG.error("%s raised %s at %s (request %s)", what, type(error).__name__, place, request_id)
    _LOG.debug("traceback of request %s", request_id, exc_info=error)


Headers = Sequence[tuple[bytes, bytes]]

_TYPES: Mapping[int, str] = {
    403: "forbidden",
    404: "not_found",
    409: "conflict",
    410: "not_found",
    412: "conflict",
    429: "too_many_requests",
    502: "model_error",
}

NOTHING: Mapping[str, object] = MappingProxyType({})


class HttpProblem(Exception):
    """A request that ends with an error.

    `message` says what is wrong, where, and what would be right, and holds no secret; `param` names the field, header
    or path at fault; `beside` stands next to `error` in the answer.
    """

    def __init__(
        self,
        status: int,
        code: str,
        message: str,
        *,
        param: str | None = None,
        headers: Headers = (),
        beside: Mapping[str, object] = NOTHING,
    ) -> None:
        self.status = status
        self.code = code
        self.message = message
        self.param = param
        self.headers = headers
        self.beside = beside
        super().__init__(message)

    def body(self, request_id: str) -> bytes:
        """The answer's JSON."""
        error = {
            "type": error_type(self.status),
            "code": self.code,
            "message": self.message,
            "param": self.param,
            "request_id": request_id,
        }
        return orjson.dumps({"error": error, **self.beside})


def error_type(status: int) -> str:
    """The `type` of an error with this status."""
    return _TYPES.get(status) or ("invalid_request" if status < 500 else "server_error")


def invalid_request(message: str, param: str | None = None) -> HttpProblem:
    """The request itself cannot be read."""
    return HttpProblem(400, "invalid_request", message, param=param)


def route_not_found() -> HttpProblem:
    """Nothing stands at this path; the same with and without credentials."""
    return HttpProblem(404, "route_not_found", "nothing is served at this path; GET /openapi.json lists every route")


def method_not_allowed(allowed: Sequence[str]) -> HttpProblem:
    """The path is there, for other methods."""
    named = ", ".join(allowed)
    message = f"this path takes {named} only"
    return HttpProblem(405, "method_not_allowed", message, headers=[(b"allow", named.encode())])


def store_unavailable() -> HttpProblem:
    """The store cannot answer now."""
    return HttpProblem(503, "store_unavailable", "the store cannot answer now; try again, GET /readyz says when")


def internal() -> HttpProblem:
    """Something of our own, or a route's handler, failed; nothing of the exception is told."""
    return HttpProblem(500, "internal", "the server failed at this request; its log says where, by request_id")
