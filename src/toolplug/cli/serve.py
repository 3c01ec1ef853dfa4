"""`toolplug serve`: the configuration over HTTP."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Annotated

import typer

from toolplug.cli.logs import log_service
from toolplug.cli.options import (
    ConfigOption,
    JsonOption,
    LockedOption,
    LogFormatOption,
    PortOption,
    config_file,
    missing_package,
)
from toolplug.host.file.part_sections import built_in

app: typer.Typer = typer.Typer()

CodeArgument = Annotated[
    Path | None,
    typer.Argument(metavar="FILE.py", help="A Python file to serve in place of a configuration.", show_default=False),
]

SERVING = "toolplug.cli.serving.over_http"
"""Imports packages of the extra `server`, which the help and a wrong configuration do not need."""
_WORKERS = "toolplug.cli.serving.workers"


def served_file(code: Path, config: Path | None) -> Path:
    """Return the file to serve. Raises `BadParameter` for one that is no Python file, and next to a configuration."""
    if config is not None:
        raise typer.BadParameter("give a Python file or --config; a configuration names files with `type: ./notes.py`")
    if code.suffix != ".py":
        raise typer.BadParameter(f"{code} is no Python file; a configuration is given with --config")
    return code


def _check_workers(others: Mapping[str, bool]) -> None:
    """Raise `BadParameter` where several processes cannot be, or next to another option that is given."""
    if not hasattr(signal, "SIGHUP"):
        raise typer.BadParameter("this system runs one process; --workers needs Linux or macOS")
    for name, given in others.items():
        if given:
            raise typer.BadParameter(f"--{name} runs one process; leave out --workers")


@app.command()
def serve(
    code: CodeArgument = None,
    config: ConfigOption = None,
    host: Annotated[str, typer.Option("--host", metavar="ADDRESS", help="The address to listen on.")] = "127.0.0.1",
    port: PortOption = 8080,
    reload: Annotated[
        bool, typer.Option("--reload", help="Watch the configuration and the code of its providers.")
    ] = False,
    insecure_no_auth: Annotated[
        bool,
        typer.Option("--insecure-no-auth", help="Listen beyond loopback without `auth`: anyone can call."),
    ] = False,
    stdio: Annotated[
        bool, typer.Option("--stdio", help="Serve one MCP client on standard input and output, and nothing over HTTP.")
    ] = False,
    quiet: Annotated[
        bool, typer.Option("-q", "--quiet", help="On a terminal: no start screen, and no line for each call.")
    ] = False,
    agent: Annotated[
        str | None, typer.Option("--agent", metavar="A", help="With --stdio: the tools of this agent.")
    ] = None,
    workers: Annotated[
        int,
        typer.Option("--workers", min=1, max=64, metavar="N", help="Serve with N processes, which share the store."),
    ] = 1,
    console: Annotated[bool, typer.Option("--console", hidden=True)] = True,  # what it is without its opposite
    no_console: Annotated[bool, typer.Option("--no-console", help="Serve no console.")] = False,
    locked: LockedOption = False,
    opens: Annotated[bool, typer.Option("--open", help="Open the console in a browser.")] = False,
    log_format: LogFormatOption = None,
    worker: Annotated[str | None, typer.Option("--worker", hidden=True)] = None,
    as_json: JsonOption = False,
) -> None:
    """Serve the tools and routes of the configuration over HTTP, or to one client that starts this command.

    A Python file is served by itself: its functions with @tool, or its FunctionProvider.

    SIGTERM and SIGINT drain and exit 0, a second one exits at once. SIGHUP reloads the configuration; an invalid one
    changes nothing. Logs go to stderr: on a terminal as lines for people, else one JSON object a line; --log-format
    says which. A terminal shows where everything is, and one line for each call; with --reload also the whole trace of
    a crash.

    On loopback without `auth` it serves the console, a web page that shows and tries tools, and prints its address;
    with --locked only if the configuration names it. With --locked, a package that has changed since `toolplug lock` is
    not imported, and the start is refused; tools of MCP servers that have changed are held back.

    Examples: toolplug serve · toolplug serve -c prod.yaml --host 0.0.0.0 --port 80 · toolplug serve notes.py --reload
    """
    if code is not None:
        config = served_file(code, config)
    if agent is not None and not stdio:
        raise typer.BadParameter("--agent is for --stdio; over HTTP each request says its own agent")
    if locked and reload:
        raise typer.BadParameter("--reload follows changes of the code, which --locked refuses; leave out one of them")
    if workers > 1:
        _check_workers({"reload": reload, "stdio": stdio, "open": opens})
    if reload:
        # A compiled module is taken for current where its source was saved again in the same second at the same size.
        sys.dont_write_bytecode = True
    file = config_file(config)
    terminal = sys.stderr.isatty() and not as_json and log_format != "json"
    number = None if worker is None else json.loads(worker)["number"]
    log_service(config, people=terminal or log_format == "text", traces=reload and terminal, worker=number)
    if stdio:
        raise typer.Exit(_over_stdio().serve_stdio(file, agent, locked=locked))
    options = {"address": host, "port": port, "insecure_no_auth": insecure_no_auth, "locked": locked}
    if workers > 1 and worker is None:
        raise typer.Exit(import_serving(_WORKERS).serve_with_workers(file, count=workers, **options))
    options |= {"watch": reload, "shows": terminal and not quiet, "opens": opens, "worker": worker}
    options["console"] = console and not no_console
    raise typer.Exit(import_serving(SERVING).serve(file, **options))


def _over_stdio() -> ModuleType:
    """Import what serves a client on standard input and output. Raises `BadParameter` without the part that does."""
    module = next((part.stdio for part in built_in() if part.stdio), None)
    if module is None:
        raise typer.BadParameter("--stdio needs a part that speaks with a client on standard input, and there is none")
    return import_module(module)


def import_serving(module: str) -> ModuleType:
    """Import a module that needs the extra `server`. Raises `ConfigError` without it."""
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        raise missing_package("serve", error, "server") from None
