"""A Chat Completions server with the `openai` client; the only file that imports it.

The client connects and retries. Its answers are read by `answers`, at a tenth of the cost of the client's models, with
limits, and also from servers that are not exact. Versions 2 and 3 of the client work; they differ in the HTTP library,
which is taken from the client.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Mapping
from contextlib import aclosing
from email.utils import parsedate_to_datetime
from importlib import import_module
from time import time
from typing import Any, Final, TypeVar, cast

from openai import (
    DEFAULT_CONNECTION_LIMITS,
    APIConnectionError,
    APIError,
    APIStatusError,
    APITimeoutError,
    AsyncOpenAI,
    AsyncStream,
    DefaultAsyncHttpxClient,
    OpenAIError,
)

from toolplug.catalog.exact_json import as_object
from toolplug.errors import BackendFailed
from toolplug.parts.responses.answers.completions import garbage
from toolplug.parts.responses.answers.reader import (
    BodyRefused,
    broke_off,
    check_values,
    log_words,
    parse_json,
    read_answer,
)
from toolplug.parts.responses.backend import Delta, ModelAnswer, Question
from toolplug.parts.responses.limits import MAX_ANSWER_BYTES, MAX_ERROR_BYTES

http: Final[Any] = import_module(type(DEFAULT_CONNECTION_LIMITS).__module__.partition(".")[0])
"""`httpx2`, or `httpx` of a client of version 2."""

T = TypeVar("T")
_LOG = logging.getLogger("toolplug.responses")

_PATH: Final = "/chat/completions"
_NO_KEY: Final = "none"
_LIMITS: Final = http.Limits(max_connections=1000, max_keepalive_connections=20)
"""The client looks at every idle connection at each request: a hundred, its own limit, cost more than the request."""
_USAGE: Mapping[str, object] = {"stream": True, "stream_options": {"include_usage": True}}
_PLAIN: Mapping[str, str] = {"Accept-Encoding": "identity"}
_MAX_COUNT = 2**53
_PIECE_BYTES = 16 * 1024
"""Has up to a hundred events of usual size, which take 10 ms to read and to send on."""


class _AnswerRefused(OpenAIError):
    """An answer exceeds its limits. The client raises errors of this kind unchanged, without a retry."""


class _BoundedStream(http.AsyncByteStream):
    """The bytes of one answer, including error bodies, up to the limit."""

    def __init__(self, stream: Any, most: int) -> None:
        self._stream = stream
        self._most = most
        self._left = most

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for chunk in self._stream:
            self._left -= len(chunk)
            if self._left < 0:
                raise _AnswerRefused(f"it has more than {self._most // 1024:,} KiB")
            yield chunk

    async def aclose(self) -> None:
        await self._stream.aclose()


class _BoundedClient(DefaultAsyncHttpxClient):
    """Limits the size of each answer, and refuses compressed ones, whose size cannot be limited."""

    async def send(self, request: Any, *, stream: bool = False, **members: Any) -> Any:
        response: Any = await super().send(request, stream=True, **members)
        try:
            if response.headers.get("content-encoding", "identity") != "identity":
                raise _AnswerRefused("it is compressed")
            most = MAX_ANSWER_BYTES if response.is_success else MAX_ERROR_BYTES
            response.stream = _BoundedStream(response.stream, most)
            if not stream:
                await response.aread()
        except BaseException:
            await response.aclose()
            raise
        return response


class OpenAIBackend:
    """A `Backend` over one server.

    `timeout_s`: the longest silence; `deadline_s`: for one answer with all attempts; `retries`: after 429, 408, 409,
    5xx and lost connections, respecting `Retry-After`. The server's own messages are logged and not passed on.
    """

    def __init__(
        self,
        base_url: str,
        api_key: str | None,
        default_model: str | None,
        *,
        timeout_s: float,
        deadline_s: float,
        retries: int,
    ) -> None:
        self.default_model: str | None = default_model
        self._secret = api_key
        self._deadline_s = deadline_s
        self._client = AsyncOpenAI(
            base_url=base_url,
            api_key=api_key or _NO_KEY,
            timeout=timeout_s,
            max_retries=retries,
            default_headers=_PLAIN,
            http_client=_BoundedClient(limits=_LIMITS, follow_redirects=False),
        )

    async def ask(self, question: Question, *, stream: bool) -> AsyncGenerator[Delta]:
        """Implement `Backend.ask`."""
        deadline = asyncio.get_running_loop().time() + self._deadline_s
        body = self._stream(question) if stream else self._whole(question)
        async with aclosing(body), aclosing(read_answer(body, self._secret)) as deltas:
            while (delta := await self._next_part(anext(deltas, None), deadline)) is not None:
                yield delta

    async def models(self) -> list[ModelAnswer]:
        """Implement `Backend.models`."""
        deadline = asyncio.get_running_loop().time() + self._deadline_s
        try:
            answer = await self._next_part(self._client.get("/models", cast_to=http.Response), deadline)
        except BackendFailed as error:
            if error.code == "backend_refused" and self.default_model is not None:
                return [_model({"id": self.default_model})]
            raise
        listed = as_object(_json(answer.content)).get("data")
        if not isinstance(listed, list):
            log_words(answer.content, self._secret)
            raise garbage("it has no data")
        models = [as_object(each) for each in cast("list[object]", listed)]
        return [_model(each) for each in models if isinstance(each.get("id"), str)]

    async def aclose(self) -> None:
        """Close the connections."""
        await self._client.close()

    async def _next_part(self, answer: Awaitable[T], deadline: float) -> T:
        """Return the next part of an answer before the deadline. Raises `BackendFailed` for any failure."""
        limit = asyncio.timeout_at(deadline)
        try:
            async with limit:
                return await answer
        except APIError as error:
            raise self._failure(error) from error
        except http.TimeoutException as error:  # version 2 lets those of a stream through
            raise _no_word() from error
        except http.HTTPError as error:
            raise broke_off() from error
        except _AnswerRefused as error:
            raise garbage(str(error)) from error
        except TimeoutError as error:
            if not limit.expired():
                raise
            message = f"the model's server was not done within {self._deadline_s:g} s"
            raise BackendFailed("backend_timeout", message) from error

    async def _whole(self, question: Question) -> AsyncGenerator[bytes]:
        response = await self._client.post(_PATH, cast_to=http.Response, body=dict(question))
        async for piece in _in_pieces(response.content):
            yield piece

    async def _stream(self, question: Question) -> AsyncGenerator[bytes]:
        stream = await self._client.post(
            _PATH, cast_to=object, body={**question, **_USAGE}, stream=True, stream_cls=AsyncStream[object]
        )
        async with stream:
            async for chunk in stream.response.aiter_bytes():
                async for piece in _in_pieces(chunk):
                    yield piece

    def _failure(self, error: APIError) -> BackendFailed:
        if isinstance(error, APITimeoutError):
            return _no_word()
        if isinstance(error, APIConnectionError):
            # For the operator: a caller does not learn where the server is. The netloc is without a password.
            url = self._client.base_url
            _LOG.warning("no connection to %s://%s: %s", url.scheme, url.netloc.decode(), error.__cause__ or error)
            return BackendFailed("backend_unreachable", "the model's server cannot be reached, or hung up")
        log_words(_words(error), self._secret)
        if not isinstance(error, APIStatusError):
            return BackendFailed("backend_error", "the model's server failed in the middle of its answer")
        if error.status_code == 429:
            message = "the model's server takes no more requests now"
            return BackendFailed("rate_limit_exceeded", message, retry_after_s=_retry_after(error))
        if error.status_code >= 500:
            return BackendFailed("backend_error", f"the model's server failed with status {error.status_code}")
        return BackendFailed("backend_refused", f"the model's server refused with status {error.status_code}")


async def _in_pieces(chunk: bytes) -> AsyncGenerator[bytes]:
    """Yield what has arrived in pieces, and let others run between them: the events in a piece are read at once."""
    for start in range(0, len(chunk), _PIECE_BYTES):
        if start:
            await asyncio.sleep(0)
        yield chunk[start : start + _PIECE_BYTES]


def _words(error: APIError) -> bytes | str:
    """Return what the server says; the client's message leaves out all that is not in OpenAI's form."""
    try:
        return (isinstance(error, APIStatusError) and error.response.content) or error.message
    except http.ResponseNotRead:
        return error.message


def _json(text: bytes) -> object:
    try:
        check_values(text)
        return parse_json(text)
    except BodyRefused as error:
        raise garbage(str(error)) from error
    except (ValueError, RecursionError) as error:
        raise garbage("it is not JSON") from error


def _model(given: Mapping[str, object]) -> ModelAnswer:
    created, owner = given.get("created"), given.get("owned_by")
    return {
        "id": str(given["id"]),
        "object": "model",
        "created": created if isinstance(created, int) and 0 <= created < _MAX_COUNT else 0,
        "owned_by": owner if isinstance(owner, str) else "",
    }


def _no_word() -> BackendFailed:
    return BackendFailed("backend_timeout", "the model's server did not answer in time")


def _retry_after(error: APIStatusError) -> float | None:
    given = error.response.headers.get("retry-after")
    if given is None:
        return None
    try:
        seconds = float(given)
    except ValueError:
        try:
            seconds = parsedate_to_datetime(given).timestamp() - time()
        except (ValueError, OverflowError):
            return None
    return max(seconds, 0.0) if math.isfinite(seconds) else None
