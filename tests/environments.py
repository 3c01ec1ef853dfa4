"""Virtual environments of their own for tests, and wheels to install in them: made by uv, in a tenth of pip's time."""

from __future__ import annotations

import atexit
import shutil
import subprocess
import sys
import venv
from collections.abc import Mapping
from configparser import ConfigParser
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple
from zipfile import ZipFile

from tests.requirement_table import ROOT

CONSOLE = ROOT / "plugins" / "toolplug-console"
"""Of the extra `server`; no index has it before a release."""
INSTALL_S = 600
"""What a cold cache on a slow machine needs."""


def make_environment(place: Path, *packages: str | Path) -> Path:
    """Make a virtual environment with these packages, or with what these options of the installer say.

    Gives the folder of its programs.
    """
    venv.create(place, with_pip=False)
    scripts = place / "bin"
    install_into(scripts / "python", *packages)
    return scripts


def install_into(python: Path, *packages: str | Path) -> None:
    """Install packages into the environment of this interpreter."""
    _uv("pip", "install", "--python", python, *packages)


def install_wheels(folder: Path, core: str, plugin: str, package: Path) -> tuple[Path, Path]:
    """Build wheels of toolplug, of its console and of a plugin, and install them in an environment of their own.

    Args:
        folder: where both are made.
        core: the extras of toolplug, such as `server`.
        plugin: those of the plugin; it may have none.
        package: the plugin's folder.

    Returns:
        The folder of the environment's programs, and the plugin's wheel.
    """
    sources = {ROOT: core, CONSOLE: "", package: plugin}
    wheels = {source: build_wheel(folder / "wheels", source) for source in sources}
    named = [f"{wheels[source]}[{extras}]" if extras else wheels[source] for source, extras in sources.items()]
    return make_environment(folder / "venv", "--constraint", ROOT / "constraints.txt", *named), wheels[package]


def build_wheel(folder: Path, package: Path) -> Path:
    """Put a wheel of this package of the checkout into the folder; each process of the tests builds it once."""
    folder.mkdir(exist_ok=True)
    return Path(shutil.copy(_build_once(package), folder))


class UnpackedWheel(NamedTuple):
    """A wheel as files, and its providers by their names."""

    site: Path
    providers: Mapping[str, str]

    def say(self, module: str, expression: str) -> str:
        """Return what an expression of one of its modules, `it`, prints."""
        code = f"import {module} as it; print(it.__file__); print({expression})"
        done = subprocess.run(
            [sys.executable, "-c", code], cwd=self.site, capture_output=True, text=True, check=True, timeout=150
        )
        file, said = done.stdout.splitlines()
        assert Path(file).is_relative_to(self.site), "the module is that of the checkout"
        return said


def unpack_wheel(folder: Path, package: Path) -> UnpackedWheel:
    """Build the wheel of this package of the checkout, and unpack it into the folder."""
    site = folder / "site"
    with ZipFile(build_wheel(folder, package)) as archive:
        archive.extractall(site)
    (points,) = site.glob("*.dist-info/entry_points.txt")
    named = ConfigParser(delimiters="=")
    named.read_string(points.read_text("utf-8"))
    return UnpackedWheel(site, dict(named["toolplug.providers"]))


@cache
def _build_once(package: Path) -> Path:
    """Build a wheel with the build tools of this environment, in a folder that lives as long as this process."""
    folder = TemporaryDirectory()
    atexit.register(folder.cleanup)
    _uv("build", "--wheel", "--no-build-isolation", "--python", sys.executable, "--out-dir", folder.name, package)
    return next(Path(folder.name).glob("*.whl"))


def _uv(*command: str | Path) -> None:
    quiet = [sys.executable, "-m", "uv", "--quiet", *command]
    done = subprocess.run(quiet, capture_output=True, text=True, timeout=INSTALL_S, check=False)
    assert done.returncode == 0, done.stderr
