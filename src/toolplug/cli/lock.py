"""`toolplug lock`: writes down what is installed, to the byte, and what each tool says."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Annotated

import typer

from toolplug.catalog.text import pluralize
from toolplug.cli.event_loop import async_command, enter_host
from toolplug.cli.options import ConfigOption, JsonOption, config_file, operator
from toolplug.cli.output import echo, print_json
from toolplug.cli.progress import progress
from toolplug.config.nearest import name_hint
from toolplug.errors import ConfigError, Problem
from toolplug.host.file.configuration import ConfigFiles, Configuration, read_configuration
from toolplug.host.inspection import failures, open_inspected, with_place
from toolplug.locking.files import FilesUnreadable
from toolplug.locking.lock_file import Lock, read_lock, write_lock
from toolplug.locking.making import (
    MadeLock,
    list_differences,
    list_provider_tools,
    list_server_tools,
    make_lock,
    update_lock,
)
from toolplug.locking.reader import lock_of
from toolplug.packages.entry_points import find_installed

app: typer.Typer = typer.Typer()


@async_command(app)
async def lock(
    update: Annotated[
        list[str] | None,
        typer.Option(
            "--update",
            metavar="KEY",
            help="Write this provider or MCP server alone; the rest of the lock stays. May be repeated.",
            show_default=False,
        ),
    ] = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> int:
    """Write toolplug.lock next to the configuration, and show each difference from the one that is there.

    It has the version and a digest over the files of each enabled provider's package and of all that it needs, what
    each asks for, and a digest of each tool, those of MCP servers included. The providers are started, and the servers
    listed, to read their tools. `toolplug check --locked` and `toolplug serve --locked` refuse what is different.

    Warns of files that no RECORD lists, or that differ from theirs: look at them before you trust the lock.

    Example: toolplug lock --update weather
    """
    files = config_file(config)
    file = lock_of(files)
    before = read_lock(file) if update or file.exists() else Lock()
    configuration = read_configuration(files, os.environ, find_installed()).release()
    if configuration.servers.problems:
        raise ConfigError(configuration.servers.problems)
    _check_keys(update or (), configuration, before)
    with progress("starting the providers"):
        made = await _make(files, configuration)
    now = update_lock(before, made.lock, update) if update else made.lock
    # Of a first one everything would be new.
    changes = [*list_differences(before, now)] if before.providers or before.servers else []
    write_lock(file, now)
    if as_json:
        print_json({"lock": str(file), "changes": changes, "warnings": list(made.warnings)})
        return 0
    for line in changes:
        echo(line)
    packages = pluralize(len(now.packages), "package")
    tools = pluralize(sum(len(each.tools) for each in (*now.providers, *now.servers)), "tool")
    echo(f"{file} is written, with {packages} and {tools}: {pluralize(len(changes), 'difference')}")
    for line in made.warnings:
        echo(f"warning: {line}", err=True)
    return 0


def _check_keys(keys: Iterable[str], configuration: Configuration, before: Lock) -> None:
    """Raise `ConfigError` for a key that neither the configuration nor the lock has."""
    known = [
        *configuration.providers.keys,
        *configuration.servers.ids,
        *(each.key for each in before.providers),
        *(each.id for each in before.servers),
    ]
    for key in keys:
        if key not in known:
            message = f"there is no provider or MCP server {key!r}"
            raise ConfigError([Problem(code="unknown_key", message=message, hint=name_hint(key, known))])


async def _make(files: ConfigFiles, configuration: Configuration) -> MadeLock:
    """Start the providers, list the servers, and return the lock. Raises `ConfigError` for what fails."""
    problems: list[Problem] = []
    async with enter_host(open_inspected(files, problems)) as host:
        for key, failure in failures(host):
            problems.append(with_place(failure, configuration.providers.wanted[key].entry))
        providers = list_provider_tools(host)
        servers = await list_server_tools(host, problems, operator())
        if problems:
            raise ConfigError(problems)
        try:
            return make_lock(configuration, lock_of(files).parent, providers, servers)
        except FilesUnreadable as error:
            raise ConfigError([Problem(code="lock_unreadable", message=str(error))]) from None
