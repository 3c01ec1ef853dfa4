"""`toolplug providers`: every provider, its state, why, and what to do."""

from __future__ import annotations

import dataclasses

import typer

from toolplug.cli.event_loop import entered, run_to_end
from toolplug.cli.logs import log_warnings
from toolplug.cli.options import ConfigOption, JsonOption, found_config
from toolplug.cli.output import in_answer, print_json, print_problems, print_table
from toolplug.errors import Problem
from toolplug.host.file.configuration import ConfigFiles
from toolplug.host.inspection import open_inspected
from toolplug.providers.entry import ProviderRecord

app: typer.Typer = typer.Typer()


@app.command()
def providers(config: ConfigOption = None, as_json: JsonOption = False) -> None:
    """List every provider: those of the configuration, then the installed packages that it does not name.

    Starts the providers that are on, to see whether they do. Says for each that does not run why, and what to do; for
    an installed package that is not enabled, the YAML to paste. Works without a configuration, and
    exits 1 where it is wrong.

    Example: toolplug providers --json
    """
    log_warnings()
    raise typer.Exit(run_to_end(_listed(found_config(config), as_json)))


async def _listed(config: ConfigFiles | None, as_json: bool) -> int:
    problems: list[Problem] = []
    async with entered(open_inspected(config if config is not None else {"store": "memory://"}, problems)) as host:
        records = host.records()
    if as_json:
        listed = {"providers": [dataclasses.asdict(record) for record in records]}
        print_json({**in_answer(problems), **listed})
    else:
        _print(records)
        print_problems(problems, as_json=False)
    return 1 if problems else 0


def _print(records: tuple[ProviderRecord, ...]) -> None:
    if not records:
        typer.echo("no provider is installed; try: pip install toolplug-hello")
        return
    columns = ("provider", "type", "state", "tools", "routes", "package")
    print_table(columns, [_row(record) for record in records])
    for record in records:
        if record.reason:
            typer.echo(f"\n{record.key}: {record.reason}")
        if record.fix:
            typer.echo(_indented(record.fix))


def _row(record: ProviderRecord) -> tuple[str, ...]:
    package = f"{record.distribution} {record.version}".strip()
    return (
        record.key,
        record.type,
        record.state,
        ", ".join(record.tools) or "-",
        ", ".join(record.routes) or "-",
        package or "-",
    )


def _indented(text: str) -> str:
    return "\n".join(f"  {line}" for line in text.splitlines())
