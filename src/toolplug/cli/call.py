"""`toolplug call`: one tool call without server, network, key or model."""

from __future__ import annotations

from typing import Annotated

import orjson
import typer

from toolplug.catalog.call import CallContext, ToolCall, ToolResult
from toolplug.cli.arguments import arguments_from
from toolplug.cli.event_loop import entered, run_to_end
from toolplug.cli.logs import log_warnings
from toolplug.cli.options import ConfigOption, JsonOption, TenantOption, config_file, operator
from toolplug.config.nearest import name_hint
from toolplug.execution.live import ToolExecutor
from toolplug.host.file.configuration import ConfigFiles
from toolplug.host.host import open_host
from toolplug.http.tools import call_answer

app: typer.Typer = typer.Typer()


@app.command()
def call(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The tool.")],
    arguments: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[key=value… | JSON]",
            help="Its arguments: text where the tool's schema says string, else JSON; or one JSON object.",
            show_default=False,
        ),
    ] = None,
    approval: Annotated[
        str | None, typer.Option("--approval", metavar="ID", help="The approval under which the call is repeated.")
    ] = None,
    config: ConfigOption = None,
    tenant: TenantOption = "default",
    as_json: JsonOption = False,
) -> None:
    """Call one tool and print its result. Needs no server, and acts with all scopes.

    Exits 1 when the result is an error; its status stands on stderr.

    Examples: toolplug call hello name=Ada · toolplug call search query=otters limit=5 · toolplug call search
    '{"query": "otters"}'
    """
    log_warnings()
    raise typer.Exit(run_to_end(_called(name, arguments or [], approval, config_file(config), tenant, as_json)))


async def _called(
    name: str, words: list[str], approval: str | None, config: ConfigFiles, tenant: str, as_json: bool
) -> int:
    caller = operator(tenant)
    async with entered(open_host(config, serving=False)) as host:
        executor = host.executor_for(caller)
        tool = executor.catalog.find(name)
        given = arguments_from(words, tool.definition.parameters.value if tool is not None else {})
        made = ToolCall(id="cli", name=name, arguments=given)
        result = await executor.execute(made, CallContext(principal=caller, approval=approval, report=_report))
        if as_json:
            typer.echo(orjson.dumps(orjson.loads(call_answer(result)), option=orjson.OPT_INDENT_2).decode())
        else:
            _print(result, executor)
        return int(result.is_error)


def _print(result: ToolResult, executor: ToolExecutor) -> None:
    typer.echo(result.output)
    if not result.is_error:
        return
    hint = name_hint(result.name, executor.catalog) if executor.catalog.find(result.name) is None else ""
    typer.echo(f"{result.status} ({hint})" if hint else result.status, err=True)


def _report(progress: float, total: float | None = None, message: str | None = None) -> None:
    of = f" of {total:g}" if total is not None else ""
    typer.echo(f"{progress:g}{of} {message or ''}".rstrip(), err=True)
