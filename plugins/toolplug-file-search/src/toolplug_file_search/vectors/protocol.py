"""Where the vectors of passages are kept: what each place can do."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from toolplug_file_search.vectors.embeddings import Vector


class VectorsUnavailable(Exception):
    """Vectors cannot be read or written now; the text says why."""


class Near(NamedTuple):
    """A passage and its cosine similarity."""

    chunk: int
    similarity: float


class VectorIndex(Protocol):
    """Keeps the vectors of passages. Blocks; raises `VectorsUnavailable`."""

    def check(self) -> None:
        """Raise if it cannot answer now."""
        ...

    def clear(self) -> None:
        """Delete all vectors."""
        ...

    def add(self, corpus: int, vectors: Sequence[tuple[int, Vector]]) -> None:
        """Keep the vectors of these chunks."""
        ...

    def forget(self, chunks: Sequence[int]) -> None:
        """Delete the vectors of chunks that are there no more."""
        ...

    def nearest(self, corpus: int, vector: Vector, limit: int, among: Sequence[int] | None) -> list[Near]:
        """Return the nearest passages, nearest first; `among`: only of these chunks."""
        ...

    def close(self) -> None:
        """Close connections."""
        ...
