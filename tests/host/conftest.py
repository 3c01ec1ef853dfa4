"""Provider packages as pip would leave them: a module and its metadata on `sys.path`, made for one test."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

Package = Callable[..., None]


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Package]:
    """Install a distribution: `package("toolplug-notes", {"notes": "notes_mod:Notes"}, notes_mod="class …")`."""
    site = tmp_path / "site-packages"
    site.mkdir()
    monkeypatch.syspath_prepend(str(site))
    before = set(sys.modules)

    def install(name: str, providers: dict[str, str], *, requires: str = "", **modules: str) -> None:
        info = site / f"{name.replace('-', '_')}-1.0.dist-info"
        info.mkdir()
        requirement = f"Requires-Dist: {requires}\n" if requires else ""
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n{requirement}")
        points = "\n".join(f"{key} = {value}" for key, value in providers.items())
        (info / "entry_points.txt").write_text(f"[toolplug.providers]\n{points}\n")
        for module, code in modules.items():
            (site / f"{module}.py").write_text(textwrap.dedent(code))

    yield install
    for module in set(sys.modules) - before:
        if getattr(sys.modules[module], "__file__", None) and str(site) in str(sys.modules[module].__file__):
            del sys.modules[module]


@pytest.fixture
def config(tmp_path: Path) -> Callable[[str], Path]:
    """Write `providers.yaml`; the store is in memory unless the text says otherwise."""
    path = tmp_path / "providers.yaml"

    def write(text: str) -> Path:
        body = textwrap.dedent(text)
        path.write_text(body if "store:" in body else f"{body}\nstore: memory://\n")
        return path

    return write
