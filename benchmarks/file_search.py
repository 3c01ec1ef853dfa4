"""File search: a hybrid search in 100,000 passages against bare engines, and an ingest against the bare libraries."""

from __future__ import annotations

import json
import logging
import os
import random
import shutil
import sqlite3
from collections import Counter
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, closing
from functools import cache
from itertools import cycle, islice
from pathlib import Path
from tempfile import TemporaryDirectory, TemporaryFile
from threading import Event
from time import process_time

import numpy as np

from benchmarks.frame import MILLISECONDS, Batch, Row, timed
from toolplug_file_search.documents.analysis import Analyzer, words
from toolplug_file_search.documents.conversion import convert
from toolplug_file_search.documents.preparation import Cutting
from toolplug_file_search.documents.reader import DocumentReader, Prepared
from toolplug_file_search.ingest.local_files import pattern
from toolplug_file_search.ingest.mirror import Mirror
from toolplug_file_search.search.meaning import Meaning
from toolplug_file_search.search.options import narrow
from toolplug_file_search.search.reranking import CANDIDATES
from toolplug_file_search.search.searcher import Searcher
from toolplug_file_search.storage.database import Database, TimeLimit
from toolplug_file_search.storage.indexing import put_in
from toolplug_file_search.storage.records import Caller
from toolplug_file_search.storage.schema import made_corpus
from toolplug_file_search.vectors.sqlite import SqliteVectors

PASSAGES, DIMENSIONS, WORDS, VOCABULARY = 100_000, 384, 40, 20_000
ADDED = 1_000
RESULTS = 5
COPIES = 3
"""Of the documents that are taken in: as many as a small folder has."""
DOCUMENTS = Path(__file__).parents[1] / "plugins" / "toolplug-file-search" / "tests" / "probe" / "documents"
ME = Caller(tenant="one", subject="one", own_only=False)
CUTTING = Cutting(size=1500, overlap=200)


class KnownVectors:
    """An embedder that costs nothing: embedding is not what is compared."""

    identity = "known"

    def __init__(self, vector: Sequence[float]) -> None:
        self._vector = vector

    def query(self, text: str) -> Sequence[float]:
        return self._vector

    def passages(self, texts: Sequence[str]) -> Sequence[Sequence[float]]:
        return [self._vector for _ in texts]

    def close(self) -> None:
        pass


