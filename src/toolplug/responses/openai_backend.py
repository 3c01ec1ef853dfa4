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
from typing import Final

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
from toolplug.responses.backend import Delta, Question
from toolplug.responses.completions import delta_of, garbage

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
