"""`toolplug diff`: what another file would change."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from toolplug.cli.logs import log_warnings
from toolplug.cli.options import ConfigOption, JsonOption, config_file
from toolplug.cli.output import print_json, print_table
from toolplug.host.file.configuration import read_configuration
from toolplug.host.reload import Difference, difference
from toolplug.providers.entry_points import installed

app: typer.Typer = typer.Typer()


@app.command()
def diff(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The other configuration.")],
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Say what a reload with FILE in place of the configuration would do. Starts nothing.

    Which providers would start, stop, be changed or kept, and which tools would come, go or change. The tools of a
    provider that tells them only once it runs are unknown. Exits 1 when one of the files is wrong.

    Example: toolplug diff providers.next.yaml
    """
    log_warnings()
    found = installed()
    old = read_configuration(config_file(config), os.environ, found)
    new = read_configuration(file, os.environ, found)
    made = difference(old, new)
    if as_json:
        print_json(_fields(made))
    else:
        _print(made)


def _fields(made: Difference) -> dict[str, object]:
    return {
        "providers": {
            "started": made.started,
            "stopped": made.stopped,
            "changed": made.changed,
            "kept": made.kept,
            "unknown": made.unknown,
        },
        "tools": {
            "added": made.tools.added,
            "removed": made.tools.removed,
            "modified": made.tools.modified,
            "replanned": made.replanned,
            "reordered": made.tools.reordered,
        },
        "sections": {"changed": made.sections, "restart": made.restart},
    }


def _print(made: Difference) -> None:
    providers = {"started": made.started, "stopped": made.stopped, "changed": made.changed, "kept": made.kept}
    tools = {
        "added": made.tools.added,
        "removed": made.tools.removed,
        "modified": made.tools.modified,
        "other rules": made.replanned,
    }
    rows = [("provider", key, what) for what, keys in providers.items() for key in keys]
    rows += [("tool", name, what) for what, names in tools.items() for name in names]
    rows += [("section", name, "changed") for name in made.sections]
    print_table(("part", "name", "what"), rows)
    if made.tools.reordered:
        typer.echo("\nthe order of the tools changes")
    for key in made.unknown:
        typer.echo(f"\nprovider {key!r} tells its tools only once it runs")
    for name in made.restart:
        typer.echo(f"\nsection {name!r} cannot change while a host runs: a reload is refused, restart instead")
