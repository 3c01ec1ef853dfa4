"""The package's public names: what they are, where they come from, and when they are loaded."""

from __future__ import annotations

import ast
import inspect
import subprocess
import sys
import tomllib
from importlib import import_module
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
from docs.generator.api_pages import MODULES, exports, public_names
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from tests.docs.fences import fences
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


def _told(stub: Path) -> dict[str, str]:
    tree = ast.parse(stub.read_text("utf-8"))
    return {
        alias.name: str(node.module) for node in tree.body if isinstance(node, ast.ImportFrom) for alias in node.names
    }


STUBS = [stub for stub in sorted((ROOT / "src/toolplug").glob("*/__init__.pyi")) if stub.parent.name != "testing"]


@pytest.mark.parametrize("stub", STUBS, ids=lambda stub: stub.parent.name)
def test_a_public_package_gives_exactly_what_type_checkers_are_told(stub: Path) -> None:
    package = import_module(f"toolplug.{stub.parent.name}")
    told = _told(stub)
    assert told == package.HOMES
    assert sorted(told) == sorted(package.__all__)
    # A module of the name of a function would take its place as soon as it is imported.
    assert {name for name in told if (stub.parent / f"{name}.py").exists()} == set()
    assert {name: getattr(package, name) for name in told} == {
        name: getattr(import_module(home), name) for name, home in told.items()
    }


INNER = {"toolplug.integrations"}
"""Public modules that are not in the reference, as each needs another framework."""


def _imported(code: str) -> list[tuple[str, str]]:
    """Return (module, name) of all that a program imports from toolplug, at once or with `import_module`."""
    found: list[tuple[str, str]] = []
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.partition(".")[0] == "toolplug":
            found += [(node.module, alias.name) for alias in node.names]
        elif isinstance(node, ast.Import):
            found += [(alias.name, "") for alias in node.names if alias.name.startswith("toolplug.")]
        elif isinstance(node, ast.Call) and getattr(node.func, "id", "") == "import_module":
            found += [
                (str(asked.value), "")
                for asked in node.args
                if isinstance(asked, ast.Constant) and str(asked.value).startswith("toolplug.")
            ]
    return found


def _private(code: str) -> list[str]:
    """Return what a program imports that versions.md does not promise."""
    return [
        f"{module}.{name}".rstrip(".")
        for module, name in _imported(code)
        if module.rpartition(".")[0] not in INNER
        and not (module in PUBLIC and (not name or name in PUBLIC[module] or f"{module}.{name}" in PUBLIC))
    ]


PUBLIC = {
    module: {*public_names(import_module(module)), *(HOMES if module == "toolplug" else ())} for module in MODULES
}
USERS = sorted([*ROOT.glob("plugins/*/src/**/*.py"), *ROOT.glob("examples/**/*.py")])
PAGES = sorted([ROOT / "README.md", *ROOT.glob("plugins/*/README.md"), *ROOT.glob("docs/**/*.md")])


@pytest.mark.requirement("I31-3-public")
def test_shipped_plugins_and_examples_import_public_names_only() -> None:
    found = {str(file.relative_to(ROOT)): _private(file.read_text("utf-8")) for file in USERS}
    assert {file: names for file, names in found.items() if names} == {}


@pytest.mark.requirement("I31-3-public")
def test_the_documentation_imports_public_names_only() -> None:
    found = {
        f"{page.relative_to(ROOT)}:{block.line}": _private(block.text)
        for page in PAGES
        for block in fences(page.read_text("utf-8"))
        if block.language == "python"
    }
    assert {place: names for place, names in found.items() if names} == {}


@pytest.mark.requirement("I31-3-public")
def test_the_examples_of_public_classes_import_public_names_only() -> None:
    found = {
        f"{module}.{name}": _private(block.text)
        for module, name, value in exports()
        for block in fences(inspect.cleandoc(vars(value).get("__doc__") or "") + "\n" if inspect.isclass(value) else "")
    }
    assert {name: names for name, names in found.items() if names} == {}


def test_a_private_name_is_found() -> None:
    assert _private("from toolplug.runtime.threads import in_own_thread") == ["toolplug.runtime.threads.in_own_thread"]
    assert _private("from toolplug.stores import Store, Writer") == ["toolplug.stores.Writer"]
    assert _private("import_module('toolplug.parts.mcp.content')") == ["toolplug.parts.mcp.content"]
    assert _private("import toolplug.stores\nfrom toolplug import tool\nfrom toolplug.http import create_app") == []
