"""The Python that runs the code: which files of the host it needs, and where they are in a container."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, cast

HOME = "/opt/python"
PACKAGES = "/opt/packages"
_NAME_PATHS = ("*.dist-info/direct_url.json", "*.pth", "__editable__*.py")
"""Files of packages that were installed from a folder: they say where it is. Nothing imports them in a container."""

_PROBE = """
import json, os, sys, sysconfig
paths, var = sysconfig.get_paths(), sysconfig.get_config_var
print(json.dumps({
    "executable": os.path.realpath(sys.executable), "base": sys.base_prefix, "version": sys.version_info[:2],
    "library": [paths["stdlib"], paths["platstdlib"]], "packages": [paths["purelib"], paths["platlib"]],
    "libraries": var("LIBDIR") or "", "shared": var("INSTSONAME") or "",
}))
"""
_PROBE_S = 20


class Unavailable(Exception):
    """Code cannot be run on this machine; the text says why, and what to do."""


class Bind(NamedTuple):
    """A file or folder of the host, and where it is read in a container."""

    source: str
    target: str


class Interpreter(NamedTuple):
    """A Python as containers see it.

    `packages` are the folders of installed packages; `covered` are files in them that name paths of the host.
    """

    binds: Sequence[Bind]
    command: str
    packages: Sequence[str]
    covered: Sequence[str]


def interpreter(python: str | None) -> Interpreter:
    """Return this Python, or the one that is running. Blocks while it is asked. Raises `Unavailable`."""
    facts = _facts(python or sys.executable)
    base, executable = Path(str(facts["base"])), Path(str(facts["executable"]))
    command = f"{HOME}/bin/{executable.name}"
    binds = {command: str(executable)}
    for folder in cast("list[str]", facts["library"]):
        path = Path(folder)
        if path.is_relative_to(base) and os.path.isdir(path):
            binds[f"{HOME}/{path.relative_to(base)}"] = str(path)
    name = str(facts["shared"])
    for folder in (str(facts["libraries"]), str(base / "lib")):
        if ".so" in name and os.path.isfile(os.path.join(folder, name)):
            binds.setdefault(f"{HOME}/lib/{name}", os.path.join(folder, name))
    folders = [each for each in dict.fromkeys(cast("list[str]", facts["packages"])) if os.path.isdir(each)]
    packages = [f"{PACKAGES}/{index}" for index in range(len(folders))]
    binds.update(zip(packages, folders, strict=True))
    covered = [
        f"{package}/{file.relative_to(folder)}"
        for package, folder in zip(packages, folders, strict=True)
        for pattern in _NAME_PATHS
        for file in sorted(Path(folder).glob(pattern))
    ]
    return Interpreter([Bind(source, target) for target, source in binds.items()], command, packages, covered)


def _facts(python: str) -> Mapping[str, object]:
    command = [python, "-I", "-c", _PROBE]
    try:
        done = subprocess.run(command, capture_output=True, timeout=_PROBE_S, check=True, env={})
        facts = cast("Mapping[str, object]", json.loads(done.stdout))
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        raise Unavailable(f"the Python {python!r} cannot be asked for its files: {error}") from None
    if cast("list[int]", facts["version"]) < [3, 11]:
        raise Unavailable(f"the Python {python!r} is older than 3.11")
    return facts
