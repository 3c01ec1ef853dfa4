"""Files of other programs, read by `toolplug discover --import FILE --dry-run`."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.cli.process import toolplug
from tests.field.conftest import copy_inputs

pytestmark = [pytest.mark.judge, pytest.mark.requirement("X-import-formats")]

SECRET = "q7Zk2mXw9TfLr4VbN8sD"
REMOTE = {"url": "https://mcp.example.test/mcp"}

SERVERS: dict[str, dict[str, dict[str, Any]]] = {
    "F29-vscode-mcp.json": {
        "github": {"url": "https://mcp.example.test/github", "headers": {"Authorization": "Bearer ${GH_TOKEN}"}},
        "files": {"command": "npx", "args": ["-y", "server-files"]},
    },
    "F30-variables.json": {
        "r": {"command": "${USER_HOME}/bin/srv", "args": ["${WORKSPACE_FOLDER}"]},
        "n": {"command": "npx"},
    },
    "F32-codex.toml": {"files": {"command": "npx", "args": ["-y", "server-files"]}},
    "F32-continue.yaml": {
        "my-db": {"command": "uvx", "args": ["mcp-server-sqlite", "--db-path", "./test.db"]},
        "remote": REMOTE,
    },
    "F32-gemini-settings.json": {"remote": REMOTE},
    "F32-goose-config.yaml": {
        "pg": {
            "command": "npx",
            "args": ["-y", "server-pg"],
            "env": {"PG_PASSWORD": "${PG_PASSWORD}", "PG_HOST": "localhost"},
        },
        "web": {**REMOTE, "enabled": False},
    },
    "F32-windsurf.json": {"remote": REMOTE},
    "F32-zed-settings.json": {
        "pg": {
            "command": "npx",
            "args": ["-y", "server-pg"],
            "env": {"DATABASE_URL": "postgres://u:${DATABASE_URL_PASSWORD}@h/db"},
        }
    },
    "F33-secrets.json": {
        "notes": {
            "command": "npx",
            "args": ["-y", "notes-server"],
            "env": {"OPENAPI_MCP_HEADERS": '{"Authorization": "Bearer ${OPENAPI_MCP_HEADERS_AUTHORIZATION}"}'},
        },
        "db": {
            "command": "npx",
            "args": ["-y", "db-server"],
            "env": {"DATABASE_URL": "postgresql://u:${DATABASE_URL_PASSWORD}@h:5432/d"},
        },
        "remote": {
            "command": "npx",
            "args": ["mcp-remote", "https://mcp.example.test/mcp?apiKey=${REMOTE_APIKEY}"],
        },
        "smith": {
            "command": "npx",
            "args": ["-y", "cli", "run", "x", "--config", '{"apiKey": "${SMITH_APIKEY}"}'],
        },
        "short": {"command": "npx", "env": {"DB_PASS": "${DB_PASS}"}},
    },
}
"""Files → the servers that they have, without the prefix of each, which is its id."""

CONFIGURATION = "providers.yaml"
FILES = {*SERVERS, CONFIGURATION}


@pytest.mark.parametrize("name", SERVERS)
def test_the_servers_of_a_file_are_found_and_every_variable_is_listed(name: str, tmp_path: Path) -> None:
    done = toolplug("discover", "--import", name, "--dry-run", folder=copy_inputs("import", tmp_path))
    assert done.code == 0, done
    servers = yaml.safe_load(done.out)["mcp_servers"]
    assert servers == {server: {**entry, "prefix": server} for server, entry in SERVERS[name].items()}
    assert SECRET not in done.out + done.err
    listed = re.findall(r"^set the environment variable (\w+):", done.err, re.MULTILINE)
    assert listed == list(dict.fromkeys(re.findall(r"\$\{(\w+)\}", done.out)))


def test_a_file_with_variables_of_an_editor_is_valid_once_they_are_set(tmp_path: Path) -> None:
    folder = copy_inputs("import", tmp_path)
    assert toolplug("discover", "--import", "F30-variables.json", folder=folder).code == 0
    checked = toolplug("check", folder=folder, environ={"USER_HOME": "/home/me", "WORKSPACE_FOLDER": "/src"})
    assert checked.code == 0, checked
