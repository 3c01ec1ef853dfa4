"""`toolplug check`: every problem of the configuration, and notes that are too long."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Annotated

import typer

from toolplug.catalog.text import pluralize
from toolplug.cli.event_loop import async_command, enter_host
from toolplug.cli.options import ConfigOption, JsonOption, LockedOption, config_file, operator
from toolplug.cli.output import echo, paint, print_json, print_problems, problem_fields
from toolplug.cli.progress import progress
from toolplug.config.yaml_tree import MAX_PROBLEMS
from toolplug.errors import ConfigError, Problem
from toolplug.host.file.configuration import ConfigFiles, Configuration, read_configuration
from toolplug.host.file.store_entry import unused_stores
from toolplug.host.host import Host
from toolplug.host.inspection import failures, long_notes, open_inspected, tolerated_failures, with_place
from toolplug.locking.making import list_server_tools
from toolplug.locking.reader import LockCheck, compare_tools, with_lock
from toolplug.packages.entry_points import find_installed

app: typer.Typer = typer.Typer()


@async_command(app)
async def check(
    config: ConfigOption = None,
    start: Annotated[
        bool, typer.Option("--start", help="Start and close the enabled providers, to check their tools as well.")
    ] = False,
    locked: LockedOption = False,
    as_json: JsonOption = False,
) -> int:
    """Read the configuration and report every problem at once, with file, line and column.

    Imports the packages of the enabled providers to check their settings, and the rules for their tools and routes.
    What only a start can show is listed as not checked; --start starts the providers. With --locked nothing is imported
    of a package that is not as `toolplug lock` has seen it, and each difference is a problem. Exits 1 if there is one.
    Warns about optional packages (required: false) that fail, about commands of MCP servers that this machine does not
    have, and about saved notes that make a tool's description too long for some model APIs.

    Example: toolplug check -c providers.yaml --json
    """
    file = config_file(config)
    found = find_installed()
    try:
        found = with_lock(file, found) if locked else found
        configuration = read_configuration(file, os.environ, found).release()
        if configuration.servers.problems:
            raise ConfigError(configuration.servers.problems[:MAX_PROBLEMS])
        if start:
            with progress("starting the providers"):
                warnings = await _start(file, configuration, found.check)
        else:
            warnings = tolerated_failures(configuration)
    except ConfigError as error:
        # A type may be unknown because the metadata of its package cannot be read.
        print_problems([*error.problems, *found.problems], as_json=as_json, answer=True)
        if len(error.problems) == MAX_PROBLEMS:
            echo(f"check stopped at {MAX_PROBLEMS} problems", err=True)
        return 1
    stores = unused_stores(configuration.store, configuration.providers)
    commands = configuration.servers.warnings(configuration.providers.document)
    warnings = [*found.problems, *warnings, *stores, *commands, *await _long_notes(configuration)]
    _print_valid(file, configuration, warnings, started=start, as_json=as_json)
    return 0


async def _start(file: ConfigFiles, configuration: Configuration, check: LockCheck | None) -> list[Problem]:
    """Start and close the providers. Return failures of those not required; raise `ConfigError` with all others."""
    problems: list[Problem] = []
    tolerated: list[Problem] = []
    async with enter_host(open_inspected(file, problems, check=check)) as host:
        for key, failure in failures(host):
            entry = configuration.providers.wanted[key].entry
            (problems if entry.required else tolerated).append(with_place(failure, entry))
        if check is not None:
            problems += await _changed_servers(host, check)
    if problems:
        raise ConfigError(problems)
    return tolerated


async def _changed_servers(host: Host, check: LockCheck) -> list[Problem]:
    """Return a problem for each tool of an MCP server that is not as it was locked, and for servers that fail."""
    problems: list[Problem] = []
    for name, tools in (await list_server_tools(host, problems, operator())).items():
        hint = f"look at it, then: toolplug lock --update {name}"
        for line in compare_tools(f"MCP server {name!r}", check.server_tools(name), tools):
            problems.append(Problem(code="lock_drift", message=line, path=f"mcp_servers.{name}", hint=hint))
    return problems


def _print_valid(
    file: ConfigFiles, configuration: Configuration, warnings: Sequence[Problem], *, started: bool, as_json: bool
) -> None:
    entries = configuration.providers
    unchecked = [
        f"{what} of {key}" for key, (_, kind) in entries.loaded.items() for what in kind.unchecked if not started
    ]
    if as_json:
        fields: dict[str, object] = {"problems": []}
        if warnings:
            fields["warnings"] = problem_fields(warnings)
        if unchecked:
            fields["not_checked"] = unchecked
        print_json(fields)
        return
    on = sum(item.build is not None for item in entries.wanted.values())
    off = sum(item.record is not None and item.record.state == "disabled" for item in entries.wanted.values())
    others = ((off, "disabled"), (len(entries.wanted) - on - off, "failed"))
    counted = [f"{pluralize(on, 'provider')} enabled", *(f"{n} {what}" for n, what in others if n)]
    echo(f"{file} is {paint('valid', 'green')}: {', '.join(counted)}")
    for what in unchecked:
        echo(f"not checked: {what}")
    for warning in warnings:
        echo(f"{paint('warning', 'yellow')}: {warning}", err=True)


async def _long_notes(configuration: Configuration) -> Sequence[Problem]:
    """Return warnings of notes in the store that are too long; none without a store file."""
    file = configuration.store.file
    if file is None or not file.exists():
        return ()
    async with configuration.store.open() as store:
        return await long_notes(store)
