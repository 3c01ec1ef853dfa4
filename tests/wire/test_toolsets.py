"""Saved toolsets and their notes: saved, equipped and changed at one process, and so at every other."""

from __future__ import annotations

import asyncio
from hashlib import sha256
from typing import Any

import httpx2
import pytest
from tests.wire.answers import ROUNDS, call, error_of, everywhere, status_of
from tests.wire.callers import Caller

pytestmark = [pytest.mark.wire, pytest.mark.anyio, pytest.mark.requirement("I17-6-wire")]

HELLO, PLUS = {"namespacedName": "hello"}, {"namespacedName": "plus"}
REFUSED: dict[str, tuple[dict[str, Any], int]] = {
    "a used name": ({"name": "mine", "tools": [HELLO]}, 409),
    "a short name": ({"name": "a", "tools": [HELLO]}, 400),
    "a name in capitals": ({"name": "Mine", "tools": [HELLO]}, 400),
    "no tools": ({"name": "new", "tools": []}, 400),
    "too many tools": ({"name": "new", "tools": [HELLO] * 101}, 422),
    "an unknown tool": ({"name": "new", "tools": [{"namespacedName": "nothing"}]}, 409),
    "no reference": ({"name": "new", "tools": [{}]}, 400),
    "references that disagree": ({"name": "new", "tools": [{**HELLO, "refId": "0" * 16}]}, 422),
    "a tool twice": ({"name": "new", "tools": [HELLO, HELLO]}, 422),
    "an unknown field": ({"name": "new", "tools": [HELLO], "x": 1}, 400),
}


async def build(client: httpx2.AsyncClient, name: str = "mine", *tools: dict[str, str]) -> None:
    """Save a toolset."""
    answer = await client.post("/api/toolsets", json={"name": name, "tools": tools or (HELLO, PLUS)})
    assert answer.status_code == 201, answer.text


async def offered(client: httpx2.AsyncClient) -> list[str]:
    """The tools that do not belong to toolsets."""
    tools = (await client.get("/v1/tools?format=mcp")).json()["tools"]
    return [each["name"] for each in tools if each["name"] in ("hello", "echo", "plus")]


async def description(client: httpx2.AsyncClient, name: str = "hello") -> str:
    """What a model is told of a tool."""
    tools = (await client.get("/v1/tools?format=mcp")).json()["tools"]
    return next(each["description"] for each in tools if each["name"] == name)


async def test_a_toolset_is_shown_everywhere(
    client: httpx2.AsyncClient, stranger: httpx2.AsyncClient, caller: Caller, tenant: str
) -> None:
    await build(client)
    bob = await caller(tenant, subject="bob")
    for _ in range(ROUNDS):
        shown = (await client.get("/api/toolsets/mine")).json()
        assert [each["namespacedName"] for each in shown["tools"]] == ["hello", "plus"]
        assert shown["tools"][0]["refId"] == sha256(b"hello").hexdigest()[:16]
        assert [each["name"] for each in (await client.get("/api/toolsets")).json()["toolsets"]] == ["mine"]
    for other in (stranger, bob):
        assert (await other.get("/api/toolsets")).json() == {"toolsets": []}
        assert error_of(await other.get("/api/toolsets/mine")) == (404, "toolset_not_found")


@pytest.mark.parametrize("case", REFUSED.values(), ids=REFUSED.keys())
async def test_a_wrong_toolset_is_refused(client: httpx2.AsyncClient, case: tuple[dict[str, Any], int]) -> None:
    await build(client)
    body, status = case
    assert (await client.post("/api/toolsets", json=body)).status_code == status
    assert [each["name"] for each in (await client.get("/api/toolsets")).json()["toolsets"]] == ["mine"]


async def test_of_toolsets_of_one_name_one_is_saved(client: httpx2.AsyncClient) -> None:
    bodies = [{"name": "mine", "tools": [HELLO], "description": str(number)} for number in range(6)]
    answers = await asyncio.gather(*(client.post("/api/toolsets", json=body) for body in bodies))
    assert sorted(answer.status_code for answer in answers) == [201] + [409] * 5
    (saved,) = [answer.json() for answer in answers if answer.status_code == 201]
    for _ in range(3):
        assert (await client.get("/api/toolsets/mine")).json()["description"] == saved["description"]


async def test_an_equipped_toolset_is_all_that_its_owner_has(
    client: httpx2.AsyncClient, caller: Caller, tenant: str
) -> None:
    bob = await caller(tenant, subject="bob")
    await build(client, "first", PLUS, HELLO)
    await build(client, "second", {"namespacedName": "echo"})
    for name, tools in (("first", ["plus", "hello"]), ("second", ["echo"])) * 2:
        assert (await client.post(f"/api/toolsets/{name}/equip")).status_code == 200
        await everywhere(lambda: offered(client), tools)
        for _ in range(ROUNDS):
            assert (await client.get("/api/toolsets/active")).json()["name"] == name
            assert await status_of(client, "hello") == ("success" if "hello" in tools else "unknown_tool")
        assert await offered(bob) == ["hello", "echo", "plus"]
    assert (await client.post("/api/toolsets/unequip")).json() == {"unequipped": "second"}
    await everywhere(lambda: offered(client), ["hello", "echo", "plus"])
    for _ in range(ROUNDS):
        assert error_of(await client.get("/api/toolsets/active")) == (404, "no_toolset_equipped")


