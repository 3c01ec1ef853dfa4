"""Making the environment of a provider, with uv where there is one, else with pip."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import venv
from collections.abc import Iterator, Sequence
from importlib.metadata import distribution, version
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from toolplug.errors import ToolplugError

_FOLDERS = ("bin", "Scripts")
_SHOWN = 12
"""Lines of an installer that failed: the last ones say why."""


class InstallationFailed(ToolplugError):
    """An environment is not made; the text has what the installer said."""


class Wheels(NamedTuple):
    """A folder of wheels that is used in place of an index, as `toolplug bundle` writes it.

    `requirements` is its file for this environment: these wheels and no others, whatever the resolver would choose.
    """

    folder: Path
    requirements: Path | None = None

    def arguments(self, package: str) -> list[str]:
        """Return the options of pip and uv for it, with what is installed. Nothing is built, so no code of it runs."""
        options = ["--no-index", "--only-binary", ":all:", "--find-links", str(self.folder)]
        if self.requirements is not None:
            return [*options, "--no-deps", "--require-hashes", "--requirement", str(self.requirements)]
        return [*options, package, f"toolplug=={version('toolplug')}"]


def requirements_file(python: str) -> str:
    """Return the name of the file with the requirements of an interpreter, by its name in the lock."""
    slug = re.sub(r"[^A-Za-z0-9_.]+", "-", python).strip("-.")
    return f"requirements-{slug}.txt" if slug else "requirements.txt"


def make_environment(python: Path, package: str, *, wheels: Wheels | None = None, shows: bool = False) -> bool:
    """Make the environment of an interpreter if there is none, and install a package and toolplug into it.

    `shows`: the installer writes to stderr how far it is. Blocks for as long as the installation takes. Returns whether
    the environment is new. Raises `InstallationFailed`.
    """
    is_new = not python.exists()
    if is_new:
        _create(python)
    wanted = [package, _own_requirement()] if wheels is None else wheels.arguments(package)
    said = ""
    for command in _installers(python):
        done = subprocess.run(
            [*command, *wanted],
            stdin=subprocess.DEVNULL,
            stdout=sys.stderr if shows else subprocess.PIPE,
            stderr=None if shows else subprocess.STDOUT,
            check=False,
        )
        if done.returncode == 0:
            return is_new
        said = "" if shows else "\n".join(done.stdout.decode("utf-8", "replace").strip().split("\n")[-_SHOWN:])
    if not said and not shows:
        raise InstallationFailed("there is neither uv nor pip next to this toolplug; install one of them")
    raise InstallationFailed(f"{package} is not installed into {python}; the installer said:\n{said}".rstrip("\n:"))


def _create(python: Path) -> None:
    folder = python.parent.parent
    if python.parent.name not in _FOLDERS:
        raise InstallationFailed(f"{python} is no interpreter of an environment: name {folder}/ENVIRONMENT/bin/python")
    if folder.exists() and any(folder.iterdir()):
        raise InstallationFailed(
            f"{folder} is there, is not empty, and has no {python.name}; remove it, or name another"
        )
    try:
        # Without pip in it: the installer is the host's, and what is not there cannot be called.
        venv.EnvBuilder(with_pip=False, symlinks=sys.platform != "win32").create(folder)
    except (OSError, subprocess.SubprocessError) as error:
        raise InstallationFailed(f"{folder} cannot be made: {error}") from None
    if not python.exists():
        raise InstallationFailed(f"{folder} is made, and has no {python.name}: name its bin/python")


def _installers(python: Path) -> Iterator[Sequence[str]]:
    """Yield the commands that install for an interpreter: uv reads no pip.conf, and pip comes after it."""
    uv = [sys.executable, "-m", "uv"] if find_spec("uv") else [found] if (found := shutil.which("uv")) else None
    if uv is not None:
        yield [*uv, "pip", "install", "--python", str(python)]
    if find_spec("pip"):
        yield [sys.executable, "-m", "pip", "--python", str(python), "install", "--disable-pip-version-check"]


def _own_requirement() -> str:
    """Return what installs the toolplug of this host: from its folder, where it is a working copy (PEP 610)."""
    own = distribution("toolplug")
    try:
        return f"toolplug @ {json.loads(own.read_text('direct_url.json') or '{}')['url']}"
    except (ValueError, LookupError, TypeError):
        return f"toolplug=={own.version}"
