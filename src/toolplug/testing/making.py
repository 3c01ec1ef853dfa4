"""Providers made as a host makes them: key and settings are there before the constructor runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from prometheus_client import CollectorRegistry

from toolplug.providers.config_model import given_config
from toolplug.providers.provider import FunctionProvider, built
from toolplug.providers.registry import FunctionRegistry

Make = Callable[[], FunctionProvider]
"""A provider class, or a function that makes a new instance."""

NO_SETTINGS: Mapping[str, object] = MappingProxyType({})
KEY = "provider"


def made(make: Make, settings: Mapping[str, object] = NO_SETTINGS, *, key: str = KEY) -> FunctionProvider:
    """A new instance, not started. `settings` are a class's own, as its entry in the configuration would have them.

    Raises `pydantic.ValidationError` for settings that its `Config` refuses.
    """
    if isinstance(make, type):
        return built(make, key, given_config(make, settings) if settings else None)
    provider = make()
    provider.key = key
    return provider


def running(
    make: Make | FunctionProvider,
    settings: Mapping[str, object] = NO_SETTINGS,
    *,
    key: str = KEY,
    metrics: CollectorRegistry | None = None,
) -> FunctionRegistry:
    """A registry with this one provider, which runs while the registry is entered: `async with running(Notes) as …`.

    Records are kept in memory and files in a temporary directory.
    """
    provider = make if isinstance(make, FunctionProvider) else made(make, settings, key=key)
    return FunctionRegistry({key: provider}, metrics=metrics)
