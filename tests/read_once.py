"""The metadata of the installed packages, read once a run.

Every host looks through all installed distributions when it is opened: 30 ms here, for a thousand tests. What is
installed does not change while the tests run; folders that a test adds to `sys.path` are read as ever.
"""

from __future__ import annotations

import sysconfig
from collections.abc import Iterable, Iterator
from functools import cache, cached_property
from importlib.metadata import Distribution, DistributionFinder, MetadataPathFinder, PackageMetadata
from os import PathLike
from typing import Any

import pytest

SITE = frozenset(sysconfig.get_path(name) for name in ("purelib", "platlib"))

Context = DistributionFinder.Context


class ReadOnce(Distribution):
    """A distribution that keeps what was read of it."""

    def __init__(self, inner: Distribution) -> None:
        self._inner = inner
        self._texts: dict[str, str | None] = {}

    def read_text(self, filename: str) -> str | None:
        if filename not in self._texts:
            self._texts[filename] = self._inner.read_text(filename)
        return self._texts[filename]

    def locate_file(self, path: str | PathLike[str]) -> Any:
        return self._inner.locate_file(path)

    @cached_property
    def metadata(self) -> PackageMetadata:  # type: ignore[override]
        return self._inner.metadata


@pytest.fixture(scope="session", autouse=True)
def packages_read_once() -> Iterator[None]:
    """Replaces the search of `importlib.metadata` in the folders of the environment.

    A test that replaces it itself calls this one.
    """
    find = MetadataPathFinder.find_distributions

    @cache
    def of_site(folder: str) -> tuple[Distribution, ...]:
        return tuple(ReadOnce(found) for found in find(Context(path=[folder])))

    def found(context: Context = Context()) -> Iterable[Distribution]:  # noqa: B008  as in importlib.metadata
        if context.name is not None:
            return find(context)
        return (
            distribution
            for folder in tuple(context.path)
            for distribution in (of_site(folder) if folder in SITE else find(Context(path=[folder])))
        )

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(MetadataPathFinder, "find_distributions", found)
        yield
