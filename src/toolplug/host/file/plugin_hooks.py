"""Hooks that plugins specify for each other: those of enabled plugins, and what is wrong with an implementation."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from toolplug.errors import Problem, ProviderError
from toolplug.host.file.provider_entries import ProviderEntries
from toolplug.packages.loading import wrong_hooks
from toolplug.providers.plugins.implementations import specified_hooks, taken_arguments


def hooks_of_plugins(entries: ProviderEntries) -> dict[str, Callable[..., object]]:
    """Return the hooks that the enabled plugins specify themselves, by name; the first plugin of a name has it."""
    found: dict[str, Callable[..., object]] = {}
    for _, kind in entries.loaded.values():
        found = {**specified_hooks(kind.plugin), **found}
    return found


def check_plugin_hooks(
    entries: ProviderEntries, known: Mapping[str, Sequence[str]], problems: list[Problem]
) -> ProviderEntries:
    """Return the entries, in which a plugin has failed that implements a hook which nobody specifies.

    `known` are hooks that the host's own code specifies, with their arguments. The failure of a required plugin is
    added to `problems`.
    """
    specified = {name: taken_arguments(function) for name, function in hooks_of_plugins(entries).items()}
    failed: dict[str, ProviderError] = {}
    for key, (_, kind) in entries.loaded.items():
        wrong = kind.hooks.problems_with({**specified, **known}) if kind.hooks.foreign else ()
        if wrong:
            failed[key] = wrong_hooks(kind.installed, wrong)
    return entries.without(failed, problems)
