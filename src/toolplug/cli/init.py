"""`toolplug init`: a first configuration."""

from __future__ import annotations

from collections.abc import Iterable
from importlib.resources import files
from pathlib import Path
from string import Template

import typer

from toolplug.cli.logs import log_warnings
from toolplug.cli.options import DEFAULT_FILE, ConfigOption, JsonOption
from toolplug.cli.output import print_answer
from toolplug.errors import ConfigError, Problem
from toolplug.providers.entry_points import find_installed

app: typer.Typer = typer.Typer()


@app.command()
def init(config: ConfigOption = None, as_json: JsonOption = False) -> None:
    """Write a commented providers.yaml that runs as it is. Overwrites nothing.

    It has an entry for every installed provider package, disabled: enable what should run.

    Example: toolplug init && toolplug serve
    """
    log_warnings(config)
    file = config or Path(DEFAULT_FILE)
    try:
        with file.open("x", encoding="utf-8", newline="\n") as stream:
            stream.write(_text(name for name, packages in find_installed().types.items() if len(packages) == 1))
    except FileExistsError:
        message, hint = "exists already and is unchanged", "give another name with -c"
        raise ConfigError([Problem(code="exists", message=message, file=str(file), hint=hint)]) from None
    print_answer(
        as_json,
        {"file": str(file)},
        f"Created {file}. Next steps: enable a provider in it, toolplug providers, toolplug serve",
    )


def _text(types: Iterable[str]) -> str:
    entries = "".join(f"  {name}:\n    enabled: false\n" for name in types) or "  {}\n"
    template = files("toolplug.cli").joinpath("providers.yaml.template").read_text("utf-8")
    return Template(template).substitute(entries=entries)
