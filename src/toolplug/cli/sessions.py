"""`toolplug sessions`: the commands that show and use the sessions of a host."""

from __future__ import annotations

import json
import os
import re
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing, asynccontextmanager
from importlib import import_module
from pathlib import Path
from types import MappingProxyType
from typing import Annotated

import orjson
import typer
from pydantic import BaseModel

from toolplug.catalog.text import cleaned
from toolplug.cli.event_loop import run_to_end
from toolplug.cli.logs import log_warnings
from toolplug.cli.options import (
    DEFAULT_FILE,
    ConfigOption,
    JsonOption,
    TenantOption,
    config_file,
    found_config,
    missing_package,
)
from toolplug.cli.output import print_json, print_problems, print_table
from toolplug.cli.store import kept_store
from toolplug.errors import (
    AccessError,
    ConfigError,
    HostError,
    HostRefused,
    InvalidSessionCode,
    Problem,
    SessionGone,
    SessionNotFound,
)
from toolplug.execution.accounting import timestamp
from toolplug.host.file.configuration import ConfigFiles
from toolplug.sessions.events import CANCELLED, REQUEST, STATUS, UPDATE, LoggedEvent
from toolplug.sessions.record import SessionState, check_code
from toolplug.sessions.session_tool import SessionTool
from toolplug.sessions.stored import Missed, StoredSession, StoredSessions


class _Tool(BaseModel):
    name: str


class _Changes(BaseModel):
    added: list[_Tool]
    removed: list[str]
    modified: list[_Tool]


class _Update(BaseModel):
    updates: _Changes
    revision: int
    timestamp: str
    reason: str


class _Request(BaseModel):
    id: str
    tool: str
    deadline: str
    attempt: int


class _Cancelled(BaseModel):
    id: str
    reason: str


class _Status(BaseModel):
    status: str
    timestamp: str


def event_line(event: LoggedEvent) -> str:
    """Position, name and what it says; nothing in it moves the cursor or begins another line."""
    said = " ".join(cleaned(_SAID.get(event.event, _other)(event.data)).split())
    return f"{event.id:>6}  {event.event:<24}  {said}"


def _update(data: Mapping[str, object]) -> str:
    update = _Update.model_validate(data)
    changes = update.updates
    names = [
        *(f"+{tool.name}" for tool in changes.added),
        *(f"-{name}" for name in changes.removed),
        *(f"~{tool.name}" for tool in changes.modified),
    ]
    reason = f" ({update.reason})" if update.reason else ""
    return f"{update.timestamp} revision {update.revision}: {' '.join(names) or 'no tools'}{reason}"


def _request(data: Mapping[str, object]) -> str:
    request = _Request.model_validate(data)
    again = f", attempt {request.attempt}" if request.attempt > 1 else ""
    return f"{request.tool}{again}, until {request.deadline} ({request.id})"


def _cancelled(data: Mapping[str, object]) -> str:
    cancelled = _Cancelled.model_validate(data)
    return f"{cancelled.reason} ({cancelled.id})"


def _status(data: Mapping[str, object]) -> str:
    status = _Status.model_validate(data)
    return f"{status.timestamp} {status.status}"


def _other(data: Mapping[str, object]) -> str:
    """The event of a newer toolplug."""
    return orjson.dumps(data).decode()


_SAID: Mapping[str, Callable[[Mapping[str, object]], str]] = MappingProxyType(
    {UPDATE: _update, REQUEST: _request, CANCELLED: _cancelled, STATUS: _status}
)


_LISTING = "toolplug sessions list shows the codes of a tenant"


def access_problem(error: AccessError, code: str, tenant: str) -> Problem:
    """The problem behind an error of `StoredSessions`."""
    if isinstance(error, SessionGone):
        return Problem(code=error.state, message=str(error), path=code)
    if isinstance(error, SessionNotFound):
        message = f"tenant {tenant!r} has no such session"
        return Problem(code="session_not_found", message=message, path=code, hint=_LISTING)
    return Problem(code="invalid_session_code", message=str(error), path=code, hint=_LISTING)


def capability_fields(state: SessionState) -> list[dict[str, object]]:
    """What its application says that it can do, as HTTP answers it."""
    return [{**item._asdict(), "resources": list(item.resources)} for item in state.capabilities]


def time_left(seconds: float) -> str:
    """`59 min`, in the largest unit of which there is one."""
    for unit, size in (("h", 3600), ("min", 60)):
        if seconds >= size:
            return f"{int(seconds // size)} {unit}"
    return f"{max(int(seconds), 0)} s"


