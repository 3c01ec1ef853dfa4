"""The pages of programs that use a host, each followed with the program itself and the scripted model."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

import pytest
from tests.clients.environments import codex, environment
from tests.docs.model import model
from tests.docs.reader import Reader
from tests.node.installed import node, script
from tests.requirement_table import ROOT

pytestmark = [pytest.mark.judge, pytest.mark.needs("curl", "jq"), pytest.mark.timeout(400)]

OFFLINE = {"LITELLM_LOCAL_MODEL_COST_MAP": "True", "DISABLE_AUTOUPDATER": "1"}
"""Without it, LiteLLM waits ten seconds for a list of prices on a machine without the internet."""


def follow(page: str, name: str, command: Sequence[object], folder: Path) -> None:
    """Do what the page says, with this command as the program of this name."""
    program = folder / "programs" / name
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec {shlex.join(map(str, command))} "$@"\n')
    program.chmod(0o755)
    with model() as environ, Reader(folder, {**environ, **OFFLINE}, programs=[program.parent]) as reader:
        reader.read((ROOT / page).read_text("utf-8"))


@pytest.mark.long(50)
@pytest.mark.requirement("I32-litellm")
def test_the_proxy_of_litellm_is_in_front_of_a_host_and_behind_one(tmp_path: Path) -> None:
    # Scripts of the environment name the folder that it was made in.
    python = environment("litellm_proxy") / "bin" / "python"
    start = "from litellm import run_server; run_server()"
    follow("docs/how-to/use-with-litellm.md", "litellm", [python, "-c", start], tmp_path)


@pytest.mark.requirement("I32-claude-code")
def test_claude_code_calls_a_tool(tmp_path: Path) -> None:
    program = script("mcp_clients", "@anthropic-ai/claude-code")
    follow("docs/how-to/use-with-claude-code.md", "claude", [node(), program], tmp_path)


@pytest.mark.requirement("I32-codex")
def test_codex_has_the_host_as_a_model_and_as_an_mcp_server(tmp_path: Path) -> None:
    follow("docs/how-to/use-with-codex.md", "codex", [codex()], tmp_path)
