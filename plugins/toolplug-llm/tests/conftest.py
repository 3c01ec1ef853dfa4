"""Plugins of `llm` that a test writes and installs, and the loop that asynchronous tests run in."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str, str], str]]:
    """Installs a package of one module: its name and code; gives the name of the distribution."""
    monkeypatch.syspath_prepend(str(tmp_path))
    modules: list[str] = []

    def install(name: str, code: str) -> str:
        module = name.replace("-", "_")
        modules.append(module)
        (tmp_path / f"{module}.py").write_text(code)
        info = tmp_path / f"{module}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(f"[llm]\n{module} = {module}\n")
        return name

    yield install
    for module in modules:
        sys.modules.pop(module, None)
