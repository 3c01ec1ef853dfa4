"""The options that commands share, and the configuration that a command reads."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal, TypeAlias

import typer

from toolplug.catalog.call import ADMIN, OPERATOR, Principal
from toolplug.errors import ConfigError, Problem
from toolplug.host.file.configuration import USER_FILE, ConfigFiles

DEFAULT_FILE = "providers.yaml"
ENVIRONMENT = "TOOLPLUG_CONFIG"
TENANT_ENVIRONMENT = "TOOLPLUG_TENANT"
TENANT_FILE = Path(".toolplug", "tenant")
"""Next to the configuration: the tenant of commands that name none."""
NO_CONFIGURATION = Problem(
    code="no_configuration",
    message=f"there is no {DEFAULT_FILE} here, and ${ENVIRONMENT} is not set",
    hint="toolplug init writes one",
)

PortOption: TypeAlias = Annotated[
    int, typer.Option("--port", metavar="PORT", min=0, max=65535, help="The port; 0 takes a free one.")
]
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
LockedOption = Annotated[bool, typer.Option("--locked", help="Refuse what is not as toolplug.lock has it.")]
"""Whether packages and tools are compared with the lock that is next to the configuration."""

JsonOption: TypeAlias = Annotated[bool, typer.Option("--json", help="Print JSON, problems included.")]
LogFormatOption: TypeAlias = Annotated[
    Literal["text", "json"] | None,
    typer.Option(
        "--log-format",
        metavar="FORMAT",
        help="text for people, or json. Default: by whether stderr is a terminal.",
    ),
]
AgentOption: TypeAlias = Annotated[str | None, typer.Option("--agent", metavar="A", help="As this agent.")]
SessionOption: TypeAlias = Annotated[str | None, typer.Option("--session", metavar="C", help="In this session.")]


def _tenant(context: typer.Context, value: str) -> str:
    """Return the tenant that was given, else the one of the file. Raises `BadParameter` for a file without one."""
    source = context.get_parameter_source("tenant")
    # Typer parses so for completion, where an error would only disturb.
    if context.resilient_parsing or (source is not None and source.name != "DEFAULT"):
        return value
    file = config_folder(context.params.get("config")) / TENANT_FILE
    try:
        tenant = file.read_text("utf-8").strip()
    except FileNotFoundError:
        return value
    except UnicodeDecodeError:
        tenant = ""
    if not tenant or len(tenant.splitlines()) > 1:
        raise typer.BadParameter(f"{file} must hold the name of one tenant, in one line; or remove the file")
    return tenant


TenantOption: TypeAlias = Annotated[
    str,
    typer.Option(
        "--tenant",
        metavar="TENANT",
        envvar=TENANT_ENVIRONMENT,
        callback=_tenant,
        help=f"Act in this tenant. Default: that of {TENANT_FILE} next to the configuration.",
    ),
]
"""The option `--tenant` of a command, also of a plugin's; the parameter is `tenant: TenantOption = "default"`.

Without the option, the tenant is that of `$TOOLPLUG_TENANT`, else of `.toolplug/tenant` next to the configuration. The
configuration is the one of the parameter `config`, if the command has it.
"""


@dataclass(frozen=True, slots=True)
class TenantOptions:
    """The options of a command that acts in one tenant."""

    config: ConfigOption = None
    tenant: TenantOption = "default"
    as_json: JsonOption = False


@dataclass(frozen=True, slots=True)
class CallerOptions:
    """The options of a command that acts as a caller: in a tenant, for an agent or in a session, if any is named."""

    agent: AgentOption = None
    session: SessionOption = None
    config: ConfigOption = None
    tenant: TenantOption = "default"
    as_json: JsonOption = False


def found_config(given: Path | None) -> ConfigFiles | None:
    """Return the configuration of a command, or None without one.

    Unless the command line names its file, it includes the servers of the user's own file.
    """
    if given is not None:
        return ConfigFiles(given)
    file = DEFAULT_FILE if Path(DEFAULT_FILE).exists() else os.environ.get(ENVIRONMENT)
    return ConfigFiles(Path(file), Path.home() / USER_FILE) if file else None


def config_folder(given: Path | None) -> Path:
    """Return the folder of the configuration, or the current one without a configuration."""
    found = found_config(given)
    return found.file.absolute().parent if found is not None else Path.cwd()


def config_file(given: Path | None) -> ConfigFiles:
    """Return the configuration of a command. Raises `ConfigError` without one."""
    found = found_config(given)
    if found is None:
        raise ConfigError([NO_CONFIGURATION])
    return found


def operator(tenant: str = "default") -> Principal:
    """Return the principal of the command line, with all scopes, in one tenant."""
    return Principal(subject="operator", tenant=tenant, scopes=frozenset({ADMIN, OPERATOR}))


def missing_package(command: str, error: ModuleNotFoundError, extra: str) -> ConfigError:
    """Return the error of a command whose package is missing, with the extra that installs it."""
    message = f"{command} needs the package {error.name!r}"
    return ConfigError([Problem(code="not_installed", message=message, hint=f"pip install 'toolplug[{extra}]'")])
