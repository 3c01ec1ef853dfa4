"""The rest of OpenAI's surface: updates, searches with filters, batches, content and expiry, by its own client."""

from __future__ import annotations

import asyncio
import sqlite3
import subprocess
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, AbstractContextManager, closing
from pathlib import Path
from typing import Any

import openai
import pytest

from toolplug_file_search.storage.database import Database
from toolplug_file_search.storage.library import Attached, Library, Quotas
from toolplug_file_search.storage.records import Caller

pytestmark = pytest.mark.process

Start = Callable[[], AbstractContextManager[tuple[str, subprocess.Popen[str]]]]
Serve = Callable[..., AbstractAsyncContextManager[Any]]
INDEX = Path(".toolplug") / "providers" / "file_search" / "index.db"


@pytest.mark.requirement("I2-8-openai-surface")
def test_the_openai_client_updates_searches_filters_and_fills_by_batches(start: Start) -> None:
    with start() as (url, _), openai.OpenAI(api_key="key-one", base_url=f"{url}/v1", max_retries=0) as ai:
        store = ai.vector_stores.create(name="old", expires_after={"anchor": "last_active_at", "days": 7})
        assert store.expires_at == store.last_active_at + 7 * 86400
        changed = ai.vector_stores.update(store.id, name="rivers", metadata={"a": "b"}, expires_after=None)
        assert (changed.name, changed.metadata, changed.expires_at) == ("rivers", {"a": "b"}, None)

        texts = {"elbe.md": b"# Elbe\n\nA river of 1094 km.", "oder.md": b"# Oder\n\nA river of 840 km."}
        files = [ai.files.create(file=item, purpose="assistants") for item in texts.items()]
        batch = ai.vector_stores.file_batches.create_and_poll(store.id, file_ids=[file.id for file in files])
        assert (batch.status, batch.file_counts.completed, batch.file_counts.total) == ("completed", 2, 2)
        assert len(ai.vector_stores.file_batches.list_files(batch.id, vector_store_id=store.id).data) == 2
        assert ai.vector_stores.file_batches.cancel(batch.id, vector_store_id=store.id).status == "cancelled"
        assert ai.vector_stores.retrieve(store.id).file_counts.completed == 2

        for file, length in zip(files, (1094, 840), strict=True):
            member = ai.vector_stores.files.update(
                file.id,
                vector_store_id=store.id,
                attributes={"km": length, "sea": "north" if length > 900 else "baltic"},
            )
            assert member.attributes["km"] == length
        found = ai.vector_stores.search(store.id, query="river")
        assert [item.filename for item in found] == ["elbe.md", "oder.md"]
        assert found.data[0].attributes == {"km": 1094, "sea": "north"}
        assert found.data[0].content[0].text == "# Elbe\n\nA river of 1094 km."

        def named(**filters: Any) -> list[str]:
            return [item.filename for item in ai.vector_stores.search(store.id, query="river", filters=filters)]

        assert named(type="eq", key="sea", value="baltic") == ["oder.md"]
        assert named(type="ne", key="sea", value="baltic") == ["elbe.md"]
        assert named(type="gt", key="km", value=900) == ["elbe.md"]
        assert named(type="lte", key="km", value=840) == ["oder.md"]
        assert named(type="in", key="sea", value=["north", "black"]) == ["elbe.md"]
        assert named(type="nin", key="sea", value=["north", "baltic"]) == []
        assert named(type="eq", key="km", value="1094") == []
        either = [{"type": "eq", "key": "km", "value": 1094}, {"type": "eq", "key": "sea", "value": "baltic"}]
        assert named(type="or", filters=either) == ["elbe.md", "oder.md"]
        assert named(type="and", filters=either) == []

        page = ai.vector_stores.files.content(files[0].id, vector_store_id=store.id)
        assert [(item.type, item.text) for item in page] == [("text", "# Elbe\n\nA river of 1094 km.")]
        assert [item.id for item in ai.vector_stores.files.list(store.id, filter="failed")] == []
        assert [item.id for item in ai.files.list(purpose="user_data")] == []
        kept = ai.files.create(
            file=("x.txt", b"x"), purpose="user_data", expires_after={"anchor": "created_at", "seconds": 3600}
        )
        assert kept.expires_at == kept.created_at + 3600


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        ("search", {"query": ""}, "query.constrained-str"),
        ("search", {"query": "x", "rewrite_query": True}, "rewrite_query"),
        ("search", {"query": "x", "filters": {"type": "like", "key": "a", "value": "b"}}, "filters"),
        ("file_batches", {}, "file_ids"),
        ("file_batches", {"file_ids": ["a"], "files": [{"file_id": "a"}]}, "file_ids"),
        ("files/file-x", {}, "attributes"),
    ],
)
async def test_a_wrong_request_names_what_is_wrong(serve: Serve, path: str, body: object, param: str) -> None:
    async with serve() as served:
        store = await served.one.store()
        answer = await served.one.http.post(f"/v1/vector_stores/{store}/{path}", json=body)
        assert (answer.status_code, answer.json()["error"]["param"]) == (400, param)


@pytest.mark.anyio
async def test_filters_that_are_nested_without_end_are_refused(serve: Serve) -> None:
    nested: dict[str, object] = {"type": "eq", "key": "a", "value": 1}
    for _ in range(20):
        nested = {"type": "and", "filters": [nested]}
    async with serve() as served:
        store = await served.one.store()
        answer = await served.one.http.post(f"/v1/vector_stores/{store}/search", json={"query": "x", "filters": nested})
        assert answer.json()["error"]["message"] == "filters: filters are nested deeper than 8 levels"


