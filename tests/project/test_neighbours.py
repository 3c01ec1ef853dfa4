"""Installing toolplug beside the frameworks that it is used with, and with the oldest versions that it allows."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.requirement_table import ROOT

pytestmark = [pytest.mark.judge, pytest.mark.timeout(600)]

FRAMEWORKS = (
    "open-webui",
    "litellm[proxy]",
    "crewai",
    "strands-agents",
    "pydantic-ai-slim",
    "openai-agents",
    "langchain",
    "llama-index-core",
    "haystack-ai",
    "agno",
    "agent-framework-core",
    "gradio",
)
PAGE = ROOT / "docs/reference/environments.md"
UV = [sys.executable, "-m", "uv", "--quiet"]


def newest(framework: str, *beside: str) -> tuple[int, ...]:
    """Major and minor version of the framework that a solver takes, next to these requirements."""
    wanted = "\n".join([framework, *beside])
    solved = subprocess.run(  # noqa: PLW1510  the assertion says more
        [*UV, "pip", "compile", "--no-header", "--no-annotate", "--python", sys.executable, "-"],
        input=wanted,
        capture_output=True,
        text=True,
    )
    assert solved.returncode == 0, solved.stderr
    name = re.escape(framework.partition("[")[0])
    found = re.search(rf"^{name}(?:\[[^\]]*\])?==([0-9]+)\.([0-9]+)", solved.stdout, re.MULTILINE)
    assert found is not None, solved.stdout
    return int(found[1]), int(found[2])


def ours(extras: str) -> str:
    return f"toolplug[{extras}] @ {ROOT.as_uri()}"


def needs_its_own_environment(framework: str) -> bool:
    return f"| `{framework}` |" in PAGE.read_text()


@pytest.mark.requirement("I32-neighbours")
@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_a_framework_does_not_fall_back_to_an_older_version(framework: str) -> None:
    alone = newest(framework)
    if needs_its_own_environment(framework):
        assert newest(framework, ours("server,responses")) == alone
    else:
        assert newest(framework, ours("server,mcp,responses")) == alone, f"{PAGE.name} does not name {framework}"


IMPORTING = """
import importlib, pkgutil, toolplug
others = ("toolplug.integrations.",)
for module in pkgutil.walk_packages(toolplug.__path__, "toolplug."):
    if not module.name.startswith(others):
        importlib.import_module(module.name)
"""
HOST = """
import asyncio
from toolplug import CallContext, Principal, ToolCall, open_host
from toolplug.http import create_app

async def main():
    async with open_host({"providers": {"hello": {"enabled": True}}}) as host:
        create_app(host)
        me = Principal(subject="alice", scopes=frozenset({"tools:call"}))
        call = ToolCall("c1", "hello", {"name": "Ada"})
        done = await host.executor_for(me).execute(call, CallContext(principal=me))
        assert done.status == "success", done

asyncio.run(main())
"""
OLDEST_TESTS = (
    "tests/signatures",
    "tests/stores/test_open_store.py",
    "tests/stores/test_sqlite_faults.py",
    "tests/cli/test_import_formats.py",
    "tests/mcp/test_tools.py",
    "tests/mcp/client/test_readable_results.py",
)
TOOLS = (
    *("pytest", "pytest-xdist", "pytest-timeout", "pytest-rerunfailures", "hypothesis", "regex"),
    *("asyncpg", "redis", "vcrpy", "tiktoken"),
)
"""Of the tests and their fixtures, in the versions that they are written for."""


@pytest.mark.long(45)
@pytest.mark.requirement("I32-oldest-versions")
def test_the_oldest_versions_that_are_allowed_work(tmp_path: Path) -> None:
    environment = tmp_path / "oldest"
    python = str(environment / "bin" / "python")
    oldest = tmp_path / "oldest.txt"
    extras = [f"--extra={extra}" for extra in ("server", "mcp", "responses", "client", "auth")]
    project = str(ROOT / "pyproject.toml")
    solve = ["pip", "compile", "--resolution", "lowest-direct", "--python", sys.executable, *extras, project]
    solved = subprocess.run([*UV, *solve], check=True, capture_output=True, text=True).stdout
    # Without the console, which is of this checkout and is installed with it.
    oldest.write_text("".join(f"{line}\n" for line in solved.splitlines() if "==" in line))
    subprocess.run([*UV, "venv", "--python", sys.executable, str(environment)], check=True)
    install = [*UV, "pip", "install", "--python", python]
    subprocess.run([*install, "--requirement", str(oldest)], check=True)
    pins = dict(line.split("==") for line in (ROOT / "constraints.txt").read_text().split())
    tools = [f"{name}=={pins[name]}" for name in TOOLS]
    # The newest of these two that fit: they need a Starlette and a pydantic of their own.
    subprocess.run([*install, *tools, "fastapi", "anyio", "--constraint", str(oldest)], check=True)
    plugins = [str(ROOT / "plugins" / name) for name in ("toolplug-hello", "toolplug-toolsets", "toolplug-console")]
    subprocess.run([*install, "--no-deps", str(ROOT), *plugins], check=True)
    # Not the editable modules of the environment that runs this test.
    clean = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "VIRTUAL_ENV")}
    subprocess.run([python, "-W", "error", "-c", IMPORTING], check=True, cwd=tmp_path, env=clean)
    (tmp_path / "providers.yaml").write_text("providers: {hello: {enabled: true}}\n")
    toolplug = environment / "bin" / "toolplug"
    subprocess.run([toolplug, "check"], check=True, cwd=tmp_path, env=clean, stdout=subprocess.DEVNULL)
    subprocess.run([toolplug, "call", "hello", "name=Ada"], check=True, cwd=tmp_path, env=clean)
    subprocess.run([python, "-W", "error", "-c", HOST], check=True, cwd=tmp_path, env=clean)
    # Old releases use what newer ones of pytest and Python deprecate.
    run = [python, "-m", "pytest", "-q", "-n0", "-m", "not judge", "-W", "ignore::DeprecationWarning"]
    command = [*run, "-p", "no:cacheprovider", *OLDEST_TESTS]
    done = subprocess.run(command, check=False, cwd=ROOT, env=clean, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-8_000:]
