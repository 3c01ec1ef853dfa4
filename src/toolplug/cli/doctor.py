"""`toolplug doctor`: everything that is wrong or doubtful."""

from __future__ import annotations

import platform
from dataclasses import asdict
from importlib.metadata import PackageNotFoundError, version

import typer

from toolplug.catalog.text import counted
from toolplug.cli.event_loop import async_command, entered
from toolplug.cli.options import NO_CONFIGURATION, ConfigOption, JsonOption, found_config
from toolplug.cli.output import print_json, print_table, problem_fields, problems_in
from toolplug.errors import Problem, ToolplugError
from toolplug.host.inspection import Findings, findings, open_inspected
from toolplug.providers.entry import ProviderRecord
from toolplug.providers.entry_points import installed

PACKAGES = ("toolplug", "pluggy", "pydantic", "starlette", "prometheus-client", "uvicorn", "pyjwt")
"""Those whose version decides how something behaves; the last two come with extras."""

app: typer.Typer = typer.Typer()


@app.command()
@async_command
async def doctor(config: ConfigOption = None, as_json: JsonOption = False) -> int:
    """Look for everything that is wrong or doubtful, in the configuration and in the installed packages.

    Reads the whole configuration, starts the providers that are on, opens the store. Exits 1 when something is wrong.

    Example: toolplug doctor
    """
    file = found_config(config)
    records: tuple[ProviderRecord, ...] = ()
    problems: list[Problem] = []
    try:
        async with entered(open_inspected(file or {"store": "memory://"}, problems)) as host:
            found = await findings(host, installed(), problems)
            records = host.records()
    except (ToolplugError, OSError) as error:
        found = Findings(wrong=tuple(problems_in(error)), doubtful=installed().problems)
    if file is None:
        found = found._replace(doubtful=(NO_CONFIGURATION, *found.doubtful))
    if as_json:
        fields = {"problems": problem_fields(found.wrong), "warnings": problem_fields(found.doubtful)}
        print_json({**fields, "providers": [asdict(record) for record in records], "versions": _versions()})
    else:
        _print(found, records)
    return 1 if found.wrong else 0


def _print(found: Findings, records: tuple[ProviderRecord, ...]) -> None:
    typer.echo(", ".join(f"{name} {number}" for name, number in _versions().items()))
    if records:
        typer.echo("")
        rows = [(record.key, record.state, ", ".join(record.tools) or "-") for record in records]
        print_table(("provider", "state", "tools"), rows)
    for title, problems in (("wrong", found.wrong), ("doubtful", found.doubtful)):
        for problem in problems:
            typer.echo(f"\n{title}: {problem}")
    typer.echo(f"\n{counted(len(found.wrong), 'problem')}, {counted(len(found.doubtful), 'doubt')}")


def _versions() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "not installed"
    return found
