"""Environments of their own for providers, as tests make them: with the toolplug of this one, and other libraries."""

from __future__ import annotations

import shutil
import venv
import zipfile
from importlib.metadata import distribution
from pathlib import Path
from sysconfig import get_path
from typing import cast

from tests.locking.shop import write_record

STRANGER = '''
from pydantic import BaseModel

import httpx2
from toolplug import FunctionProvider, tool


class Stranger(FunctionProvider):
    """Says which library it has."""

    class Config(BaseModel):
        name: str = "httpx2"

    @tool
    def library(self) -> str:
        "Say which library there is."
        return f"{self.config.name} {httpx2.__version__}"
'''
OTHER = "99.0"
"""A version of a library that nobody has."""


def linked_environment(folder: Path) -> Path:
    """Make an environment that has the toolplug of this one, by links; gives its folder of packages."""
    venv.create(folder, with_pip=False)
    site = next(folder.glob("lib/python*/site-packages"))
    own = distribution("toolplug")
    info = Path(str(getattr(own, "_path")))  # noqa: B009  it has no public name
    shutil.copytree(info, site / info.name)
    (site / "linked.pth").write_text(f"{Path(__file__).parents[2] / 'src'}\n{get_path('purelib')}\n")
    return site


def install_stranger(site: Path) -> None:
    """Install a provider's package, and another version of a library than the host's."""
    _write(site, "toolplug-stranger", "1.0", {"toolplug_stranger.py": STRANGER}, f"Requires-Dist: httpx2=={OTHER}\n")
    _write(site, "httpx2", OTHER, {"httpx2/__init__.py": f'__version__ = "{OTHER}"\n'})


def build_stranger_wheels(folder: Path) -> None:
    """Build the wheels of the same, with the whole library in the second one."""
    folder.mkdir()
    tree = folder / "tree"
    install_stranger(tree)
    original = distribution("httpx2")
    for file in original.files or ():
        if file.parts[0] == "httpx2" and file.suffix in (".py", ".typed"):
            target = tree / str(file)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(cast("Path", file.locate()), target)
    version = tree / "httpx2" / "__version__.py"
    version.write_text(version.read_text().replace(original.version, OTHER))
    info = tree / f"httpx2-{OTHER}.dist-info" / "METADATA"
    needs = "".join(f"Requires-Dist: {each}\n" for each in original.requires or () if "extra ==" not in each)
    info.write_text(info.read_text() + needs)
    for name in (f"httpx2-{OTHER}", "toolplug_stranger-1.0"):
        _pack(tree, f"{name}.dist-info", folder / f"{name}-py3-none-any.whl")
    shutil.rmtree(tree)


def _pack(tree: Path, info: str, wheel: Path) -> None:
    top = info.partition("-")[0]
    paths = [path.relative_to(tree).as_posix() for path in tree.rglob("*") if path.is_file()]
    mine = [path for path in paths if path.startswith((f"{top}/", f"{top}.py", f"{info}/")) and "RECORD" not in path]
    write_record(tree, info, mine)
    with zipfile.ZipFile(wheel, "w") as archive:
        for path in (*mine, f"{info}/RECORD"):
            archive.write(tree / path, path)


def _write(site: Path, name: str, version: str, files: dict[str, str], needs: str = "") -> None:
    info = f"{name.replace('-', '_')}-{version}.dist-info"
    files = {
        **files,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{needs}",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    if name == "toolplug-stranger":
        files[f"{info}/entry_points.txt"] = "[toolplug.providers]\nstranger = toolplug_stranger:Stranger\n"
    for path, text in files.items():
        (site / path).parent.mkdir(parents=True, exist_ok=True)
        (site / path).write_text(text)
    write_record(site, info, files)
