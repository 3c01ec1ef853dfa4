"""What `serve --reload` follows: the configuration file, and the code of the providers that run."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Callable, Collection, Iterable
from enum import Enum
from importlib.util import find_spec
from pathlib import Path
from typing import TypeAlias

from watchfiles import awatch  # pyright: ignore[reportUnknownVariableType]  # trio, where it is not installed

from toolplug.providers.registry import FunctionRegistry

LOOK_EVERY_MS = 1_000
"""How often is looked where no change was reported: what changes before the watcher runs is found all the same."""

Marks: TypeAlias = dict[Path, tuple[int, int]]
"""The time of change and the size of every file."""

_LOG = logging.getLogger("toolplug.cli.serve")


class Watched(Enum):
    """What has changed."""

    FILE = "file"
    CODE = "code"


async def changes(file: Path, packages: Callable[[], Iterable[str]]) -> AsyncGenerator[Watched]:
    """Yield once for every burst of changes; the packages are asked for again after each, since a reload changes them.

    The folder of the file (an absolute path) is watched, not the file: editors write a new one in its place.
    """
    seen: Marks = {}
    while True:
        folders = {folder for name in packages() for folder in _folders(name)}
        seen = _marks(file, folders) | seen
        _LOG.info("watching %s", ", ".join(map(str, (file, *sorted(folders)))))
        changed = set[Path]()
        async for _ in awatch(file.parent, *folders, rust_timeout=LOOK_EVERY_MS, yield_on_timeout=True):
            now = _marks(file, folders)
            changed = {path for path in seen | now if seen.get(path) != now.get(path)}
            seen = now
            if changed:
                break
        yield Watched.FILE if changed <= {file} else Watched.CODE


def provider_packages(registry: FunctionRegistry) -> dict[str, str]:
    """The top-level package of every provider that runs, by key."""
    return {
        key: type(generation.provider).__module__.partition(".")[0] for key, generation in registry.running().items()
    }


def _folders(package: str) -> list[Path]:
    spec = find_spec(package)
    return [Path(folder).resolve() for folder in spec.submodule_search_locations or ()] if spec is not None else []


def _marks(file: Path, folders: Collection[Path]) -> Marks:
    found: Marks = {}
    for path in (file, *(code for folder in folders for code in folder.rglob("*.py"))):
        try:
            stat = path.stat()
        except OSError:
            continue  # it is just being replaced
        found[path] = (stat.st_mtime_ns, stat.st_size)
    return found
