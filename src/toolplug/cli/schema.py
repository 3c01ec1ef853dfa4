"""`toolplug schema`: the JSON Schema of the configuration, for editors."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Annotated

import typer

from toolplug.catalog.text import pluralize
from toolplug.cli.logs import log_warnings
from toolplug.cli.options import ConfigOption, JsonOption, found_config
from toolplug.cli.output import echo, print_json
from toolplug.cli.progress import progress
from toolplug.config.document import read_document
from toolplug.host.file.packages import types_elsewhere
from toolplug.host.file.schema import file_schema, settings_schemas
from toolplug.packages.entry_points import find_installed

SCHEMA_FILE = "providers.schema.json"

app: typer.Typer = typer.Typer()


@app.command()
def schema(
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            help=f"Where to write it; - is stdout. Default: {SCHEMA_FILE} next to the configuration.",
            show_default=False,
        ),
    ] = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Write the JSON Schema of providers.yaml, with the settings of every installed provider package.

    Each package is imported in a child process, for at most 10 s, by the interpreter of its entry (`run: {python: …}`)
    if that names one; if that fails, any settings are accepted for it and a note says why. --json writes to stdout. An
    editor finds the schema by the first line of the file:

    # yaml-language-server: $schema=./providers.schema.json

    Example: toolplug schema -o providers.schema.json
    """
    log_warnings(config)
    files = found_config(config)
    pythons = {} if files is None or not files.file.exists() else types_elsewhere(read_document(files, []), os.environ)
    types = dict.fromkeys((*find_installed().types, *pythons))
    with progress("asking the packages for their settings", len(types)) as done:
        found = settings_schemas(types, done, pythons=pythons)
    for name, answer in found.items():
        if answer.error:
            echo(f"{name}: its settings are not known: {answer.error}", err=True)
    document = file_schema(found)
    if as_json or output == Path("-"):
        print_json(document)
        return
    file = output or Path(files or SCHEMA_FILE).with_name(SCHEMA_FILE)
    file.write_text(json.dumps(document, indent=2, ensure_ascii=False) + "\n", "utf-8", newline="\n")
    echo(f"{file} is written, with {pluralize(len(found), 'provider type')}")
