"""`toolplug bundle`: the wheels of toolplug.lock in a folder, for a place without a network."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from toolplug.catalog.text import pluralize
from toolplug.cli.log_options import log_options
from toolplug.cli.options import ConfigOption, JsonOption, config_file
from toolplug.cli.output import echo, print_json
from toolplug.errors import ConfigError, Problem
from toolplug.locking.bundle import BundleFailed, write_bundle
from toolplug.locking.lock_file import read_lock
from toolplug.locking.reader import lock_of

app: typer.Typer = typer.Typer()


@app.command()
def bundle(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The folder to write; it may exist.")],
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Write the wheel of each package of toolplug.lock to a folder, with the lock and files of requirements.

    pip downloads or builds them; a wheel whose files are not those of the lock is refused. In a place without a
    network, `pip install --no-index --find-links DIR --require-hashes -r DIR/requirements.txt` installs those of the
    host, and `toolplug env KEY --wheels DIR` those of an environment of its own.

    Example: toolplug bundle ./wheels
    """
    file = lock_of(config_file(config))
    shows = sys.stderr.isatty() and not as_json and not log_options().quiet
    try:
        written = write_bundle(read_lock(file), file, folder, shows=shows)
    except BundleFailed as error:
        raise ConfigError([Problem(code="bundle_failed", message=str(error), file=str(file))]) from None
    if as_json:
        print_json({"folder": str(folder), "packages": dict(written)})
        return
    for name, count in written.items():
        echo(f"{folder / name}: {pluralize(count, 'package')}")
    echo(f"{folder} has {pluralize(len(list(folder.glob('*.whl'))), 'wheel')} and {file.name}")
