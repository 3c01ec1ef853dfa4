"""What hosts and HTTP clients read of this machine over and over, read once a worker.

It does not change while the tests run, and to read it takes longer than most tests: each host that is opened looks
through all installed distributions (8 ms, for thousands of hosts), and each HTTP client parses the certificates of all
authorities (13 ms, for thousands of clients). Folders that a test adds to `sys.path` are read as ever, and so are
certificates that a test names.
"""

from __future__ import annotations

import os
import ssl
import sys
from collections.abc import Iterable, Iterator
from functools import cache, cached_property
from importlib.metadata import Distribution, DistributionFinder, EntryPoints, MetadataPathFinder, PackageMetadata
from os import PathLike
from pathlib import Path
from typing import Any

import httpcore2
import pytest

Context = DistributionFinder.Context


class ReadOnce(Distribution):
    """A distribution that keeps what was read of it."""

    def __init__(self, inner: Distribution) -> None:
        self._inner = inner
        self._texts: dict[str, str | None] = {}

    def __getattr__(self, name: str) -> Any:
        """Return what only this kind of distribution has, such as the folder of its metadata."""
        return getattr(self._inner, name)

    def read_text(self, filename: str) -> str | None:
        if filename not in self._texts:
            self._texts[filename] = self._inner.read_text(filename)
        return self._texts[filename]

    def locate_file(self, path: str | PathLike[str]) -> Any:
        return self._inner.locate_file(path)

    @cached_property
    def metadata(self) -> PackageMetadata:  # type: ignore[override]
        return self._inner.metadata

    @cached_property
    def entry_points(self) -> EntryPoints:  # type: ignore[override]
        return self._inner.entry_points


@pytest.fixture(scope="session", autouse=True)
def packages_read_once() -> Iterator[None]:
    """Replaces the search of `importlib.metadata` in the folders that this process began with.

    A test that replaces it itself calls this one.
    """
    folders = frozenset(folder for folder in sys.path if Path(folder).is_absolute())
    find = MetadataPathFinder.find_distributions

    @cache
    def keep(folder: str, name: str | None) -> tuple[Distribution, ...]:
        return tuple(ReadOnce(found) for found in find(Context(path=[folder], name=name)))

    def found(context: Context = Context()) -> Iterable[Distribution]:  # noqa: B008  as in importlib.metadata
        return (
            distribution
            for folder in tuple(context.path)
            for distribution in (
                keep(folder, context.name) if folder in folders else find(Context(path=[folder], name=context.name))
            )
        )

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(MetadataPathFinder, "find_distributions", found)
        yield


@pytest.fixture(scope="session", autouse=True)
def authorities_read_once() -> Iterator[None]:
    """Gives the clients that trust what the machine trusts one context of TLS: none of them changes it.

    Which authorities those are may depend on two variables, which a test can set.
    """
    read = httpcore2.default_ssl_context

    @cache
    def keep(trust_env: bool, *_: str | None) -> ssl.SSLContext:
        return read(_trust_env=trust_env)

    def context(*, _trust_env: bool = True) -> ssl.SSLContext:
        return keep(_trust_env, os.environ.get("SSL_CERT_FILE"), os.environ.get("SSL_CERT_DIR"))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(httpcore2, "default_ssl_context", context)
        yield
