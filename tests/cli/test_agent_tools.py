"""`toolplug tools` and `toolplug call` as an agent and in a session."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from tests.cli.conftest import Run
from tests.host.plain_server import PlainServer

GREETING = """
providers: {hello: {enabled: true}}
toolsets: {greet: {prefix: greet, from: provider:hello}}
agents: {writer: {toolsets: [greet]}, idle: {toolsets: []}}
"""


@pytest.mark.requirement("C-10-agent-session")
def test_tools_lists_what_an_agent_has_and_says_which_agents_have_some(run: Run, write: Callable[..., Path]) -> None:
    write(GREETING)
    plain = run("tools")
    assert "hello" in plain.out
    assert plain.err == "agent writer: 1 tool (toolplug tools --agent writer)\n"
    named = run("tools", "--agent", "writer", "--json")
    assert [item["function"]["name"] for item in named.json["tools"]] == ["greet__hello"]
    assert run("tools", "--agent", "idle").out.startswith("no tools for agent 'idle'")


@pytest.mark.requirement("C-10-agent-session")
def test_call_calls_as_an_agent(run: Run, write: Callable[..., Path]) -> None:
    write(GREETING)
    assert run("call", "greet.hello", "name=Ada", "--agent", "writer").out == "Hello, Ada!\n"
    unknown = run("call", "greet.hello", "name=Ada")
    assert (unknown.code, unknown.out) == (1, "Toolset not found for greet.hello\n")


@pytest.mark.requirement("C-10-agent-session")
def test_a_session_that_is_not_there_is_refused(run: Run, write: Callable[..., Path]) -> None:
    write(GREETING)
    for command in (("tools",), ("call", "hello", "name=Ada")):
        done = run(*command, "--session", "ABCDEFGH")
        assert done.code == 1
        assert "ABCDEFGH" in done.err or "session" in done.err


@pytest.mark.mcp
@pytest.mark.requirement("C-10-agent-session", "C-2-server-prefix")
def test_what_discover_has_found_is_listed_and_called(run: Run, tmp_path: Path, write: Callable[..., Path]) -> None:
    entry = PlainServer(tmp_path / "plain", "read").entry
    write(
        yaml.safe_dump(
            {
                "store": "sqlite:///./state.db",
                "mcp_servers": {"files": {**entry, "prefix": "files"}},
                "toolsets": {"fs": {"prefix": "fs", "from": "mcp:files"}},
                "agents": {"writer": {"toolsets": ["fs"]}},
            }
        )
    )
    before = run("tools")
    assert "MCP server files: its tools are not known yet (toolplug discover files)" in before.err
    assert run("discover").code == 0
    assert "files.read" in run("tools").out
    called = run("call", "files.read", "text=a")
    assert json.loads(called.out)["text"] == "a"
    assert "fs.read" in run("tools", "--agent", "writer").out
    called = run("call", "fs.read", "text=b", "--agent", "writer")
    assert json.loads(called.out)["text"] == "b"