_INSTEAD = "GET /api/sessions and GET /api/sessions/CODE/events"


@asynccontextmanager
async def kept_sessions(config: ConfigFiles, tenant: str) -> AsyncGenerator[StoredSessions]:
    """The sessions of one tenant. Raises `StoreError`, and `ConfigError` where they are in the host's own memory."""
    async with kept_store(config, "sessions", _INSTEAD) as store:
        yield StoredSessions(store, tenant)


KEY = "TOOLPLUG_KEY"
DEFAULT_URL = "http://127.0.0.1:8080"

_CALLING = "toolplug.cli.session_calls"
"""Imports what the extra `client` brings; the help and the other commands need none of it."""
_WORD = re.compile(r"[\x21-\x7e]+")


def call(
    code: Annotated[str, typer.Argument(metavar="CODE", help="The session.")],
    tool: Annotated[str, typer.Argument(metavar="TOOL", help="Its tool, or any other that it shows.")],
    arguments: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[key=value… | JSON]",
            help="Its arguments: text where the tool's schema says string, else JSON; or one JSON object.",
            show_default=False,
        ),
    ] = None,
    url: Annotated[str, typer.Option("--url", metavar="URL", help="Where the host is served.")] = DEFAULT_URL,
    key_file: Annotated[
        Path | None,
        typer.Option(
            "--key-file", metavar="FILE", help=f"An API key of the host. Default: ${KEY}.", show_default=False
        ),
    ] = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Call a tool of a session, and print its result as `toolplug call` does.

    The call goes to the running host, since its application answers there, and has the tenant and the scopes of the
    key. Exits 1 when the result is an error; its status stands on stderr.

    Example: toolplug sessions call ABCDEFGH describe column=age
    """
    log_warnings()
    try:
        calling = import_module(_CALLING)
    except ModuleNotFoundError as error:
        raise missing_package("sessions call", error, "client") from None
    if not url.startswith(("http://", "https://")):
        raise typer.BadParameter(f"--url {url!r} is no URL of a host; write it as {DEFAULT_URL}")
    try:
        check_code(code)
        raise typer.Exit(calling.call(url, _key(key_file), code, tool, arguments or [], as_json=as_json))
    except (HostError, InvalidSessionCode) as error:
        print_problems([_problem(error, code, found_config(config))], as_json=as_json)
        raise typer.Exit(1) from None


def _key(file: Path | None) -> str | None:
    """The API key. Raises `ConfigError` for what is none, without showing it, and `OSError`."""
    key = file.read_text("utf-8", errors="replace").strip() if file is not None else os.environ.get(KEY)
    if key and not _WORD.fullmatch(key):
        place = str(file) if file is not None else f"${KEY}"
        raise ConfigError([Problem(code="invalid_key", message="the key is not one word of visible ASCII", file=place)])
    return key or None


def _problem(error: HostError | InvalidSessionCode, code: str, config: ConfigFiles | None) -> Problem:
    file = config or DEFAULT_FILE
    if isinstance(error, InvalidSessionCode):
        return access_problem(error, code, "")
    if not isinstance(error, HostRefused):
        hint = f"toolplug serve -c {file} starts one; --url says where"
        return Problem(code="host_unreachable", message=str(error), hint=hint)
    hints = {
        "authentication_required": f"set ${KEY}, or name a file with --key-file",
        "insufficient_scope": "use a key with the scopes tools:read and tools:call",
        "session_not_found": f"toolplug sessions list -c {file} shows the codes; --tenant takes that of the key",
        "wrong_audience": "a plugin's token opens only its own routes; use an API key",
    }
    return Problem(code=error.code, message=str(error), path=code, hint=hints.get(error.code, ""))


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
                _print_event(item, as_json)
        except SessionGone as error:
            _say("error", {"code": error.state, "message": str(error)}, as_json)
        except AccessError as error:
            print_problems([access_problem(error, code, tenant)], as_json=as_json)
            return 1
    return 0


def _print_event(item: LoggedEvent | Missed, as_json: bool) -> None:
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


def show(
    code: Annotated[str, typer.Argument(metavar="CODE", help="The session.")],
    config: ConfigOption = None,
    tenant: TenantOption = "default",
    as_json: JsonOption = False,
) -> None:
    """Show one session: its tools, and what its application says of itself.

    Reads the store of the configuration, and needs no running host. The plugin's status is the last one in the log.

    Example: toolplug sessions show ABCDEFGH --json
    """
    log_warnings()
    raise typer.Exit(run_to_end(_shown(config_file(config), code, tenant, as_json)))


async def _shown(config: ConfigFiles, code: str, tenant: str, as_json: bool) -> int:
    async with kept_sessions(config, tenant) as kept:
        try:
            session = await kept.find(code)
        except AccessError as error:
            print_problems([access_problem(error, code, tenant)], as_json=as_json)
            return 1
        log, now = await kept.log(code), kept.now()
    heard = next((event for event in reversed(log) if event.event == STATUS), None)
    if as_json:
        print_json(_session_fields(session, heard))
    else:
        _print_session(session, heard, now)
    return 0


def _session_fields(session: StoredSession, heard: LoggedEvent | None) -> dict[str, object]:
    state = session.state
    return {
        "sessionId": session.code,
        "pluginType": state.plugin_type,
        "lastPluginStatus": None if heard is None else heard.data,
        "capabilities": capability_fields(state),
        "tools": json.loads(state.tools.wire()),
        "environment": dict(state.environment),
        "toolCount": len(state.tools),
        "revision": state.revision,
        "registered": state.registered,
        "lastUpdated": timestamp(state.updated_at),
        "expiresAt": timestamp(session.expires_at),
    }


def _print_session(session: StoredSession, heard: LoggedEvent | None, now: float) -> None:
    state = session.state
    capabilities = ", ".join(f"{item.type} ({item.level})" for item in state.capabilities)
    facts = {
        "plugin type": state.plugin_type or "-",
        "plugin": "nothing in the log" if heard is None else f"{heard.data['status']} since {heard.data['timestamp']}",
        "revision": f"{state.revision}, of {timestamp(state.updated_at)}",
        "expires in": time_left(session.expires_at - now),
        "capabilities": capabilities or "-",
        "environment": cleaned(json.dumps(dict(state.environment), ensure_ascii=False)),
    }
    for name, value in facts.items():
        typer.echo(f"{name:<14}{value}")
    typer.echo("")
    if not state.registered:
        typer.echo("nothing is registered: it shows the tools of sessions.default_toolset, where that is set")
    elif not state.tools:
        typer.echo("it lends no tools now")
    else:
        print_table(("tool", "requires", "description"), [_tool_row(tool) for tool in state.tools.tools.values()])


def _tool_row(tool: SessionTool) -> tuple[str, str, str]:
    requires = ", ".join(f"{item.type} ({item.level})" if item.level else item.type for item in tool.requires)
    return tool.name, requires or "-", " ".join(cleaned(tool.definition.description).split())


def list_sessions(config: ConfigOption = None, tenant: TenantOption = "default", as_json: JsonOption = False) -> None:
    """List the live sessions of a tenant, the one that changed last at the end.

    Reads the store of the configuration, and needs no running host. Whether an application is connected is not in the
    store; `toolplug sessions show` says what was last heard of it.

    Example: toolplug sessions list --tenant org-2
    """
    log_warnings()
    raise typer.Exit(run_to_end(_listed(config_file(config), tenant, as_json)))


async def _listed(config: ConfigFiles, tenant: str, as_json: bool) -> int:
    async with kept_sessions(config, tenant) as kept:
        sessions, now = await kept.live(), kept.now()
    if as_json:
        print_json({"sessions": [_summary_fields(session) for session in sessions]})
    elif sessions:
        columns = ("code", "plugin type", "revision", "tools", "registered", "expires in")
        print_table(columns, [_session_row(session, now) for session in sessions])
    else:
        typer.echo(f"tenant {tenant!r} has no sessions (--tenant names another); POST /api/sessions makes one")
    return 0


def _summary_fields(session: StoredSession) -> dict[str, object]:
    state = session.state
    return {
        "code": session.code,
        "pluginType": state.plugin_type,
        "capabilities": capability_fields(state),
        "registered": state.registered,
        "toolCount": len(state.tools),
        "revision": state.revision,
        "expiresAt": timestamp(session.expires_at),
    }


def _session_row(session: StoredSession, now: float) -> tuple[str, ...]:
    state = session.state
    return (
        session.code,
        state.plugin_type or "-",
        str(state.revision),
        str(len(state.tools)),
        "yes" if state.registered else "no",
        time_left(session.expires_at - now),
    )


app: typer.Typer = typer.Typer()
sessions: typer.Typer = typer.Typer(name="sessions", help="Sessions, in which applications lend their tools.")
app.add_typer(sessions)


@sessions.callback()
def sessions_group() -> None:
    """Look at the sessions of a host, and call their tools."""


sessions.command("list")(list_sessions)
sessions.command("show")(show)
sessions.command("tail")(tail)
sessions.command("call")(call)
