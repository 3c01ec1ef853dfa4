"""`toolplug dashboard`: a Grafana board and Prometheus alert rules for the configuration."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Annotated

import typer
import yaml

from toolplug.catalog.text import pluralize
from toolplug.cli.logs import log_warnings
from toolplug.cli.monitoring.files import alerts, board, read_monitored
from toolplug.cli.options import ConfigOption, JsonOption, config_file
from toolplug.cli.output import echo, print_json
from toolplug.host.file.configuration import read_configuration
from toolplug.providers.entry_points import find_installed

BOARD_FILE = "toolplug-dashboard.json"
RULES_FILE = "toolplug-alerts.yml"

app: typer.Typer = typer.Typer()


@app.command()
def dashboard(
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="DIR",
            help="Where to write the files; - is stdout, as JSON. Default: next to the configuration.",
            show_default=False,
        ),
    ] = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Write a Grafana dashboard and Prometheus alert rules for this configuration.

    They have its providers, MCP servers and metrics namespace, and nothing for what is not configured. The same
    configuration gives the same files. Imports the packages of the enabled providers and starts nothing.

    Example: toolplug dashboard -o monitoring
    """
    log_warnings(config)
    files = config_file(config)
    of = read_monitored(read_configuration(files, os.environ, find_installed()))
    shown, rules = board(of), alerts(of)
    if as_json or output == Path("-"):
        print_json({"dashboard": shown, "rules": rules})
        return
    folder = output or files.file.parent
    folder.mkdir(parents=True, exist_ok=True)
    (folder / BOARD_FILE).write_text(json.dumps(shown, indent=2, ensure_ascii=False) + "\n", "utf-8", newline="\n")
    # Wide, so that no expression of PromQL is folded into several lines.
    text = yaml.safe_dump(rules, sort_keys=False, allow_unicode=True, width=1_000)
    (folder / RULES_FILE).write_text(text, "utf-8", newline="\n")
    panels = sum(panel["type"] != "row" for row in shown["panels"] for panel in (row, *row.get("panels", ())))
    echo(f"{folder / BOARD_FILE} is written, with {pluralize(panels, 'panel')}")
    echo(f"{folder / RULES_FILE} is written, with {pluralize(len(rules['groups'][0]['rules']), 'alert')}")
