"""`toolplug discover --import`: another program's servers come into the configuration, whose text stays."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.cli.conftest import Run

from toolplug.config.document import read_document

Write = Callable[..., Path]

pytestmark = pytest.mark.requirement("C-10-discover")

TIME = {"command": "uvx", "args": ["mcp-server-time", "--local-timezone=UTC"]}


def servers(**named: object) -> str:
    return json.dumps({"mcpServers": named})


def section(file: Path) -> object:
    """The servers, each without its prefix, which is its id."""
    found = read_document(file).value["mcp_servers"]
    assert isinstance(found, dict)
    return {
        name: {key: value for key, value in entry.items() if (key, value) != ("prefix", name)}  # type: ignore[union-attr]
        for name, entry in found.items()
    }


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (
            "# mine\nproviders: {}  # none yet\n\n# the end\n",
            "# mine\nproviders: {}  # none yet\n\n# the end\n\nmcp_servers:\n  time:\n    command: uvx\n"
            '    args: [mcp-server-time, "--local-timezone=UTC"]\n    prefix: time\n',
        ),
        (
            "mcp_servers:\n    # old\n    git: {command: git}\n    # deep\n\n# next\nproviders: {}\n",
            "mcp_servers:\n    # old\n    git: {command: git}\n    # deep\n    time:\n      command: uvx\n"
            '      args: [mcp-server-time, "--local-timezone=UTC"]\n      prefix: time\n\n# next\nproviders: {}\n',
        ),
        (
            "mcp_servers:  # none\nproviders: {}\n",
            "mcp_servers:  # none\n  time:\n    command: uvx\n"
            '    args: [mcp-server-time, "--local-timezone=UTC"]\n    prefix: time\nproviders: {}\n',
        ),
        (
            "mcp_servers: {git: {command: git}}  # one line\n",
            'mcp_servers: {time: {command: uvx, args: [mcp-server-time, "--local-timezone=UTC"], prefix: time}, '
            "git: {command: git}}  # one line\n",
        ),
        (
            "{providers: {}}",
            '{mcp_servers: {time: {command: uvx, args: [mcp-server-time, "--local-timezone=UTC"], prefix: time}}, '
            "providers: {}}",
        ),
        (
            "providers: {}\r\nmcp_servers:\r\n  git:\r\n    command: git",
            "providers: {}\r\nmcp_servers:\r\n  git:\r\n    command: git\r\n  time:\r\n    command: uvx\r\n"
            '    args: [mcp-server-time, "--local-timezone=UTC"]\r\n    prefix: time\r\n',
        ),
    ],
    ids=["no section", "a section", "an empty section", "in one line", "a file in one line", "another line end"],
)
def test_servers_are_added_to_the_text_as_it_stands(run: Run, tmp_path: Path, before: str, after: str) -> None:
    config = tmp_path / "providers.yaml"
    config.write_bytes(before.encode())
    (tmp_path / "mcp.json").write_text(servers(time=TIME))
    done = run("discover", "--import", "mcp.json")
    assert (done.code, done.err) == (0, "")
    assert config.read_bytes().decode() == after
    again = run("discover", "--import", "mcp.json")
    assert (again.code, again.out) == (
        0,
        "providers.yaml: 0 servers added\ntime: exists already and is unchanged\n",
    )
    assert config.read_bytes().decode() == after
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


def test_what_only_the_author_can_add_to_is_left_as_it_is(run: Run, tmp_path: Path) -> None:
    config = tmp_path / "providers.yaml"
    config.write_text("mcp_servers: ~\n")
    (tmp_path / "mcp.json").write_text(servers(time=TIME))
    refused = run("discover", "--import", "mcp.json", "--json")
    assert (refused.code, refused.codes) == (1, ["cannot_add"])
    assert refused.json["problems"][0]["hint"] == "--dry-run prints the lines to add by hand"
    assert config.read_text() == "mcp_servers: ~\n"


def test_a_dry_run_prints_the_lines_and_writes_nothing(run: Run, write: Write, tmp_path: Path) -> None:
    config = write("providers: {}")
    before = config.read_text()
    (tmp_path / "mcp.json").write_text(servers(time=TIME))
    done = run("discover", "--import", "mcp.json", "--dry-run")
    assert (done.code, done.out) == (
        0,
        "mcp_servers:\n  time:\n    command: uvx\n"
        '    args: [mcp-server-time, "--local-timezone=UTC"]\n    prefix: time\n',
    )
    assert done.err == "providers.yaml: 1 server to add: time\n"
    told = run("discover", "--import", "mcp.json", "--dry-run", "--json").json
    assert told["imported"]["servers"] == {"time": {**TIME, "prefix": "time"}}
    assert (told["imported"]["written"], told["problems"]) == (False, [])
    assert config.read_text() == before


def test_secrets_are_left_to_the_environment_and_shown_nowhere(run: Run, write: Write, tmp_path: Path) -> None:
    config = write("providers: {}")
    named = {
        "github": {
            "command": "npx",
            "args": ["-y", "@example/server", "--api-key", "s3cret-a", "--token=s3cret-b", "--mode", "fast"],
            "env": {"GITHUB_TOKEN": "s3cret-c", "LOG": "info", "KEPT_KEY": "${MINE}", "UNUSED": None, "N": 1},
        },
        "other": {"command": "npx", "env": {"GITHUB_TOKEN": "s3cret-d", "PLAIN": "ghp_s3cret-eeee"}},
        "docs": {
            "url": "https://docs.example/mcp?apiKey=s3cret-f&page=1",
            "headers": {"Authorization": "Bearer s3cret-g", "X-Mode": "${env:MODE}", "X-Odd": "a${b c}"},
        },
    }
    (tmp_path / "mcp.json").write_text(servers(**named))
    done = run("discover", "--import", "mcp.json", "--json")
    assert done.code == 0
    assert section(config) == {
        "github": {
            "command": "npx",
            "args": [
                "-y",
                "@example/server",
                "--api-key",
                "${GITHUB_API_KEY}",
                "--token=${GITHUB_TOKEN}",
                "--mode",
                "fast",
            ],
            "env": {"GITHUB_TOKEN": "${GITHUB_GITHUB_TOKEN}", "LOG": "info", "KEPT_KEY": "${MINE}", "N": "1"},
        },
        "other": {"command": "npx", "env": {"GITHUB_TOKEN": "${OTHER_GITHUB_TOKEN}", "PLAIN": "${PLAIN}"}},
        "docs": {
            "url": "https://docs.example/mcp?apiKey=${DOCS_APIKEY}&page=1",
            "headers": {"Authorization": "Bearer ${DOCS_AUTHORIZATION}", "X-Mode": "${MODE}", "X-Odd": "a$${b c}"},
        },
    }
    assert done.json["imported"]["variables"] == {
        "GITHUB_API_KEY": "argument api-key of github",
        "GITHUB_TOKEN": "argument token of github",
        "GITHUB_GITHUB_TOKEN": "env GITHUB_TOKEN of github",
        "OTHER_GITHUB_TOKEN": "env GITHUB_TOKEN of other",
        "PLAIN": "env PLAIN of other",
        "DOCS_APIKEY": "url apiKey of docs",
        "DOCS_AUTHORIZATION": "header Authorization of docs",
    }
    assert "s3cret" not in done.out + done.err + config.read_text()


def test_names_become_ids_and_what_means_nothing_here_is_told(run: Run, write: Write, tmp_path: Path) -> None:
    config = write("providers: {}")
    named = {
        "My Server": {"type": "stdio", "command": "a", "autoApprove": [], "timeout": 5},
        "my_server": {"command": "b"},
        "My.Server": {"command": "c", "disabled": True},
        "3d": {"type": "sse", "url": "http://127.0.0.1:1/sse"},
        "…": {"command": "yes", "args": ["null", "1e5", "a: b", ""], "cwd": "/tmp"},
    }
    (tmp_path / "mcp.json").write_text(json.dumps({"mcpServers": named}))
    done = run("discover", "--import", "mcp.json")
    assert section(config) == {
        "my-server": {"command": "a"},
        "my_server": {"command": "b"},
        "my-server-2": {"command": "c", "enabled": False},
        "server-3d": {"url": "http://127.0.0.1:1/sse"},
        "server": {"command": "yes", "args": ["null", "1e5", "a: b", ""], "cwd": "/tmp"},
    }
    assert done.code == 0
    assert done.out.splitlines() == [
        "providers.yaml: 5 servers added: my-server, my_server, my-server-2, server-3d, server",
        "my-server: called 'My Server' in the file",
        "my-server: left out: autoApprove, timeout",
        "my-server-2: called 'My.Server' in the file",
        "server-3d: called '3d' in the file",
        "server-3d: its transport is the former one, sse; Streamable HTTP is spoken here, which is often at another"
        " path",
        "server: called '…' in the file",
        "toolplug discover lists their tools",
    ]


def test_wrong_servers_are_told_and_the_others_added(run: Run, write: Write, tmp_path: Path) -> None:
    config = write("providers: {}")
    named = {
        "neither": {"args": []},
        "both": {"command": "a", "url": "https://x.example/mcp"},
        "odd": {"command": 3, "args": "x"},
        "file": {"url": "file:///etc/passwd"},
        "none": None,
        "time": TIME,
    }
    (tmp_path / "mcp.json").write_text(servers(**named))
    done = run("discover", "--import", "mcp.json", "--json")
    assert (done.code, section(config)) == (1, {"time": TIME})
    assert [(item["path"], item["message"]) for item in done.json["problems"]] == [
        ("mcpServers.neither", "has neither 'command' nor 'url'"),
        ("mcpServers.both", "has both 'command' and 'url'; keep one"),
        ("mcpServers.odd.command", "should be text"),
        ("mcpServers.odd.args", "should be a list"),
        ("mcpServers.file.url", "should be a URL that begins with http:// or https://"),
        ("mcpServers.none", "should be a mapping of keys"),
    ]


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("{", "not_json"),
        ("[]", "no_servers"),
        ('{"mcp_server": {}}', "no_servers"),
        ('{"mcpServers": 1}', "no_servers"),
    ],
)
def test_a_file_of_something_else_is_refused(run: Run, write: Write, tmp_path: Path, text: str, code: str) -> None:
    config = write("providers: {}")
    before = config.read_text()
    (tmp_path / "mcp.json").write_text(text)
    refused = run("discover", "--import", "mcp.json", "--json")
    assert (refused.code, refused.codes, config.read_text()) == (1, [code], before)
    assert run("discover", "--import", "nowhere.json").code == 1


@pytest.mark.parametrize("line", [["--dry-run"], ["--accept", "a"]])
def test_options_that_mean_nothing_alone_are_refused(run: Run, line: list[str]) -> None:
    assert run("discover", *line).code == 2


def test_secrets_within_arguments_and_addresses_are_left_to_the_environment(
    run: Run, write: Write, tmp_path: Path
) -> None:
    config = write("providers: {}")
    named = {
        "box": {
            "command": "docker",
            "args": ["run", "-e", "API_TOKEN=s3cret-a", "--header", "Authorization: Bearer s3cret-b", "img:1", "N=1"],
        },
        "sql": {"command": "npx", "args": ["server", "postgresql://me:s3cret-c@db:5432/x", "--no-auth", "--fast"]},
        "web": {"url": "https://me:s3cret-d@docs.example/mcp"},
        "asked": {"command": "npx", "env": {"KEY": "${input:api-key}"}},
    }
    (tmp_path / "mcp.json").write_text(servers(**named))
    done = run("discover", "--import", "mcp.json", "--json")
    assert section(config) == {
        "box": {
            "command": "docker",
            "args": [
                "run",
                "-e",
                "API_TOKEN=${BOX_API_TOKEN}",
                "--header",
                "Authorization: Bearer ${BOX_AUTHORIZATION}",
                "img:1",
                "N=1",
            ],
        },
        "sql": {
            "command": "npx",
            "args": ["server", "postgresql://me:${SQL_PASSWORD}@db:5432/x", "--no-auth", "--fast"],
        },
        "web": {"url": "https://me:${WEB_PASSWORD}@docs.example/mcp"},
        "asked": {"command": "npx", "env": {"KEY": "${API_KEY}"}},
    }
    assert done.json["imported"]["variables"] == {
        "BOX_API_TOKEN": "argument API_TOKEN of box",
        "BOX_AUTHORIZATION": "argument Authorization of box",
        "SQL_PASSWORD": "argument password of sql",
        "WEB_PASSWORD": "url password of web",
        "API_KEY": "env KEY of asked",
    }
    assert "s3cret" not in done.out + done.err


def test_a_byte_order_mark_before_the_file_is_read_over(run: Run, write: Write, tmp_path: Path) -> None:
    config = write("providers: {}")
    (tmp_path / "mcp.json").write_text(servers(time=TIME), encoding="utf-8-sig")
    assert run("discover", "--import", "mcp.json").code == 0
    assert section(config) == {"time": TIME}


def test_servers_that_are_no_mapping_are_told_by_the_right_shape(run: Run, write: Write, tmp_path: Path) -> None:
    write("providers: {}")
    (tmp_path / "mcp.json").write_text('{"mcpServers": []}')
    refused = run("discover", "--import", "mcp.json", "--json")
    assert (refused.code, refused.codes) == (1, ["no_servers"])
    assert refused.json["problems"][0]["hint"].startswith("it should read")


@pytest.mark.requirement("C-2-server-prefix")
def test_no_prefix_is_given_where_it_would_open_the_server_or_is_taken(run: Run, tmp_path: Path) -> None:
    config = tmp_path / "providers.yaml"
    (tmp_path / "mcp.json").write_text(servers(time={"command": "t"}, git={"command": "g"}))
    config.write_text("auth: {api_keys: [{key: k, subject: s}]}\n")
    done = run("discover", "--import", "mcp.json")
    assert "time: no prefix, which would give its tools to every key that names no agents" in done.out
    assert config.read_text().endswith(
        "  time:\n    command: t\n    # prefix: time  # would give its tools to every key that names no agents\n"
        "  git:\n    command: g\n    # prefix: git  # would give its tools to every key that names no agents\n"
    )
    config.write_text("toolsets: {other: {prefix: time, from: 'mcp:git'}}\n")
    run("discover", "--import", "mcp.json")
    assert config.read_text().endswith(
        "  time:\n    command: t\n    # prefix: time  # is used already\n  git:\n    command: g\n    prefix: git\n"
    )
