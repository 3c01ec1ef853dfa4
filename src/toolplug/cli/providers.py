"""`toolplug providers`: every provider, its state, the reason and the fix."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Annotated

import typer

from toolplug.cli.event_loop import async_command, enter_host
from toolplug.cli.log_options import log_options
from toolplug.cli.options import ConfigOption, JsonOption, found_config
from toolplug.cli.output import answers, echo, list_names, print_json, print_problems, print_table, problem_fields
from toolplug.errors import Problem
from toolplug.host.file.configuration import CONSOLE
from toolplug.host.inspection import open_inspected
from toolplug.providers.entry import ProviderRecord, ProviderState
from toolplug.providers.plugins.implementations import HOOKS

app: typer.Typer = typer.Typer()

_BY_DEFAULT = "`toolplug serve` has it without an entry, as long as it is on loopback and without auth"

HooksOption = Annotated[bool, typer.Option("--hooks", help="Show the hooks of each, and who is asked in which order.")]


@async_command(app)
async def providers(config: ConfigOption = None, hooks: HooksOption = False, as_json: JsonOption = False) -> int:
    """List every provider: those of the configuration, then the other installed packages.

    Starts the enabled providers to check that they run. Shows the reason and the fix for each that does not run, and
    the YAML to paste for an installed package that is not enabled (on a terminal only with -v); with --hooks the hooks
    in place of the tools. Names all tools and routes only with -v, or where they are few. Works without a
    configuration; exits 1 if it is invalid.

    Example: toolplug providers --json
    """
    problems: list[Problem] = []
    async with enter_host(open_inspected(found_config(config) or {"store": "memory://"}, problems)) as host:
        records = host.records()
        asked = {name: host.plugins.implementers(name) for name in HOOKS}
    if as_json:
        fields = {"providers": [asdict(record) for record in records]}
        print_json({**({"problems": problem_fields(problems)} if problems else {}), **fields})
    else:
        _print(records, hooks=hooks)
        if hooks:
            for name, keys in asked.items():
                if len(keys) > 1 and HOOKS[name].asked != "provider":
                    echo(f"\n{name}: {', '.join(keys)}")
        print_problems(problems, as_json=False)
    return 1 if problems else 0


def _print(records: Sequence[ProviderRecord], *, hooks: bool) -> None:
    if not records:
        echo("no provider is installed; try: pip install toolplug-hello")
        return
    columns = ("provider", "type", "state", "hooks" if hooks else "tools", "routes", "package")
    named = leave_out_unused(records)
    if named:
        print_table(columns, [_row(record, hooks=hooks) for record in named])
    print_unused([record for record in records if record not in named])
    off = [record.key for record in records if record.state is ProviderState.DISABLED]
    if off:
        echo(f"\ndisabled: {', '.join(off)}\n  set enabled of an entry to true, such as providers.{off[0]}.enabled")
    for record in named:
        if record.state is ProviderState.DISABLED:
            continue
        if record.reason:
            echo(f"\n{record.key}: {record.reason}")
        if _is_unused(record) and record.type == CONSOLE:
            echo(f"  {_BY_DEFAULT}")
        if record.fix:
            echo("\n".join(f"  {line}" for line in record.fix.splitlines()))


def leave_out_unused(records: Sequence[ProviderRecord]) -> Sequence[ProviderRecord]:
    """Return the records for a table: on a terminal without `-v` not those of packages that no entry names."""
    brief = answers().isatty() and not log_options().verbose
    return [record for record in records if not (brief and _is_unused(record))]


def print_unused(unused: Sequence[ProviderRecord]) -> None:
    """Print the packages that a table has left out, in one line, and how one is enabled."""
    if unused:
        keys = [record.key for record in unused]
        echo(f"\ninstalled, without an entry: {', '.join(keys)} (-v shows each)")
        echo(f"  an entry enables one: providers: {{{keys[0]}: {{enabled: true}}}}")
    if any(record.type == CONSOLE for record in unused):
        echo(f"  console: {_BY_DEFAULT}")


def _is_unused(record: ProviderRecord) -> bool:
    return record.state is ProviderState.INSTALLED_NOT_ENABLED


def _row(record: ProviderRecord, *, hooks: bool) -> tuple[str, ...]:
    package = f"{record.distribution} {record.version}".strip()
    offered = list_names(record.hooks, "hook") if hooks else list_names(record.tools, "tool")
    return record.key, record.type, record.state, offered, list_names(record.routes, "route"), package or "-"
