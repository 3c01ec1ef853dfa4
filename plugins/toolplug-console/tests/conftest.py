"""A host with a console."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any

import pytest

from toolplug import Principal

Serve = Callable[..., AbstractAsyncContextManager[Any]]


@pytest.fixture
def serve(in_process_host: Any) -> Serve:
    """Opens a host with a console of these settings, and these principals."""

    def open_it(*principals: Principal, host: dict[str, Any] | None = None, **settings: object) -> Any:
        console = {"enabled": True, "public_routes": True, **settings}
        config = {"providers": {"console": console, "hello": {"enabled": True}}, "store": "memory://", **(host or {})}
        given: Sequence[Principal] = principals
        return in_process_host(config, principals=given)

    return open_it


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"