def word(number: int) -> str:
    """Return a word of letters only: one with digits is taken apart by our analyzer and not by the bare engine."""
    syllables = [f"{consonant}{vowel}" for consonant in "bdfgklmnprstvz" for vowel in "aeiou"]
    places = len(syllables)
    return "".join(syllables[number // places**place % places] for place in range(3))


@cache
def texts(count: int = PASSAGES) -> Sequence[str]:
    """Passages of words whose frequencies fall as those of a language do."""
    chance = random.Random(7)
    vocabulary = [word(number) for number in range(VOCABULARY)]
    weights = [1 / rank for rank in range(1, VOCABULARY + 1)]
    return [" ".join(chance.choices(vocabulary, weights, k=WORDS)) for _ in range(count)]


@cache
def queries() -> Sequence[str]:
    """Three words each, one of them frequent."""
    chance = random.Random(8)
    ranks = ((20, 200), (200, 3000), (3000, 9000))
    return [" ".join(word(chance.randint(low, high)) for low, high in ranks) for _ in range(20)]


@cache
def vectors() -> np.ndarray:
    """Vectors of length 1, in no order."""
    found = np.random.default_rng(7).standard_normal((PASSAGES, DIMENSIONS), dtype=np.float32)
    return found / np.linalg.norm(found, axis=1, keepdims=True)


@asynccontextmanager
async def hybrid() -> AsyncGenerator[Batch]:
    """Search by words and by meaning, as the tool does."""
    with TemporaryDirectory() as folder, closing(Database(Path(folder) / "index.db")) as database:
        analyzer, kept = Analyzer(), SqliteVectors(database)
        with database.writing() as connection:
            corpus = made_corpus(connection, "one")
            connection.execute(
                "INSERT INTO files (id, corpus, name, purpose, bytes, fingerprint, created_at) "
                "VALUES ('file-1', ?, 'a.txt', '', 1, '', 1)",
                (corpus,),
            )
            with _prepared(analyzer) as prepared:
                put_in(connection, corpus, "file-1", prepared)
            numbers = [row[0] for row in connection.execute("SELECT number FROM chunks ORDER BY number")]
        for start in range(0, PASSAGES, ADDED):
            part = slice(start, start + ADDED)
            kept.add(corpus, list(zip(numbers[part], vectors()[part].tolist(), strict=True)))
        meaning = Meaning(database, KnownVectors(vectors()[0].tolist()), kept, logging.getLogger())
        searcher = Searcher(database, analyzer, meaning, None)
        asked = narrow({}, stores=None, limit=RESULTS, default_limit=RESULTS)

        async def run(n: int) -> None:
            for query in islice(cycle(queries()), n):
                assert len(searcher.search(ME, query, asked, TimeLimit()).passages) == RESULTS

        yield timed(run)


def _prepared(analyzer: Analyzer) -> Prepared:
    spool = TemporaryFile()  # noqa: SIM115  the result owns it
    spool.writelines(json.dumps(part).encode() + b"\n" for part in _parts(analyzer))
    return Prepared(spool, Event())


def _parts(analyzer: Analyzer) -> Iterator[Mapping[str, object]]:
    """A document of these passages, as a worker process answers."""
    counted = Counter[str]()
    yield {"compounds": False, "language": "english", "name": "a"}
    for text in texts():
        tokens = analyzer.tokens(words(text), "english")
        counted.update({"a", *tokens})
        yield {"passage": [text, "", 0, len(text), 1, 1], "words": ["", " ".join(tokens)]}
    yield {"tokens": list(counted.items())}
    yield {"end": PASSAGES, "left_out": ""}


@asynccontextmanager
async def bare_engines() -> AsyncGenerator[Batch]:
    """The same texts in a table of FTS5 and the same vectors in one matrix, each asked once."""
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.execute("CREATE VIRTUAL TABLE t USING fts5 (text, tokenize = 'porter unicode61')")
        connection.executemany("INSERT INTO t (text) VALUES (?)", [(text,) for text in texts()])
        matrix, asked = vectors(), vectors()[0]

        async def run(n: int) -> None:
            for query in islice(cycle(queries()), n):
                expression = " OR ".join(f'"{word}"' for word in query.split())
                found = connection.execute(
                    "SELECT rowid, text FROM t WHERE t MATCH ? ORDER BY rank LIMIT ?", (expression, CANDIDATES)
                ).fetchall()
                near = np.argpartition(-(matrix @ asked), CANDIDATES)[:CANDIDATES]
                assert len(found) == len(near) == CANDIDATES

        yield timed(run)


def _cost() -> float:
    """CPU time of this process and of the processes that it has waited for."""
    spent = os.times()
    return process_time() + spent.children_user + spent.children_system


@asynccontextmanager
async def ingest() -> AsyncGenerator[Batch]:
    """Take in a folder of documents of seven formats, into a new index, with a new process that reads."""
    with TemporaryDirectory() as folder:
        _copied(Path(folder) / "documents")

        async def batch(n: int) -> float:
            started = _cost()
            for _ in range(n):
                with TemporaryDirectory() as target, closing(Database(Path(target) / "index.db")) as database:
                    reader = DocumentReader(CUTTING, logging.getLogger(), Path(target))
                    mirror = Mirror(
                        database,
                        [pattern("documents", Path(folder))],
                        reader,
                        max_file_bytes=10_000_000,
                        refresh_s=0,
                        log=logging.getLogger(),
                        ingested=lambda size: None,
                    )
                    mirror.refresh(wait_s=600)
                    mirror.stop()
            return _cost() - started

        yield batch


@asynccontextmanager
async def bare_libraries() -> AsyncGenerator[Batch]:
    """Read the text of the same documents in this process, and keep nothing."""
    with TemporaryDirectory() as folder:
        files = _copied(Path(folder) / "documents")

        async def batch(n: int) -> float:
            started = _cost()
            for _ in range(n):
                for file in files:
                    content = file.read_bytes()
                    assert convert(file.name, content).text
            return _cost() - started

        yield batch


def _copied(folder: Path) -> list[Path]:
    for number in range(COPIES):
        shutil.copytree(DOCUMENTS, folder / str(number))
    return sorted(file for file in folder.rglob("*") if file.is_file())


ROWS = (
    Row(
        name=f"hybrid search in {PASSAGES:,} passages",
        ours=hybrid,
        other=bare_engines,
        against="FTS5 and a numpy scan, each alone",
        hold=1.5,
        aim=1.25,
        unit=MILLISECONDS,
        pairs=31,
        batch_s=0.2,
    ),
    Row(
        name="ingest of 153 documents of seven formats",
        ours=ingest,
        other=bare_libraries,
        against="their text by the libraries alone",
        hold=2,
        aim=1.5,
        unit=MILLISECONDS,
        pairs=5,
        batch_s=0,
    ),
)
