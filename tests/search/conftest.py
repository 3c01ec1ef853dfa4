"""A host whose tools are searched for."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import pytest
from tests.http.conftest import KEYS, with_agents_of_keys
from tests.responses.conftest import desk_package, staging

from toolplug import Host, open_host

__all__ = ["desk_package", "staging"]

OpenMany = Callable[..., AbstractAsyncContextManager[Host]]


@pytest.fixture
def many_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The distribution of the provider `many`, as pip would leave it."""
    info = tmp_path / "site" / "toolplug_many-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: toolplug-many\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[toolplug.providers]\nmany = tests.search.many_provider:Many\n")
    monkeypatch.syspath_prepend(str(tmp_path / "site"))


@pytest.fixture
def open_many(many_package: None) -> OpenMany:
    """Opens a host with a provider `many` of these host keys and settings; `sections` are those of the file."""

    @asynccontextmanager
    async def opened(
        entry: dict[str, object] | None = None, providers: dict[str, object] | None = None, **sections: object
    ) -> AsyncIterator[Host]:
        many = {"enabled": True, "offer": "search", "count": 100, **(entry or {})}
        whole = {"store": "memory://", "auth": KEYS, "providers": {"many": many, **(providers or {})}, **sections}
        async with open_host(with_agents_of_keys(whole), environ={}) as host:
            yield host

    return opened
