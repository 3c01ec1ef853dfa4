"""What `serve --reload` follows: the configuration file, and the code of the providers that run."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Iterable
from enum import Enum
from importlib.util import find_spec
from pathlib import Path

from watchfiles import Change, awatch  # pyright: ignore[reportUnknownVariableType]  # trio, where it is not installed

from toolplug.providers.registry import FunctionRegistry

_CODE = ".py"


class Watched(Enum):
    """What has changed."""

    FILE = "file"
    CODE = "code"


async def changes(file: Path, packages: Callable[[], Iterable[str]]) -> AsyncGenerator[Watched]:
    """Yield once for every burst of changes; the packages are asked for again after each, since a reload changes them.

    The folder of the file (an absolute path) is watched, not the file: editors write a new one in its place.
    """

    def matters(_: Change, path: str) -> bool:
        return Path(path) == file or path.endswith(_CODE)

    while True:
        folders = {folder for name in packages() for folder in _folders(name)}
        async for found in awatch(file.parent, *folders, watch_filter=matters, recursive=True):
            paths = {Path(path) for _, path in found}
            code = any(folder in path.parents for path in paths for folder in folders)
            if not code and file not in paths:
                continue
            yield Watched.CODE if code else Watched.FILE
            break


def provider_packages(registry: FunctionRegistry) -> dict[str, str]:
    """The top-level package of every provider that runs, by key."""
    return {
        key: type(generation.provider).__module__.partition(".")[0] for key, generation in registry.running().items()
    }


def _folders(package: str) -> list[Path]:
    spec = find_spec(package)
    return [Path(folder).resolve() for folder in spec.submodule_search_locations or ()] if spec is not None else []
