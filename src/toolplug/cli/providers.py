"""`toolplug providers`: every provider, its state, the reason and the fix."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Annotated

import typer

from toolplug.cli.event_loop import async_command, enter_host
from toolplug.cli.options import ConfigOption, JsonOption, found_config
from toolplug.cli.output import echo, list_names, print_json, print_problems, print_table, problem_fields
from toolplug.errors import Problem
from toolplug.host.file.configuration import CONSOLE
from toolplug.host.inspection import open_inspected
from toolplug.providers.entry import ProviderRecord, ProviderState
from toolplug.providers.plugins.implementations import HOOKS

app: typer.Typer = typer.Typer()


HooksOption = Annotated[bool, typer.Option("--hooks", help="Show the hooks of each, and who is asked in which order.")]


@async_command(app)
async def providers(config: ConfigOption = None, hooks: HooksOption = False, as_json: JsonOption = False) -> int:
    """List every provider: those of the configuration, then the other installed packages.

    Starts the enabled providers to check that they run. Shows the reason and the fix for each that does not run, and
    the YAML to paste for an installed package that is not enabled; with --hooks the hooks in place of the tools. Names
    all tools and routes only with -v, or where they are few. Works without a configuration; exits 1 if it is invalid.

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
            _print_order(asked)
        print_problems(problems, as_json=False)
    return 1 if problems else 0


def _print_order(asked: Mapping[str, Sequence[str]]) -> None:
    """Print the plugins that are asked in turn, for each hook with more than one."""
    for name, keys in asked.items():
        if len(keys) > 1 and HOOKS[name].asked != "provider":
            echo(f"\n{name}: {', '.join(keys)}")


def _print(records: Sequence[ProviderRecord], *, hooks: bool) -> None:
    if not records:
        echo("no provider is installed; try: pip install toolplug-hello")
        return
    columns = ("provider", "type", "state", "hooks" if hooks else "tools", "routes", "package")
    print_table(columns, [_row(record, hooks=hooks) for record in records])
    off = [record.key for record in records if record.state is ProviderState.DISABLED]
    if off:
        echo(f"\ndisabled: {', '.join(off)}\n  set enabled of an entry to true, such as providers.{off[0]}.enabled")
    for record in records:
        if record.state is ProviderState.DISABLED:
            continue
        if record.reason:
            echo(f"\n{record.key}: {record.reason}")
        if record.type == CONSOLE and record.state is ProviderState.INSTALLED_NOT_ENABLED:
            echo("  `toolplug serve` has it without an entry, as long as it is on loopback and without auth")
        if record.fix:
            echo("\n".join(f"  {line}" for line in record.fix.splitlines()))


def _row(record: ProviderRecord, *, hooks: bool) -> tuple[str, ...]:
    package = f"{record.distribution} {record.version}".strip()
    offered = list_names(record.hooks, "hook") if hooks else list_names(record.tools, "tool")
    return record.key, record.type, record.state, offered, list_names(record.routes, "route"), package or "-"
