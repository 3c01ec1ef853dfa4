"""`toolplug check`: is the configuration right. Starts nothing."""

from __future__ import annotations

import os

import typer

from toolplug.cli.answer import counted, print_json
from toolplug.cli.logs import log_warnings
from toolplug.cli.options import ConfigOption, JsonOption, config_file
from toolplug.cli.refusal import print_problems
from toolplug.errors import ConfigError
from toolplug.host.configuration import read_configuration
from toolplug.providers.entry_points import installed

app: typer.Typer = typer.Typer()


@app.command()
def check(config: ConfigOption = None, as_json: JsonOption = False) -> None:
    """Read the configuration and report every problem at once, with file, line and column. Starts nothing.

    Imports the packages of the providers that are on, to check their settings. Exits 1 when there is a problem.

    Example: toolplug check -c providers.yaml --json
    """
    log_warnings()
    file = config_file(config)
    try:
        configuration = read_configuration(file, os.environ, installed())
    except ConfigError as error:
        print_problems(error.problems, as_json=as_json, answer=True)
        raise typer.Exit(1) from None
    if as_json:
        print_json({"problems": []})
        return
    wanted = configuration.providers.wanted.values()
    on = sum(item.build is not None for item in wanted)
    typer.echo(f"{file} is right: {counted(on, 'provider')} on, {len(wanted) - on} off")
