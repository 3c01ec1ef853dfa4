"""A command whose optional packages are not installed."""

from __future__ import annotations

from toolplug.errors import ConfigError, Problem


def missing_package(command: str, error: ModuleNotFoundError, extra: str) -> ConfigError:
    """What the command says, and how it is mended."""
    message = f"{command} needs the package {error.name!r}"
    return ConfigError([Problem(code="not_installed", message=message, hint=f"pip install 'toolplug[{extra}]'")])
