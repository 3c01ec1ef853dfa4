"""Vector stores and files over HTTP: shapes, lists, refusals, tenants."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import httpx2
import pytest

from toolplug import open_host
from toolplug.http import create_app

pytestmark = [pytest.mark.anyio, pytest.mark.process, pytest.mark.usefixtures("reading_once")]

BASE = "http://127.0.0.1"
Serve = Callable[..., AbstractAsyncContextManager[Any]]


@pytest.mark.requirement("I2-8-vector-stores")
async def test_a_vector_store_is_made_filled_shown_and_deleted(serve: Serve) -> None:
    async with serve() as served:
        http = served.one.http
        file = await served.one.upload("a.md", "# River\n\nIt runs.")
        wanted = {"name": "notes", "description": "of the team", "metadata": {"team": "docs"}}
        made = (await http.post("/v1/vector_stores", json=wanted)).json()
        path = f"/v1/vector_stores/{made['id']}"
        member = (await http.post(f"{path}/files", json={"file_id": file, "attributes": {"year": 2026}})).json()
        read = await served.one.read(made["id"], file)
        shown = (await http.get(path)).json()
        assert made == {
            "id": made["id"],
            "object": "vector_store",
            "created_at": made["created_at"],
            "name": "notes",
            "description": "of the team",
            "usage_bytes": 0,
            "file_counts": {"in_progress": 0, "completed": 0, "failed": 0, "cancelled": 0, "total": 0},
            "status": "completed",
            "expires_after": None,
            "expires_at": None,
            "last_active_at": made["created_at"],
            "metadata": {"team": "docs"},
        }
        assert member == {
            "id": file,
            "object": "vector_store.file",
            "created_at": member["created_at"],
            "usage_bytes": 17,
            "vector_store_id": made["id"],
            "status": "in_progress",
            "last_error": None,
            "attributes": {"year": 2026},
            "chunking_strategy": {"type": "other"},
        }
        assert read == {**member, "status": "completed"}
        assert (shown["usage_bytes"], shown["file_counts"]["completed"]) == (17, 1)
        assert (await http.get(f"{path}/files/{file}")).json() == read
        assert (await http.get(f"{path}/files")).json()["data"] == [read]
        assert (await http.get("/v1/vector_stores")).json()["data"] == [shown]
        changed = (await http.post(path, json={"description": "of the river"})).json()
        assert (changed["name"], changed["description"]) == ("notes", "of the river")
        assert (await http.post(path, json={"name": "all notes"})).json()["description"] == "of the river"
        deleted = (await http.delete(path)).json()
        assert deleted == {"id": made["id"], "object": "vector_store.deleted", "deleted": True}
        assert (await http.get(path)).status_code == 404
        assert (await http.get(f"/v1/files/{file}")).json()["filename"] == "a.md"


@pytest.mark.requirement("I2-8-vector-stores")
async def test_what_is_deleted_is_no_longer_found(serve: Serve) -> None:
    async with serve() as served:
        http = served.one.http
        store, detached = await served.one.add("detached.txt", "river one")
        _, deleted = await served.one.add("deleted.txt", "river two", store)
        other, _ = await served.one.add("with-store.txt", "river three")
        assert len(await served.one.found("river")) == 3
        await http.delete(f"/v1/vector_stores/{store}/files/{detached}")
        assert {item["file"] for item in await served.one.found("river")} == {"deleted.txt", "with-store.txt"}
        await http.delete(f"/v1/files/{deleted}")
        assert [item["file"] for item in await served.one.found("river")] == ["with-store.txt"]
        await http.delete(f"/v1/vector_stores/{other}")
        assert await served.one.found("river") == []
        assert (await http.get(f"/v1/vector_stores/{store}")).json()["file_counts"]["total"] == 0


async def test_a_file_in_two_vector_stores_is_found_once_until_it_has_left_both(serve: Serve) -> None:
    async with serve() as served:
        first, file = await served.one.add("a.txt", "river")
        second = await served.one.store(file_ids=[file])
        assert len(await served.one.found("river")) == 1
        await served.one.http.delete(f"/v1/vector_stores/{first}")
        assert len(await served.one.found("river", vector_store_ids=[second])) == 1
        await served.one.http.delete(f"/v1/vector_stores/{second}/files/{file}")
        assert await served.one.found("river") == []


async def test_a_file_comes_back_to_the_byte(serve: Serve) -> None:
    content = "\ufeffzwölf\r\nböse 🦦\n".encode()
    async with serve() as served:
        _, file = await served.one.add("ö 🦦.txt", content)
        answer = await served.one.http.get(f"/v1/files/{file}/content")
        assert (answer.content, answer.headers["x-content-type-options"]) == (content, "nosniff")
        assert (await served.one.found("zwölf"))[0]["file"] == "ö 🦦.txt"


async def test_lists_are_paged_in_both_directions(serve: Serve) -> None:
    async with serve() as served:
        made = [await served.one.store(name=str(number)) for number in range(5)]

        async def page(**query: object) -> tuple[list[int], bool]:
            body = (await served.one.http.get("/v1/vector_stores", params=query)).json()
            assert (body["first_id"], body["last_id"]) == (body["data"][0]["id"], body["data"][-1]["id"])
            return [made.index(item["id"]) for item in body["data"]], body["has_more"]

        assert await page() == ([4, 3, 2, 1, 0], False)
        assert await page(limit=2) == ([4, 3], True)
        assert await page(limit=2, after=made[3]) == ([2, 1], True)
        assert await page(limit=2, after=made[2]) == ([1, 0], False)
        assert await page(limit=2, order="asc", after=made[1]) == ([2, 3], True)
        assert await page(limit=2, before=made[0]) == ([2, 1], True)
        assert await page(limit=2, order="asc", before=made[2]) == ([0, 1], False)


@pytest.mark.parametrize(
    ("query", "param"),
    [
        ({"limit": 0}, "limit"),
        ({"limit": 101}, "limit"),
        ({"order": "up"}, "order"),
        ({"after": "vs_x"}, "after"),
    ],
)
async def test_a_page_that_cannot_be_is_refused(serve: Serve, query: dict[str, object], param: str) -> None:
    async with serve() as served:
        answer = await served.one.http.get("/v1/vector_stores", params=query)
        assert (answer.status_code, answer.json()["error"]["param"]) == (400, param)


@pytest.mark.parametrize(
    ("body", "code", "param"),
    [
        ("{", "invalid_json", None),
        ("[]", "invalid_value", None),
        ('{"name": 1}', "invalid_value", "name"),
        (json.dumps({"name": "x" * 256}), "invalid_value", "name"),
        ('{"expires_after": {"anchor": "created_at", "days": 1}}', "invalid_value", "expires_after.anchor"),
        ('{"expires_after": {"anchor": "last_active_at", "days": 366}}', "invalid_value", "expires_after.days"),
        ('{"chunking_strategy": {"type": "static"}}', "invalid_value", "chunking_strategy.type"),
        (json.dumps({"metadata": {str(number): "" for number in range(17)}}), "invalid_value", "metadata"),
        (json.dumps({"metadata": {"k": "v" * 513}}), "invalid_value", "metadata.k"),
    ],
)
async def test_a_wrong_body_is_refused_and_nothing_is_made(
    serve: Serve, body: str, code: str, param: str | None
) -> None:
    async with serve() as served:
        answer = await served.one.http.post("/v1/vector_stores", content=body)
        error = answer.json()["error"]
        assert (answer.status_code, error["type"], error["code"], error["param"]) == (
            400,
            "invalid_request",
            code,
            param,
        )
        assert error["message"]
        assert error["request_id"] == answer.headers["x-request-id"]
        assert (await served.one.http.get("/v1/vector_stores")).json()["data"] == []


async def test_a_store_that_names_an_unknown_file_is_not_made(serve: Serve) -> None:
    async with serve() as served:
        file = await served.one.upload("a.txt", "river")
        answer = await served.one.http.post("/v1/vector_stores", json={"file_ids": [file, "file-x"]})
        assert (answer.status_code, answer.json()["error"]["message"]) == (404, "no file 'file-x'")
        assert (await served.one.http.get("/v1/vector_stores")).json()["data"] == []
        assert await served.one.found("river") == []


@pytest.mark.parametrize(
    ("name", "content", "status", "code"),
    [
        ("a.png", b"\x89PNG\r\n\x1a\n", 400, "unsupported_file"),
        ("a.doc", b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", 400, "unsupported_file"),
        ("a.bin", b"a\0b", 400, "not_text"),
        ("a.txt", b" \n\t ", 400, "empty_file"),
        ("a.txt", b"x" * 101, 413, "file_too_large"),
        ("x" * 256, b"x", 400, "invalid_file_name"),
        ("a\u202egnp.txt", b"x", 400, "invalid_file_name"),
    ],
)
async def test_a_file_that_cannot_be_searched_is_refused_at_the_door(
    serve: Serve, name: str, content: bytes, status: int, code: str
) -> None:
    async with serve(max_file_bytes=100) as served:
        http = served.one.http
        answer = await http.post("/v1/files", files={"file": (name, content)}, data={"purpose": "assistants"})
        assert (answer.status_code, answer.json()["error"]["code"]) == (status, code)
        assert (await http.get("/v1/files")).json()["data"] == []


async def test_a_file_of_just_the_allowed_size_is_taken(serve: Serve) -> None:
    async with serve(max_file_bytes=100) as served:
        await served.one.upload("x" * 255, b"x" * 100)


@pytest.mark.parametrize(
    ("request_", "status", "param"),
    [
        ({"json": {"file": "x"}}, 415, None),
        ({"data": {"purpose": "assistants"}, "files": {"other": ("a.txt", b"x")}}, 400, "file"),
        ({"files": {"file": ("a.txt", b"x")}}, 400, "purpose"),
        ({"files": {"file": ("a.txt", b"x")}, "data": {"purpose": "fine-tune"}}, 400, "purpose"),
        ({"content": b"--x\r\nbroken", "headers": {"content-type": "multipart/form-data; boundary=y"}}, 400, None),
        ({"content": b"", "headers": {"content-type": "multipart/form-data"}}, 400, None),
    ],
)
async def test_a_form_that_is_none_is_refused(
    serve: Serve, request_: dict[str, Any], status: int, param: str | None
) -> None:
    async with serve() as served:
        answer = await served.one.http.post("/v1/files", **request_)
        assert (answer.status_code, answer.json()["error"]["param"]) == (status, param)


async def test_a_tenant_keeps_only_so_much(serve: Serve) -> None:
    async with serve(max_files=1, max_vector_stores=1) as served:
        await served.one.add("a.txt", "river")
        http = served.one.http
        refused = [
            await http.post("/v1/files", files={"file": ("b.txt", b"x")}, data={"purpose": "assistants"}),
            await http.post("/v1/vector_stores", json={}),
        ]
        assert [(answer.status_code, answer.json()["error"]["code"]) for answer in refused] == [
            (409, "quota_exceeded")
        ] * 2
        await served.two.add("a.txt", "river")


@pytest.mark.requirement("I2-8-tenant")
async def test_another_tenants_things_answer_like_things_that_are_not_there(serve: Serve) -> None:
    async with serve() as served:
        store, file = await served.one.add("secret.txt", "the heron flies at midnight")
        mine, _ = await served.two.add("mine.txt", "my own text")
        http = served.two.http

        async def answers(store_id: str, file_id: str) -> list[tuple[int, str]]:
            paths = [
                ("GET", f"/v1/vector_stores/{store_id}"),
                ("DELETE", f"/v1/vector_stores/{store_id}"),
                ("GET", f"/v1/vector_stores/{store_id}/files"),
                ("GET", f"/v1/vector_stores/{store_id}/files/{file_id}"),
                ("DELETE", f"/v1/vector_stores/{store_id}/files/{file_id}"),
                ("GET", f"/v1/files/{file_id}"),
                ("GET", f"/v1/files/{file_id}/content"),
                ("DELETE", f"/v1/files/{file_id}"),
            ]
            found = [await http.request(method, path) for method, path in paths]
            found += [
                await http.post(f"/v1/vector_stores/{store_id}/files", json={"file_id": file_id}),
                await http.post(f"/v1/vector_stores/{mine}/files", json={"file_id": file_id}),
                await http.post("/v1/vector_stores", json={"file_ids": [file_id]}),
            ]
            texts = [answer.text.replace(answer.headers["x-request-id"], "R") for answer in found]
            return [
                (answer.status_code, text.replace(store_id, "S").replace(file_id, "F"))
                for answer, text in zip(found, texts, strict=True)
            ]

        theirs = await answers(store, file)
        assert theirs == await answers("vs_unknown", "file-unknown")
        assert {status for status, _ in theirs} == {404}
        assert await served.two.found("heron") == []
        searches = [
            (await served.two.call("file_search", query="heron", vector_store_ids=[which])).output.replace(which, "S")
            for which in (store, "vs_unknown")
        ]
        assert searches[0] == searches[1]
        assert [item["file"] for item in await served.one.found("heron")] == ["secret.txt"]


@pytest.mark.requirement("I2-8-tenant")
async def test_a_score_says_nothing_about_another_tenants_texts(serve: Serve) -> None:
    async with serve() as served:
        await served.one.add("a.txt", "the heron flies")
        before = await served.one.found("heron")
        await served.two.add("b.txt", "heron heron heron")
        assert await served.one.found("heron") == before


async def test_two_instances_have_routes_and_data_of_their_own(tmp_path: Path) -> None:
    second = {"type": "file_search", "enabled": True, "mount": "/handbook"}
    config = tmp_path / "providers.yaml"
    config.write_text(json.dumps({"providers": {"file_search": {"enabled": True}, "handbook": second}}))
    async with open_host(config) as host:
        transport = httpx2.ASGITransport(create_app(host))
        stores: list[str] = []
        for name, mount in (("a.txt", ""), ("b.txt", "/handbook")):
            async with httpx2.AsyncClient(transport=transport, base_url=f"{BASE}{mount}") as http:
                upload = {"file": (name, b"the river")}
                file = (await http.post("/v1/files", files=upload, data={"purpose": "assistants"})).json()["id"]
                store = (await http.post("/v1/vector_stores", json={"file_ids": [file]})).json()["id"]
                while (await http.get(f"/v1/vector_stores/{store}")).json()["status"] == "in_progress":  # noqa: ASYNC110  it has no event
                    await asyncio.sleep(0.01)
                found = (await http.post(f"/v1/vector_stores/{store}/search", json={"query": "river"})).json()["data"]
                assert [item["filename"] for item in found] == [name]
                listed = (await http.get("/v1/files")).json()["data"]
                assert [item["filename"] for item in listed] == [name]
                for other in stores:
                    assert (await http.get(f"/v1/vector_stores/{other}")).status_code == 404
                stores.append(store)


async def test_without_credentials_nothing_is_shown(serve: Serve) -> None:
    async with serve() as served:
        for path in ("/v1/files", "/v1/vector_stores"):
            answer = await served.one.http.get(path, headers={"Authorization": "Bearer wrong"})
            assert answer.status_code == 401


@pytest.mark.requirement("I32-tolerance")
async def test_what_is_not_known_is_ignored_and_named(serve: Serve) -> None:
    async with serve() as served:
        body = {"name": "a", "sharing": True, "expires_after": {"anchor": "last_active_at", "days": 1, "x": 1}}
        answer = await served.one.http.post("/v1/vector_stores", json=body)
        assert (answer.status_code, answer.headers["Toolplug-Warnings"]) == (200, "sharing, expires_after.x")
        assert [each["param"] for each in answer.json()["toolplug"]["warnings"]] == ["sharing", "expires_after.x"]
        listed = await served.one.http.get("/v1/vector_stores", params={"limit": 5, "wings": 2})
        assert (listed.status_code, listed.headers["Toolplug-Warnings"]) == (200, "wings")
        assert len(listed.json()["data"]) == 1
