"""`toolplug discover --import` reads the files of the programs that people have, and writes none of their secrets.

The shapes are those that each program documents.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.cli.conftest import Run

pytestmark = pytest.mark.requirement("X-import-formats")

Write = Callable[[str], Path]
SECRET = "q7Zk2mXw9TfLr4VbN8sD"
WORDS = "open-sesame-please"
"""A secret that only its place gives away."""
NPX = {"command": "npx", "args": ["-y", "server-x"]}
URL = {"url": "https://mcp.example/mcp"}

VSCODE = """{
  // servers of the team
  "inputs": [{"type": "promptString", "id": "gh-token", "password": true}],
  "servers": {
    "a": {"type": "http", "url": "https://mcp.example/mcp", "headers": {"Authorization": "Bearer ${input:gh-token}"}},
    "b": {"type": "stdio", "command": "npx", "args": ["-y", "server-x"]}, /* last */
  },
}"""
ASKED = {**URL, "headers": {"Authorization": "Bearer ${GH_TOKEN}"}}
GOOSE = """
GOOSE_PROVIDER: openai
extensions:
  developer: {bundled: true, enabled: true, name: developer, type: builtin}
  a: {type: stdio, cmd: npx, args: [-y, server-x], env_keys: [PG_PASSWORD], envs: {HOST: here}, enabled: true}
  b: {type: streamable_http, uri: "https://mcp.example/mcp", enabled: false}
"""
CONTINUE = """
name: mine
schema: v1
mcpServers:
  - {name: a, command: npx, args: [-y, server-x]}
  - {name: b, type: streamable-http, url: "https://mcp.example/mcp", headers: {X-Key: "${{ secrets.KEY_OF_B }}"}}
"""
CODEX = """
model = "m"
[mcp_servers.a]
command = "npx"
args = ["-y", "server-x"]
startup_timeout_sec = 5
[mcp_servers.b]
url = "https://mcp.example/mcp"
bearer_token_env_var = "B_TOKEN"
"""
LIBRECHAT = """
version: 1.2.1
mcpServers:
  a: {type: stdio, command: npx, args: [-y, server-x], timeout: 60000}
  b: {type: streamable-http, url: "https://mcp.example/mcp", headers: {X-Key: "${B_KEY}"}}
