"""`toolplug connect`: the files of six clients get a server that `discover --import` reads, and keep the rest.

The clients' own parsers read the same files in test_connected_clients.py.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
import sys
import tomllib
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import json5
import pytest
from tests.cli.conftest import Run

from toolplug.config.document import parse_document
from toolplug.foreign.client_files import ClientName, client_file
from toolplug.parts.mcp.client_files import writing

pytestmark = pytest.mark.requirement("I32-connect")

Write = Callable[..., Path]
CLIENTS = [client.value for client in ClientName]
VARIABLES = {
    "claude-code": "Bearer ${TOOLPLUG_KEY}",
    "cursor": "Bearer ${env:TOOLPLUG_KEY}",
    "vscode": "Bearer ${env:TOOLPLUG_KEY}",
    "gemini": "Bearer ${TOOLPLUG_KEY}",
}


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The home of a user without any client."""
    for name in ("CODEX_HOME", "XDG_CONFIG_HOME", "APPDATA"):
        monkeypatch.delenv(name, raising=False)
    home = tmp_path / "home"
    monkeypatch.setenv("HOME", str(home))
    return home


class _Answers(BaseHTTPRequestHandler):
    """Answers as `/mcp` does: 401 for a host with `auth`, else 400; other paths are hostile."""

    def do_GET(self) -> None:
        status = {"/mcp": 401, "/open/mcp": 400, "/moved": 307, "/broken": 503}.get(self.path.partition("?")[0], 404)
        self.send_response(status)
        if status == 307:
            self.send_header("Location", "/mcp")
        if status == 401:
            self.send_header("WWW-Authenticate", "Bearer")
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Keep the output of the test clean."""


@pytest.fixture
def address() -> Iterator[str]:
    """The address of such a server."""
    with ThreadingHTTPServer(("127.0.0.1", 0), _Answers) as server:
        Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def parsed(file: Path) -> Any:
    text = file.read_text("utf-8-sig")
    return tomllib.loads(text) if file.suffix == ".toml" else json5.loads(text)


def imported(run: Run, file: Path) -> dict[str, Any]:
    """The servers that `discover --import` reads from a file."""
    done = run("discover", "--import", str(file), "--dry-run", "--json", "-c", "other.yaml")
    assert done.code == 0, done.err
    return {
        name: {key: value for key, value in entry.items() if key != "prefix"}
        for name, entry in done.json["imported"]["servers"].items()
    }


def test_a_client_that_is_not_known_is_said_with_those_that_are(run: Run) -> None:
    done = run("connect", "clod")
    assert done.code == 2
    assert "Invalid value for 'CLIENT': 'clod' is not one of 'claude-code', " in done.err


@pytest.mark.process
@pytest.mark.parametrize("client", CLIENTS)
def test_what_connect_writes_is_what_an_import_reads(
    run: Run, write: Write, tmp_path: Path, address: str, monkeypatch: pytest.MonkeyPatch, client: str
) -> None:
    monkeypatch.setenv("MAIL_TOKEN", "s3cret-of-mail")
    config = write(
        "providers: {hello: {config: {a: '${MAIL_TOKEN}', b: '${MAIL_TOKEN:-x}', c: '${UNSET}', d: '$${NO}'}}}"
    )
    write("providers: {}", "other.yaml")
    started = run("connect", client, "--json", "--agent", "writer")
    remote = run("connect", client, "--json", "--name", "web", "--url", address)
    assert (started.code, started.json["done"], started.json["auth"]) == (0, "added", None)
    assert (remote.code, remote.json["done"], remote.json["auth"]) == (0, "added", True)
    file = Path(started.json["file"])
    assert Path(remote.json["file"]) == file
    found = imported(run, file)
    env = {} if client == "claude-desktop" else {"env": {"MAIL_TOKEN": "${MAIL_TOKEN}"}}
    args = ["-P", "-m", "toolplug", "serve", "--stdio", "--agent", "writer", "-c", str(config)]
    assert found["toolplug"] == {"command": sys.executable, "args": args, **env}
    if client == "claude-desktop":
        bridged = ["-y", "mcp-remote", f"{address}/mcp", "--allow-http", "--header", "X-API-Key:${TOOLPLUG_KEY}"]
        assert found["web"] == {"command": "npx", "args": bridged}
    else:
        assert found["web"] == {"url": f"{address}/mcp", "headers": {"Authorization": "Bearer ${TOOLPLUG_KEY}"}}
    assert "s3cret" not in file.read_text()
    again = run("connect", client, "--json", "--agent", "writer")
    assert (again.code, again.json["done"], again.json["copy"]) == (0, "unchanged", None)


@pytest.mark.process
@pytest.mark.parametrize("client", CLIENTS)
def test_a_key_is_printed_once_and_the_file_has_only_the_name_of_its_variable(
    run: Run, address: str, client: str
) -> None:
    done = run("connect", client, "--json", "--url", f"{address}/mcp")
    key = done.json["key"]
    assert hashlib.sha256(key["key"].encode()).hexdigest() == key["sha256"]
    line = parse_document(key["yaml"].removeprefix("- ").encode(), file="line").value
    assert line == {
        "sha256": key["sha256"],
        "subject": client,
        "tenant": "default",
        "scopes": ["tools:read", "tools:call"],
    }
    text = Path(done.json["file"]).read_text()
    assert (key["key"] in text, key["sha256"] in text, key["variable"]) == (False, False, "TOOLPLUG_KEY")
    entry = done.json["entry"]
    if client in VARIABLES:
        assert entry["headers"] == {"Authorization": VARIABLES[client]}
    again = run("connect", client, "--json", "--url", f"{address}/mcp")
    assert (again.json["done"], again.json["key"]) == ("unchanged", None)
    shown = run("connect", client, "--url", f"{address}/mcp", "--name", "second")
    assert shown.out.count("tp_") == 1
    assert "sha256: " in shown.out


@pytest.mark.process
def test_without_auth_there_is_no_key(run: Run, address: str) -> None:
    done = run("connect", "cursor", "--url", f"{address}/open/mcp", "--json")
    assert (done.json["auth"], done.json["key"], "headers" in done.json["entry"]) == (False, None, False)
    shown = run("connect", "cursor", "--url", f"{address}/open/mcp", "--name", "second")
    assert "the first one would lock out all other callers" in shown.out
    assert "tp_" not in shown.out


@pytest.mark.process
def test_print_writes_nothing_and_prints_what_to_paste(run: Run, home: Path, address: str) -> None:
    done = run("connect", "vscode", "--url", f"{address}/mcp?x=1", "--agent", "a b", "--print")
    url = f"{address}/mcp?x=1&agent=a+b"
    headers = {"Authorization": "Bearer ${env:TOOLPLUG_KEY}"}
    assert json.loads(done.out) == {"servers": {"toolplug": {"type": "http", "url": url, "headers": headers}}}
    assert (done.code, home.exists(), "tp_" in done.err) == (0, False, True)
    toml = run("connect", "codex", "--url", f"{address}/mcp", "--print")
    entry = {"url": f"{address}/mcp", "bearer_token_env_var": "TOOLPLUG_KEY"}
    assert tomllib.loads(toml.out) == {"mcp_servers": {"toolplug": entry}}


@pytest.mark.process
def test_a_host_that_does_not_answer_is_asked_for_in_the_configuration(run: Run, write: Write) -> None:
    refused = run("connect", "codex", "--url", "http://127.0.0.1:1", "--json")
    assert (refused.code, refused.codes) == (1, ["host_unreachable"])
    write("auth: {api_keys: [{key: k, subject: s}]}")
    done = run("connect", "codex", "--url", "http://127.0.0.1:1", "--json")
    assert (done.code, done.json["auth"], len(done.json["notes"])) == (0, True, 1)
    assert "whether it has auth is taken from providers.yaml" in done.json["notes"][0]


@pytest.mark.process
@pytest.mark.parametrize(("path", "status"), [("/moved", 307), ("/nothing", 404), ("/broken", 503)])
def test_what_is_no_mcp_server_is_refused(run: Run, address: str, path: str, status: int) -> None:
    refused = run("connect", "codex", "--url", f"{address}{path}", "--json")
    assert (refused.code, refused.codes) == (1, ["not_mcp"])
    assert f"answers {status}" in refused.json["problems"][0]["message"]


@pytest.mark.parametrize(
    "line",
    [
        ["codex", "--url", "http://u:s3cret@h/mcp"],
        ["codex", "--url", "http://h/mcp?api_key=s3cret"],
        ["codex", "--url", "http://h:port/mcp"],
        ["codex", "--url", "file:///etc/passwd"],
        ["codex", "--url", "http:///mcp"],
        ["codex", "--url", "http://h/mcp", "--stdio"],
        ["codex", "--name", "a.b]\n[x"],
        ["codex", "--name", "with_underscore"],
        ["codex", "--name", ""],
        ["emacs"],
    ],
)
def test_wrong_command_lines_are_refused(run: Run, write: Write, home: Path, line: list[str]) -> None:
    write("providers: {}")
    refused = run("connect", *line, "--json")
    assert (refused.code, refused.codes, home.exists()) == (2, ["wrong_command_line"], False)
    assert "s3cret" not in refused.out + refused.err


def test_a_path_that_a_client_would_expand_is_refused(run: Run, tmp_path: Path) -> None:
    folder = tmp_path / "a$HOME"
    folder.mkdir()
    (folder / "providers.yaml").write_text("providers: {}\n")
    refused = run("connect", "gemini", "-c", "a$HOME/providers.yaml", "--json")
    assert (refused.code, refused.codes) == (1, ["not_literal"])
    assert run("connect", "codex", "-c", "a$HOME/providers.yaml").code == 0
    assert run("connect", "codex", "-c", "nowhere.yaml", "--json").codes == ["unreadable"]


def is_subsequence(part: str, whole: str) -> bool:
    """Return whether `whole` is `part` with text inserted."""
    rest = iter(whole)
    return all(character in rest for character in part)


OTHER = '"other": {"command": "npx"}'
BEFORE = {
    "comments": f'{{\n  // mine\n  "servers": {{\n    {OTHER} // a\n    /* b, */\n  }},\n  "x": [],\n}}\n',
    "byte order mark": f'\ufeff{{"servers": {{{OTHER}}}}}',
    "carriage returns": f'{{\r\n\t"servers": {{\r\n\t\t{OTHER}\r\n\t}}\r\n}}\r\n',
    "in one line": f'{{"servers": {{{OTHER}}}, "inputs": []}}',
    "trailing comma": f'{{"servers": {{\n{OTHER},\n}}}}',
    "empty section": '{"servers": {}}',
    "only a comment in it": '{"servers": {\n// "toolplug": {}\n}}',
    "another section": '{"inputs": [{"servers": {"toolplug": 1}}], "x": "\\"servers\\": {"}',
    "twice": f'{{"servers": {{"a": 1}}, "servers": {{{OTHER}}}}}',
    "no object": "{}",
    "nothing": "",
    "white space": " \n",
    "strings with marks": '{"servers": {"other": {"command": "// } \\\\", "args": ["/* {", "\\"]}"]}}}',
    "no quotes": "{servers: {'other': {command: 'npx'}}}",
    "escaped name": '{"\\u0073ervers": {"other": {"command": "npx"}}}',
}


@pytest.mark.parametrize("name", BEFORE)
def test_the_rest_of_the_file_stays_to_the_byte(run: Run, write: Write, home: Path, name: str) -> None:
    write("providers: {}")
    file = home / ".config/Code/User/mcp.json"
    file.parent.mkdir(parents=True)
    before = BEFORE[name].encode()
    file.write_bytes(before)
    file.chmod(0o644)
    done = run("connect", "vscode", "--json")
    assert done.code == 0, done.out
    after = file.read_bytes()
    wanted = json5.loads(before.decode("utf-8-sig") if before.strip() else "{}")
    wanted["servers"] = {**wanted.get("servers", {}), "toolplug": done.json["entry"]}
    assert parsed(file) == wanted
    assert is_subsequence(before.decode(), after.decode())
    if before.strip():
        assert after[:1] == before[:1]
        assert after.count(b"\r") == (after.count(b"\n") if b"\r" in before else 0)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    copy = Path(done.json["copy"])
    assert (copy.read_bytes(), copy.name, stat.S_IMODE(copy.stat().st_mode)) == (before, "mcp.json.bak", 0o600)
    assert sorted(path.name for path in file.parent.iterdir()) == ["mcp.json", "mcp.json.bak"]


COMMENTED = """{
\t// mine
\t"servers": {
\t\t"other": {"command": "npx"}, // last
\t\t/* end, */
\t\t"toolplug": {
\t\t\t"type": "stdio",
\t\t\t"command": "PYTHON",
\t\t\t"args": []
\t\t}
\t}
}
"""


def test_an_entry_is_indented_as_the_others_and_replaced_where_it_stands(
    run: Run, write: Write, tmp_path: Path
) -> None:
    write("providers: {}")
    file = tmp_path / "mcp.json"
    args = ["-P", "-m", "toolplug", "serve", "--stdio", "-c", str(tmp_path / "providers.yaml")]
    lines = "".join(f"\n\t\t\t\t{json.dumps(each)}," for each in args).removesuffix(",") + "\n\t\t\t"
    wanted = COMMENTED.replace("PYTHON", sys.executable).replace("[]", f"[{lines}]")
    file.write_text('{\n\t// mine\n\t"servers": {\n\t\t"other": {"command": "npx"} // last\n\t\t/* end, */\n\t}\n}\n')
    assert run("connect", "vscode", "--file", "mcp.json").code == 0
    assert file.read_text() == wanted
    file.write_text(COMMENTED)
    refused = run("connect", "vscode", "--file", "mcp.json", "--json")
    assert (refused.code, refused.codes, file.read_text()) == (1, ["exists"], COMMENTED)
    assert refused.json["problems"][0]["hint"] == "--replace overwrites it, --name NAME adds a second one"
    done = run("connect", "vscode", "--file", "mcp.json", "--replace", "--json")
    assert (done.json["done"], Path(done.json["copy"]).name) == ("replaced", "mcp.json.bak1")
    assert file.read_text() == wanted
    assert (tmp_path / "mcp.json.bak1").read_text() == COMMENTED


TOML = {
    "nothing": "",
    "comments": '# mine\nmodel = "m" # this\n[mcp_servers.other]\ncommand = "npx"\n\n# end',
    "carriage returns": '[mcp_servers.other]\r\ncommand = "npx"\r\n',
    "looks like a table": 'text = """\n[mcp_servers.toolplug]\n"""\n[projects."/a b"]\ntrust_level = "trusted"\n',
    "dates": "at = 2026-01-01T00:00:00Z\n[mcp_servers]\n",
}


@pytest.mark.parametrize("name", TOML)
def test_codex_gets_a_table_behind_what_is_there(run: Run, write: Write, tmp_path: Path, name: str) -> None:
    write("providers: {}")
    file = tmp_path / "config.toml"
    file.write_bytes(TOML[name].encode())
    done = run("connect", "codex", "--file", "config.toml", "--json")
    assert done.code == 0, done.out
    before = tomllib.loads(TOML[name])
    servers = {**before.get("mcp_servers", {}), "toolplug": done.json["entry"]}
    assert tomllib.loads(file.read_bytes().decode()) == {**before, "mcp_servers": servers}
    assert file.read_bytes().startswith(TOML[name].encode())
    assert (b"\r\n" in file.read_bytes()) == (name == "carriage returns")


def test_a_table_of_codex_is_replaced_with_the_tables_in_it(run: Run, write: Write, tmp_path: Path) -> None:
    write("providers: {}")
    file = tmp_path / "config.toml"
    tables = ' [ mcp_servers . "toolplug" ]\ncommand = "x"\n[mcp_servers.toolplug.env]\nA = "b"\n'
    file.write_text(f'a = 1\n{tables}\n# of the next\n[mcp_servers.other]\ncommand = "npx"\n')
    done = run("connect", "codex", "--file", "config.toml", "--replace", "--json")
    servers = {"toolplug": done.json["entry"], "other": {"command": "npx"}}
    assert tomllib.loads(file.read_text()) == {"a": 1, "mcp_servers": servers}
    assert file.read_text().endswith('\n# of the next\n[mcp_servers.other]\ncommand = "npx"\n')


@pytest.mark.parametrize(
    ("name", "text", "code", "line"),
    [
        ("m.json", '{\n  "mcpServers": {\n    "a": ,\n  }\n}', "not_json", 3),
        ("m.json", '{"mcpServers": {', "not_json", 1),
        ("m.json", '{\n"mcpServers": []}', "cannot_add", 2),
        ("m.json", '{"mcpServers": null}', "cannot_add", 1),
        ("m.json", "[1]", "cannot_add", 1),
        ("m.json", '"mcpServers"', "cannot_add", 1),
        ("m.json", '\n{"a": "\xff"}', "not_utf8", 2),
        ("m.json", " " * (1024 * 1024 + 1), "too_large", 0),
        ("m.json", "{}", "cannot_add", 1),
        ("m.toml", "a = 1\nb = \n", "not_toml", 2),
        ("m.toml", "a = 1\nmcp_servers = {}\n", "cannot_add", 2),
        ("m.toml", "[[mcp_servers]]\n", "cannot_add", 1),
    ],
)
def test_a_file_that_nothing_can_be_put_into_is_left_as_it_is(
    run: Run, write: Write, tmp_path: Path, name: str, text: str, code: str, line: int
) -> None:
    write("providers: {}")
    file = tmp_path / name
    if (text, code) == ("{}", "cannot_add"):  # in UTF-16, as some editors of Windows save it
        file.write_bytes(text.encode("utf-16"))
        code = "not_utf8"
    else:
        file.write_bytes(text.encode("latin-1"))
    before = file.read_bytes()
    client = "codex" if name.endswith("toml") else "cursor"
    refused = run("connect", client, "--file", name, "--json")
    problem = refused.json["problems"][0]
    assert (refused.code, problem["code"], problem["line"], problem["hint"] != "") == (1, code, line, True)
    assert Path(problem["file"]).name == name
    assert (file.read_bytes(), [path.name for path in tmp_path.glob("*m.*")]) == (before, [name])


def test_a_link_stays_a_link(run: Run, write: Write, home: Path, tmp_path: Path) -> None:
    write("providers: {}")
    (tmp_path / "dotfiles").mkdir()
    target = tmp_path / "dotfiles/mcp.json"
    target.write_text("{}")
    (home / ".cursor").mkdir(parents=True)
    (home / ".cursor/mcp.json").symlink_to(target)
    done = run("connect", "cursor", "--json")
    assert (done.json["file"], Path(done.json["copy"])) == (str(target), tmp_path / "dotfiles/mcp.json.bak")
    assert (home / ".cursor/mcp.json").is_symlink()
    assert "toolplug" in target.read_text()


@pytest.mark.parametrize("kind", ["folder", "pipe", "loop", "below a file"])
def test_what_is_no_file_is_refused(run: Run, write: Write, tmp_path: Path, kind: str) -> None:
    write("providers: {}")
    file = tmp_path / "mcp.json"
    if kind == "folder":
        file.mkdir()
    elif kind == "pipe":
        os.mkfifo(file)
    elif kind == "loop":
        file.symlink_to(file)
    else:
        file.write_text("{}")
        file = file / "mcp.json"
    refused = run("connect", "cursor", "--file", str(file), "--json")
    assert (refused.code, refused.codes[0] in ("no_file", "cannot_write")) == (1, True)


@pytest.mark.parametrize("fails", ["mkstemp", "fsync", "replace", "open"])
def test_a_disk_that_fails_loses_nothing(
    run: Run, write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails: str
) -> None:
    write("providers: {}")
    file = tmp_path / "mcp.json"
    file.write_text("{}")

    def fail(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied", str(file))

    monkeypatch.setattr(writing if fails == "mkstemp" else writing.os, fails, fail)
    refused = run("connect", "cursor", "--file", "mcp.json", "--json")
    monkeypatch.undo()
    problem = refused.json["problems"][0]
    assert (refused.code, problem["code"], problem["file"]) == (1, "cannot_write", "mcp.json")
    assert (problem["message"], problem["hint"]) == (
        "cannot be written: Permission denied",
        "--print prints the entry to add by hand",
    )
    assert (file.read_text(), [*tmp_path.glob(".mcp*")]) == ("{}", [])


def test_a_file_that_changes_meanwhile_is_not_overwritten(
    run: Run, write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write("providers: {}")
    file = tmp_path / "mcp.json"
    file.write_text("{}")
    plan = writing.with_server

    def change(*arguments: Any) -> bytes:
        new = plan(*arguments)
        file.write_text('{"mcpServers": {"theirs": {"command": "x"}}}')
        return new

    monkeypatch.setattr(writing, "with_server", change)
    refused = run("connect", "cursor", "--file", "mcp.json", "--json")
    assert (refused.code, refused.codes) == (1, ["changed"])
    assert "theirs" in file.read_text()


@pytest.mark.parametrize(
    ("client", "system", "environ", "place"),
    [
        ("claude-desktop", "linux", {}, ".config/Claude/claude_desktop_config.json"),
        ("claude-desktop", "darwin", {}, "Library/Application Support/Claude/claude_desktop_config.json"),
        ("claude-desktop", "win32", {}, "AppData/Roaming/Claude/claude_desktop_config.json"),
        ("vscode", "linux", {"XDG_CONFIG_HOME": "/x"}, "/x/Code/User/mcp.json"),
        ("vscode", "win32", {"APPDATA": "/roaming"}, "/roaming/Code/User/mcp.json"),
        ("vscode", "darwin", {}, "Library/Application Support/Code/User/mcp.json"),
        ("codex", "win32", {}, ".codex/config.toml"),
        ("codex", "linux", {"CODEX_HOME": "/c"}, "/c/config.toml"),
        ("gemini", "win32", {}, ".gemini/settings.json"),
        ("cursor", "darwin", {}, ".cursor/mcp.json"),
    ],
)
def test_the_file_of_each_client_on_each_system(client: str, system: str, environ: dict[str, str], place: str) -> None:
    assert client_file(ClientName(client), environ, home=Path("/home/me"), system=system) == Path("/home/me", place)
