"""`toolplug why`: the trace of one crash."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from toolplug.cli.crashes import FOLDER, KEPT, kept_crash
from toolplug.cli.logs import log_warnings
from toolplug.cli.options import ConfigOption, JsonOption, config_folder
from toolplug.cli.output import print_answer
from toolplug.errors import ConfigError, Problem

app: typer.Typer = typer.Typer()


@app.command()
def why(
    crash_id: Annotated[str, typer.Argument(metavar="ID", help="The request id of an answer, or the id of a call.")],
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Print the last crash with this request id or call id: its log line and the whole trace, secrets masked.

    Crashes are kept by `toolplug call`, by `toolplug serve --reload` on a terminal, and by every command with --debug.

    Examples: toolplug why cli · toolplug why req_5f3a --json
    """
    log_warnings(config)
    folder = config_folder(config) / FOLDER
    crash = kept_crash(folder, crash_id)
    if crash is None:
        raise ConfigError([_not_kept(folder, crash_id)])
    print_answer(as_json, crash, f"{crash['ts']} {crash['line']}\n\n{crash['trace']}")


def _not_kept(folder: Path, crash_id: str) -> Problem:
    return Problem(
        code="crash_not_found",
        message=f"no crash with the request id or call id {crash_id!r} is kept in {folder}",
        hint=(
            f"the last {KEPT} are kept, by `toolplug call`, `serve --reload` on a terminal and --debug only; why"
            " a call is refused: toolplug explain TOOL"
        ),
    )
