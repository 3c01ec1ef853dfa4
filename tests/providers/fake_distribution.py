"""Distributions as pip leaves them in `site-packages`, made by hand in a folder."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any


def install(
    folder: Path,
    name: str,
    entry_points: str,
    *,
    version: str = "1.0",
    requires: tuple[str, ...] = (),
    modules: dict[str, str] | None = None,
) -> None:
    """Write the metadata of a distribution and its modules (name → source)."""
    info = folder / f"{name.replace('-', '_')}-{version}.dist-info"
    info.mkdir(parents=True)
    lines = ["Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}"]
    info.joinpath("METADATA").write_text("\n".join([*lines, *(f"Requires-Dist: {text}" for text in requires), ""]))
    info.joinpath("entry_points.txt").write_text(entry_points)
    for module, source in (modules or {}).items():
        folder.joinpath(f"{module}.py").write_text(source)


def provides(**types: str) -> str:
    """The text of `entry_points.txt` for these provider types."""
    lines = [f"{name} = {value}" for name, value in types.items()]
    return "\n".join(["[console_scripts]", "tool = tool:main", "", "[toolplug.providers]", *lines, ""])


def run_with(folder: Path, code: str) -> Any:
    """Run the code in a new interpreter that has the folder on its path; what it prints is JSON."""
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": str(folder)},
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)
