"""Environments of their own for providers: what is installed there, and how one is made, with uv where there is one.

An interpreter is asked for its folders with `-I -S`, which reads no `.pth` file and imports nothing of the environment,
so that what is installed is found without running a line of it. It runs as the host does: an interpreter that a package
has brought or misled is not run at all.
"""

from __future__ import annotations

import csv
import json
import os
import re
import shutil
import subprocess
import sys
import venv
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import distribution, distributions, version
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from toolplug.config.nearest import name_hint
from toolplug.errors import ProviderError, ToolplugError
from toolplug.packages.entry_points import Installed, InstalledProvider, find_installed
from toolplug.providers.entry import ProviderState

ANSWER_S = 20.0
"""Seconds for the folders of an interpreter, which takes 20 ms; a busy machine makes a second of that."""
_OLDEST = (3, 11)
_ASK = """
import json, os, site, sys, sysconfig
env = os.path.dirname(os.path.dirname(os.path.abspath(sys.executable)))
cfg = os.path.join(env, "pyvenv.cfg")
folders = []
if os.path.exists(cfg):
    folders = [sysconfig.get_path(name, "venv", {"base": env, "platbase": env}) for name in ("purelib", "platlib")]
    with open(cfg, encoding="utf-8", errors="replace") as lines:
        keys = dict(line.lower().replace(" ", "").strip().partition("=")[::2] for line in lines)
    system = keys.get("include-system-site-packages") == "true"
if not folders or system:
    folders += site.getsitepackages([sys.base_prefix, sys.base_exec_prefix])
tag = sys.implementation.cache_tag
prefixes = [env if os.path.exists(cfg) else sys.prefix, sys.base_prefix]
print(json.dumps([sys.version_info[:3], list(dict.fromkeys(folders)), list(sys.path), tag, prefixes]))
"""
_PROGRAM = re.compile(r"(?:bin|scripts)/python[0-9.]*[a-z]?(?:\.exe)?(?:\._pth)?|pyvenv\.cfg", re.IGNORECASE)
_STANDARD = re.compile(r"lib[0-9]*/(?:libpython|python[0-9.]*[a-z]?/(?!site-packages/))")
"""Files of an environment that decide what its interpreter runs before it reads a line of a program."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PythonEnvironment:
    """What an interpreter imports: from `folders`, after the standard library in `standard`.

    `version` is that of Python, `tag` the one in the names of its compiled files, `prefixes` the environment's folder
    and that of the installation which it is of.
    """

    python: str
    version: str
    folders: tuple[str, ...]
    standard: tuple[str, ...]
    tag: str
    prefixes: tuple[str, str]

    def find_installed(self) -> Installed:
        """Return the providers that are installed there. Raises `ProviderError` without toolplug."""
        return find_installed(self.folders, running=self.toolplug())

    def toolplug(self) -> str:
        """Return the version of toolplug there. Raises `ProviderError` without one."""
        found = next(iter(distributions(name="toolplug", path=list(self.folders))), None)
        if found is None:
            raise _error(f"{self.python} has no toolplug, which runs the provider there")
        return found.version


def read_environment(python: str) -> PythonEnvironment:
    """Ask an interpreter for its folders. Blocks, at most 20 s. Raises `ProviderError`."""
    for path in _find_replaced(Path(os.path.abspath(python)).parent.parent):
        raise _error(f"a package has written {path}, which decides what {python} runs", "make the environment anew")
    try:
        done = subprocess.run(
            [python, "-I", "-S", "-c", _ASK],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=ANSWER_S,
            check=False,
            env={name: os.environ[name] for name in ("PATH", "SYSTEMROOT") if name in os.environ},
        )
        version, folders, standard, tag, prefixes = json.loads(done.stdout)
    except OSError as error:
        raise _error(f"there is no interpreter {python}: {error.strerror}") from None
    except subprocess.TimeoutExpired:
        raise _error(f"{python} has not said its folders after {ANSWER_S:g} s") from None
    except ValueError:
        raise _error(f"{python} is no Python of 3.11 or newer") from None
    shown = ".".join(map(str, version))
    if tuple(version) < _OLDEST:
        raise _error(f"{python} is Python {shown}, and toolplug needs 3.11 or newer")
    return PythonEnvironment(
        python=python,
        version=shown,
        folders=tuple(folders),
        standard=tuple(standard),
        tag=tag,
        prefixes=(prefixes[0], prefixes[1]),
    )


def _find_replaced(prefix: Path) -> Iterator[str]:
    """Yield the files of packages, as their installer has listed them, that replace the interpreter's own."""
    for pattern in ("lib*/python*/site-packages/*.dist-info/RECORD", "Lib/site-packages/*.dist-info/RECORD"):
        for record in prefix.glob(pattern):
            folder = record.parent.parent
            lines = record.read_text("utf-8", "replace").splitlines()
            # Nearly all paths are below the folder, and are not looked at.
            for name, *_ in csv.reader(line for line in lines if line.startswith(("..", "/", '"'))):
                path = os.path.normpath(folder / name)
                inside = os.path.relpath(path, prefix).replace(os.sep, "/")
                if _PROGRAM.fullmatch(inside) or _STANDARD.match(inside):
                    yield path


def read_links(folders: Iterable[str]) -> Iterator[str]:
    """Yield the folders that `.pth` files add to the path of an environment, as those of editable distributions."""
    for folder in folders:
        for file in sorted(Path(folder).glob("*.pth")):
            for line in file.read_text("utf-8", "replace").splitlines():
                if os.path.isdir(path := os.path.abspath(os.path.join(folder, line.strip()))):
                    yield path


def find_provider(python: str, type_name: str, key: str) -> InstalledProvider:
    """Return the one package of a type that is installed for an interpreter. Raises `ProviderError`."""
    try:
        types = read_environment(python).find_installed().types
    except ProviderError as error:
        fix = f"toolplug env {key}, with `package` in its run"
        raise ProviderError(str(error), state=error.state, fix=fix) from None
    found = list(types.get(type_name, ()))
    if not found:
        hint = name_hint(type_name, types) or f"install its package there: toolplug env {key}"
        raise _error(f"{python} has no provider type {type_name!r}", hint)
    if len(found) > 1:
        owners = " and ".join(item.package for item in found)
        raise _error(f"provider type {type_name!r} of {python} comes from {owners}", "uninstall one of them there")
    return found[0]


def _error(text: str, fix: str = "") -> ProviderError:
    return ProviderError(text, state=ProviderState.IMPORT_FAILED, fix=fix)


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
