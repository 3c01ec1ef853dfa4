"""The parsers of the clients themselves read what `toolplug connect` wrote.

Claude Code, Gemini CLI and Codex are started; of VS Code it is its own parser of JSON with comments. Claude Desktop and
Cursor cannot be installed, but Continue reads their files, and those of Claude Code, by schemas of its own.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import json5
import pytest
from tests.cli.conftest import Run
from tests.cli.process import serving
from tests.cli.test_connect import BEFORE
from tests.clients.environments import codex
from tests.node.installed import installed, node, script

from toolplug.foreign.client_files import PROGRAMS, ClientName, RemoteServer, StartedServer
from toolplug.parts.mcp.client_files.writing import with_server

pytestmark = [pytest.mark.judge, pytest.mark.requirement("I32-connect")]

PACKAGES = "mcp_clients"
CLAUDE, GEMINI = "@anthropic-ai/claude-code", "@google/gemini-cli"
PARSING = """
const {parse} = require("jsonc-parser"), {readFileSync} = require("fs");
for (const file of process.argv.slice(1)) {
  const errors = [], text = readFileSync(file, "utf-8").replace(/^\\ufeff/, "");
  const value = parse(text, errors, {allowTrailingComma: true});
  console.log(JSON.stringify({value, errors}));
}
"""


def start(package: str, *arguments: str, folder: Path, environ: Mapping[str, str]) -> str:
    """Run a client's command to its end; what it printed."""
    command = [node(), script(PACKAGES, package), *arguments]
    own = {"NO_COLOR": "1", "DISABLE_AUTOUPDATER": "1", "GEMINI_CLI_TRUST_WORKSPACE": "true"}
    done = subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, **own, **environ},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return done.stdout + done.stderr


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The home of a user without any client."""
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    return home


def test_claude_code_and_gemini_cli_read_the_entries_and_the_new_key_opens_the_host(
    run: Run, home: Path, tmp_path: Path
) -> None:
    def connect(*words: str) -> Any:
        done = run("connect", *words, "--json")
        assert done.code == 0, done.out
        return done.json

    config = tmp_path / "providers.yaml"
    config.write_text(
        "auth: {api_keys: [{key: first, subject: s}]}\nproviders: {hello: {enabled: true}}\nstore: memory://\n"
    )
    made = connect("claude-code", "--url", "http://127.0.0.1:1", "--print")["key"]
    line = made["yaml"].removeprefix("- ")
    config.write_text(f"auth: {{api_keys: [{line}]}}\nproviders: {{hello: {{enabled: true}}}}\nstore: memory://\n")
    with serving(folder=tmp_path) as host:
        url = f"{host.url}/mcp"
        connect("claude-code", "--file", str(home / ".claude.json"), "--url", url)
        connect("claude-code", "--name", "local")
        connect("gemini", "--url", url)
        environ = {"TOOLPLUG_KEY": made["key"]}
        listed = start(CLAUDE, "mcp", "list", folder=tmp_path, environ=environ)
        assert f"toolplug: {url} (HTTP) - ✓ Connected" in listed.replace("✔", "✓"), listed
        assert f"local: {sys.executable} -P -m toolplug serve --stdio -c {config} - " in listed
        found = start(GEMINI, "mcp", "list", folder=home, environ=environ)
        assert f"toolplug: {url} (http)" in found, found


def test_the_parser_of_vs_code_reads_every_file(tmp_path: Path) -> None:
    names = [name for name in BEFORE if name != "no quotes"]  # which only JavaScript reads
    files = [tmp_path / f"{number}.json" for number, _ in enumerate(names)]
    program = PROGRAMS[ClientName.VS_CODE]
    entry = program.entry(RemoteServer("https://tools.example/mcp", "TOOLPLUG_KEY"))
    for name, file in zip(names, files, strict=True):
        file.write_bytes(with_server(BEFORE[name].encode(), file, program, "toolplug", entry))
    done = subprocess.run(
        [node(), "-e", PARSING, *files], cwd=installed(PACKAGES), capture_output=True, text=True, check=True, timeout=30
    )
    for text, name in zip(done.stdout.splitlines(), names, strict=True):
        read = json.loads(text)
        assert (read["errors"], read["value"]["servers"]["toolplug"]) == ([], entry), name
        assert read["value"] == json5.loads(files[names.index(name)].read_text("utf-8-sig"))


def test_codex_reads_the_entries_beside_what_is_there(tmp_path: Path) -> None:
    servers = {
        "there": RemoteServer("https://tools.example/mcp", "TOOLPLUG_KEY"),
        "here": StartedServer("/usr/bin/python", ["-m", "toolplug", "serve", "--stdio"], ["TOOLPLUG_KEY"]),
    }
    file, program = tmp_path / "config.toml", PROGRAMS[ClientName.CODEX]
    text = b'model = "m"\n\n[mcp_servers.other]\ncommand = "other"\n'
    for name, server in servers.items():
        text = with_server(text, file, program, name, program.entry(server))
    file.write_bytes(text)
    environ = {**os.environ, "HOME": str(tmp_path), "CODEX_HOME": str(tmp_path)}
    command = [codex(), "mcp", "list", "--json"]
    done = subprocess.run(command, env=environ, cwd=tmp_path, capture_output=True, text=True, check=True, timeout=60)
    read = {server["name"]: server["transport"] for server in json.loads(done.stdout)}
    assert set(read) == {"there", "here", "other"}
    assert (read["there"]["type"], read["there"]["url"]) == ("streamable_http", "https://tools.example/mcp")
    assert read["there"]["bearer_token_env_var"] == "TOOLPLUG_KEY"
    assert (read["here"]["type"], read["here"]["command"]) == ("stdio", "/usr/bin/python")
    assert (read["here"]["args"], read["here"]["env_vars"]) == (
        ["-m", "toolplug", "serve", "--stdio"],
        ["TOOLPLUG_KEY"],
    )


CONTINUE = """
import {claudeDesktopLikeConfigFileSchema as whole, converMcpServersJsonConfigFileToYamlBlocks as convert}
  from "@continuedev/config-yaml";
