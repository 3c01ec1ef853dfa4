"""Tools of MCP servers whose schemas are of another draft or have one bad keyword, and a request with `_meta: null`."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import pytest
import yaml
from tests.cli.process import PATIENCE_S, toolplug
from tests.field.conftest import INPUTS, NotesHost, answers_over_pipes, write_notes
from tests.host.plain_server import PlainServer

pytestmark = pytest.mark.judge

TEXT = {"type": "string"}


def keeping(**others: object) -> dict[str, object]:
    """The schema of a tool whose property `keep` is required."""
    return {"type": "object", "properties": {"keep": TEXT, **others}, "required": ["keep"]}


SCHEMAS = {
    "F16-exclusive-minimum.json": {
        "record": keeping(n={"type": "integer", "exclusiveMinimum": 0, "maximum": 9007199254740991})
    },
    "F17-tuple-items.json": {
        "range": keeping(n={"type": "array", "prefixItems": [{"type": "integer"}, {"type": "integer"}]})
    },
    "F18-one-bad-keyword.json": {
        "min_null": keeping(n={"type": "integer"}),
        "length_text": keeping(n=TEXT),
        "unique_text": keeping(n={"type": "array", "items": TEXT}),
        "required_twice": keeping(n={"type": "object", "properties": {"a": {}}, "required": ["a"]}),
        "type_twice": keeping(n={"type": ["string"]}),
        "deprecated_text": keeping(n=TEXT),
    },
    "F23-ref-to-components.json": {"chat": keeping()},
}
"""The definitions that a server sends → what becomes of the schema of each tool."""

REMOVED = {
    "min_null": "/properties/n/minimum",
    "length_text": "/properties/n/minLength",
    "unique_text": "/properties/n/uniqueItems",
    "required_twice": "/properties/n/required",
    "type_twice": "/properties/n/type",
    "deprecated_text": "/properties/n/deprecated",
}
"""Tools of F18 → the pointer that is reported."""

META_NULL = "F27-meta-null.json"
FILES = {*SCHEMAS, META_NULL}

INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}},
}
INITIALIZED = {"jsonrpc": "2.0", "method": "notifications/initialized"}


@dataclass(frozen=True)
class Discovered:
    """What the commands print of the servers: records by the server's id, and tools by their names in the catalog."""

    servers: dict[str, dict[str, Any]]
    tools: dict[str, dict[str, Any]]


def id_of(name: str) -> str:
    """The id and prefix of the server that sends this file."""
    return name.partition("-")[0].lower()


@pytest.fixture(scope="module")
def discovered(tmp_path_factory: pytest.TempPathFactory) -> Discovered:
    folder = tmp_path_factory.mktemp("mcp")
    entries = {}
    for name in SCHEMAS:
        server = PlainServer(folder / id_of(name))
        server.lists_bytes(INPUTS.joinpath("mcp", name).read_bytes())
        entries[id_of(name)] = {**server.entry, "prefix": id_of(name)}
    folder.joinpath("providers.yaml").write_text(yaml.safe_dump({"mcp_servers": entries}), "utf-8")
    found = toolplug("discover", "--json", folder=folder)
    assert found.code == 0, found
    listed = toolplug("tools", "--format", "mcp", folder=folder)
    assert listed.code == 0, listed
    return Discovered(
        {server["id"]: server for server in found.json["servers"]},
        {tool["_meta"]["toolplug/name"]: tool for tool in listed.json["tools"]},
    )


@pytest.mark.requirement("C-8-bad-keyword")
@pytest.mark.parametrize("name", SCHEMAS)
def test_everything_of_a_schema_stays_that_can(discovered: Discovered, name: str) -> None:
    server = id_of(name)
    listed = {
        tool.removeprefix(f"{server}."): {
            key: value for key, value in each["inputSchema"].items() if key not in ("$schema", "$defs")
        }
        for tool, each in discovered.tools.items()
        if tool.startswith(f"{server}.")
    }
    assert listed == SCHEMAS[name]


@pytest.mark.requirement("C-8-bad-keyword")
@pytest.mark.parametrize(("tool", "pointer"), REMOVED.items(), ids=REMOVED)
def test_a_keyword_that_is_removed_is_reported_with_its_own_pointer(
    discovered: Discovered, tool: str, pointer: str
) -> None:
    (cut,) = [each["cut"] for each in discovered.servers["f18"]["tools"] if each["name"] == tool]
    assert [each.partition(":")[0] for each in cut] == [f"/inputSchema{pointer}"]


@pytest.mark.requirement("C-5-optional-null")
@pytest.mark.parametrize("place", ["host", "session"])
def test_a_meta_of_null_is_as_if_absent_over_http(notes_host: NotesHost, place: str) -> None:
    url = f"{notes_host.url}/mcp"
    if place == "session":
        created = httpx2.post(f"{notes_host.url}/api/sessions", json={}).raise_for_status().json()
        url = f"{notes_host.url}/api/sessions/{created['code']}/mcp"
    with httpx2.Client(timeout=PATIENCE_S, headers={"accept": "application/json, text/event-stream"}) as client:
        opened = client.post(url, json=INITIALIZE).raise_for_status()
        client.headers["mcp-session-id"] = opened.headers["mcp-session-id"]
        client.headers["mcp-protocol-version"] = "2025-11-25"
        client.post(url, json=INITIALIZED).raise_for_status()
        content = INPUTS.joinpath("mcp", META_NULL).read_bytes()
        answer = client.post(url, content=content, headers={"content-type": "application/json"}).raise_for_status()
    assert '"text":"(nothing given)"' in answer.text
    assert notes_host.notes() == ["(nothing given)"]


@pytest.mark.requirement("C-5-optional-null")
def test_a_meta_of_null_is_as_if_absent_over_pipes(tmp_path: Path) -> None:
    write_notes(tmp_path)
    content = INPUTS.joinpath("mcp", META_NULL).read_text("utf-8")
    messages = "\n".join((json.dumps(INITIALIZE), json.dumps(INITIALIZED), content.strip(), ""))
    initialized, called = answers_over_pipes(tmp_path, messages)
    assert (initialized["id"], called["id"]) == (1, 3)
    assert called["result"]["content"] == [{"type": "text", "text": "(nothing given)"}]
