"""`toolplug env`: the environment of its own that an entry names."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from toolplug.cli.log_options import log_options
from toolplug.cli.options import ConfigOption, JsonOption, config_file
from toolplug.cli.output import echo, print_json
from toolplug.config.document import Document, read_document
from toolplug.config.nearest import name_hint
from toolplug.config.problems import validate_section
from toolplug.errors import ConfigError, NoSuchProvider, Problem, ProviderError
from toolplug.host.file.packages import host_keys, python_path
from toolplug.host.file.provider_entries import SECTION
from toolplug.host.file.settings import ProviderSettings
from toolplug.packages.environments import (
    InstallationFailed,
    Wheels,
    find_provider,
    make_environment,
    requirements_file,
)

app: typer.Typer = typer.Typer()


@app.command()
def env(
    key: Annotated[str, typer.Argument(metavar="KEY", help="The key of an entry under `providers:`.")],
    wheels: Annotated[
        Path | None,
        typer.Option("--wheels", metavar="DIR", exists=True, file_okay=False, help="Install from this folder alone."),
    ] = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Make the environment that `run: {python: …}` of an entry names, and install its `package` there, with toolplug.

    With uv where there is one, else with pip; on a terminal either shows how far it is. One that is there gets the
    package installed again, so that a changed `package` is brought in. With --wheels nothing is taken from an index:
    `toolplug bundle` writes such a folder.

    Example: toolplug env weather
    """
    document = read_document(config_file(config))
    rules = _rules(document, key)
    run = rules.run
    if run.python is None or run.package is None:
        message = "names no environment to make" if run.python is None else "names no package to install"
        hint = f"write run: {{process: true, python: ./envs/{key}/bin/python, package: toolplug-{key}}}"
        raise ConfigError([document.problem((SECTION, key), code="no_environment", message=message, hint=hint)])
    python = python_path(document, run.python)
    shows = sys.stderr.isatty() and not as_json and not log_options().quiet
    try:
        is_new = make_environment(
            Path(python), run.package, wheels=None if wheels is None else _wheels(wheels, run.python), shows=shows
        )
        found = find_provider(python, rules.type or key, key)
    except InstallationFailed as error:
        raise ConfigError([_at_run(document, key, "not_installed", str(error), "")]) from None
    except ProviderError as error:
        raise ConfigError([_at_run(document, key, "unknown_provider", str(error), error.fix)]) from None
    if as_json:
        print_json({"python": python, "new": is_new, "package": found.distribution, "version": found.version})
        return
    echo(f"{python} {'is made' if is_new else 'is updated'}: {found.package} has the provider type {found.type!r}")


def _wheels(folder: Path, python: str) -> Wheels:
    file = folder.absolute() / requirements_file(Path(python).as_posix())
    return Wheels(folder.absolute(), file if file.exists() else None)


def _rules(document: Document, key: str) -> ProviderSettings:
    """Return what an entry says of its type and its process. Raises `NoSuchProvider` and `ConfigError`."""
    known = document.keys((SECTION,))
    if key not in known:
        raise NoSuchProvider(key, name_hint(key, known))
    return validate_section(host_keys(document, (SECTION, key), ["type", "run"], os.environ), ProviderSettings)


def _at_run(document: Document, key: str, code: str, message: str, hint: str) -> Problem:
    return document.problem((SECTION, key, "run"), code=code, message=message, hint=hint)
