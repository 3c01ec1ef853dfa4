"""Callers of a host that keeps a journal beside the tutorial's provider."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from types import MappingProxyType
from typing import Any

import pytest

from toolplug import Principal

Serve = Callable[..., AbstractAsyncContextManager[Any]]

SCOPES = frozenset({"tools:read", "tools:call", "journal:read"})
ANN = Principal(subject="ann", tenant="t1", scopes=SCOPES)
BOB = Principal(subject="bob", tenant="t2", scopes=SCOPES)
EVE = Principal(subject="eve", tenant="t1", scopes=frozenset({"tools:read", "tools:call"}))


@pytest.fixture
def serve(in_process_host: Any) -> Serve:
    """Opens a host with these settings of the journal; again, it is the same one restarted."""

    def open_it(
        host: Mapping[str, object] = MappingProxyType({}), **settings: object
    ) -> AbstractAsyncContextManager[Any]:
        providers: Mapping[str, object] = {
            "journal": {"enabled": True, **settings},
            "hello": {"enabled": True, "greeting": "Hi"},
        }
        return in_process_host({"providers": providers, **host}, principals=[ANN, BOB, EVE])

    return open_it


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"
