"""What a running host changes when its configuration is read again or a provider is switched, and what it cannot."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from toolplug.errors import ConfigError, Problem
from toolplug.host.file.configuration import Configuration
from toolplug.providers.entry import Wanted


class Reloaded(NamedTuple):
    """What a reload did, by provider key: a changed provider is `started` anew."""

    started: tuple[str, ...]
    kept: tuple[str, ...]
    stopped: tuple[str, ...]


def wanted_providers(configuration: Configuration, overrides: Mapping[str, bool]) -> list[Wanted]:
    """The providers as the file says, but for those that were switched since (key to on or off).

    Raises `NoSuchProvider` for a key that the file does not have, and `ConfigError` for an entry that cannot be on.
    """
    entries = configuration.providers
    for key in overrides:
        entries.check_known(key)
    wanted: list[Wanted] = []
    for key, item in entries.wanted.items():
        on = overrides.get(key)
        if on is None:
            wanted.append(item)
        elif on:
            wanted.append(entries.switched_on(key))
        else:
            fix = f"POST /v1/providers/{key}/enable, or reload"
            wanted.append(entries.switched_off(key, "switched off while running", fix))
    return wanted


def check_unchangeable(old: Configuration, new: Configuration) -> None:
    """Raise `ConfigError` for what a running host cannot change: where it stores, and how its metrics are named."""
    problems = [
        Problem(code="needs_restart", message="cannot change while the host runs", path=name, hint="restart the host")
        for name in ("store", "metrics")
        if getattr(old.settings, name) != getattr(new.settings, name)
    ]
    if problems:
        raise ConfigError(problems)
