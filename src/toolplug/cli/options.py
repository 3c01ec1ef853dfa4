"""The options that commands share, and which configuration a command reads."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, TypeAlias

import typer

from toolplug.catalog.call import Principal
from toolplug.errors import ConfigError, Problem

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


def found_config(given: Path | None) -> Path | None:
    """The configuration file that a command means, or None where there is none."""
    if given is not None:
        return given
    if Path(DEFAULT_FILE).exists():
        return Path(DEFAULT_FILE)
    named = os.environ.get(ENVIRONMENT)
    return Path(named) if named else None


def config_file(given: Path | None) -> Path:
    """The configuration file that a command means. Raises `ConfigError` where there is none."""
    found = found_config(given)
    if found is None:
        message = f"there is no {DEFAULT_FILE} here, and ${ENVIRONMENT} is not set"
        raise ConfigError([Problem(code="no_configuration", message=message, hint="toolplug init writes one")])
    return found


def operator(tenant: str = "default") -> Principal:
    """Who the command line is: all scopes, in one tenant."""
    return Principal(subject="operator", tenant=tenant, scopes=frozenset({"admin"}))
