"""`toolplug check`: every problem of the configuration, and notes that are too long. Starts nothing."""

from __future__ import annotations

import os
from collections.abc import Sequence

import typer

from toolplug.catalog.text import counted
from toolplug.cli.event_loop import run_to_end
from toolplug.cli.logs import log_warnings
from toolplug.cli.options import ConfigOption, JsonOption, config_file
from toolplug.cli.output import print_json, print_problems, problem_fields
from toolplug.errors import ConfigError, Problem
from toolplug.host.file.configuration import ConfigFiles, Configuration, read_configuration
from toolplug.host.inspection import long_notes
from toolplug.providers.entry_points import installed
from toolplug.stores.open import open_store, store_file

app: typer.Typer = typer.Typer()


@app.command()
def check(config: ConfigOption = None, as_json: JsonOption = False) -> None:
    """Read the configuration and report every problem at once, with file, line and column. Starts nothing.

    Imports the packages of the providers that are on, to check their settings. Exits 1 when there is a problem. Warns
    of saved notes that make a tool's description too long for some model APIs.

    Example: toolplug check -c providers.yaml --json
    """
    log_warnings(config)
    file = config_file(config)
    try:
        configuration = read_configuration(file, os.environ, installed())
        if configuration.servers.problems:
            raise ConfigError(configuration.servers.problems)
    except ConfigError as error:
        print_problems(error.problems, as_json=as_json, answer=True)
        raise typer.Exit(1) from None
    raise typer.Exit(run_to_end(_print_valid(file, configuration, as_json)))


async def _print_valid(file: ConfigFiles, configuration: Configuration, as_json: bool) -> None:
    warnings = await _long_notes(configuration)
    if as_json:
        print_json({"problems": [], **({"warnings": problem_fields(warnings)} if warnings else {})})
        return
    wanted = configuration.providers.wanted.values()
    on = sum(item.build is not None for item in wanted)
    typer.echo(f"{file} is right: {counted(on, 'provider')} on, {len(wanted) - on} off")
    print_problems(warnings, as_json=False)


async def _long_notes(configuration: Configuration) -> Sequence[Problem]:
    """The notes in the store that are too long; none where there is no store yet."""
    url, folder = configuration.settings.store, configuration.folder
    file = store_file(url, folder=folder)
    if file is None or not file.exists():
        return ()
    async with open_store(url, folder=folder) as store:
        return await long_notes(store)