"""


@pytest.mark.parametrize(
    ("name", "text", "servers"),
    [
        ("mcp.json", VSCODE, {"a": ASKED, "b": NPX}),
        ("settings.json", f'{{"editor.fontSize": 12, "mcp": {VSCODE}}}', {"a": ASKED, "b": NPX}),
        ("claude.json", json.dumps({"projects": {"/p": {"mcpServers": {"a": NPX}}}, "mcpServers": {}}), {"a": NPX}),
        ("cursor.json", '{"mcpServers": {"a": {"command": "npx", "args": ["-y", "server-x"],},}}', {"a": NPX}),
        ("windsurf.json", '{"mcpServers": {"a": {"serverUrl": "https://mcp.example/mcp"}}}', {"a": URL}),
        (
            "gemini.json",
            '{"mcpServers": {"a": {"httpUrl": "https://mcp.example/mcp", "trust": true}}}',
            {"a": URL},
        ),
        (
            "zed.json",
            '{"context_servers": {"a": {"source": "custom", "command": "npx", "args": ["-y", "server-x"]}}}',
            {"a": NPX},
        ),
        (
            "zed.json",
            '{"context_servers": {"a": {"command": {"path": "npx", "args": ["-y", "server-x"]}}}}',
            {"a": NPX},
        ),
        (
            "opencode.json",
            '{"mcp": {"a": {"type": "local", "command": ["npx", "-y", "server-x"], "environment": {"N": 1}},'
            ' "b": {"type": "remote", "url": "https://mcp.example/mcp", "enabled": false}}}',
            {"a": {**NPX, "env": {"N": "1"}}, "b": {**URL, "enabled": False}},
        ),
        (
            "goose.yaml",
            GOOSE,
            {"a": {**NPX, "env": {"PG_PASSWORD": "${PG_PASSWORD}", "HOST": "here"}}, "b": {**URL, "enabled": False}},
        ),
        ("continue.yaml", CONTINUE, {"a": NPX, "b": {**URL, "headers": {"X-Key": "${KEY_OF_B}"}}}),
        ("librechat.yaml", LIBRECHAT, {"a": NPX, "b": {**URL, "headers": {"X-Key": "${B_KEY}"}}}),
        ("codex.toml", CODEX, {"a": NPX, "b": {**URL, "headers": {"Authorization": "Bearer ${B_TOKEN}"}}}),
        (
            "vibe.toml",
            '[[mcp_servers]]\nname = "b"\ntransport = "http"\nurl = "https://mcp.example/mcp"\n',
            {"b": URL},
        ),
        (
            "list-of-texts.json",
            '{"extensions": ["one"], "mcp": {"b": {"url": "https://mcp.example/mcp"}}}',
            {"b": URL},
        ),
        (
            "null.json",
            '{"mcpServers": {"a": {"command": "npx", "args": null, "env": null}}}',
            {"a": {"command": "npx"}},
        ),
    ],
)
def test_the_file_of_each_program_is_read(
    run: Run, write: Write, tmp_path: Path, name: str, text: str, servers: dict[str, Any]
) -> None:
    write("providers: {}")
    (tmp_path / name).write_text(text)
    done = run("discover", "--import", name, "--dry-run", "--json")
    found = {
        key: {field: value for field, value in entry.items() if field != "prefix"} for key, entry in imported(done)
    }
    assert (done.code, found) == (0, servers)


def imported(done: Any) -> Any:
    return done.json["imported"]["servers"].items()


def test_what_is_built_into_the_program_of_the_file_is_said(run: Run, write: Write, tmp_path: Path) -> None:
    write("providers: {}")
    (tmp_path / "goose.yaml").write_text(GOOSE)
    done = run("discover", "--import", "goose.yaml", "--dry-run")
    assert "left out, as the file's own program alone has them: developer" in done.err
    assert "set the environment variable PG_PASSWORD: its value is the env PG_PASSWORD of a" in done.err


@pytest.mark.parametrize("name", ["odd.json", "odd.toml", "odd.yaml"])
@pytest.mark.parametrize("text", ["{", "[", "\x00", "a: [", "[a]\nb = ", "{'a': }", "1", "null", '"mcpServers"', ""])
def test_no_file_ends_in_a_traceback(run: Run, write: Write, tmp_path: Path, name: str, text: str) -> None:
    write("providers: {}")
    (tmp_path / name).write_text(text)
    done = run("discover", "--import", name, "--json")
    assert (done.code, len(done.codes) > 0) == (1, True)


def test_a_file_without_servers_is_told_what_it_should_read(run: Run, write: Write, tmp_path: Path) -> None:
    write("providers: {}")
    (tmp_path / "settings.json").write_text('{"editor.fontSize": 12, "workbench.colorTheme": "dark"}')
    done = run("discover", "--import", "settings.json", "--json")
    hint = done.json["problems"][0]["hint"]
    assert hint.startswith('it should read {"mcpServers": {"name": {"command": …}}}; servers are read from mcpServers,')
    (tmp_path / "settings.json").write_text('{"mcpServer": {}, "workbench.colorTheme": "dark"}')
    assert run("discover", "--import", "settings.json", "--json").json["problems"][0]["hint"] == "nearest: 'mcpServer'"


def test_the_former_transport_is_said_however_the_file_writes_it(run: Run, write: Write, tmp_path: Path) -> None:
    write("providers: {}")
    entries = {key: {**URL, key: "sse"} for key in ("type", "transport")}
    (tmp_path / "mcp.json").write_text(json.dumps({"mcpServers": entries}))
    notes = run("discover", "--import", "mcp.json", "--dry-run", "--json").json["imported"]["notes"]
    assert (
        notes["transport"]
        == notes["type"]
        == ["its transport is the former one, sse; Streamable HTTP is spoken here, which is often at another path"]
    )


def test_variables_of_an_editor_are_variables_to_set(run: Run, write: Write, tmp_path: Path) -> None:
    config = write("providers: {}")
    server = {
        "command": "${userHome}/bin/srv",
        "args": ["${workspaceFolder}", "${workspaceFolder:docs}/x", "${MINE:-here}", "${extensionPath}${/}x.js"],
        "env": {"HERE": "${fileDirname}", "HOME_DIR": "${env:HOME}"},
    }
    (tmp_path / "mcp.json").write_text(json.dumps({"mcpServers": {"r": server}}))
    done = run("discover", "--import", "mcp.json", "--json")
    assert done.json["imported"]["servers"]["r"] == {
        "command": "${USER_HOME}/bin/srv",
        "args": ["${WORKSPACE_FOLDER}", "${WORKSPACE_FOLDER}/x", "${MINE:-here}", f"${{EXTENSION_PATH}}{os.sep}x.js"],
        "env": {"HERE": "${FILE_DIRNAME}", "HOME_DIR": "${HOME}"},
        "prefix": "r",
    }
    assert done.json["imported"]["variables"] == {
        "USER_HOME": "${userHome} of the editor, in the command of r",
        "WORKSPACE_FOLDER": "${workspaceFolder} of the editor, in the argument of r",
        "EXTENSION_PATH": "${extensionPath} of the editor, in the argument of r",
        "FILE_DIRNAME": "${fileDirname} of the editor, in the env HERE of r",
    }
    assert "userHome" not in config.read_text()


ENV = {
    "DATABASE_URL": f"postgresql://u:{SECRET}@h:5432/d",
    "MDB_MCP_CONNECTION_STRING": f"mongodb+srv://u:{SECRET}@h/d?retryWrites=true",
    "OPENAPI_MCP_HEADERS": json.dumps({"Authorization": f"Bearer {SECRET}", "Accept": "application/json"}),
    "CONFIG": json.dumps({"accounts": [{"name": "n", "apiKey": SECRET}, {"password": SECRET}]}),
    "GITHUB_PAT": SECRET,
    "DB_PASS": SECRET,
    "OAUTH2_BEARER": SECRET,
    "GOOGLE_APPLICATION_CREDENTIALS_JSON": json.dumps({"type": "service_account", "private_key": SECRET}),
    "MSSQL": f"Server=h;Database=d;User Id=u;Password={SECRET};Encrypt=true",
    "ENDPOINT": f"https://h.example/mcp?api_key={SECRET}&v=1",
    "BLOB": f"https://a.blob.example/c?sv=2&sig={SECRET}",
    "PLAIN": f"ghp_{SECRET}",
    "HEADER": f"Authorization: Bearer {SECRET}",
    "AUTH": f"Basic {SECRET}",
    "REDIS": f"redis://:{SECRET}@h",
    "COOKIE": f"session={SECRET}",
    "NESTED": json.dumps({"mcp": json.dumps({"token": SECRET})}),
    "PGPASSWORD": SECRET,
    "GITHUBTOKEN": SECRET,
}
ARGS = {
    "flag": ["--api-key", SECRET],
    "equals": [f"--token={SECRET}"],
    "bearer": ["--oauth2Bearer", SECRET],
    "query": ["mcp-remote", f"https://mcp.example/mcp?apiKey={SECRET}"],
    "json": ["--config", json.dumps({"apiKey": SECRET, "mode": "fast"})],
    "json in one": [f"--config={json.dumps({'nested': {'client_secret': SECRET}})}"],
    "header": ["--header", f"Authorization: Bearer {SECRET}"],
    "header in one": [f"--header=X-Api-Key: {SECRET}"],
    "environment": ["run", "-e", f"API_TOKEN={SECRET}", "image"],
    "address": [f"postgresql://u:{SECRET}@h:5432/d"],
    "pairs": ["--connection-string", f"Server=h;Password={SECRET};"],
    "service": [f"sk-{SECRET}"],
    "bare scheme": [f"Bearer {SECRET}"],
    "dotted": ["--set", f"auth.token={SECRET}"],
}
REMOTE = {
    "query": {"url": f"https://h.example/mcp?apiKey={SECRET}"},
    "user": {"url": f"https://u:{SECRET}@h.example/mcp"},
    "header": {"url": "https://h.example/mcp", "headers": {"Authorization": f"Bearer {SECRET}"}},
    "own header": {"url": "https://h.example/mcp", "headers": {"X-API-Key": SECRET}},
    "cookie": {"url": "https://h.example/mcp", "headers": {"Cookie": f"sid={SECRET}"}},
    "signed": {"url": f"https://h.example/mcp?sig={SECRET}&x=1"},
}
PLACES = {
    **{f"env {name}": {"command": "npx", "env": {name: value}} for name, value in ENV.items()},
    **{f"args {name}": {"command": "npx", "args": value} for name, value in ARGS.items()},
    **{f"url {name}": value for name, value in REMOTE.items()},
}


NAMELESS = {
    "env": {"command": "npx", "env": {"NOTION_INTEGRATION": SECRET}},
    "hexadecimal": {"command": "npx", "env": {"WORKSPACE": "c0ffee00" * 4}},
    "webhook": {"command": "npx", "env": {"HOOK": f"https://hooks.example/services/T0/B0/{SECRET}"}},
    "short flag": {"command": "npx", "args": ["-k", SECRET]},
    "user and password": {"command": "npx", "args": ["-u", f"user:{SECRET}"]},
    "alone": {"command": "npx", "args": ["-y", "package", SECRET]},
    "path": {"url": f"https://h.example/{SECRET}/mcp"},
    "header": {"url": "https://h.example/mcp", "headers": {"X-Custom": SECRET}},
}
"""Places whose names do not tell that a secret is there."""


@pytest.mark.requirement("C-2-secrets-hidden")
@pytest.mark.parametrize("place", NAMELESS)
def test_what_looks_random_is_a_secret_under_any_name(run: Run, write: Write, tmp_path: Path, place: str) -> None:
    _check_hidden(run, write, tmp_path, NAMELESS[place], "c0ffee00" * 4 if place == "hexadecimal" else SECRET)


@pytest.mark.requirement("C-2-secrets-hidden")
@pytest.mark.parametrize("place", PLACES)
def test_a_secret_is_nowhere_in_the_output_and_stays_a_variable(
    run: Run, write: Write, tmp_path: Path, place: str
) -> None:
    _check_hidden(run, write, tmp_path, json.loads(json.dumps(PLACES[place]).replace(SECRET, WORDS)), WORDS)


@pytest.mark.requirement("C-2-secrets-hidden")
def test_names_of_packages_and_models_are_no_secrets(run: Run, write: Write, tmp_path: Path) -> None:
    names = [
        "@modelcontextprotocol/server-filesystem@2025.11.25",
        "Meta-Llama-3.1-8B-Instruct-Q4_K_M",
        "Qwen2-VL-72B-Instruct",
        "ghcr.io/owner/image@sha256:" + "0123456789abcdef" * 4,
        "MyServerName2024Version",
        "2026-11-30T13:22:38",
    ]
    config = write("providers: {}")
    (tmp_path / "mcp.json").write_text(json.dumps({"mcpServers": {"x": {"command": "npx", "args": names}}}))
    assert run("discover", "--import", "mcp.json").code == 0
    assert [name for name in names if name not in config.read_text()] == []


def _check_hidden(run: Run, write: Write, tmp_path: Path, entry: object, secret: str) -> None:
    config = write("providers: {}")
    (tmp_path / "mcp.json").write_text(json.dumps({"mcpServers": {"x": entry}}))
    dry, done = run("discover", "--import", "mcp.json", "--dry-run"), run("discover", "--import", "mcp.json", "--json")
    assert done.code == 0
    assert secret not in dry.out + dry.err + done.out + done.err + config.read_text()
    assert done.json["imported"]["variables"]
