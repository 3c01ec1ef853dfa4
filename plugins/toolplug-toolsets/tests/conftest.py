"""Callers of a host that has toolsets beside a desk with two tools."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest

from toolplug import Principal

Serve = Callable[..., AbstractAsyncContextManager[Any]]

SCOPES = frozenset({"tools:read", "tools:call"})
ANN = Principal(subject="ann", tenant="t1", scopes=SCOPES)
BOB = Principal(subject="bob", tenant="t1", scopes=SCOPES)


@pytest.fixture
def serve(in_process_host: Any, tmp_path: Path) -> Serve:
    """Opens a host; again, it is the same one restarted."""
    providers = {"hello": {"enabled": True}, "journal": {"enabled": True}, "toolsets": {"enabled": True}}

    def open_it() -> AbstractAsyncContextManager[Any]:
        return in_process_host({"providers": providers}, principals=[ANN, BOB], folder=tmp_path)

    return open_it


@pytest.fixture
async def served(serve: Serve) -> AsyncIterator[Any]:
    async with serve() as opened:
        yield opened


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"
