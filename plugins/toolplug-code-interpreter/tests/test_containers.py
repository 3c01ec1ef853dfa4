"""Containers over HTTP: made, listed, deleted, with files in and out, ended in time, and each tenant's own."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

pytestmark = [pytest.mark.anyio, pytest.mark.process, pytest.mark.needs("bwrap")]


async def code_of(answer: Any) -> tuple[int, str, str | None]:
    error = answer.json()["error"]
    return answer.status_code, error["code"], error["param"]


@pytest.mark.requirement("I3-code-containers")
async def test_a_container_is_made_shown_listed_and_deleted(small: Any) -> None:
    http = small.one.http
    body = {"name": "box", "expires_after": {"anchor": "last_active_at", "minutes": 5}}
    made = (await http.post("/v1/containers", json=body)).json()
    assert {name: made[name] for name in ("object", "name", "status", "expires_after", "network_policy")} == {
        "object": "container",
        "name": "box",
        "status": "running",
        "expires_after": {"anchor": "last_active_at", "minutes": 5},
        "network_policy": {"type": "disabled"},
    }
    assert (await http.get(f"/v1/containers/{made['id']}")).json() == made
    other = await small.one.container("other")
    listed = (await http.get("/v1/containers")).json()
    assert ([each["id"] for each in listed["data"]], listed["has_more"]) == ([other, made["id"]], False)
    assert [each["name"] for each in (await http.get("/v1/containers?name=box")).json()["data"]] == ["box"]
    page = (await http.get("/v1/containers?order=asc&limit=1")).json()
    assert ([each["id"] for each in page["data"]], page["has_more"]) == ([made["id"]], True)
    rest = (await http.get(f"/v1/containers?order=asc&after={page['last_id']}")).json()
    assert [each["id"] for each in rest["data"]] == [other]
    assert small.metric("code_interpreter_containers") == 2
    deleted = await http.delete(f"/v1/containers/{other}")
    assert deleted.json() == {"id": other, "object": "container.deleted", "deleted": True}
    assert await code_of(await http.get(f"/v1/containers/{other}")) == (404, "container_not_found", None)
    assert (await small.one.call("1", other)).status == "tool_error"
    assert small.metric("code_interpreter_containers") == 1


@pytest.mark.requirement("I3-code-containers")
async def test_a_body_is_counted_before_it_is_read(small: Any) -> None:
    unknown = {f"k{number}": 1 for number in range(7_000)}
    answer = await small.one.http.post("/v1/containers", json={"name": "box", **unknown})
    assert await code_of(answer) == (413, "request_too_large", None)
    answer = await small.one.http.post("/v1/containers", json={"name": "box", **dict(list(unknown.items())[:4_000])})
    assert (answer.status_code, answer.headers["Toolplug-Warnings"].split(", ")[-1]) == (200, "3990-more")
    assert answer.json()["toolplug"]["warnings"][-1]["message"] == "and 3,990 more"
    await small.one.http.delete(f"/v1/containers/{answer.json()['id']}")


@pytest.mark.requirement("I3-code-containers")
async def test_files_go_in_are_changed_and_come_out(small: Any) -> None:
    box = await small.one.container()
    file = await small.one.upload(box, "in put.bin", bytes(range(256)) * 8192)
    assert {name: file[name] for name in ("object", "container_id", "bytes", "path", "source")} == {
        "object": "container.file",
        "container_id": box,
        "bytes": 2_097_152,
        "path": "/mnt/data/in put.bin",
        "source": "user",
    }
    assert await small.one.content(box, file["id"]) == bytes(range(256)) * 8192
    code = "import os\nos.makedirs('a/b')\nopen('a/b/out.txt', 'w').write(str(os.path.getsize('in put.bin')))\nNone"
    assert await small.one.run(code, box) == 'files: "a/b/out.txt"'
    out = (await small.one.files(box))["a/b/out.txt"]
    assert (out["source"], await small.one.content(box, out["id"])) == ("assistant", b"2097152")
    await small.one.run("open('a/b/out.txt', 'w').write('again')", box)
    assert await small.one.content(box, out["id"]) == b"again"
    assert (await small.one.http.get(f"/v1/containers/{box}/files/{out['id']}")).json()["bytes"] == 5
    deleted = await small.one.http.delete(f"/v1/containers/{box}/files/{out['id']}")
    assert deleted.json() == {"id": out["id"], "object": "container.file.deleted", "deleted": True}
    assert list(await small.one.files(box)) == ["in put.bin"]
    assert await small.one.run("os.path.exists('a/b/out.txt')", box) == "False"


async def test_content_is_sent_as_a_download(small: Any) -> None:
    box = await small.one.container()
    file = await small.one.upload(box, "page.html", b"<script>alert(1)</script>")
    answer = await small.one.http.get(f"/v1/containers/{box}/files/{file['id']}/content")
    headers = [answer.headers[name] for name in ("content-type", "content-disposition", "x-content-type-options")]
    assert headers == ["application/octet-stream", "attachment", "nosniff"]


@pytest.mark.requirement("I3-code-containers")
async def test_a_container_of_another_tenant_is_one_that_does_not_exist(small: Any) -> None:
    box = await small.one.container()
    file = await small.one.upload(box, "a", b"x")
    theirs, nowhere = small.two.http, "cntr_" + "0" * 32
    for method, path in (
        ("GET", ""),
        ("DELETE", ""),
        ("GET", "/files"),
        ("POST", "/files"),
        ("GET", f"/files/{file['id']}"),
        ("GET", f"/files/{file['id']}/content"),
        ("DELETE", f"/files/{file['id']}"),
    ):
        answers = [await theirs.request(method, f"/v1/containers/{each}{path}") for each in (box, nowhere)]
        texts = [answer.json()["error"]["message"] for answer in answers]
        assert [answer.status_code for answer in answers] == [404, 404]
        assert texts[0].replace(box, nowhere) == texts[1]
    assert (await theirs.get("/v1/containers")).json()["data"] == []
    result = await small.two.call("1", box)
    assert (result.status, result.output.startswith(f"no container '{box}'")) == ("tool_error", True)
    assert await small.one.content(box, file["id"]) == b"x"


@pytest.mark.requirement("I3-code-containers")
async def test_a_container_ends_after_its_time_without_a_call(serve: Any) -> None:
    async with serve(idle=0.5) as served:
        box = await served.one.container()
        for _ in range(3):
            await asyncio.sleep(0.3)
            assert await served.one.run("1", box) == "1"
        async with asyncio.timeout(10):
            while (await served.one.http.get(f"/v1/containers/{box}")).status_code == 200:  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        assert (await served.one.call("1", box)).output.startswith(f"no container '{box}'")
        assert served.metric("code_interpreter_containers") == 0


async def test_automatic_containers_make_room_and_created_ones_do_not(serve: Any) -> None:
    async with serve(max_containers=3, max_containers_per_tenant=2) as served:
        for _ in range(3):
            assert await served.one.run("1 + 1") == "2"
        assert served.metric("code_interpreter_containers") == 2
        boxes = [await served.one.container() for _ in range(2)]
        answer = await served.one.http.post("/v1/containers", json={"name": "third"})
        assert (await code_of(answer), answer.headers["retry-after"]) == ((429, "too_many_containers", None), "5")
        result = await served.one.call("1")
        assert (result.status, result.retry_after_s) == ("tool_error", 5.0)
        assert await served.two.run("1 + 1") == "2"
        await served.one.http.delete(f"/v1/containers/{boxes[0]}")
        assert await served.one.run("1 + 1") == "2"


async def test_containers_that_are_made_at_once_make_room_for_each(serve: Any) -> None:
    async with serve(max_containers_per_tenant=2) as served:
        for _ in range(2):
            await served.one.run("1")
        await asyncio.gather(*(served.one.container(f"box {number}") for number in range(2)))
        assert served.metric("code_interpreter_containers") == 2


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ({}, (400, "missing_parameter", "name")),
        ({"name": "a", "file_ids": ["file_1"]}, (400, "unknown_parameter", "file_ids")),
        ({"name": "a", "network_policy": {"type": "allowlist"}}, (400, "invalid_value", "network_policy.type")),
        (
            {"name": "a", "expires_after": {"anchor": "last_active_at", "minutes": 21}},
            (400, "invalid_value", "expires_after.minutes"),
        ),
    ],
)
async def test_what_is_not_supported_is_refused_by_name(small: Any, body: object, expected: object) -> None:
    assert await code_of(await small.one.http.post("/v1/containers", json=body)) == expected


@pytest.mark.requirement("I32-tolerance")
async def test_what_is_not_known_is_ignored_and_named(small: Any) -> None:
    body = {
        "name": "a",
        "memory_limit": "4g",
        "file_ids": [],
        "expires_after": {"anchor": "last_active_at", "minutes": 1, "x": 1},
    }
    answer = await small.one.http.post("/v1/containers", json=body)
    assert (answer.status_code, answer.headers["Toolplug-Warnings"]) == (200, "memory_limit, expires_after.x")
    assert [each["param"] for each in answer.json()["toolplug"]["warnings"]] == ["memory_limit", "expires_after.x"]
    listed = await small.one.http.get("/v1/containers", params={"limit": "5", "wings": "2"})
    assert (listed.status_code, listed.headers["Toolplug-Warnings"]) == (200, "wings")
    assert [each["id"] for each in listed.json()["data"]] == [answer.json()["id"]]
    await small.one.http.delete(f"/v1/containers/{answer.json()['id']}")


async def test_an_upload_that_cannot_be_kept_is_refused(small: Any) -> None:
    box = await small.one.container()
    path = f"/v1/containers/{box}/files"
    for name in ("", "..", "a/b", "x" * 256):
        answer = await small.one.http.post(path, files={"file": (name, b"x")})
        assert answer.status_code == 400, name
    assert await code_of(await small.one.http.post(path, json={"file_id": "f"})) == (
        415,
        "unsupported_media_type",
        None,
    )
    assert await code_of(await small.one.http.post(path, files={"file": ("big", bytes(17 << 20))})) == (
        409,
        "container_full",
        None,
    )
    assert await code_of(await small.one.http.get(f"{path}/cfile_0")) == (404, "file_not_found", None)
    assert await small.one.run("1 + 1", box) == "2"


async def test_options_that_name_nothing_known_are_refused(small: Any) -> None:
    body = {"name": "code_interpreter", "arguments": {"code": "1"}, "options": {"container": {"type": "big"}}}
    answer = await small.one.http.post("/v1/tool-calls", json=body)
    assert answer.status_code == 400
    body["options"] = {"container": "cntr_0"}
    assert (await small.one.http.post("/v1/tool-calls", json=body)).json()["status"] == "tool_error"
    body["options"] = {"container": {"type": "auto"}}
    assert (await small.one.http.post("/v1/tool-calls", json=body)).json()["output"] == "1"
