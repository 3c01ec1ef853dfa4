"""`GET /v1/configuration`: every value with its origin, no secrets, and what the last reload changed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from httpx2 import AsyncClient
from tests.host.conftest import Package
from tests.http.conftest import ALICE, ROOT, client_of

from toolplug import open_host
from toolplug.http import create_app

pytestmark = pytest.mark.anyio

Write = Callable[[str], Path]

PROVIDER = """
    from pydantic import BaseModel, SecretStr
    from toolplug import FunctionProvider, tool

    class Notes(FunctionProvider):
        class Config(BaseModel):
            limit: int = 100
            max_tokens: int = 7
            token: SecretStr = SecretStr("a built-in token")
            url: str = ""

        @tool
        async def write(self) -> str:
            return "written"
"""
FILE = """\
auth:
  api_keys:
    - {key: root-key, subject: root, scopes: [admin, operator]}
    - {key: "${ALICE:-alice-key}", subject: alice}
providers:
  notes:
    enabled: true
    token_file: token.txt
    url: https://me:s3cret-pw@example.org/notes
    limit: ${LIMIT}
    tools: {write: ask}
mcp_servers:
  time: {command: uvx, args: [--token, s3cret-arg, server], env: {ZONE: s3cret-env}, enabled: false}
store: memory://
"""
ENVIRON = {"LIMIT": "31337"}


@pytest.fixture(autouse=True)
def notes(package: Package, tmp_path: Path) -> None:
    package("toolplug-notes", {"notes": "configured_notes:Notes"}, configured_notes=PROVIDER)
    (tmp_path / "token.txt").write_text("s3cret-file")


async def values(client: AsyncClient) -> dict[str, tuple[str, str, str]]:
    """The value, the source and the origin of each path; of a file only the name and the line."""
    shown = (await client.get("/v1/configuration", headers=ROOT)).json()["values"]
    return {
        item["path"]: (item["value"], item["source"], item["origin"].rpartition("/")[2])
        for item in shown
        if item["source"] != "runtime"
    }


@pytest.mark.requirement("I16-1-configuration")
async def test_admin_sees_every_value_with_its_origin_and_no_secret(config: Write) -> None:
    async with open_host(config(FILE), environ=ENVIRON) as host, client_of(create_app(host)) as client:
        assert (await client.get("/v1/configuration", headers=ALICE)).status_code == 403
        answer = await client.get("/v1/configuration", headers=ROOT)
        found = await values(client)
    for secret in ("s3cret", "root-key", "alice-key", "built-in", "31337"):
        assert secret not in answer.text
    assert answer.json()["lastReload"] is None
    of_notes = {path.removeprefix("providers.notes."): value for path, value in found.items() if ".notes." in path}
    assert of_notes == {
        "enabled": ("true", "file", "providers.yaml:7"),
        "token_file": ("token.txt", "secret file", "providers.yaml:8"),
        "url": ("https://***@example.org/notes", "file", "providers.yaml:9"),
        "limit": ("${LIMIT}", "environment", "providers.yaml:10"),
        "tools.write": ("ask", "file", "providers.yaml:11"),
        "required": ("true", "default", "default"),
        "offer": ("always", "default", "default"),
        "public_routes": ("false", "default", "default"),
        "run.process": ("false", "default", "default"),
        "run.worker": ("false", "default", "default"),
        "run.tenants": ("own", "default", "default"),
        "on_failure": ("deny", "default", "default"),
        "max_tokens": ("7", "default", "default"),
    }
    assert found["auth.api_keys[0].key"] == ("***", "file", "providers.yaml:3")
    assert found["auth.api_keys[1].key"] == ("***", "environment", "providers.yaml:4")
    assert found["mcp_servers.time.args"] == ('["--token","***","server"]', "file", "providers.yaml:13")
    assert found["mcp_servers.time.env.ZONE"][0] == "***"
    assert found["limits.timeout"] == ("60", "default", "default")


async def test_values_that_were_set_at_run_time_take_the_place_of_those_of_the_file(config: Write) -> None:
    async with open_host(config(FILE), environ=ENVIRON) as host, client_of(create_app(host)) as client:
        await client.post("/v1/providers/notes/disable", headers=ROOT)
        await client.put("/api/agents/writer/toolsets", headers=ROOT, json={"toolsets": []})
        shown = (await client.get("/v1/configuration", headers=ROOT)).json()["values"]
    assert [item["value"] for item in shown if item["path"] == "providers.notes.enabled"] == ["false"]
    assert [(item["path"], item["value"], item["origin"]) for item in shown if item["source"] == "runtime"] == [
        ("providers.notes.enabled", "false", "POST /v1/providers/notes/disable"),
        ("agents.writer.toolsets", "[]", "PUT /api/agents/writer/toolsets"),
    ]


@pytest.mark.requirement("I16-1-configuration")
async def test_the_last_reload_is_told_by_its_changes_or_by_its_problems(config: Write, tmp_path: Path) -> None:
    async def reloaded(text: str) -> dict[str, Any]:
        config(text)
        await client.post("/v1/reload", headers=ROOT)
        found: dict[str, Any] = (await client.get("/v1/configuration", headers=ROOT)).json()["lastReload"]
        return found

    async with open_host(config(FILE), environ=ENVIRON) as host, client_of(create_app(host)) as client:
        changed = FILE.replace("write: ask", "write: deny").replace("mcp_servers:", "sessions: {ttl: 2h}\nmcp_servers:")
        applied = await reloaded(changed.replace("    url: https://me:s3cret-pw@example.org/notes\n", ""))
        (tmp_path / "token.txt").write_text("s3cret-other")
        of_secret = await reloaded(changed.replace("    url: https://me:s3cret-pw@example.org/notes\n", ""))
        refused = await reloaded(FILE.replace("enabled: true", "enabled: maybe"))
        kept = await values(client)
    assert (applied["applied"], applied["by"], applied["problems"]) == (True, "root", [])
    assert applied["providers"] == {"started": ["notes"], "kept": [], "stopped": []}
    assert [tuple(item.values())[:4] for item in applied["changes"]] == [
        ("providers.notes.tools.write", "changed", "ask", "deny"),
        ("sessions.ttl", "added", "3600", "2h"),
        ("providers.notes.url", "removed", "https://***@example.org/notes", ""),
    ]
    assert [tuple(item.values())[:2] for item in of_secret["changes"]] == [("providers.notes", "changed")]
    assert "s3cret" not in str(of_secret)
    assert (refused["applied"], refused["changes"]) == (False, [])
    assert [item["path"] for item in refused["problems"]] == ["providers.notes.enabled"]
    assert kept["providers.notes.enabled"][0] == "true"
