"""Agents and their toolsets, bindings of a tenant, and the toolsets that callers save."""

from __future__ import annotations

import pytest
from tests.golden.conftest import DESK, KEYS, Opened

pytestmark = pytest.mark.anyio

AGENTS = """
toolsets:
  office: {prefix: office, from: provider:desk}
  second: {prefix: second, from: provider:desk}
agents:
  researcher: {toolsets: [office]}
  writer: {toolsets: []}
"""
CALLS = "/v1/tool-calls"
SAVED = "/api/toolsets"
WEB = "/api/toolset-bindings/web"


async def test_agents_and_bindings(opened: Opened) -> None:
    async with opened("agents", KEYS + DESK + AGENTS) as wire:
        wire.title("Allowlists")
        writer = "/api/agents/writer/toolsets"
        for path in (
            "/api/agents/researcher/toolsets",
            writer,
            "/api/agents/nobody/toolsets",
            "/api/agents/A%20b/toolsets",
        ):
            await wire.get(path, "root-key")
        await wire.get(writer, "reader-key")
        await wire.get(writer, "caller-key")
        await wire.get(writer)
        for toolsets in (["second", "office"], ["none"], ["office", "office"], "office", [1], ["x"] * 257):
            await wire.ask("PUT", writer, "root-key", body={"toolsets": toolsets})
        await wire.ask("PUT", writer, "root-key", body={})
        await wire.ask("PUT", "/api/agents/A%20b/toolsets", "root-key", body={"toolsets": []})
        await wire.get(writer, "root-key")
        await wire.ask("PUT", writer, "root-key", body={"toolsets": []})
        await wire.ask("DELETE", writer, "root-key")
        wire.title("Calls of agents")
        for name in ("office.echo", "office__echo", "echo", "second.echo", "office.nope"):
            body = {"id": "c1", "name": name, "arguments": {"text": "x"}, "agent": "researcher"}
            await wire.post(CALLS, "alice-key", body)
        await wire.post(CALLS, "one-agent-key", {"id": "c1", "name": "office.whoami"})
        await wire.post(CALLS, "two-agents-key", {"id": "c1", "name": "office.whoami"})
        await wire.post(CALLS, "two-agents-key", {"id": "c1", "name": "office.whoami", "agent": "other"})
        await wire.post(CALLS, "two-agents-key", {"id": "c1", "name": "office.whoami", "agent": "writer"})
        some = {"id": "c1", "name": "office.whoami", "agent": "researcher", "toolsets": ["second"]}
        await wire.post(CALLS, "alice-key", some)
        wire.title("Bindings")
        await wire.ask("PUT", WEB, "root-key", body={"prefix": "web", "from": "provider:desk"})
        await wire.ask("PUT", WEB, "root-key", body={"prefix": "net", "from": "provider:desk", "scope": "shared"})
        for body in (
            {},
            {"prefix": "web"},
            {"prefix": "We.b", "from": "provider:desk"},
            {"prefix": "", "from": "provider:desk"},
            {"prefix": "office", "from": "provider:desk"},
            {"prefix": "web", "from": "provider:none"},
            {"prefix": "web", "from": "mcp:none"},
            {"prefix": "web", "from": "desk"},
            {"prefix": "web", "from": "provider:desk", "scope": "session"},
            {"prefix": "web", "from": "provider:desk", "scope": "world"},
            {"prefix": "web", "from": "provider:desk", "more": 1},
        ):
            await wire.ask("PUT", WEB, "root-key", body=body)
        await wire.ask("PUT", "/api/toolset-bindings/office", "root-key", body={"prefix": "x", "from": "provider:desk"})
        await wire.ask("PUT", "/api/toolset-bindings/A%20b", "root-key", body={"prefix": "x", "from": "provider:desk"})
        await wire.ask("PUT", writer, "root-key", body={"toolsets": ["web"]})
        await wire.post(CALLS, "root-key", {"id": "c1", "name": "net.whoami", "agent": "writer"})
        await wire.ask("DELETE", WEB, "root-key")
        await wire.get(WEB, "root-key")


