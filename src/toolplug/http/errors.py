"""The errors of the HTTP API: their shape, and the status of each error of the layers below (reference/http.md)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from types import MappingProxyType
from typing import Literal, NotRequired, cast

import orjson
from starlette.exceptions import HTTPException
from starlette.responses import Response
from typing_extensions import TypedDict

from toolplug.errors import (
    AccessError,
    AgentNotAllowed,
    AgentRequired,
    ApiError,
    InvalidSessionCode,
    NoSuchProvider,
    QuotaExceeded,
    SessionGone,
    StoreRefused,
    StoreUnavailable,
)

Headers = Mapping[str, str]
NO_HEADERS: Headers = MappingProxyType({})

NOSNIFF = (b"x-content-type-options", b"nosniff")
_NO_STORE = (b"cache-control", b"no-store")
_OF_THE_CALLER = frozenset({401, 403, 404})
"""Statuses that depend on the caller: no cache may serve them to another one."""

ErrorType = Literal[
    "invalid_request", "forbidden", "not_found", "conflict", "too_many_requests", "server_error", "model_error"
]
_TYPES: Mapping[int, ErrorType] = {
    403: "forbidden",
    404: "not_found",
    409: "conflict",
    410: "not_found",
    412: "conflict",
    429: "too_many_requests",
    502: "model_error",
}


class Error(TypedDict):
    """The `error` object of an error response."""

    type: ErrorType
    code: str
    message: str
    param: str | None
    request_id: str


class ProblemAnswer(TypedDict):
    """One thing that is wrong with the configuration, and how to fix it."""

    file: str
    line: int
    column: int
    path: str
    code: str
    message: str
    hint: str


class ErrorAnswer(TypedDict):
    """The answer to a request that failed; `problems` are those of an invalid configuration."""

    error: Error
    problems: NotRequired[list[ProblemAnswer]]


NOTHING: Mapping[str, object] = MappingProxyType({})


class HttpProblem(Exception):
    """An error that ends a request.

    `message` says what is wrong, where, and what would be valid, and holds no secret. `param` names the field, header
    or path at fault. `extra` are members of the response's object in addition to `error`.

    ```python
    from toolplug.http import HostRequest, HttpProblem

    async def read_order(request: HostRequest) -> dict[str, object]:
        raise HttpProblem(404, "no_such_order", "there is no such order", param="id")
    ```
    """

    def __init__(
        self,
        status: int,
        code: str,
        message: str,
        *,
        param: str | None = None,
        headers: Headers = NO_HEADERS,
        extra: Mapping[str, object] = NOTHING,
    ) -> None:
        self.status = status
        self.code = code
        self.message = message
        self.param = param
        self.headers = headers
        self.extra = extra
        super().__init__(message)

    def response(self, request_id: str) -> Response:
        """Return the response that reports this error."""
        response = Response(self.body(request_id), self.status, self.headers, "application/json")
        # Raw: Starlette's mapping encodes each name and value again.
        response.raw_headers.append(NOSNIFF)
        if self.status in _OF_THE_CALLER and "cache-control" not in response.headers:
            response.raw_headers.append(_NO_STORE)
        return response

    def body(self, request_id: str) -> bytes:
        """Return the response's body as JSON."""
        return orjson.dumps(self.answer(request_id))

    def answer(self, request_id: str) -> ErrorAnswer:
        """Return the response's body."""
        error: Error = {
            "type": error_type(self.status),
            "code": self.code,
            "message": self.message,
            "param": self.param,
            "request_id": request_id,
        }
        return cast("ErrorAnswer", {"error": error, **self.extra})


def error_type(status: int) -> ErrorType:
    """Return the `type` of an error with this status."""
    return _TYPES.get(status) or ("invalid_request" if status < 500 else "server_error")


def invalid_request(message: str, param: str | None = None) -> HttpProblem:
    """Return the 400 for a request that is malformed; `param` names the field or header at fault."""
    return HttpProblem(400, "invalid_request", message, param=param)


def route_not_found() -> HttpProblem:
    """Return the 404 for a path without a route, which does not depend on credentials."""
    return HttpProblem(404, "route_not_found", "nothing is served at this path; GET /v1/openapi.json lists every route")


def method_not_allowed(allowed: Sequence[str]) -> HttpProblem:
    """Return the 405 for a path that has the `allowed` methods only."""
    named = ", ".join(allowed)
    message = f"this path takes {named} only"
    return HttpProblem(405, "method_not_allowed", message, headers={"Allow": named})


def store_unavailable() -> HttpProblem:
    """Return the 503 for a store that cannot answer now."""
    return HttpProblem(503, "store_unavailable", "the store cannot answer now; try again, GET /readyz says when")


def draining() -> HttpProblem:
    """Return the 503 for a request that runs on for longer than its provider or the host may drain."""
    return HttpProblem(503, "draining", "this was stopped, as its provider or the server ends; try again")


