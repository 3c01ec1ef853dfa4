"""The wheels of a lock in one folder, for a place without a network."""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterable, Mapping
from importlib.util import find_spec
from pathlib import Path, PurePosixPath

from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename

from toolplug.errors import ToolplugError
from toolplug.locking.installed import InstalledPackages
from toolplug.locking.lock_file import SHORT, Lock, LockedPackage
from toolplug.locking.reader import packages_of
from toolplug.packages.environments import requirements_file

_SHOWN = 12
"""Lines of an installer that failed: the last ones say why."""


class BundleFailed(ToolplugError):
    """The wheels of a lock cannot be had; the text says which, and why."""


def write_bundle(lock: Lock, file: Path, folder: Path, *, shows: bool = False) -> Mapping[str, int]:
    """Download or build the wheel of each package of a lock, and compare its files with the lock.

    Writes them to `folder`, with the lock, the `file`, and a file of requirements for each interpreter. `shows`: pip
    writes to stderr how far it is. Returns the number of packages by the name of the file of requirements. Raises
    `BundleFailed` and `ProviderError`.
    """
    if not find_spec("pip"):
        raise BundleFailed(
            "pip is not installed next to this toolplug, and it downloads the wheels: uv pip install pip"
        )
    editable = [each.name for each in lock.packages if each.editable]
    if editable:
        raise BundleFailed(
            f"{', '.join(editable)}: working copies, which no wheel is like; install them without --editable, then lock"
        )
    folder.mkdir(parents=True, exist_ok=True)
    known: dict[str, InstalledPackages] = {}
    written: dict[str, int] = {}
    for environment in lock.environments:
        python = str(file.parent / environment.python) if environment.python else ""
        packages = [each for each in lock.packages if each.python == environment.python]
        installed = packages_of(known, environment.python, python)
        _fetch([_source(installed, each) for each in packages], python, folder, shows=shows)
        wheels = _wheels(folder)
        lines = [_check_wheel(each, wheels.get((each.name, each.version))) for each in packages]
        name = requirements_file(environment.python)
        (folder / name).write_text("".join(lines), "utf-8", newline="\n")
        written[name] = len(packages)
    shutil.copyfile(file, folder / file.name)
    return written


def _source(installed: InstalledPackages, package: LockedPackage) -> str:
    """Return what pip gets a package from: where it was installed from (PEP 610), or an index."""
    distribution = installed.path.distribution(package.name)
    text = None if distribution is None else distribution.read_text("direct_url.json")
    try:
        return f"{package.name} @ {json.loads(text or '{}')['url']}"
    except (ValueError, LookupError, TypeError):
        return f"{package.name}=={package.version}"


def _fetch(sources: Iterable[str], python: str, folder: Path, *, shows: bool) -> None:
    """Write the wheels of these requirements, as their interpreter needs them."""
    command = [sys.executable, "-m", "pip", *(("--python", python) if python else ()), "wheel", "--no-deps"]
    done = subprocess.run(
        [*command, "--disable-pip-version-check", "--wheel-dir", str(folder), *sources],
        stdin=subprocess.DEVNULL,
        stdout=sys.stderr if shows else subprocess.PIPE,
        stderr=None if shows else subprocess.STDOUT,
        check=False,
    )
    if done.returncode:
        said = "" if shows else "\n".join(done.stdout.decode("utf-8", "replace").strip().split("\n")[-_SHOWN:])
        raise BundleFailed(f"pip has not brought the wheels; it said:\n{said}".rstrip("\n:"))


def _wheels(folder: Path) -> dict[tuple[str, str], Path]:
    found: dict[tuple[str, str], Path] = {}
    for wheel in sorted(folder.glob("*.whl")):
        try:
            name, version, _, _ = parse_wheel_filename(wheel.name)
        except InvalidWheelFilename:
            continue
        found[canonicalize_name(name), str(version)] = wheel
    return found


def _check_wheel(package: LockedPackage, wheel: Path | None) -> str:
    """Return the requirement of a wheel whose files are those of the lock. Raises `BundleFailed`."""
    owner = f"{package.name} {package.version}"
    if wheel is None:
        raise BundleFailed(f"{owner}: pip has brought no wheel of this version")
    with zipfile.ZipFile(wheel) as archive:
        for info in archive.infolist():
            path = _installed_path(info.filename)
            if info.is_dir() or path not in package.files:
                continue
            with archive.open(info) as content:
                digest = hashlib.file_digest(content, "sha256").hexdigest()  # pyright: ignore[reportArgumentType]
            if not digest.startswith(package.files[path][:SHORT]):
                wheel.unlink()
                raise BundleFailed(f"{owner}: {path} of its wheel is not the one that is locked; the wheel is removed")
    with wheel.open("rb") as content:
        whole = hashlib.file_digest(content, "sha256").hexdigest()
    return f"{package.name}=={package.version} --hash=sha256:{whole}\n"


def _installed_path(name: str) -> str:
    """Return where a file of a wheel is installed, below the folder of packages."""
    parts = PurePosixPath(name).parts
    if parts and parts[0].endswith(".data") and parts[1:2] in (("purelib",), ("platlib",)):
        return "/".join(parts[2:])
    return name
