"""The best passages in a second order, by a server that reads query and passage together (`/v1/rerank`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import httpx2
from pydantic import BaseModel, Field, FiniteFloat, ValidationError

from toolplug_file_search.settings import Settings
from toolplug_file_search.vectors.embeddings import post

CANDIDATES = 50
MAX_ANSWER = 1024 * 1024


class RerankingFailed(Exception):
    """The server does not answer; the text says why."""


class _Ranked(BaseModel):
    index: Annotated[int, Field(ge=0)]
    relevance_score: FiniteFloat


class _Reranked(BaseModel):
    results: list[_Ranked]


class Reranker:
    """Asks a server; connects when it is first asked. Blocks."""

    def __init__(self, url: str, settings: Settings) -> None:
        self._url = url
        self._model = settings.embedding_model
        self._client = httpx2.Client(timeout=settings.embedding_timeout, trust_env=False)

    def order(self, query: str, texts: Sequence[str]) -> list[int]:
        """Return the places of the texts, best first; those that the server leaves out keep their order at the end.

        Raises `RerankingFailed`.
        """
        body = {"model": self._model, "query": query, "documents": list(texts), "top_n": len(texts)}
        try:
            answer = _Reranked.model_validate_json(post(self._client, self._url, body, MAX_ANSWER))
        except (httpx2.HTTPError, OSError) as error:
            raise RerankingFailed(f"{self._url} cannot be reached: {error or type(error).__name__}") from error
        except (ValidationError, ValueError) as error:
            raise RerankingFailed(f"{self._url} does not answer with ranks: {str(error).splitlines()[0]}") from error
        ranked = sorted(answer.results, key=lambda item: -item.relevance_score)
        known = [item.index for item in ranked if item.index < len(texts)]
        return list(dict.fromkeys([*known, *range(len(texts))]))

    def close(self) -> None:
        """Close connections."""
        self._client.close()
