"""`toolplug diff`: the changes that another configuration would make."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

import typer

from toolplug.cli.logs import log_warnings
from toolplug.cli.options import ConfigOption, JsonOption, config_file
from toolplug.cli.output import echo, print_json, print_table
from toolplug.host.admin.reload import ConfigurationDifference, difference
from toolplug.host.file.configuration import read_configuration
from toolplug.packages.entry_points import find_installed

app: typer.Typer = typer.Typer()


@app.command()
def diff(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The other configuration.")],
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show what a reload with FILE as the configuration would change. Starts nothing.

    Lists the providers that would start, stop, change or stay, and the tools that would be added, removed or changed.
    Tools that a provider lists only when it runs are unknown. Exits 1 if one of the files is invalid.

    Example: toolplug diff providers.next.yaml
    """
    log_warnings(config)
    packages = find_installed()
    old = read_configuration(config_file(config), os.environ, packages).release()
    new = read_configuration(file, os.environ, packages).release()
    found = difference(old, new)
    providers = {"started": found.started, "stopped": found.stopped, "changed": found.changed, "kept": found.kept}
    tools = {"added": found.tools.added, "removed": found.tools.removed, "modified": found.tools.modified}
    if as_json:
        fields = {
            "providers": {**providers, "unknown": found.unknown},
            "tools": {**tools, "replanned": found.replanned, "reordered": found.tools.reordered},
            "sections": {"changed": found.sections, "restart": found.restart},
        }
        print_json(fields)
    else:
        _print(found, providers, {**tools, "other rules": found.replanned})


def _print(
    found: ConfigurationDifference, providers: Mapping[str, Sequence[str]], tools: Mapping[str, Sequence[str]]
) -> None:
    rows = [("provider", key, what) for what, keys in providers.items() for key in keys]
    rows += [("tool", name, what) for what, names in tools.items() for name in names]
    rows += [("section", name, "changed") for name in found.sections]
    print_table(("part", "name", "what"), rows)
    if found.tools.reordered:
        echo("\nthe order of the tools changes")
    for key in found.unknown:
        echo(f"\nprovider {key!r} lists its tools only when it runs")
    for name in found.restart:
        echo(f"\nsection {name!r} cannot change while a host runs: a reload is refused, restart instead")
