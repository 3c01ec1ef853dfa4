"""`toolplug key rotate`: a new key of the host, which seals from then on; the former ones still open."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from toolplug.catalog.text import pluralize
from toolplug.cli.event_loop import async_command
from toolplug.cli.options import ConfigOption, JsonOption, config_file
from toolplug.cli.output import print_answer
from toolplug.errors import ConfigError, HostKeyError, Problem, StoreError
from toolplug.host.file.configuration import Configuration, read_beside_host
from toolplug.host.keys import FILE, HostKey, KeyFile, rotate_keys
from toolplug.host.private_file import new_key
from toolplug.packages.entry_points import find_installed

app: typer.Typer = typer.Typer(name="key", help="The key of the host, which seals secrets.", no_args_is_help=True)

_NOT_ANNOUNCED = "Until then a process that has the former key alone can start, as the store cannot be told"
_RELOAD = "A running host seals with it after a reload: POST /v1/reload, or SIGHUP."


@app.callback()
def _group() -> None:
    """Keep the name of the one command."""


@async_command(app)
async def rotate(
    config: ConfigOption = None,
    as_json: JsonOption = False,
    show: Annotated[bool, typer.Option("--show", help="Show a new key, and write nothing.")] = False,
) -> None:
    """Put a new key before those of the host's key file. It seals from then on, and the former ones still open.

    Beside a running host. Keys that the configuration itself has are not changed: --show makes one to put before them.

    Example: toolplug key rotate
    """
    if show:
        key = new_key()
        print_answer(as_json, {"key": key}, f"{key}\n\nIt is shown only now. Put it first in the list of `key`.")
        return
    configuration = read_beside_host(config_file(config), os.environ, find_installed())
    setting, folder = configuration.settings.key, configuration.store.state_folder
    if isinstance(setting, KeyFile):
        file = configuration.folder / setting.file
    elif setting is None and folder is not None and not configuration.store.on_network:
        file = folder / FILE
    else:
        message = "names no file whose keys could be rotated"
        hint = "toolplug key rotate --show makes a key: put it first in the list of `key`, with the former one after it"
        raise ConfigError([Problem(code="no_key_file", message=message, file=str(config or ""), path="key", hint=hint)])
    keys = rotate_keys(file)
    refusal = await _announce(configuration)
    text = f"{file} has {pluralize(keys, 'key')} now; the first one seals. {_RELOAD}"
    text += f"\n{_NOT_ANNOUNCED}: {refusal}" if refusal else ""
    print_answer(as_json, {"file": str(file), "keys": keys, "announced": not refusal}, text)


async def _announce(configuration: Configuration) -> str:
    """Let the store know which key seals, so that no process starts without it; return why that fails, or nothing."""
    place = configuration.store
    if place.in_memory or (place.file is not None and not place.file.exists()):
        return ""  # no other process has a store that this one has
    setting = configuration.settings.key
    try:
        async with place.open() as store:
            key = HostKey(lambda: setting, store, configuration.folder, place.state_folder, given=place.on_network)
            await key.open()
    except (StoreError, HostKeyError) as error:
        return str(error)
    return ""