async def test_a_deleted_toolset_is_gone_everywhere(client: httpx2.AsyncClient) -> None:
    await build(client)
    await client.post("/api/toolsets/mine/equip")
    await everywhere(lambda: offered(client), ["hello", "plus"])
    assert (await client.delete("/api/toolsets/mine")).status_code == 204
    for _ in range(ROUNDS):
        assert error_of(await client.get("/api/toolsets/mine")) == (404, "toolset_not_found")
        assert error_of(await client.post("/api/toolsets/mine/equip")) == (404, "toolset_not_found")
    await everywhere(lambda: offered(client), ["hello", "echo", "plus"])


@pytest.mark.parametrize("form", ["json", "yaml"])
async def test_a_document_goes_out_and_comes_back(
    client: httpx2.AsyncClient, stranger: httpx2.AsyncClient, form: str
) -> None:
    await build(client)
    for _ in range(3):
        out = await client.get(f"/api/toolsets/mine/export?format={form}")
        assert out.headers["content-type"] == f"application/{form}"
    headers = {"Content-Type": f"application/{form}"}
    back = await stranger.post("/api/toolsets/import", content=out.content, headers=headers)
    assert back.status_code == 201
    for _ in range(3):
        again = await stranger.get(f"/api/toolsets/mine/export?format={form}")
        assert again.content == out.content


async def test_notes_are_read_by_the_model(client: httpx2.AsyncClient, stranger: httpx2.AsyncClient) -> None:
    await build(client)
    await client.post("/api/toolsets/mine/equip")
    await everywhere(lambda: offered(client), ["hello", "plus"])
    plain = await description(client)
    for number in range(4):
        notes = {"toolRef": HELLO, "notes": [{"name": f"n{number}-x", "note": f"Note\n{number}."}]}
        answer = await client.post("/api/toolsets/mine/notes", json=notes)
        assert (answer.status_code, answer.json()["addedNotes"]) == (200, [f"n{number}-x"])
        lines = "\n".join(f"• **n{line}-x**: Note {line}." for line in range(number + 1))
        noted = f"{plain}\n\n### Additional Tool Notes\n\n{lines}"
        await everywhere(lambda: description(client), noted)
    assert await description(stranger) == plain
    removed = {"toolRef": HELLO, "names": ["n0-x", "n1-x", "n2-x", "n3-x"]}
    assert (await client.request("DELETE", "/api/toolsets/mine/notes", json=removed)).status_code == 200
    await everywhere(lambda: description(client), plain)


async def test_a_note_that_is_there_is_skipped_or_replaced(client: httpx2.AsyncClient) -> None:
    await build(client)
    note = {"toolRef": HELLO, "notes": [{"name": "units", "note": "One."}]}
    await client.post("/api/toolsets/mine/notes", json=note)
    other = {"toolRef": HELLO, "notes": [{"name": "units", "note": "Two."}]}
    skipped = (await client.post("/api/toolsets/mine/notes", json=other)).json()
    assert (skipped["addedNotes"], skipped["skippedNotes"], len(skipped["warnings"])) == ([], ["units"], 1)
    await client.post("/api/toolsets/mine/notes", json={**other, "ifExists": "replace"})
    for _ in range(3):
        (shown,) = (await client.get("/api/toolsets/mine")).json()["toolNotes"]
        assert [(each["name"], each["note"]) for each in shown["notes"]] == [("units", "Two.")]


async def test_the_tools_do_as_the_routes(client: httpx2.AsyncClient) -> None:
    none = await call(client, "add-tool-annotation", toolRef=HELLO, notes=[{"name": "units", "note": "One."}])
    assert (none["status"], none["metadata"]["code"]) == ("tool_error", "no_toolset_equipped")
    assert (await call(client, "get-active-toolset"))["status"] in ("success", "tool_error")
    body = {"name": "build-toolset", "arguments": {"name": "mine", "tools": [HELLO]}}
    assert (await client.post("/v1/tool-calls", json=body)).json()["status"] == "success"
    for _ in range(3):
        assert "mine" in (await call(client, "list-saved-toolsets"))["output"]
    body = {"name": "equip-toolset", "arguments": {"name": "mine"}}
    assert (await client.post("/v1/tool-calls", json=body)).json()["status"] == "success"
    await everywhere(lambda: offered(client), ["hello"])
    for _ in range(3):
        assert "mine" in (await call(client, "get-active-toolset"))["output"]
    note = await call(client, "add-tool-annotation", toolRef=HELLO, notes=[{"name": "units", "note": "One."}])
    assert note["structured"]["addedNotes"] == ["units"]
    plain = (await description(client)).partition("\n")[0]
    await everywhere(lambda: description(client), f"{plain}\n\n### Additional Tool Notes\n\n• **units**: One.")
    foreign = await call(client, "add-tool-annotation", toolRef=PLUS, notes=[{"name": "units", "note": "One."}])
    assert foreign["metadata"]["code"] == "tool_not_in_toolset"
    wrong = await call(client, "add-tool-annotation", toolRef=HELLO, notes=[{"name": "Bad Name", "note": "x"}])
    assert wrong["status"] == "invalid_arguments"
    assert (await call(client, "unequip-toolset"))["status"] == "success"
    await everywhere(lambda: offered(client), ["hello", "echo", "plus"])
