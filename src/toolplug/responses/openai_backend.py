"""A Chat Completions server by the `openai` client: the one file that imports it, loaded when a model is first asked.

The client connects, tries again and reads event streams; what comes is read as plain JSON (`completions`), which costs
a tenth of the client's own models and lets nothing unexpected pass.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from email.utils import parsedate_to_datetime
from json import JSONDecodeError
from time import time
from typing import Final, cast

from httpx2 import Limits
from openai import (
    APIConnectionError,
    APIError,
    APIStatusError,
    APITimeoutError,
    AsyncOpenAI,
    AsyncStream,
    DefaultAsyncHttpxClient,
)

from toolplug.errors import BackendFailed
from toolplug.responses.backend import CallPart, Delta, Question, Usage
from toolplug.signatures.values import as_object, encoded


def delta_of(value: object, *, whole: bool) -> Delta:
    """One chunk of a stream, or a `whole` completion. Raises `BackendFailed` for what is neither."""
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
    """The failure of an answer that cannot be read."""
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
    return value if isinstance(value, int) else 0


_PATH: Final = "/chat/completions"
_NO_KEY: Final = "none"
_LIMITS: Final = Limits(max_connections=1000, max_keepalive_connections=20)
"""The client looks at every idle connection at each request: a hundred, its own limit, cost more than the request."""
_USAGE: Mapping[str, object] = {"stream": True, "stream_options": {"include_usage": True}}
_MAX_MESSAGE = 500


class OpenAIBackend:
    """One server. `retries`: after 429, 408, 409, 5xx and lost connections, after as long as the server says."""

    def __init__(
        self, base_url: str, api_key: str | None, default_model: str | None, *, timeout_s: float, retries: int
    ) -> None:
        self.default_model: str | None = default_model
        self._secret = api_key
        self._client = AsyncOpenAI(
            base_url=base_url,
            api_key=api_key or _NO_KEY,
            timeout=timeout_s,
            max_retries=retries,
            http_client=DefaultAsyncHttpxClient(limits=_LIMITS),
        )

    async def ask(self, question: Question, *, stream: bool) -> AsyncGenerator[Delta]:
        """One turn."""
        try:
            if stream:
                async with aclosing(self._streamed(question)) as deltas:
                    async for delta in deltas:
                        yield delta
            else:
                yield delta_of(await self._client.post(_PATH, cast_to=object, body=dict(question)), whole=True)
        except APIError as error:
            raise self._failure(error) from error
        except (JSONDecodeError, UnicodeDecodeError) as error:
            raise garbage("it is not JSON") from error

    async def aclose(self) -> None:
        """Close the connections."""
        await self._client.close()

    def _failure(self, error: APIError) -> BackendFailed:
        if isinstance(error, APITimeoutError):
            return BackendFailed("backend_timeout", "the model's server did not answer in time")
        if isinstance(error, APIConnectionError):
            return BackendFailed("backend_unreachable", "the model's server cannot be reached, or hung up")
        if not isinstance(error, APIStatusError):
            return BackendFailed("backend_error", f"the model's server failed: {self._said(error)}")
        if error.status_code == 429:
            message = "the model's server takes no more requests now"
            return BackendFailed("rate_limit_exceeded", message, retry_after_s=_retry_after(error))
        if error.status_code >= 500:
            return BackendFailed("backend_error", f"the model's server failed with status {error.status_code}")
        message = f"the model's server refused ({error.status_code}): {self._said(error)}"
        return BackendFailed("backend_refused", message)

    def _said(self, error: APIError) -> str:
        """The server's own words, without the key that it was given."""
        said = error.message if self._secret is None else error.message.replace(self._secret, "***")
        return said[:_MAX_MESSAGE]

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


def _broke_off() -> BackendFailed:
    return BackendFailed("backend_broke_off", "the model's server stopped in the middle of its answer")


def _retry_after(error: APIStatusError) -> float | None:
    given = error.response.headers.get("retry-after")
    if given is None:
        return None
    try:
        return float(given)
    except ValueError:
        pass
    try:
        return max(parsedate_to_datetime(given).timestamp() - time(), 0.0)
    except ValueError:
        return None
