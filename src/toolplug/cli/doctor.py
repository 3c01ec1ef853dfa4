"""`toolplug doctor`: everything that is wrong or doubtful."""

from __future__ import annotations

import platform
from dataclasses import asdict
from importlib.metadata import PackageNotFoundError, version

import typer

from toolplug.catalog.text import counted
from toolplug.cli.event_loop import entered, run_to_end
from toolplug.cli.logs import log_warnings
from toolplug.cli.options import DEFAULT_FILE, ENVIRONMENT, ConfigOption, JsonOption, found_config
from toolplug.cli.output import print_json, print_table, problem_fields, problems_in
from toolplug.errors import Problem, ToolplugError
from toolplug.host.file.configuration import ConfigFiles
from toolplug.host.inspection import Findings, findings, open_inspected
from toolplug.providers.entry import ProviderRecord
from toolplug.providers.entry_points import installed

PACKAGES = ("toolplug", "pluggy", "pydantic", "starlette", "prometheus-client", "uvicorn", "pyjwt")
"""Those whose version decides how something behaves; the last two come with extras."""

app: typer.Typer = typer.Typer()


@app.command()
def doctor(config: ConfigOption = None, as_json: JsonOption = False) -> None:
    """Look for everything that is wrong or doubtful, in the configuration and in the installed packages.

    Reads the whole configuration, starts the providers that are on, opens the store. Exits 1 when something is wrong.

    Example: toolplug doctor
    """
    log_warnings()
    raise typer.Exit(run_to_end(_examined(found_config(config), as_json)))


async def _examined(config: ConfigFiles | None, as_json: bool) -> int:
    records: tuple[ProviderRecord, ...] = ()
    try:
        problems: list[Problem] = []
        async with entered(open_inspected(config if config is not None else {"store": "memory://"}, problems)) as host:
            found = await findings(host, installed(), problems)
            records = host.records()
    except (ToolplugError, OSError) as error:
        found = Findings(wrong=tuple(problems_in(error)), doubtful=installed().problems)
    if config is None:
        found = found._replace(doubtful=(_NO_CONFIGURATION, *found.doubtful))
    if as_json:
        print_json(_fields(found, records))
    else:
        _print(found, records)
    return 1 if found.wrong else 0


_NO_CONFIGURATION = Problem(
    code="no_configuration",
    message=f"there is no {DEFAULT_FILE} here, and ${ENVIRONMENT} is not set",
    hint="toolplug init writes one",
)


def _fields(found: Findings, records: tuple[ProviderRecord, ...]) -> dict[str, object]:
    return {
        "problems": [problem_fields(problem) for problem in found.wrong],
        "warnings": [problem_fields(problem) for problem in found.doubtful],
        "providers": [asdict(record) for record in records],
        "versions": _versions(),
    }


def _print(found: Findings, records: tuple[ProviderRecord, ...]) -> None:
    shown = ", ".join(f"{name} {number}" for name, number in _versions().items())
    typer.echo(shown)
    if records:
        typer.echo("")
        print_table(("provider", "state", "tools"), [_row(record) for record in records])
    for title, problems in (("wrong", found.wrong), ("doubtful", found.doubtful)):
        for problem in problems:
            typer.echo(f"\n{title}: {problem}")
    typer.echo(f"\n{counted(len(found.wrong), 'problem')}, {counted(len(found.doubtful), 'doubt')}")


def _row(record: ProviderRecord) -> tuple[str, ...]:
    return record.key, record.state, ", ".join(record.tools) or "-"


def _versions() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "not installed"
    return found
