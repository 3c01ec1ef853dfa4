"""The package's public names: what they are, where they come from, and when they are loaded."""

from __future__ import annotations

import ast
import subprocess
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from tests.requirement_table import ROOT

import toolplug
from toolplug.exports import HOMES, OF_EXTRAS

STUB = ast.parse((ROOT / "src/toolplug/__init__.pyi").read_text("utf-8"))


def test_the_package_gives_exactly_what_type_checkers_are_told() -> None:
    assert sorted(HOMES) == sorted({*toolplug.__all__, *OF_EXTRAS})
    told = {alias.name: node.module for node in STUB.body if isinstance(node, ast.ImportFrom) for alias in node.names}
    given = {name: getattr(toolplug, name) for name in HOMES}
    assert {name: getattr(sys.modules[str(module)], name) for name, module in told.items()} == given


@pytest.mark.process
def test_the_public_names_are_listed_before_they_are_loaded() -> None:
    asked = "import sys, toolplug.testing; print('pydantic' in sys.modules, dir(toolplug) + dir(toolplug.testing))"
    done = subprocess.run([sys.executable, "-c", asked], check=True, capture_output=True, text=True)
    loaded, names = ast.literal_eval(done.stdout.replace(" ", ", ", 1))
    assert {*toolplug.__all__, "check_provider"} <= {*names}
    assert not loaded


def test_a_name_that_the_package_does_not_have_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match=r"^module 'toolplug' has no attribute 'Wombat'$"):
        toolplug.Wombat  # pyright: ignore  # noqa: B018


WITHOUT_EXTRAS = """
import sys
class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {blocked}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Blocked())
"""
FRAMEWORKS = ("agents", "langchain_core", "llama_index", "pydantic_ai")


def _modules_of_extras() -> list[str]:
    """Return the names by which the packages of all extras are imported, and those of other frameworks."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]
    named = {canonicalize_name(Requirement(each).name) for needs in extras.values() for each in needs} - {"toolplug"}
    owners = packages_distributions().items()
    found = [module for module, packages in owners if named & {canonicalize_name(package) for package in packages}]
    return sorted({*found, *FRAMEWORKS})


@pytest.mark.process
@pytest.mark.requirement("X-extras-named")
def test_what_needs_an_extra_says_which_and_the_rest_works_without() -> None:
    code = (
        WITHOUT_EXTRAS.format(blocked=_modules_of_extras())
        + """
from importlib import import_module
from toolplug import *
import toolplug
for module, name in (
    ("toolplug", "TenantOption"), ("toolplug", "state_folder"), ("toolplug", "checked_transport"),
    ("toolplug.client", ""), ("toolplug.integrations.openai_agents", ""), ("toolplug.integrations.langchain", ""),
    ("toolplug.integrations.llama_index", ""), ("toolplug.integrations.pydantic_ai", ""),
):
    try:
        getattr(import_module(module), name)
    except ImportError as error:
        print(error)
"""
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [
        "toolplug.TenantOption needs toolplug[cli]; pip install 'toolplug[cli]'",
        "toolplug.state_folder needs toolplug[cli]; pip install 'toolplug[cli]'",
        "toolplug.checked_transport needs toolplug[mcp]; pip install 'toolplug[mcp]'",
        "toolplug.client needs toolplug[client]; pip install 'toolplug[client]'",
        "toolplug.integrations.openai_agents needs openai-agents; pip install 'openai-agents'",
        "toolplug.integrations.langchain needs langchain-core; pip install 'langchain-core'",
        "toolplug.integrations.llama_index needs llama-index-core; pip install 'llama-index-core'",
        "toolplug.integrations.pydantic_ai needs pydantic-ai-slim; pip install 'pydantic-ai-slim'",
    ]


@pytest.mark.process
@pytest.mark.requirement("X-extras-named")
def test_a_host_in_code_needs_no_extra() -> None:
    blocked = _modules_of_extras()
    assert {"aiosqlite", "uvicorn", "jwt"} < set(blocked)
    code = (
        WITHOUT_EXTRAS.format(blocked=blocked)
        + """
import asyncio
import toolplug.testing
from toolplug import CallContext, Principal, open_host, tool
from toolplug.http import create_app

@tool
async def double(number: int) -> int:
    return number * 2

async def main():
    me = Principal(scopes=frozenset({"tools:call"}))
    async with open_host({"store": "memory://"}, providers={"mine": double}) as host:
        create_app(host)
        print((await host.executor_for(me).call("double", {"number": 4}, CallContext(principal=me))).output)

asyncio.run(main())
"""
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("8\n", "")


@pytest.mark.process
def test_another_package_of_the_name_is_said_to_be_another(tmp_path: Path) -> None:
    (tmp_path / "agents.py").write_text("x = 1")
    code = "import toolplug.integrations.openai_agents"
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=False,
        env={"PYTHONPATH": str(tmp_path)},
    )
    assert "needs openai-agents, and the installed 'agents' is not it" in done.stderr


@pytest.mark.process
@pytest.mark.requirement("DESIGN-import-clean")
def test_importing_the_package_loads_no_part_of_it_and_nothing_from_elsewhere() -> None:
    code = "import sys; before = set(sys.modules); import toolplug; print(sorted(set(sys.modules) - before))"
    done = subprocess.run(
        [sys.executable, "-S", "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env={"PYTHONPATH": str(ROOT / "src")},
    )
    loaded = ast.literal_eval(done.stdout)
    assert [name for name in loaded if name.split(".")[0] not in sys.stdlib_module_names] == [
        "toolplug",
        "toolplug.exports",
    ]
