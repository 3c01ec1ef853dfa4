"""`toolplug explain`: why a tool can or cannot be called."""

from __future__ import annotations

from typing import Annotated

import typer

from toolplug.cli.completion import complete_tool
from toolplug.cli.event_loop import async_command, enter_host
from toolplug.cli.options import CallerOptions, config_file, operator
from toolplug.cli.output import echo, print_json, print_problems, print_table, problem_fields
from toolplug.errors import Problem
from toolplug.host.explain import Explanation
from toolplug.host.inspection import open_inspected

app: typer.Typer = typer.Typer()


@async_command(app)
async def explain(
    options: CallerOptions,
    tool: Annotated[
        str,
        typer.Argument(metavar="TOOL", help="The tool's name, as a caller writes it.", autocompletion=complete_tool),
    ],
) -> int:
    """Explain why a tool can or cannot be called: every gate in order, its verdict, and the line that decided.

    Also shows the effective value of every setting and where it comes from; for an unknown name, the nearest names.
    Current counts of rates and breakers, and who is connected, are known to the running host only: GET /v1/explain.
    Exits 1 if the tool cannot be called or the configuration is invalid.

    Example: toolplug explain file_search --tenant org-2
    """
    problems: list[Problem] = []
    async with enter_host(open_inspected(config_file(options.config), problems)) as host:
        if options.session is not None:
            await host.sessions.find(options.session, options.tenant)
        explanation = host.explain(tool, operator(options.tenant), agent=options.agent, session=options.session)
    if options.as_json:
        print_json({**({"problems": problem_fields(problems)} if problems else {}), **explanation.fields})
    else:
        _print(explanation)
        print_problems(problems, as_json=False)
    return 0 if explanation.callable and not problems else 1


def _print(explanation: Explanation) -> None:
    answer, reason = explanation.verdict
    owner = f" of provider {explanation.provider!r}" if explanation.found else ""
    echo(f"{explanation.name}{owner}: {answer}{f', {reason}' if reason else ''}\n")
    if explanation.gates:
        rows = [(gate.gate, gate.verdict, gate.detail, gate.origin) for gate in explanation.gates]
        print_table(("gate", "verdict", "why", "decided by"), rows)
    if explanation.settings:
        echo("")
        print_table(("setting", "value", "set by"), explanation.settings)
