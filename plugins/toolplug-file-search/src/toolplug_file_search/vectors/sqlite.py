"""The vectors of passages: kept in the index, and compared in memory, all of a corpus at once.

100,000 vectors of 384 numbers are compared in about the time that they are read from memory; an approximate index would
save milliseconds and cost recall, and this Python's SQLite loads no extensions.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from threading import Lock

import numpy as np
import numpy.typing as npt

from toolplug_file_search.storage.database import Database
from toolplug_file_search.vectors.embeddings import Vector
from toolplug_file_search.vectors.protocol import Near

Matrix = npt.NDArray[np.float32]
MAX_CACHED = 512 * 1024 * 1024
"""Bytes of vectors that stay in memory, of the corpora searched last; the one that is searched may have more."""
_SPARE = 1024


class _Corpus:
    """The vectors of a corpus in memory, in a matrix with spare rows."""

    def __init__(self, chunks: Sequence[int], vectors: Matrix) -> None:
        self._count = len(chunks)
        self._chunks: npt.NDArray[np.int64] = np.array(chunks, dtype=np.int64)
        self._vectors = vectors

    @property
    def bytes(self) -> int:
        """What the matrix takes."""
        return self._vectors.nbytes

    def add(self, chunks: Sequence[int], vectors: Matrix) -> None:
        needed = self._count + len(chunks)
        if needed > len(self._vectors):
            size = needed + max(_SPARE, needed // 4)
            self._chunks = np.resize(self._chunks, size)
            larger = np.zeros((size, vectors.shape[1]), dtype=np.float32)
            if self._count:
                larger[: self._count] = self._vectors[: self._count]
            self._vectors = larger
        self._chunks[self._count : needed] = chunks
        self._vectors[self._count : needed] = vectors
        self._count = needed

    def forget(self, chunks: Sequence[int]) -> None:
        kept = ~np.isin(self._chunks[: self._count], np.array(chunks, dtype=np.int64))
        self._chunks, self._vectors = self._chunks[: self._count][kept], self._vectors[: self._count][kept]
        self._count = len(self._chunks)

    def nearest(self, vector: Matrix, limit: int, among: Sequence[int] | None) -> list[Near]:
        chunks, vectors = self._chunks[: self._count], self._vectors[: self._count]
        if not len(chunks) or vectors.shape[1] != len(vector):
            return []
        similarities = vectors @ vector
        if among is not None:
            similarities = np.where(np.isin(chunks, np.array(among, dtype=np.int64)), similarities, -2.0)
        limit = min(limit, len(chunks))
        best = np.argpartition(-similarities, limit - 1)[:limit]
        ordered = best[np.lexsort((chunks[best], -similarities[best]))]
        return [Near(int(chunks[place]), float(similarities[place])) for place in ordered if similarities[place] > -2]


class SqliteVectors:
    """Vectors in the index; those of a corpus are in memory from its first search on, up to `MAX_CACHED`."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._lock = Lock()
        self._corpora: dict[int, _Corpus] = {}

    def check(self) -> None:
        pass

    def clear(self) -> None:
        with self._lock, self._database.writing() as connection:
            connection.execute("DELETE FROM vectors")
            self._corpora.clear()

    def add(self, corpus: int, vectors: Sequence[tuple[int, Vector]]) -> None:
        matrix = _normalize([vector for _, vector in vectors])
        with self._lock:
            with self._database.writing() as connection:
                written = [
                    (chunk, row)
                    for (chunk, _), row in zip(vectors, matrix, strict=True)
                    if connection.execute(
                        "INSERT OR REPLACE INTO vectors (chunk, vector) SELECT number, ? FROM chunks WHERE number = ?",
                        (row.tobytes(), chunk),
                    ).rowcount
                ]
            if corpus in self._corpora and written:
                self._corpora[corpus].add([chunk for chunk, _ in written], np.stack([row for _, row in written]))

    def forget(self, chunks: Sequence[int]) -> None:
        with self._lock:
            for corpus in self._corpora.values():
                corpus.forget(chunks)

    def nearest(self, corpus: int, vector: Vector, limit: int, among: Sequence[int] | None) -> list[Near]:
        with self._lock:
            found = self._corpora.pop(corpus, None)
            if found is None:
                with self._database.reading() as connection:
                    found = _load(connection, corpus)
            self._corpora[corpus] = found  # the last to go
            while len(self._corpora) > 1 and sum(each.bytes for each in self._corpora.values()) > MAX_CACHED:
                del self._corpora[next(iter(self._corpora))]
            return found.nearest(_normalize([vector])[0], limit, among)

    def close(self) -> None:
        self._corpora.clear()


def _load(connection: sqlite3.Connection, corpus: int) -> _Corpus:
    rows = connection.execute(
        "SELECT chunk, vector FROM vectors JOIN chunks ON number = chunk JOIN files ON files.id = file_id "
        "WHERE corpus = ? ORDER BY chunk",
        (corpus,),
    ).fetchall()
    if not rows:
        return _Corpus([], np.zeros((0, 0), dtype=np.float32))
    joined = np.frombuffer(b"".join(row[1] for row in rows), dtype=np.float32)
    return _Corpus([row[0] for row in rows], joined.reshape(len(rows), -1).copy())


def _normalize(vectors: Sequence[Vector]) -> Matrix:
    matrix = np.array(vectors, dtype=np.float32)
    lengths = np.linalg.norm(matrix, axis=1, keepdims=True)
    return (matrix / np.where(lengths == 0, 1, lengths)).astype(np.float32, copy=False)
