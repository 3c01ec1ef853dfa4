"""The files that a Python process needs: its interpreter, the libraries of the system, and its environment."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from toolplug.errors import InvalidDefinition, ProviderError
from toolplug.packages.environments import read_environment, read_links

_ASK = "import json, sys; print(json.dumps([sys.prefix, sys.base_prefix, sys.path]))"
_ASK_S = 30.0
"""Seconds for an interpreter to start, by the clock; it takes 20 ms on an idle machine."""
_SYSTEM = (
    "/usr/lib",
    "/usr/lib64",
    "/usr/lib32",
    "/lib",
    "/lib64",
    "/lib32",
    "/nix/store",
    "/usr/share/zoneinfo",
    "/usr/share/ca-certificates",
    "/etc/alternatives",
    "/etc/ca-certificates",
    "/etc/ld.so.cache",
    "/etc/localtime",
    "/etc/mime.types",
    "/etc/pki/ca-trust",
    "/etc/pki/tls/certs",
    "/etc/ssl/certs",
    "/etc/ssl/openssl.cnf",
)
"""What packages of the system have installed for every program, without a program among them."""
_PREFIX_PARTS = ("lib", "lib64", "ssl", "pyvenv.cfg")
_PACKAGES = ("site-packages", "dist-packages")
_MAX_ENTRIES = 1_000
"""Modules and packages of one folder of a working copy."""
_MODULES = (".py", ".so", ".dist-info", ".egg-info", ".pth")


class EnvironmentPart(NamedTuple):
    """A link to `target`, or a file or folder that is read at its own path."""

    path: str
    target: str | None = None


def environment_parts(
    python: str, modules: Iterable[str] = (), extra: Iterable[Path] = (), granted: Sequence[str] = ()
) -> list[EnvironmentPart]:
    """Return what a process of this interpreter needs to import these modules; outer folders first.

    Of a folder on the host's path that is no part of an installation, as one of a working copy, only modules and
    packages are a part: an operator's configuration may be next to them. An environment of its own has what is
    installed in it; of the folders that its `.pth` files name, only those in a granted one, as the packages there are
    not the ones to say what they may read. Raises `InvalidDefinition` for an interpreter that does not start.
    """
    prefix, base_prefix, path = _ask_host() if python == sys.executable else _ask(python)
    parts: dict[str, str | None] = {}
    for folder in _SYSTEM:
        if os.path.lexists(folder):
            parts[folder] = os.readlink(folder) if os.path.islink(folder) else None
    for each in dict.fromkeys((base_prefix, prefix)):
        parts |= {inside: None for name in _PREFIX_PARTS if os.path.exists(inside := f"{each.rstrip('/')}/{name}")}
    parts |= dict(_follow(python))
    if python != sys.executable:
        parts |= {each: None for each in read_links(path) if any(Path(each).is_relative_to(one) for one in granted)}
    whole = tuple(f"{each}/" for each in parts)
    for folder in dict.fromkeys((*path, *map(str, extra))):
        if folder.startswith(whole) or not os.path.isdir(folder):
            continue
        if os.path.basename(folder) in _PACKAGES:
            parts[folder] = None  # Debian has those of pip in /usr/local
        elif not folder.startswith(f"{prefix.rstrip('/')}/"):
            parts |= dict.fromkeys(_importable(folder))
    for name in modules:
        parts |= dict.fromkeys(_locate(name))
    found = sorted(parts.items(), key=lambda part: part[0].count("/"))
    inside = tuple(f"{each}/" for each, target in found if target is None)
    return [
        EnvironmentPart(each, target)
        for each, target in found
        # A link in a folder that is a part is there already.
        if not each.startswith(tuple(folder for folder in inside if folder != f"{each}/"))
    ]


def _ask_host() -> tuple[str, str, Sequence[str]]:
    """Return prefix, base prefix and path of the host's interpreter without the variables of the host."""
    command = [sys.executable, "-P", "-E", "-c", _ASK]
    try:
        done = subprocess.run(command, capture_output=True, timeout=_ASK_S, env={}, check=True)
        prefix, base_prefix, path = json.loads(done.stdout)
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        raise InvalidDefinition(f"{sys.executable} does not say where its packages are: {error}") from None
    return prefix, base_prefix, [each for each in path if each]


def _ask(python: str) -> tuple[str, str, Sequence[str]]:
    """Return the same of another environment, of which no line is run: it would run as the host."""
    try:
        found = read_environment(python)
    except ProviderError as error:
        raise InvalidDefinition(str(error)) from None
    return *found.prefixes, (*found.standard, *found.folders)


def _follow(python: str) -> Iterator[tuple[str, str | None]]:
    """Yield the links to an interpreter, and the program: it finds its environment by the name it is called with."""
    path = os.path.abspath(python)
    for _ in range(40):  # as many links as the kernel follows
        if not os.path.islink(path):
            break
        target = os.readlink(path)
        yield path, target
        path = os.path.normpath(os.path.join(os.path.dirname(path), target))
    yield path, None


def _importable(folder: str) -> Iterator[str]:
    with os.scandir(folder) as entries:
        for _, entry in zip(range(_MAX_ENTRIES), entries, strict=False):
            if entry.name.endswith(_MODULES) or os.path.isfile(f"{entry.path}/__init__.py"):
                yield entry.path


def _locate(name: str) -> Iterator[str]:
    """Yield the file or folders of a top-level module, which is not imported."""
    try:
        spec = find_spec(name)
    except (ImportError, ValueError):
        return
    if spec is None:
        return
    if spec.submodule_search_locations is not None:
        yield from (os.path.abspath(each) for each in spec.submodule_search_locations)
    elif spec.origin is not None and os.path.isfile(spec.origin):
        yield os.path.abspath(spec.origin)
