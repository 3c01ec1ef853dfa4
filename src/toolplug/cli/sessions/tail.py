"""`toolplug sessions tail`: a session's log, followed."""

from __future__ import annotations

from contextlib import aclosing
from typing import Annotated

import orjson
import typer

from toolplug.cli.event_loop import run_to_end
from toolplug.cli.logs import log_warnings
from toolplug.cli.options import ConfigOption, JsonOption, TenantOption, config_file
from toolplug.cli.refusal import print_problems
from toolplug.cli.sessions.event_line import event_line
from toolplug.cli.sessions.kept import kept_sessions
from toolplug.cli.sessions.refusal import access_problem
from toolplug.errors import AccessError, SessionGone
from toolplug.host.file.config_files import ConfigFiles
from toolplug.sessions.logged_event import LoggedEvent
from toolplug.sessions.stored import Missed


def tail(
    code: Annotated[str, typer.Argument(metavar="CODE", help="The session.")],
    after: Annotated[
        int | None,
        typer.Option("--after", metavar="N", min=0, help="Begin after this event. Default: all that the log keeps."),
    ] = None,
    config: ConfigOption = None,
    tenant: TenantOption = "default",
    as_json: JsonOption = False,
) -> None:
    """Print a session's log, then every event as it comes, until Ctrl-C or until the session is over.

    Reads the store of the configuration, and needs no running host. One line an event, with --json one JSON object a
    line. Arguments of calls are left out.

    Examples: toolplug sessions tail ABCDEFGH · toolplug sessions tail ABCDEFGH --after 17 --json
    """
    log_warnings()
    try:
        ended = run_to_end(_followed(config_file(config), code, tenant, after, as_json))
    except KeyboardInterrupt:
        ended = 0
    raise typer.Exit(ended)


async def _followed(config: ConfigFiles, code: str, tenant: str, after: int | None, as_json: bool) -> int:
    async with kept_sessions(config, tenant) as kept, aclosing(kept.follow(code, after)) as log:
        try:
            async for item in log:
                _print(item, as_json)
        except SessionGone as error:
            _say("error", {"code": error.state, "message": str(error)}, as_json)
        except AccessError as error:
            print_problems([access_problem(error, code, tenant)], as_json=as_json)
            return 1
    return 0


def _print(item: LoggedEvent | Missed, as_json: bool) -> None:
    if isinstance(item, Missed):
        message = f"the log does not hold event {item.event}; all that it holds follows"
        _say("resync", {"message": message}, as_json)
    else:
        typer.echo(_line(item._asdict()) if as_json else event_line(item))


def _say(event: str, data: dict[str, str], as_json: bool) -> None:
    """What is in no log: in the JSON an event without an id, else a line on stderr."""
    typer.echo(_line({"event": event, "data": data}) if as_json else data["message"], err=not as_json)


def _line(value: dict[str, object]) -> str:
    return orjson.dumps(value).decode()
