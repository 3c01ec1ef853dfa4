"""`toolplug dev`: serve for the author of tools."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from toolplug.cli.logs import log_service
from toolplug.cli.options import ConfigOption, JsonOption, LogFormatOption, PortOption, config_file
from toolplug.cli.serve import SERVING, CodeArgument, import_serving, served_file

app: typer.Typer = typer.Typer()


@app.command()
def dev(
    code: CodeArgument = None,
    config: ConfigOption = None,
    port: PortOption = 8080,
    opens: Annotated[bool, typer.Option("--open", hidden=True)] = True,
    no_open: Annotated[bool, typer.Option("--no-open", help="Do not open the console in a browser.")] = False,
    log_format: LogFormatOption = None,
    as_json: JsonOption = False,
) -> None:
    """Serve for the author of tools: with reload, and with a console that shows the whole trace of a crash.

    The console's page of a tool calls it by a form, which keeps the arguments while the code changes, and copies the
    call as curl, as Python, and the host as the configuration of an MCP client. The trace of a crash is on the page and
    on the terminal. Only this machine is served. With a console entry in the configuration, its settings apply.

    Examples: toolplug dev notes.py · toolplug dev -c providers.yaml --port 9000 --no-open
    """
    if code is not None:
        config = served_file(code, config)
    sys.dont_write_bytecode = True  # as in `serve`
    file = config_file(config)
    terminal = sys.stderr.isatty() and not as_json and log_format != "json"
    log_service(config, people=terminal or log_format == "text", traces=terminal, worker=None)
    options = {"watch": True, "shows": terminal, "traces": True, "opens": opens and not no_open}
    raise typer.Exit(
        import_serving(SERVING).serve(file, address="127.0.0.1", port=port, insecure_no_auth=False, **options)
    )