import {readFileSync} from "fs";
for (const file of process.argv.slice(1)) {
  console.log(JSON.stringify(convert(whole.parse(JSON.parse(readFileSync(file, "utf-8"))))));
}
"""


def test_continue_reads_the_files_of_claude_and_cursor(tmp_path: Path) -> None:
    servers = {
        "there": RemoteServer("https://tools.example/mcp", "TOOLPLUG_KEY"),
        "here": StartedServer("/usr/bin/python", ["-m", "toolplug", "serve", "--stdio"], ["TOOLPLUG_KEY"]),
    }
    names = (ClientName.CLAUDE_CODE, ClientName.CLAUDE_DESKTOP, ClientName.CURSOR)
    files = [tmp_path / f"{name}.json" for name in names]
    for name, file in zip(names, files, strict=True):
        text = b""
        for title, server in servers.items():
            text = with_server(text, file, PROGRAMS[name], title, PROGRAMS[name].entry(server))
        file.write_bytes(text)
    place = installed("continue")
    command = [node(), "--input-type=module", "-e", CONTINUE, *files]
    done = subprocess.run(command, cwd=place, capture_output=True, text=True, check=True, timeout=30)
    for name, line in zip(names, done.stdout.splitlines(), strict=True):
        read = json.loads(line)
        assert read["warnings"] == []
        there, here = ({key: value for key, value in each.items() if key != "name"} for each in read["yamlConfigs"])
        given = PROGRAMS[name].entry(servers["here"])
        assert (here["type"], here["command"], here["args"]) == ("stdio", given["command"], given["args"])
        if name is ClientName.CLAUDE_DESKTOP:  # it knows no URLs, so another program connects
            assert (there["command"], there["args"][:3]) == ("npx", ["-y", "mcp-remote", "https://tools.example/mcp"])
        else:
            assert there["url"] == "https://tools.example/mcp"
            assert set(there["requestOptions"]["headers"]) == {"Authorization"}
