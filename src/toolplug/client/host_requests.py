"""HTTP requests to one host with one credential: the errors for its answers, delays, timeouts and retries."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import TypeVar, cast

import orjson
from httpx2 import URL, AsyncClient, InvalidURL, Request, RequestError, Response, Timeout
from pydantic import BaseModel, ValidationError

from toolplug.errors import HostError, HostRefused, HostUnreachable, SessionOver
from toolplug.exports import not_installed
from toolplug.signatures.values import as_json

try:
    from tenacity import (
        AsyncRetrying,
        RetryCallState,
        retry_if_exception,
        wait_exception,
        wait_random_exponential,
    )
except ModuleNotFoundError as _missing:
    raise not_installed(_missing, "toolplug.client") from None

Result = TypeVar("Result")

_LOG = logging.getLogger("toolplug.client")
_BUSY_S = 1.0
_FINAL = frozenset({401, 403, 404, 410})
_ANSWERS_OF_A_REQUEST = frozenset({"request_not_found", "too_late"})
"""They speak of one tool request: its session goes on."""


def refusal(response: Response) -> HostError:
    """Return the error for an answer without success, whose body has been read."""
    asked = _seconds(response.headers.get("retry-after"))
    if response.status_code >= 500:
        origin = f"{response.url.scheme}://{response.url.netloc.decode('ascii')}"
        return HostUnreachable(f"{origin} cannot answer now: {_message(response)}", retry_after_s=asked)
    error = _error(response)
    code, param = str(error.get("code", f"http_{response.status_code}")), error.get("param")
    final = response.status_code in _FINAL and code not in _ANSWERS_OF_A_REQUEST
    return (SessionOver if final else HostRefused)(
        code,
        _message(response),
        param=param if isinstance(param, str) else None,
        retry_after_s=(_BUSY_S if asked is None else asked) if response.status_code == 429 else None,
    )


def no_host(response: Response) -> HostUnreachable:
    """Return the error for a success that is not of a toolplug host."""
    return HostUnreachable(f"what answers at {response.url} is no toolplug host: {_message(response)}")


def _message(response: Response) -> str:
    message = _error(response).get("message")
    failed = "; ".join(_failures(response))
    text = message if isinstance(message, str) else f"HTTP status {response.status_code}"
    return f"{text}: {failed}" if failed else text


def _failures(response: Response) -> list[str]:
    """Return a line for each refused tool of a registration."""
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


def _seconds(header: str | None) -> float | None:
    try:
        return max(float(header), 0.0) if header is not None else None
    except ValueError:
        return None


Answer = TypeVar("Answer", bound=BaseModel)


class HostRequests:
    """Raise `HostUnreachable` if the host does not answer, and the error of `refusal` if it answers without success."""

    def __init__(self, http: AsyncClient, url: str, credential: str | None, timeout_s: float) -> None:
        self._http = http
        self._url = base_url(url)
        self._headers = {} if credential is None else {"Authorization": f"Bearer {credential}"}
        self._timeout_s = timeout_s

    def with_credential(self, credential: str) -> HostRequests:
        """Return requests to the same host with another credential."""
        return HostRequests(self._http, self._url, credential, self._timeout_s)

    async def request_answer(
        self,
        method: str,
        path: str,
        kind: type[Answer],
        body: Mapping[str, object] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        """Return the body of the answer as this type."""
        response = await self.request_response(method, path, body, headers)
        try:
            return kind.model_validate_json(response.content)
        except ValidationError:
            raise no_host(response) from None

    async def request_response(
        self,
        method: str,
        path: str,
        body: Mapping[str, object] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Response:
        """Return the successful answer. Raises `ValueError` for a body that is not JSON."""
        given, content = dict(headers or {}), None
        if body is not None:
            json = as_json(body)
            if json is None:
                raise ValueError("the body is not JSON")
            content = json.text.encode()
            given["Content-Type"] = "application/json"
        response = await self._send(self._request(method, path, given, Timeout(self._timeout_s), content), stream=False)
        if not response.is_success:
            raise refusal(response)
        return response

    async def open_events(self, path: str, headers: Mapping[str, str], silence_s: float) -> Response:
        """Open an event stream that fails after so many seconds of silence; the caller closes it."""
        timeout = Timeout(self._timeout_s, read=silence_s)
        asking = {"Accept": "text/event-stream", "Cache-Control": "no-store", **headers}
        response = await self._send(self._request("GET", path, asking, timeout), stream=True)
        # A success of another type comes from a proxy or another server at this address.
        if response.is_success and response.headers.get("content-type", "").startswith("text/event-stream"):
            return response
        try:
            # The error is in the body, which a stream has not read.
            await response.aread()
        except RequestError as error:
            raise self._unreachable(error) from error
        finally:
            await response.aclose()
        raise no_host(response) if response.is_success else refusal(response)

    def _request(
        self, method: str, path: str, headers: Mapping[str, str], timeout: Timeout, content: bytes | None = None
    ) -> Request:
        given = {**self._headers, **headers}
        return self._http.build_request(method, self._url + path, content=content, headers=given, timeout=timeout)

    async def _send(self, request: Request, *, stream: bool) -> Response:
        try:
            return await self._http.send(request, stream=stream)
        except RequestError as error:
            raise self._unreachable(error) from error

    def _unreachable(self, error: RequestError) -> HostUnreachable:
        reason = str(error) or type(error).__name__
        return HostUnreachable(f"no host answers at {self._url}: {reason}")


def base_url(url: str) -> str:
    """Return the URL of a host without a trailing slash. Raises `ValueError`."""
    try:
        parsed = URL(url)
    except InvalidURL as error:
        raise ValueError(f"{url!r} is no URL of a host: {error}") from None
    if parsed.scheme not in {"http", "https"} or not parsed.host:
        raise ValueError(f"{url!r} is no URL of a host; write it as http://127.0.0.1:8080")
    return url.rstrip("/")


@dataclass(frozen=True, slots=True, kw_only=True)
class Backoff:
    """Delays and timeouts in seconds.

    `first_s`, `longest_s`: the delay before an attempt is random, at most `first_s` at first, and twice the last
    maximum after each failure, up to `longest_s`. `silence_s`: a stream without data for this long is broken (a host
    sends something every 15 s). `gather_s`: changes of tools within this time are one update. `answer_s`: timeout of a
    request. `call_s`: timeout of a call, until the host has its answer.

    ```python
    from toolplug.client import Application, Backoff

    patient = Application("http://127.0.0.1:8080", plugin_type="notes", backoff=Backoff(longest_s=300.0))
    ```
    """

    first_s: float = 0.5
    longest_s: float = 30.0
    silence_s: float = 45.0
    gather_s: float = 0.02
    answer_s: float = 30.0
    call_s: float = 300.0

    async def retry(self, attempt: Callable[[], Awaitable[Result]]) -> Result:
        """Repeat the attempt while the host is unreachable or busy, respecting `Retry-After`. Raises other errors."""
        retrying = AsyncRetrying(
            retry=retry_if_exception(_is_temporary),
            # Added, not the larger of both: all clients get the same `Retry-After`, and would come back at once.
            wait=wait_random_exponential(multiplier=self.first_s, max=self.longest_s) + wait_exception(_retry_after_s),
            before_sleep=_log_first,
            reraise=True,
        )
        return cast("Result", await retrying(attempt))  # its own type says less


def _is_temporary(error: BaseException) -> bool:
    return isinstance(error, HostUnreachable) or (isinstance(error, HostRefused) and error.retry_after_s is not None)


def _retry_after_s(error: BaseException) -> float:
    asked = error.retry_after_s if isinstance(error, HostRefused | HostUnreachable) else None
    return asked or 0.0


def _log_first(state: RetryCallState) -> None:
    if state.attempt_number == 1 and state.outcome is not None:
        _LOG.warning("%s; trying again", state.outcome.exception())
