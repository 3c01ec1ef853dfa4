"""A host with a guard, a provider that leaks, and callers."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Any

import pytest

Serve = Callable[..., AbstractAsyncContextManager[Any]]


@pytest.fixture
def serve(in_process_host: Any) -> Serve:
    """Opens a host with these settings of the guard, and of the host as `host`."""

    def open_it(*, host: dict[str, Any] | None = None, **settings: object) -> AbstractAsyncContextManager[Any]:
        providers = {"guard": {"enabled": True, **settings}, "hello": {"enabled": True}}
        return in_process_host({"providers": providers, **(host or {})})

    return open_it


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"
