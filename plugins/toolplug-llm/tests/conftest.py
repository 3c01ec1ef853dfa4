"""Plugins of `llm` that a test writes and installs, and the loop that asynchronous tests run in."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from importlib.metadata import distribution
from pathlib import Path
from shutil import copytree

import pytest
from tests.apart.own_environment import linked_environment

SOURCE = Path(__file__).parents[1] / "src"


@pytest.fixture
def own_environment(tmp_path: Path) -> Callable[[str, str], Path]:
    """Makes an environment with the adapter and a plugin of this name and code; gives its interpreter."""

    def make(name: str, code: str) -> Path:
        site = linked_environment(tmp_path / "env")
        adapter = distribution("toolplug-llm")
        copytree(str(adapter.locate_file(f"toolplug_llm-{adapter.version}.dist-info")), site / "toolplug_llm.dist-info")
        (site / "adapter.pth").write_text(f"{SOURCE}\n")
        write_plugin(site, name, code)
        return tmp_path / "env" / "bin" / "python"

    return make


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"


def write_plugin(site: Path, name: str, code: str) -> str:
    """Install a package of one module into a folder; gives the name of the module."""
    module = name.replace("-", "_")
    (site / f"{module}.py").write_text(code)
    info = site / f"{module}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[llm]\n{module} = {module}\n")
    return module


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str, str], str]]:
    """Installs a package of one module: its name and code; gives the name of the distribution."""
    monkeypatch.syspath_prepend(str(tmp_path))
    modules: list[str] = []

    def install(name: str, code: str) -> str:
        modules.append(write_plugin(tmp_path, name, code))
        return name

    yield install
    for module in modules:
        sys.modules.pop(module, None)