@pytest.mark.anyio
async def test_another_tenants_store_and_batch_are_not_there(serve: Serve) -> None:
    async with serve() as served:
        store, file = await served.one.add("a.txt", "river")
        batch = (
            await served.one.http.post(f"/v1/vector_stores/{store}/file_batches", json={"file_ids": [file]})
        ).json()
        path = f"/v1/vector_stores/{store}"
        answers = [
            await served.two.http.post(path, json={"name": "mine"}),
            await served.two.http.post(f"{path}/search", json={"query": "river"}),
            await served.two.http.post(f"{path}/files/{file}", json={"attributes": {}}),
            await served.two.http.get(f"{path}/files/{file}/content"),
            await served.two.http.get(f"{path}/file_batches/{batch['id']}"),
            await served.two.http.post(f"{path}/file_batches/{batch['id']}/cancel"),
            await served.two.http.get(f"{path}/file_batches/{batch['id']}/files"),
        ]
        assert {answer.status_code for answer in answers} == {404}
        assert {answer.json()["error"]["code"] for answer in answers} == {"vector_store_not_found"}


@pytest.mark.anyio
async def test_what_has_expired_is_not_found_and_is_deleted_at_the_next_start(serve: Serve, tmp_path: Path) -> None:
    async with serve() as served:
        store, file = await served.one.add("a.txt", "river")
        _, other = await served.one.add("b.txt", "river")
        await served.one.http.post(
            f"/v1/vector_stores/{store}", json={"expires_after": {"anchor": "last_active_at", "days": 1}}
        )
        with closing(sqlite3.connect(tmp_path / INDEX)) as index, index:
            index.execute("UPDATE stores SET active_at = 1 WHERE id = ?", [store])
            index.execute("UPDATE files SET expires_at = 1 WHERE id = ?", [other])
        assert (await served.one.http.get(f"/v1/vector_stores/{store}")).json()["status"] == "expired"
        assert (await served.one.http.get(f"/v1/files/{other}")).status_code == 404
        refused = await served.one.call("file_search", query="river", vector_store_ids=[store])
        assert refused.output == f"no vector store that has not expired {store!r}"
        assert [item["file_id"] for item in await served.one.found("river")] == []
    async with serve() as served:
        while (await served.one.http.get(f"/v1/vector_stores/{store}/files")).json()["data"]:  # noqa: ASYNC110  it has no event
            await asyncio.sleep(0.01)
        with closing(sqlite3.connect(tmp_path / INDEX)) as index:
            assert index.execute("SELECT id FROM files").fetchall() == [(file,)]
            assert index.execute("SELECT count(*) FROM chunks").fetchone() == (0,)


@pytest.mark.anyio
async def test_a_search_is_an_activity_of_a_vector_store_that_expires(serve: Serve, tmp_path: Path) -> None:
    async with serve() as served:
        store, _ = await served.one.add("a.txt", "river")
        path = f"/v1/vector_stores/{store}"
        await served.one.http.post(path, json={"expires_after": {"anchor": "last_active_at", "days": 1}})
        with closing(sqlite3.connect(tmp_path / INDEX)) as index, index:
            index.execute("UPDATE stores SET active_at = active_at - 7200")
        before = (await served.one.http.get(path)).json()["last_active_at"]
        await served.one.found("river", vector_store_ids=[store])
        assert (await served.one.http.get(path)).json()["last_active_at"] >= before + 7200


@pytest.mark.anyio
async def test_a_filter_distinguishes_true_from_one(serve: Serve) -> None:
    async with serve() as served:
        store, file = await served.one.add("a.txt", "river")
        _, other = await served.one.add("b.txt", "river", store)
        for each, draft in ((file, True), (other, 1)):
            path = f"/v1/vector_stores/{store}/files/{each}"
            assert (await served.one.http.post(path, json={"attributes": {"draft": draft}})).status_code == 200
        found: list[list[str]] = []
        for value in (True, 1):
            asked = {"query": "river", "filters": {"type": "eq", "key": "draft", "value": value}}
            answer = (await served.one.http.post(f"/v1/vector_stores/{store}/search", json=asked)).json()
            found.append([item["filename"] for item in answer["data"]])
        assert found == [["a.txt"], ["b.txt"]]


def test_files_of_a_cancelled_batch_are_no_longer_waiting(tmp_path: Path) -> None:
    quotas = Quotas(files=9, stores=9, bytes=99)
    with closing(Database(tmp_path / "index.db")) as database:
        library = Library(database, Caller(tenant="one", subject="one", own_only=False), quotas, lambda: None)
        store = library.create_store("notes", {}).id
        file = library.add_file("a.txt", b"river", "assistants").id
        batch = library.create_batch(store, [Attached(file, {})])
        assert (batch.counts.in_progress, batch.counts.cancelled) == (1, 0)
        cancelled = library.cancel_batch(store, batch.id)
        assert (cancelled.counts.in_progress, cancelled.counts.cancelled) == (0, 1)
        with database.reading() as connection:
            assert connection.execute("SELECT id, status FROM files").fetchall() == [(file, "stored")]


@pytest.mark.anyio
async def test_the_bytes_of_a_tenant_are_limited(serve: Serve) -> None:
    async with serve(max_bytes=10) as served:
        await served.one.upload("a.txt", "x" * 10)
        answer = await served.one.http.post(
            "/v1/files", files={"file": ("b.txt", b"x")}, data={"purpose": "assistants"}
        )
        assert (answer.status_code, answer.json()["error"]["code"]) == (409, "quota_exceeded")
        await served.two.upload("b.txt", "x")
