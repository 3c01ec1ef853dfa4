"""Providers in processes of their own, as tests start them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import cast

import pytest

from toolplug.apart.entries import apart_class
from toolplug.apart.provider import ApartProvider
from toolplug.config.run_settings import RunSettings
from toolplug.providers.entry import DesiredProvider, ProviderEntry
from toolplug.providers.registry import FunctionRegistry


@asynccontextmanager
async def started(kind: type, settings: Mapping[str, object] | None = None) -> AsyncGenerator[FunctionRegistry]:
    made = apart_class(kind, settings or {}, "made")
    wanted = DesiredProvider(ProviderEntry(key="made", type="made", run=RunSettings(process=True)), lambda: made)
    async with FunctionRegistry() as registry:
        await registry.apply([wanted])
        yield registry


def provider_of(registry: FunctionRegistry) -> ApartProvider:
    return cast("ApartProvider", registry.running()["made"].provider)


async def until(found: Callable[[], object], within_s: float = 20.0) -> None:
    async with asyncio.timeout(within_s):
        while not found():
            await asyncio.sleep(0.02)


def is_gone(pid: int) -> bool:
    """Whether a process has ended; one that its parent has not waited for has."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


needs_confinement = pytest.mark.usefixtures("confinement")
"""Of a test that runs only where this machine can confine processes; elsewhere it says why not."""
