"""The options that commands share, and which configuration a command reads."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, TypeAlias

import typer

from toolplug.catalog.call import Principal
from toolplug.errors import ConfigError, Problem
from toolplug.host.file.configuration import USER_FILE, ConfigFiles


def missing_package(command: str, error: ModuleNotFoundError, extra: str) -> ConfigError:
    """What the command says, and how it is mended."""
    message = f"{command} needs the package {error.name!r}"
    return ConfigError([Problem(code="not_installed", message=message, hint=f"pip install 'toolplug[{extra}]'")])


DEFAULT_FILE = "providers.yaml"
ENVIRONMENT = "TOOLPLUG_CONFIG"

ConfigOption: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        "--config",
        "-c",
        metavar="FILE",
        help=f"The configuration. Default: ./{DEFAULT_FILE}, else ${ENVIRONMENT}.",
        show_default=False,
    ),
]
JsonOption: TypeAlias = Annotated[bool, typer.Option("--json", help="Answer in JSON, also with problems.")]
TenantOption: TypeAlias = Annotated[str, typer.Option("--tenant", metavar="TENANT", help="Act in this tenant.")]


def found_config(given: Path | None) -> ConfigFiles | None:
    """The configuration that a command means, or None where there is none; what is not named has the user's servers."""
    if given is not None:
        return ConfigFiles(given)
    named = os.environ.get(ENVIRONMENT)
    if Path(DEFAULT_FILE).exists():
        file = Path(DEFAULT_FILE)
    elif named:
        file = Path(named)
    else:
        return None
    return ConfigFiles(file, Path.home() / USER_FILE)


def config_file(given: Path | None) -> ConfigFiles:
    """The configuration that a command means. Raises `ConfigError` where there is none."""
    found = found_config(given)
    if found is None:
        message = f"there is no {DEFAULT_FILE} here, and ${ENVIRONMENT} is not set"
        raise ConfigError([Problem(code="no_configuration", message=message, hint="toolplug init writes one")])
    return found


def operator(tenant: str = "default") -> Principal:
    """Who the command line is: all scopes, in one tenant."""
    return Principal(subject="operator", tenant=tenant, scopes=frozenset({"admin"}))