def internal() -> HttpProblem:
    """Return the 500 for a failed handler, which shows nothing of the exception."""
    return HttpProblem(500, "internal", "the server failed at this request; its log says where, by request_id")


RETRY_AFTER_S = "1"


def as_problem(error: HTTPException) -> HttpProblem:
    """Convert Starlette's exception: the code is the status's name, and a 429 has a `Retry-After`."""
    # Lower case, as ASGI wants it: providers write `Retry-After`.
    headers = {name.lower(): value for name, value in (error.headers or {}).items()}
    if error.status_code == HTTPStatus.TOO_MANY_REQUESTS:
        headers.setdefault("retry-after", RETRY_AFTER_S)
    return HttpProblem(error.status_code, _code(error.status_code), str(error.detail), headers=headers)


def _code(status: int) -> str:
    try:
        return HTTPStatus(status).phrase.lower().replace(" ", "_").replace("-", "_")
    except ValueError:
        return "error"


_CODES: Mapping[int, str] = {
    400: "invalid_agent invalid_request missing_tool_output unknown_call_id unmatched_stub",
    404: """
        approval_not_found connection_not_found grant_not_found item_not_found no_toolset_equipped note_not_found
        previous_response_not_found request_not_found response_not_found server_not_found toolset_not_found
    """,
    409: """
        already_answered approval_decided in_file no_link not_background not_registered prefix_taken server_disabled
        server_exists tool_exists tool_not_found tool_not_quarantined toolset_exists
    """,
    403: "grant_not_allowed insufficient_scope own_call",
    410: "too_late",
    412: "revision_mismatch",
    422: """
        address_refused duplicate_note duplicate_tool invalid_arguments invalid_capability invalid_environment
        invalid_grant invalid_header invalid_name invalid_note invalid_server_id invalid_tool invalid_url
        provider_is_shared refused_by_plugin registration_failed too_many too_many_grants too_many_notes
        too_many_servers too_many_tools too_many_toolsets tool_not_in_toolset tool_reference_mismatch
        unknown_provider unknown_server unknown_toolset
    """,
    429: "rate_limit_exceeded too_many_sessions too_many_updates too_many_waiting_calls",
    502: "backend_broke_off backend_error backend_garbage backend_refused backend_timeout backend_unreachable",
}
"""The codes of `ApiError`, by status."""
# Turned around once, at the import; the table above reads better by status.
STATUS: Mapping[str, int] = {code: status for status, codes in _CODES.items() for code in codes.split()}
_SHORTEST_WAIT_S = 1


def problem_of(error: Exception, session_at: str) -> HttpProblem | None:
    """Return the error to send, None for a fault. `session_at`: the parameter that names the session."""
    if isinstance(error, HttpProblem):
        return error
    if isinstance(error, QuotaExceeded):
        return quota_problem(error)
    if isinstance(error, ApiError):
        return api_problem(error)
    if isinstance(error, AccessError):
        return _no_access(error, session_at)
    if isinstance(error, StoreUnavailable | StoreRefused):
        return store_unavailable()
    if isinstance(error, NoSuchProvider):
        return HttpProblem(404, "provider_not_found", str(error), param="key")
    if isinstance(error, HTTPException):  # of a part: our own handlers raise `HttpProblem`
        return as_problem(error)
    return None


def quota_problem(error: QuotaExceeded) -> HttpProblem:
    """Return the 429 for a tenant or a key that has used up its quota."""
    return HttpProblem(429, "quota_exceeded", str(error), param=error.quota, headers=retry_after(error.retry_after_s))


def api_problem(error: ApiError) -> HttpProblem:
    """Return the error with the status of its code (`STATUS`)."""
    status = STATUS[error.code]
    headers = retry_after(error.retry_after_s) if status == 429 else NO_HEADERS
    return HttpProblem(status, error.code, str(error), param=error.param, headers=headers, extra=error.details)


def retry_after(seconds: float | None) -> Headers:
    """Return the header `Retry-After` for so many seconds, at least one."""
    # Whole seconds by RFC 9110, and never 0, which clients take for "at once".
    return {"Retry-After": str(max(math.ceil(seconds or 0), _SHORTEST_WAIT_S))}


def _no_access(error: AccessError, session_at: str) -> HttpProblem:
    if isinstance(error, AgentRequired):
        return HttpProblem(400, "agent_required", str(error), param="agent")
    if isinstance(error, AgentNotAllowed):
        return HttpProblem(403, "agent_not_allowed", str(error), param="agent")
    if isinstance(error, InvalidSessionCode):
        return HttpProblem(400, "invalid_session_code", str(error), param=session_at)
    if isinstance(error, SessionGone):
        return HttpProblem(410, error.state, str(error), param=session_at)
    return HttpProblem(404, "session_not_found", str(error), param=session_at)
