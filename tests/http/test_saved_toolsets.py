"""Saved toolsets and notes over HTTP: documents, what is equipped, and what a model then reads."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
import yaml
from httpx2 import AsyncClient, Response
from tests.http.conftest import ALICE, BOB, KEYS, ROOT, as_holder, client_of, settings

from toolplug import Host, open_host
from toolplug.http import create_app
from toolplug.toolsets.saved.saved_toolset import ref_id

pytestmark = pytest.mark.anyio

CAROL = as_holder("carol-key")
SAME_TENANT = {"key": "carol-key", "subject": "carol", "tenant": "t1"}
READER, CALLER = as_holder("reader-key"), as_holder("caller-key")
ECHO = {"namespacedName": "echo", "refId": ref_id("echo")}
AWAY = {"namespacedName": "away.tool", "refId": ref_id("away.tool")}
BODY = {"name": "mine", "description": "What I use.", "tools": [{"namespacedName": "echo"}]}
NOTE = {"toolRef": {"namespacedName": "echo"}, "notes": [{"name": "units", "note": "Metric\n\nonly."}]}


@pytest.fixture
async def host(sample_package: None) -> AsyncIterator[Host]:
    auth = {"api_keys": [*KEYS["api_keys"], SAME_TENANT]}
    toolsets = {"web": {"prefix": "web", "from": "provider:sample"}}
    whole = settings(auth=auth, toolsets=toolsets, agents={"researcher": {"toolsets": ["web"]}})
    async with open_host(whole, environ={}) as opened:
        yield opened


@pytest.fixture
async def client(host: Host) -> AsyncIterator[AsyncClient]:
    async with client_of(create_app(host)) as opened:
        yield opened


async def build(client: AsyncClient, headers: dict[str, str] = ALICE, query: str = "", **fields: object) -> Response:
    return await client.post(f"/api/toolsets{query}", json={**BODY, **fields}, headers=headers)


async def names(client: AsyncClient, headers: dict[str, str] = ALICE, query: str = "") -> list[str]:
    answer = await client.get(f"/v1/tools?format=mcp{query}", headers=headers)
    return [tool["name"] for tool in answer.json()["tools"]]


def code(answer: Response) -> tuple[int, str]:
    return answer.status_code, answer.json()["error"]["code"]


@pytest.mark.requirement("C-7-saved-routes", "C-7-saved-equipped", "C-7-saved-owner")
async def test_a_toolset_is_built_equipped_and_deleted_by_its_owner_alone(client: AsyncClient) -> None:
    everything = await names(client)
    built = await build(client)
    shown: dict[str, Any] = {
        "name": "mine",
        "description": "What I use.",
        "version": 1,
        "tools": [{**ECHO, "active": True}],
        "toolNotes": [],
        "equipped": False,
    }
    assert (built.status_code, built.json()) == (201, shown)
    line = {"name": "mine", "description": "What I use.", "version": 1, "toolCount": 1, "equipped": False}
    assert (await client.get("/api/toolsets", headers=ALICE)).json() == {"toolsets": [line]}
    assert code(await client.get("/api/toolsets/active", headers=ALICE)) == (404, "no_toolset_equipped")
    equipped = await client.post("/api/toolsets/mine/equip", headers=ALICE)
    assert (equipped.status_code, equipped.json()) == (200, {**shown, "equipped": True})
    for path in ("mine", "active"):
        assert (await client.get(f"/api/toolsets/{path}", headers=ALICE)).json() == {**shown, "equipped": True}
    assert await names(client) == ["echo"]
    for headers in (BOB, CAROL):
        assert await names(client, headers) == everything
        assert code(await client.post("/api/toolsets/mine/equip", headers=headers)) == (404, "toolset_not_found")
        assert (await client.get("/api/toolsets", headers=headers)).json() == {"toolsets": []}
    call = {"name": "whoami", "arguments": {"text": "hi"}}
    assert (await client.post("/v1/tool-calls", json=call, headers=ALICE)).json()["status"] == "unknown_tool"
    unequipped = await client.post("/api/toolsets/unequip", headers=ALICE)
    assert (unequipped.json(), await names(client)) == ({"unequipped": "mine"}, everything)
    assert (await client.post("/api/toolsets/unequip", headers=ALICE)).json() == {"unequipped": None}
    assert (await client.delete("/api/toolsets/mine", headers=ALICE)).status_code == 204
    assert code(await client.delete("/api/toolsets/mine", headers=ALICE)) == (404, "toolset_not_found")


@pytest.mark.requirement("C-7-saved-used-name", "C-7-saved-document", "C-7-saved-disagree")
async def test_what_cannot_be_a_toolset_is_refused_and_changes_nothing(client: AsyncClient) -> None:
    await build(client)
    assert code(await build(client)) == (409, "toolset_exists")
    refused = {
        (409, "tool_not_found"): {"name": "new", "tools": [{"namespacedName": "nothing"}]},
        (422, "tool_reference_mismatch"): {"name": "new", "tools": [{**ECHO, "refId": ref_id("whoami")}]},
        (422, "duplicate_tool"): {"name": "new", "tools": [ECHO, {"refId": ECHO["refId"]}]},
        (422, "invalid_name"): {"name": "active"},
        (400, "invalid_request"): {"name": "Mine"},
    }
    for expected, fields in refused.items():
        assert code(await build(client, **fields)) == expected
    for fields in ({"tools": []}, {"tools": [{}]}, {"name": "a"}, {"extra": 1}):
        assert code(await build(client, **fields)) == (400, "invalid_request")
    listed = (await client.get("/api/toolsets", headers=ALICE)).json()
    assert [line["name"] for line in listed["toolsets"]] == ["mine"]


@pytest.mark.requirement("C-7-saved-routes", "C-7-saved-away", "ANN-store-in-toolset", "ANN-AC-7")
async def test_a_document_goes_out_and_comes_back_in_json_and_yaml(client: AsyncClient) -> None:
    document = {
        "name": "mine",
        "description": "Zwei: 2",
        "version": 7,
        "tools": [ECHO, AWAY],
        "toolNotes": [{"toolRef": AWAY, "notes": [{"name": "units", "note": "Métric, e.g. • 5"}]}],
    }
    came = await client.post("/api/toolsets/import", json=document, headers=ALICE)
    assert (came.status_code, came.json()["tools"]) == (201, [{**ECHO, "active": True}, {**AWAY, "active": False}])
    assert came.json()["toolNotes"][0]["orphan"] is True
    assert code(await client.post("/api/toolsets/import", json=document, headers=ALICE)) == (409, "toolset_exists")
    out = await client.get("/api/toolsets/mine/export", headers=ALICE)
    assert (out.headers["content-type"], out.json()) == ("application/json", document)
    text = await client.get("/api/toolsets/mine/export?format=yaml", headers=ALICE)
    assert (text.headers["content-type"], yaml.safe_load(text.text)) == ("application/yaml", document)
    assert text.text.startswith("name: mine\ndescription: 'Zwei: 2'\nversion: 7\ntools:\n- namespacedName: echo\n")
    back = await client.post(
        "/api/toolsets/import", content=text.content, headers={**BOB, "Content-Type": "application/yaml"}
    )
    assert (back.status_code, back.json()) == (201, came.json())
    assert code(await client.get("/api/toolsets/mine/export?format=toml", headers=ALICE)) == (400, "invalid_request")


@pytest.mark.requirement("C-7-saved-routes")
@pytest.mark.parametrize(
    "text",
    [
        "name: bomb\nname: again\ntools: [{namespacedName: echo}]",
        "name: ok-1\ntools: [{namespacedName: echo, refId: !!python/object:os.system {}}]",
        "- name: list",
        "name: 12\ntools: [{namespacedName: echo}]",
        "name: ok-1\ntools: [{namespacedName: echo}]\ntoolNotes: [{toolRef: {namespacedName: echo}, notes: []}]",
        "\t",
    ],
)
async def test_a_yaml_document_is_read_within_the_limits_of_configuration(client: AsyncClient, text: str) -> None:
    headers = {**ALICE, "Content-Type": "text/yaml; charset=utf-8"}
    answer = await client.post("/api/toolsets/import", content=text, headers=headers)
    assert code(answer) == (400, "invalid_request")


@pytest.mark.requirement("C-7-saved-routes")
@pytest.mark.parametrize(
    ("notes", "refusal"),
    [
        ([{"toolRef": {"namespacedName": "whoami"}, "notes": [{"name": "ab", "note": "x"}]}], "tool_not_in_toolset"),
        ([{"toolRef": ECHO, "notes": [{"name": "ab", "note": "x"}] * 2}], "duplicate_note"),
        ([{"toolRef": ECHO, "notes": [{"name": "ab", "note": "x"}]}] * 2, "duplicate_tool"),
        ([{"toolRef": ECHO, "notes": [{"name": f"n-{i}", "note": "x" * 2000} for i in range(5)]}], "too_many_notes"),
    ],
)
async def test_notes_of_a_document_are_checked_as_those_that_are_added(
    client: AsyncClient, notes: list[object], refusal: str
) -> None:
    document = {"name": "mine", "tools": [ECHO], "toolNotes": notes}
    assert code(await client.post("/api/toolsets/import", json=document, headers=ALICE)) == (422, refusal)
    assert (await client.get("/api/toolsets", headers=ALICE)).json() == {"toolsets": []}


@pytest.mark.requirement("C-7-notes-answer", "ANN-AC-3", "ANN-AC-5", "ANN-AC-6", "ANN-lookup-either", "C-7-notes-text")
async def test_notes_are_added_replaced_and_removed_and_the_model_reads_them(client: AsyncClient) -> None:
    await build(client)
    await client.post("/api/toolsets/mine/equip", headers=ALICE)
    plain = await description(client)
    by_id = {**NOTE, "toolRef": {"refId": ECHO["refId"]}}
    added = await client.post("/api/toolsets/mine/notes", json=by_id, headers=ALICE)
    answer = {"toolset": "mine", "tool": "echo", "addedNotes": ["units"], "skippedNotes": [], "warnings": []}
    assert (added.status_code, added.json()) == (200, answer)
    noted = f"{plain}\n\n### Additional Tool Notes\n\n• **units**: Metric only."
    assert [await description(client) for _ in range(2)] == [noted, noted]
    skipped = (await client.post("/api/toolsets/mine/notes", json=NOTE, headers=ALICE)).json()
    assert (skipped["addedNotes"], skipped["skippedNotes"], len(skipped["warnings"])) == ([], ["units"], 1)
    replacing = {**NOTE, "notes": [{"name": "units", "note": "Imperial."}], "ifExists": "replace"}
    replaced = (await client.post("/api/toolsets/mine/notes", json=replacing, headers=ALICE)).json()
    assert (replaced["addedNotes"], replaced["skippedNotes"]) == (["units"], [])
    assert (await description(client)).endswith("• **units**: Imperial.")
    assert await description(client, BOB) == plain
    removing = {"toolRef": ECHO, "names": ["units"]}
    removed = await client.request("DELETE", "/api/toolsets/mine/notes", json=removing, headers=ALICE)
    assert (removed.status_code, removed.json()) == (
        200,
        {"toolset": "mine", "tool": "echo", "removedNotes": ["units"]},
    )
    assert await description(client) == plain
    again = await client.request("DELETE", "/api/toolsets/mine/notes", json=removing, headers=ALICE)
    assert code(again) == (404, "note_not_found")


@pytest.mark.requirement("ANN-store-own-toolset", "C-7-notes-errors", "C-7-notes-limits", "ANN-error-not-in-toolset")
async def test_notes_are_those_of_one_tool_in_one_toolset_and_limited(client: AsyncClient) -> None:
    for name in ("mine", "other"):
        await build(client, name=name)
    await client.post("/api/toolsets/mine/notes", json=NOTE, headers=ALICE)
    await client.post("/api/toolsets/other/equip", headers=ALICE)
    assert "Additional Tool Notes" not in await description(client)
    many = {**NOTE, "notes": [{"name": f"note-{number}", "note": "x"} for number in range(20)]}
    refused = {
        (404, "toolset_not_found"): ("nothing", NOTE),
        (409, "tool_not_found"): ("mine", {**NOTE, "toolRef": {"namespacedName": "nothing"}}),
        (422, "tool_not_in_toolset"): ("mine", {**NOTE, "toolRef": {"namespacedName": "whoami"}}),
        (422, "too_many_notes"): ("mine", many),
        (400, "invalid_request"): ("mine", {**NOTE, "notes": [{"name": "No Name", "note": "x"}]}),
    }
    for expected, (name, body) in refused.items():
        assert code(await client.post(f"/api/toolsets/{name}/notes", json=body, headers=ALICE)) == expected
    document = (await client.get("/api/toolsets/mine/export", headers=ALICE)).json()
    assert (document["version"], [len(item["notes"]) for item in document["toolNotes"]]) == (2, [1])


@pytest.mark.requirement("C-5-scope-saved")
async def test_reading_needs_tools_read_and_writing_tools_call(client: AsyncClient) -> None:
    assert (await client.get("/api/toolsets")).status_code == 401
    assert (await client.get("/api/toolsets", headers=READER)).status_code == 200
    assert code(await client.get("/api/toolsets", headers=CALLER)) == (403, "insufficient_scope")
    assert code(await build(client, READER)) == (403, "insufficient_scope")
    assert (await build(client, CALLER)).status_code == 201
    for method, path in (
        ("DELETE", "mine"),
        ("POST", "mine/equip"),
        ("POST", "unequip"),
        ("POST", "import"),
        ("POST", "mine/notes"),
        ("DELETE", "mine/notes"),
    ):
        assert code(await client.request(method, f"/api/toolsets/{path}", headers=READER)) == (
            403,
            "insufficient_scope",
        )


@pytest.mark.requirement("C-7-saved-owner", "C-7-saved-equipped")
async def test_agents_and_sessions_choose_among_their_own_tools(client: AsyncClient) -> None:
    session = (await client.post("/api/sessions", json={}, headers=ALICE)).json()["code"]
    assert code(await build(client, query="?agent=researcher")) == (409, "tool_not_found")
    wire = [{"namespacedName": "web__echo"}]
    built = await build(client, query="?agent=researcher", tools=wire, name="of-agent")
    assert built.json()["tools"][0]["namespacedName"] == "web.echo"
    inside = f"?session={session}"
    assert (await build(client, query=inside, name="inside")).status_code == 201
    assert (await client.post(f"/api/toolsets/inside/equip{inside}", headers=ALICE)).status_code == 200
    assert await names(client, query=f"&session={session}") == ["echo"]
    assert len(await names(client)) > 1
    for query, expected in (
        ("?session=nocode", (400, "invalid_session_code")),
        ("?session=ABCDEFGH", (404, "session_not_found")),
        ("?agent=a&agent=b", (400, "invalid_request")),
    ):
        assert code(await client.get(f"/api/toolsets{query}", headers=ALICE)) == expected
    assert code(await client.get(f"/api/toolsets{inside}", headers=ROOT)) == (404, "session_not_found")


async def description(client: AsyncClient, headers: dict[str, str] = ALICE) -> str:
    tools = json.loads((await client.get("/v1/tools", headers=headers)).content)["tools"]
    return next(tool["function"]["description"] for tool in tools if tool["function"]["name"] == "echo")
