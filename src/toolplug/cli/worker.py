"""`toolplug worker`: runs the provider of an entry of a host elsewhere, which dials in to the host."""

from __future__ import annotations

import asyncio
import logging
import signal
import sys
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

import typer

from toolplug.cli.event_loop import run_to_end
from toolplug.cli.logs import log_service
from toolplug.cli.options import ConfigOption, JsonOption, LogFormatOption, config_folder, missing_package
from toolplug.cli.output import print_problems
from toolplug.cli.running_host import DEFAULT_URL, KeyFileOption, read_key
from toolplug.errors import Problem, ProviderError

app: typer.Typer = typer.Typer()

_SUPERVISOR = "toolplug.apart.workers.supervisor"
"""Imports a package of the extra `worker`."""
_LOCAL = ("127.0.0.1", "::1", "localhost")
_LOG = logging.getLogger("toolplug.worker")


@app.command()
def worker(
    name: Annotated[str, typer.Argument(metavar="KEY", help="The entry of the host, with `run: {worker: true}`.")],
    host: Annotated[str, typer.Option("--host", metavar="URL", help="The address of the host.")] = DEFAULT_URL,
    key_file: KeyFileOption = None,
    key: Annotated[
        str | None,
        typer.Option(
            "--key", metavar="TEXT", help="An API key of the host. Other users of this machine see it: use --key-file."
        ),
    ] = None,
    folder: Annotated[
        Path | None,
        typer.Option(
            "--folder",
            metavar="DIR",
            help="Where its files are: those of the entry, and its state. Default: the folder of the configuration.",
            show_default=False,
        ),
    ] = None,
    config: ConfigOption = None,
    log_format: LogFormatOption = None,
    as_json: JsonOption = False,
) -> None:
    """Run the provider of one entry of a host here, in a process that dials in to the host.

    The package of the provider is that of this environment; the settings, secrets among them, come from the host.
    Several workers may serve one entry: each call goes to the least busy. The key of the host needs the scope `worker`.
    A worker dials again when its host is gone, and runs the provider again when that has ended.

    SIGTERM and SIGINT end it after the calls that run, at most 25 s; a second one ends it at once.

    Exits 1 when the host does not take it: a wrong key, an unknown entry, or settings that the provider refuses.

    Examples: toolplug worker embed --host https://tools.example.com --key-file worker.key
    """
    if urlsplit(host).scheme not in ("http", "https") or not urlsplit(host).hostname:
        raise typer.BadParameter(f"--host {host!r} is no URL of a host; write it as {DEFAULT_URL}")
    folder = config_folder(config) if folder is None else folder
    if not folder.is_dir():
        raise typer.BadParameter(f"--folder {str(folder)!r} is no folder")
    if key is not None and key_file is not None:
        raise typer.BadParameter("--key and --key-file are two ways to give one key; give one of them")
    people = (sys.stderr.isatty() and not as_json and log_format != "json") or log_format == "text"
    log_service(config, people=people, traces=False)
    credential = read_key(key_file, key)
    if urlsplit(host).scheme == "http" and urlsplit(host).hostname not in _LOCAL:
        _LOG.warning("%s: without TLS the key and the settings of the entry can be read on the way", host)
    try:
        module = import_module(_SUPERVISOR)
    except ModuleNotFoundError as error:
        raise missing_package("toolplug worker", error, "worker") from None
    plan = module.WorkerPlan(key=name, host=host, credential=credential, folder=folder.absolute())
    supervisor = module.WorkerSupervisor(plan)
    try:
        run_to_end(_run(supervisor))
    except ProviderError as error:
        problem = Problem(code="worker_refused", message=str(error), path=f"providers.{name}", hint=error.fix)
        print_problems([problem], as_json=as_json)
        raise typer.Exit(1) from None


async def _run(supervisor: object) -> int:
    loop = asyncio.get_running_loop()
    run, stop = getattr(supervisor, "run"), getattr(supervisor, "stop")  # noqa: B009  of a package of an extra
    running = asyncio.current_task()
    signalled = False

    def end() -> None:
        nonlocal signalled
        if signalled and running is not None:
            running.cancel()
        signalled = True
        stop()

    if sys.platform != "win32":  # there Ctrl-C ends it at once
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, end)
    with suppress(asyncio.CancelledError):
        await run()
    return 0
