"""A Chat Completions server with the `openai` client; the only file that imports it, on the first request to a model.

The client connects, retries and reads event streams. Its answers are read as plain JSON (`completions`), at a tenth of
the cost of the client's models and with validation. Versions 2 and 3 of the client work; they differ in the HTTP
library, which is taken from the client.
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

from toolplug.errors import BackendFailed
from toolplug.responses.backend import CallPart, Delta, ModelAnswer, Question, Usage
from toolplug.signatures.values import as_object, encoded

http: Final[Any] = import_module(type(DEFAULT_CONNECTION_LIMITS).__module__.partition(".")[0])
"""`httpx2`, or `httpx` of a client of version 2."""

MAX_ANSWER_BYTES: Final = 16 * 1024 * 1024

T = TypeVar("T")

_LOG = logging.getLogger("toolplug.responses")


def delta_of(value: object, *, whole: bool) -> Delta:
    """Return a chunk of a stream, or a `whole` completion, as a delta. Raises `BackendFailed` for anything else."""
    if not isinstance(value, Mapping):
        raise garbage("it is no object")
    answer = as_object(cast("object", value))
    choices = answer.get("choices")
    if not isinstance(choices, list) or (whole and not choices):
        raise garbage("it has no choices")
    choice = as_object(cast("list[object]", choices)[0] if choices else None)
    said = as_object(choice.get("message" if whole else "delta"))
    finish = choice.get("finish_reason")
    return Delta(
        _text(said, "content"),
        _text(said, "reasoning_content") or _text(said, "reasoning"),
        _text(said, "refusal"),
        _calls(said.get("tool_calls")),
        finish if isinstance(finish, str) else None,
        _usage(answer.get("usage")),
        _logprobs(as_object(choice.get("logprobs")).get("content")),
    )


def garbage(what: str) -> BackendFailed:
    """Return the error for an answer that cannot be read."""
    return BackendFailed("backend_garbage", f"the model's server sent something that is no answer: {what}")


def _text(said: Mapping[str, object], name: str) -> str:
    value = said.get(name)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise garbage(f"its {name} is no text")
    return value if value.isascii() else value.encode("utf-8", "replace").decode()  # half a pair is no Unicode


def _calls(value: object) -> tuple[CallPart, ...]:
    if not value:
        return ()
    if not isinstance(value, list):
        raise garbage("its tool_calls are no list")
    return tuple(_call(as_object(part), place) for place, part in enumerate(cast("list[object]", value)))


def _call(part: Mapping[str, object], place: int) -> CallPart:
    index = part.get("index", place)
    function = as_object(part.get("function"))
    if not isinstance(index, int):
        raise garbage("the index of a call is no number")
    return CallPart(index, _text(part, "id"), _text(function, "name"), _text(function, "arguments"))


def _logprobs(value: object) -> tuple[object, ...]:
    if not isinstance(value, list) or encoded(cast("object", value)) is None:
        return ()
    return tuple(cast("list[object]", value))


def _usage(value: object) -> Usage | None:
    if not isinstance(value, Mapping):
        return None
    usage = as_object(cast("object", value))
    return Usage(
        _count(usage, "prompt_tokens"),
        _count(usage, "completion_tokens"),
        _count(as_object(usage.get("prompt_tokens_details")), "cached_tokens"),
        _count(as_object(usage.get("completion_tokens_details")), "reasoning_tokens"),
    )


def _count(usage: Mapping[str, object], name: str) -> int:
    value = usage.get(name)
    return value if isinstance(value, int) and 0 <= value < _MAX_COUNT else 0


_PATH: Final = "/chat/completions"
_NO_KEY: Final = "none"
_LIMITS: Final = http.Limits(max_connections=1000, max_keepalive_connections=20)
"""The client looks at every idle connection at each request: a hundred, its own limit, cost more than the request."""
_USAGE: Mapping[str, object] = {"stream": True, "stream_options": {"include_usage": True}}
_PLAIN: Mapping[str, str] = {"Accept-Encoding": "identity"}
_MAX_COUNT = 2**53
_MAX_MESSAGE = 500


class _AnswerRefused(OpenAIError):
    """An answer exceeds its limits. The client raises errors of this kind unchanged, without a retry."""


class _BoundedStream(http.AsyncByteStream):
    """The bytes of one answer, including error bodies, up to the limit."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self._left = MAX_ANSWER_BYTES

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for chunk in self._stream:
            self._left -= len(chunk)
            if self._left < 0:
                raise _AnswerRefused(f"it has more than {MAX_ANSWER_BYTES // 1024 // 1024} MiB")
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
            response.stream = _BoundedStream(response.stream)
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
        async with aclosing(self._streamed(question) if stream else self._whole(question)) as deltas:
            while (delta := await self._bounded(anext(deltas, None), deadline)) is not None:
                yield delta

    async def models(self) -> list[ModelAnswer]:
        """Implement `Backend.models`."""
        deadline = asyncio.get_running_loop().time() + self._deadline_s
        try:
            answer = await self._bounded(self._client.get("/models", cast_to=object), deadline)
        except BackendFailed as error:
            if error.code == "backend_refused" and self.default_model is not None:
                return [_model({"id": self.default_model})]
            raise
        listed = as_object(answer).get("data")
        if not isinstance(listed, list):
            raise garbage("it has no data")
        models = [as_object(each) for each in cast("list[object]", listed)]
        return [_model(each) for each in models if isinstance(each.get("id"), str)]

    async def aclose(self) -> None:
        """Close the connections."""
        await self._client.close()

    async def _bounded(self, answer: Awaitable[T], deadline: float) -> T:
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
            raise _broke_off() from error
        except _AnswerRefused as error:
            raise garbage(str(error)) from error
        except TimeoutError as error:
            if not limit.expired():
                raise
            message = f"the model's server was not done within {self._deadline_s:g} s"
            raise BackendFailed("backend_timeout", message) from error
        except (ValueError, RecursionError) as error:
            raise garbage("it is not JSON") from error

    async def _whole(self, question: Question) -> AsyncGenerator[Delta]:
        yield delta_of(await self._client.post(_PATH, cast_to=object, body=dict(question)), whole=True)

    async def _streamed(self, question: Question) -> AsyncGenerator[Delta]:
        finished = False
        stream = await self._client.post(
            _PATH, cast_to=object, body={**question, **_USAGE}, stream=True, stream_cls=AsyncStream[object]
        )
        try:
            async with stream:
                async for chunk in stream:
                    delta = delta_of(chunk, whole=False)
                    finished = finished or delta.finish is not None
                    yield delta
        except APITimeoutError:
            raise
        except APIConnectionError as error:
            raise _broke_off() from error
        if not finished:
            raise _broke_off()

    def _failure(self, error: APIError) -> BackendFailed:
        if isinstance(error, APITimeoutError):
            return _no_word()
        if isinstance(error, APIConnectionError):
            return BackendFailed("backend_unreachable", "the model's server cannot be reached, or hung up")
        _LOG.warning("the model's server said: %r", self._said(error))
        if not isinstance(error, APIStatusError):
            return BackendFailed("backend_error", "the model's server failed in the middle of its answer")
        if error.status_code == 429:
            message = "the model's server takes no more requests now"
            return BackendFailed("rate_limit_exceeded", message, retry_after_s=_retry_after(error))
        if error.status_code >= 500:
            return BackendFailed("backend_error", f"the model's server failed with status {error.status_code}")
        return BackendFailed("backend_refused", f"the model's server refused with status {error.status_code}")

    def _said(self, error: APIError) -> str:
        """Return the server's own message, without the API key."""
        said = error.message if self._secret is None else error.message.replace(self._secret, "***")
        return said[:_MAX_MESSAGE]


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


def _broke_off() -> BackendFailed:
    return BackendFailed("backend_broke_off", "the model's server stopped in the middle of its answer")


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