async def test_saved_toolsets(opened: Opened) -> None:
    echo, whoami = {"namespacedName": "echo"}, {"namespacedName": "whoami"}
    async with opened("saved_toolsets", KEYS + DESK + AGENTS) as wire:
        wire.title("Build")
        await wire.get(SAVED, "alice-key")
        body = {"name": "mine", "description": "What I use.", "tools": [echo, whoami]}
        built = await wire.post(SAVED, "alice-key", body)
        reference = built.json()["tools"][1]["refId"]
        await wire.post(SAVED, "alice-key", body)
        await wire.post(SAVED, "alice-key", {"name": "other", "tools": [{"refId": reference}, echo, echo]})
        for body in (
            {},
            {"name": "Not Good", "tools": [echo]},
            {"name": "none", "tools": []},
            {"name": "none", "tools": [{}]},
            {"name": "none", "tools": [{"namespacedName": "nope"}]},
            {"name": "none", "tools": [{"refId": "0" * 16}]},
            {"name": "none", "tools": [{"namespacedName": "echo", "refId": reference}]},
            {"name": "none", "tools": ["echo"]},
            {"name": "none", "tools": [echo], "description": "x" * 1001},
        ):
            await wire.post(SAVED, "alice-key", body)
        for path, by in (("/mine", "alice-key"), ("", "alice-key"), ("/mine", "bob-key"), ("/mine", "reader-key")):
            await wire.get(f"{SAVED}{path}", by)
        await wire.get(f"{SAVED}/mine?agent=researcher", "alice-key")
        await wire.get(f"{SAVED}/mine?session=ABCDEFGH", "alice-key")
        await wire.get(f"{SAVED}/Not%20Good", "alice-key")
        wire.title("Notes")
        notes = [{"name": "short", "note": "Keep it short."}, {"name": "polite", "note": "Be\npolite."}]
        await wire.post(f"{SAVED}/mine/notes", "alice-key", {"toolRef": echo, "notes": notes})
        await wire.post(f"{SAVED}/mine/notes", "alice-key", {"toolRef": echo, "notes": notes})
        changed = [{"name": "short", "note": "Keep it very short."}]
        await wire.post(f"{SAVED}/mine/notes", "alice-key", {"toolRef": echo, "notes": changed, "ifExists": "replace"})
        for body in (
            {},
            {"toolRef": echo, "notes": []},
            {"toolRef": echo, "notes": [{"name": "Not Good", "note": "x"}]},
            {"toolRef": echo, "notes": [{"name": "empty", "note": "  "}]},
            {"toolRef": echo, "notes": notes, "ifExists": "fail"},
            {"toolRef": {"namespacedName": "move"}, "notes": notes},
            {"toolRef": {"namespacedName": "nope"}, "notes": notes},
        ):
            await wire.post(f"{SAVED}/mine/notes", "alice-key", body)
        await wire.post(f"{SAVED}/none/notes", "alice-key", {"toolRef": echo, "notes": notes})
        gone = {"toolRef": echo, "names": ["polite"]}
        for _ in range(2):
            await wire.ask("DELETE", f"{SAVED}/mine/notes", "alice-key", body=gone)
        wire.title("Equip")
        await wire.get(f"{SAVED}/active", "alice-key")
        await wire.post(f"{SAVED}/mine/equip", "alice-key")
        await wire.get(f"{SAVED}/active", "alice-key")
        await wire.get(SAVED, "alice-key")
        await wire.get("/v1/tools", "alice-key")
        await wire.get("/v1/tools?format=responses", "alice-key")
        await wire.post(CALLS, "alice-key", {"id": "c1", "name": "move"})
        await wire.post(f"{SAVED}/none/equip", "alice-key")
        for _ in range(2):
            await wire.post(f"{SAVED}/unequip", "alice-key")
        wire.title("Export and import")
        for query in ("", "?format=json", "?format=yaml", "?format=xml"):
            await wire.get(f"{SAVED}/mine/export{query}", "alice-key")
        document = (await wire.get(f"{SAVED}/mine/export?format=json", "alice-key")).json()
        await wire.post(f"{SAVED}/import", "alice-key", document)
        await wire.post(f"{SAVED}/import", "alice-key", document | {"name": "copy"})
        await wire.post(
            f"{SAVED}/import", "alice-key", document | {"name": "away", "tools": [{"namespacedName": "nope"}]}
        )
        yaml = b"name: from-yaml\ntools:\n- namespacedName: echo\n"
        for content_type in ("application/yaml", "text/yaml", "text/plain"):
            await wire.post(f"{SAVED}/import", "alice-key", yaml, headers={"content-type": content_type})
        await wire.post(f"{SAVED}/import", "alice-key", {"name": "x"})
        await wire.get(f"{SAVED}/away", "alice-key")
        wire.title("Delete")
        await wire.ask("DELETE", f"{SAVED}/mine", "bob-key")
        for _ in range(2):
            await wire.ask("DELETE", f"{SAVED}/mine", "alice-key")
        await wire.get(SAVED, "alice-key")
