"""`toolplug doctor`: all errors and warnings."""

from __future__ import annotations

import platform
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from typing import Annotated, Any, cast

import typer
from starlette.authentication import AuthenticationError

from toolplug.catalog.text import pluralize
from toolplug.cli.event_loop import async_command, enter_host
from toolplug.cli.log_options import log_options
from toolplug.cli.logs import without_findings
from toolplug.cli.options import NO_CONFIGURATION, ConfigOption, JsonOption, found_config, operator
from toolplug.cli.output import COLOURS, echo, list_names, paint, print_json, print_table, problem_fields, problems_in
from toolplug.cli.progress import progress
from toolplug.cli.providers import leave_out_unused, print_unused
from toolplug.errors import Problem, StoreMisused, ToolplugError
from toolplug.host.file.settings import Auth
from toolplug.host.host import Host
from toolplug.host.inspection import Findings, ToolCost, findings, open_inspected, tool_costs, tool_warnings
from toolplug.locking.making import find_drift
from toolplug.packages.entry_points import find_installed
from toolplug.providers.entry import ProviderRecord

PACKAGES = ("toolplug", "pluggy", "pydantic", "starlette", "prometheus-client", "uvicorn", "pyjwt")
"""Packages whose versions affect behaviour; the last two come with extras."""

MAX_FINDINGS = 50
"""Errors, and warnings, that are printed without `-v`: a server with hundreds of poor tools has as many warnings."""

app: typer.Typer = typer.Typer()


@async_command(app)
async def doctor(
    config: ConfigOption = None,
    tools: Annotated[
        bool, typer.Option("--tools", help="Only the tools: the size of each for a model, and the warnings about them.")
    ] = False,
    as_json: JsonOption = False,
) -> int:
    """Report all errors and warnings in the configuration and the installed packages.

    Reads the whole configuration, starts the enabled providers, opens the store and fetches the key set of tokens.
    Warns about tools that a model cannot understand, and of what is not as toolplug.lock has it. -v prints all where
    there are many. Exits 1 if there is an error.

    Example: toolplug doctor
    """
    file = found_config(config)
    records: tuple[ProviderRecord, ...] = ()
    costs: list[ToolCost] = []
    confined: dict[str, dict[str, object]] = {}
    problems: list[Problem] = []
    warnings: list[Problem] = []
    try:
        with without_findings(), progress("starting the providers and asking them"):
            # Without a configuration in memory: the default store would make a file in the current folder.
            async with enter_host(open_inspected(file or {"store": "memory://"}, problems, warnings=warnings)) as host:
                confined = _confinements(host)
                costs = tool_costs(host)
                if tools:
                    found = Findings(errors=tuple(problems), warnings=tuple(tool_warnings(host)))
                else:
                    found = await findings(host, find_installed(), problems)
                    drift = [] if file is None else await find_drift(file, host, operator())
                    keys = await _key_set(host.settings.auth)
                    found = found._replace(warnings=(*warnings, *found.warnings, *drift, *keys))
                records = host.records()
    except (ToolplugError, OSError) as error:
        # A store that cannot be opened ends the inspection; what is wrong with its URL is among the problems.
        known = isinstance(error, StoreMisused) and any(item.code == "store_url" for item in problems)
        errors = problems if known else [*problems, *problems_in(error)]
        found = Findings(errors=tuple(errors), warnings=(*find_installed().problems, *warnings))
    if file is None:
        found = found._replace(warnings=(NO_CONFIGURATION, *found.warnings))
    if as_json:
        fields = {"problems": problem_fields(found.errors), "warnings": problem_fields(found.warnings)}
        listed = [cost._asdict() for cost in costs]
        rest: dict[str, object] = {
            "providers": [asdict(record) for record in records],
            "processes": confined,
            "versions": _versions(),
        }
        print_json({**fields, **({"tools": listed} if tools else rest)})
    elif tools:
        print_table(("tool", "provider", "characters", "tokens"), [tuple(map(str, cost)) for cost in costs])
        _print_findings(found)
    else:
        _print(found, records, confined)
    return 1 if found.errors else 0


async def _key_set(auth: Auth | None) -> list[Problem]:
    """Return a warning if the key set of tokens is unavailable. PyJWT is an extra, so the import is here."""
    if auth is None or auth.jwt is None or auth.jwt.jwks_url is None:
        return []
    tokens = import_module("toolplug.http.auth.jwt")
    with suppress(AuthenticationError):  # the key set answers, without a key of this id
        try:
            # Asking for any key fetches the set.
            await tokens.KeySet(auth.jwt.jwks_url).key("")
        except tokens.KeySetDown:
            message = "the key set does not answer, or holds no key: no token can be verified"
            hint = "open the address; it must answer within 5 s with a JSON Web Key Set"
            return [Problem(code="key_set_down", message=message, path="auth.jwt.jwks_url", hint=hint)]
    return []


def _confinements(host: Host) -> dict[str, dict[str, object]]:
    """Return what each provider in a process of its own asks for and is granted."""
    found: dict[str, dict[str, object]] = {}
    for key, generation in host.registry.running().items():
        if generation.entry.apart:
            found[key] = cast("Any", generation.provider).describe_confinement()
    return found


def _print_confinements(confined: Mapping[str, Mapping[str, object]]) -> None:
    for key, found in confined.items():
        echo(f"\n{key} runs in a process of its own, {'confined' if found['confined'] else 'not confined'}")
        asked = cast("Sequence[str] | None", found["asked"])
        echo(f"  asks for: {'its package does not say' if asked is None else '; '.join(asked) or 'nothing'}")
        echo(f"  granted: {'; '.join(cast('Sequence[str]', found['granted'])) or 'nothing'}")
        bounds = cast("Mapping[str, object]", found["bounds"])
        echo(f"  bounds: {', '.join(f'{name} {bound}' for name, bound in bounds.items()) or 'none'}")


def _print(found: Findings, records: tuple[ProviderRecord, ...], confined: Mapping[str, Mapping[str, object]]) -> None:
    echo(", ".join(f"{name} {number}" for name, number in _versions().items()))
    named = leave_out_unused(records)
    if named:
        echo("")
        rows = [(record.key, record.state, list_names(record.tools, "tool")) for record in named]
        print_table(("provider", "state", "tools"), rows)
    print_unused([record for record in records if record not in named])
    _print_confinements(confined)
    _print_findings(found)


def _print_findings(found: Findings) -> None:
    for title, problems in (("error", found.errors), ("warning", found.warnings)):
        most = len(problems) if log_options().verbose else MAX_FINDINGS
        for problem in problems[:most]:
            echo(f"\n{paint(title, COLOURS[title])}: {problem}")
        if len(problems) > most:
            echo(f"\nand {pluralize(len(problems) - most, title)} more; -v shows all")
    echo(f"\n{pluralize(len(found.errors), 'error')}, {pluralize(len(found.warnings), 'warning')}")


def _versions() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "not installed"
    return found
