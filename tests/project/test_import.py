"""What `import toolplug` may not do."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from importlib.metadata import version

import pytest
from _pytest.assertion.rewrite import AssertionRewritingHook
from tests.requirement_table import ROOT

OPTIONAL = {
    *("aiosqlite", "fastapi", "httptools", "httpx2", "jwt", "mcp", "openai", "ray", "redis", "rich", "tenacity"),
    *("typer", "uvicorn"),
}
"""Packages of the extras and of the command line."""

MANDATORY = {
    "docstring-parser",
    "jiter",
    "jsonschema-rs",
    "orjson",
    "packaging",
    "pluggy",
    "prometheus-client",
    "pydantic",
    "pyyaml",
    "starlette",
    "typing-extensions",
}
"""What every install brings; one more is a decision (DESIGN.md, *Small core*)."""

WATCHED_IMPORT = """
import json, os, sys

opened, asked = [], []

def watch(event, arguments):
    if event == "open" and isinstance(arguments[0], str) and not arguments[0].endswith((".py", ".pyc", ".so")):
        opened.append(arguments[0])

class Environment(type(os.environ)):
    def __getitem__(self, name):
        frame = sys._getframe(1)
        while frame and frame.f_globals.get("__name__") in ("os", "collections.abc", __name__):
            frame = frame.f_back
        if frame and frame.f_globals.get("__name__", "").split(".")[0] == "toolplug":
            asked.append(name)
        return super().__getitem__(name)

before = set(sys.modules)
os.environ.__class__ = Environment
sys.addaudithook(watch)
import toolplug
print(json.dumps({"opened": opened, "asked": asked, "modules": sorted(set(sys.modules) - before)}))
"""


@pytest.mark.process
@pytest.mark.requirement("DESIGN-import-clean")
def test_importing_toolplug_reads_no_file_and_no_environment_and_imports_no_optional_extra() -> None:
    done = subprocess.run([sys.executable, "-c", WATCHED_IMPORT], capture_output=True, text=True, check=True)
    seen = json.loads(done.stdout)
    packages = {module.split(".")[0] for module in seen["modules"]}
    own_files = [name for name in seen["opened"] if "site-packages" not in name and "/lib/python" not in name]
    assert "toolplug" in packages
    assert (own_files, seen["asked"], packages & OPTIONAL) == ([], [], set())


@pytest.mark.process
def test_a_provider_without_routes_and_metrics_imports_no_library_for_them() -> None:
    code = """
import sys
from toolplug import FunctionProvider, tool
class Notes(FunctionProvider):
    @tool
    def add(self, text: str) -> str:
        return text
libraries = {"asyncio", "jsonschema_rs", "packaging", "prometheus_client", "starlette", "tenacity", "yaml"}
print(libraries & set(sys.modules))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"


@pytest.mark.process
def test_a_tool_of_plain_arguments_is_listed_without_the_library_that_validates_them() -> None:
    code = """
import asyncio, sys
from toolplug import FunctionRegistry, tool
@tool
def add(text: str, count: int = 1) -> str:
    return text * count
async def listed():
    async with FunctionRegistry([add]) as registry:
        print("add" in registry.catalog, "jsonschema_rs" in sys.modules)
asyncio.run(listed())
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "True False\n"


def test_the_mandatory_dependencies_are_those_that_authors_and_registries_need() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    assert {re.split("[^a-z-]", needed)[0] for needed in project["dependencies"]} == MANDATORY


@pytest.mark.requirement("C-1-distribution")
def test_the_installed_version_is_that_of_the_project() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    assert project["name"] == "toolplug"
    assert project["requires-python"] == ">=3.11"
    assert version("toolplug") == (ROOT / "VERSION").read_text("utf-8").strip()


def test_the_product_is_compiled_once_for_the_tests_and_the_processes_that_they_start() -> None:
    """Pytest compiles each module of a distribution whose plugin it finds by itself once more, in every worker."""
    ours = {name: module.__spec__ for name, module in sys.modules.items() if name.startswith("toolplug.")}
    rewritten = [name for name, spec in ours.items() if spec and isinstance(spec.loader, AssertionRewritingHook)]
    assert set(rewritten) <= {"toolplug.testing.plugin"}
    assert "toolplug.testing.provider_rules.life" in ours
