"""`toolplug sessions`: the sessions in a store, their logs, and calls of their tools."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Generator, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager, contextmanager
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any

import orjson
import typer

from toolplug.catalog.call import check_code
from toolplug.catalog.text import clean_text
from toolplug.cli.arguments import ArgumentWords
from toolplug.cli.event_loop import async_command, run_to_end
from toolplug.cli.logs import log_warnings
from toolplug.cli.options import (
    DEFAULT_FILE,
    ConfigOption,
    JsonOption,
    TenantOption,
    TenantOptions,
    config_file,
    found_config,
    missing_package,
)
from toolplug.cli.output import echo, print_answer, print_json, print_listing, print_table
from toolplug.cli.running_host import DEFAULT_URL, KeyFileOption, check_url, host_problem, read_key
from toolplug.cli.store import open_shared_store
from toolplug.config.units import timestamp
from toolplug.errors import (
    AccessError,
    ConfigError,
    HostError,
    InvalidSessionCode,
    Problem,
    SessionGone,
    SessionNotFound,
)
from toolplug.parts.sessions.record import SessionState
from toolplug.parts.sessions.stored import MissedChange, StoredSession, StoredSessions
from toolplug.parts.sessions.streams.events import CANCELLED, REQUEST, STATUS, UPDATE, StoredSessionEvent
from toolplug.parts.sessions.tools.session_tool import SessionTool

_CALLS = "toolplug.parts.sessions.commands.session_calls"
"""Imports packages of the extra `client`, which the help and the other commands do not need."""
_TRIAL = "toolplug.parts.sessions.commands.session_trial"
_LIST_HINT = "toolplug sessions list shows the codes of a tenant"

UrlOption = Annotated[str, typer.Option("--url", metavar="URL", help="The URL of the host.")]
SessionCode = Annotated[str, typer.Argument(metavar="CODE", help="The session.")]

app: typer.Typer = typer.Typer(name="sessions", help="Sessions, in which applications lend their tools.")


@async_command(app, "list")
async def list_sessions(options: TenantOptions) -> None:
    """List the live sessions of a tenant, the most recently changed last.

    Reads the store of the configuration, and needs no running host. The store does not know whether an application is
    connected; `toolplug sessions show` has its last status.

    Example: toolplug sessions list --tenant org-2
    """
    tenant = options.tenant
    async with _stored_sessions(options.config, tenant) as stored:
        sessions, now = await stored.live(), stored.now()
    columns = ("code", "plugin type", "revision", "tools", "registered", "expires in")
    empty = f"tenant {tenant!r} has no sessions (--tenant names another); POST /api/sessions makes one"
    fields = {"sessions": [_summary_fields(session) for session in sessions]}
    print_listing(options.as_json, fields, columns, [_session_row(session, now) for session in sessions], empty)


@async_command(app)
async def show(options: TenantOptions, code: SessionCode) -> None:
    """Show one session: its tools and its application.

    Reads the store of the configuration, and needs no running host. The plugin's status is the last one in the log.

    Example: toolplug sessions show ABCDEFGH --json
    """
    async with _stored_sessions(options.config, options.tenant, code) as stored:
        session = await stored.find(code)
        log, now = await stored.log(code), stored.now()
    status = next((event.data for event in reversed(log) if event.event == STATUS), None)
    if options.as_json:
        print_json(_session_fields(session, status))
    else:
        _print_session(session, status, now)


@app.command()
def tail(
    code: SessionCode,
    after: Annotated[
        int | None,
        typer.Option("--after", metavar="N", min=0, help="Start after this event. Default: the whole log."),
    ] = None,
    config: ConfigOption = None,
    tenant: TenantOption = "default",
    as_json: JsonOption = False,
) -> None:
    """Print a session's log, then every new event, until Ctrl-C or the end of the session.

    Reads the store of the configuration, and needs no running host. One line an event, with --json one JSON object a
    line. Arguments of calls are left out.

    Examples: toolplug sessions tail ABCDEFGH · toolplug sessions tail ABCDEFGH --after 17 --json
    """
    log_warnings(config)
    try:
        exit_code = run_to_end(_follow(config, code, tenant, after, as_json))
    # Ctrl-C is the usual end of this command, not a failure.
    except KeyboardInterrupt:
        exit_code = 0
    raise typer.Exit(exit_code)


@app.command()
def call(
    code: SessionCode,
    tool: Annotated[str, typer.Argument(metavar="TOOL", help="A tool of the session, or any other that it lists.")],
    arguments: ArgumentWords = None,
    url: UrlOption = DEFAULT_URL,
    key_file: KeyFileOption = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Call a tool of a session, and print its result as `toolplug call` does.

    The call goes to the running host, where the application answers, with the tenant and the scopes of the key. Exits
    1 when the result is an error; its status is printed to stderr.

    Example: toolplug sessions call ABCDEFGH describe column=age
    """
    log_warnings(config)
    with _asking_host("sessions call", config, url, code) as calls:
        raise typer.Exit(calls.call(url, read_key(key_file), code, tool, arguments or [], as_json=as_json))


@app.command()
def prompt(
    code: SessionCode,
    markdown: Annotated[bool, typer.Option("--markdown", help="As Markdown, not as text.")] = False,
    url: UrlOption = DEFAULT_URL,
    key_file: KeyFileOption = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Print a session in words, to give to a model: the application, its tools, and how MCP clients connect to it.

    The text comes from the running host. What is quoted in it is the application's.

    Example: toolplug sessions prompt ABCDEFGH --markdown
    """
    log_warnings(config)
    with _asking_host("sessions prompt", config, url, code) as calls:
        text = calls.prompt(url, read_key(key_file), code, markdown=markdown)
        print_answer(as_json, {"prompt": text}, text.rstrip("\n"))


@app.command("try")
def try_functions(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A Python file with functions.", show_default=False)],
    url: UrlOption = DEFAULT_URL,
    key_file: KeyFileOption = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Lend the functions of a Python file to a new session, until Ctrl-C, and print what its readers get.

    Lends the functions with @tool, or without any every public one. When the file is saved, the difference is sent, and
    each update is printed as a reader of the session gets it. A file with an error changes nothing. With --json, one
    JSON object a line.

    Example: toolplug sessions try notes.py
    """
    log_warnings(config)
    with _asking_host("sessions try", config, url, "") as _:
        trial = import_module(_TRIAL)
        try:
            exit_code = run_to_end(trial.try_file(file, url, read_key(key_file), as_json=as_json))
        except KeyboardInterrupt:
            exit_code = 0
        raise typer.Exit(exit_code)


@contextmanager
def _asking_host(command: str, config: Path | None, url: str, code: str) -> Generator[ModuleType]:
    """Give the module that asks the host. Raises `ConfigError` for its errors, and `BadParameter` for the URL."""
    try:
        calls = import_module(_CALLS)
    except ModuleNotFoundError as error:
        raise missing_package(command, error, "client") from None
    check_url(url)
    try:
        if code:
            check_code(code)
        yield calls
    except InvalidSessionCode as error:
        raise ConfigError([_access_problem(error, code)]) from None
    except HostError as error:
        raise ConfigError([host_problem(error, str(found_config(config) or DEFAULT_FILE), code)]) from None


def event_line(event: StoredSessionEvent) -> str:
    """Format an event as one line: its id, its name and its data, without control characters."""
    text = " ".join(clean_text(_event_text(event.event, event.data)).split())
    return f"{event.id:>6}  {event.event:<24}  {text}"


def _event_text(event: str, data: Mapping[str, Any]) -> str:
    """Format the data of an event; as JSON for one of a newer version of toolplug."""
    if event == REQUEST:
        again = f", attempt {data['attempt']}" if data["attempt"] > 1 else ""
        return f"{data['tool']}{again}, until {data['deadline']} ({data['id']})"
    if event == CANCELLED:
        return f"{data['reason']} ({data['id']})"
    if event == STATUS:
        return f"{data['timestamp']} {data['status']}"
    if event != UPDATE:
        return orjson.dumps(data).decode()
    changes = data["updates"]
    names = [
        *(f"+{tool['name']}" for tool in changes["added"]),
        *(f"-{name}" for name in changes["removed"]),
        *(f"~{tool['name']}" for tool in changes["modified"]),
    ]
    reason = f" ({data['reason']})" if data["reason"] else ""
    return f"{data['timestamp']} revision {data['revision']}: {' '.join(names) or 'no tools'}{reason}"


async def _follow(config: Path | None, code: str, tenant: str, after: int | None, as_json: bool) -> None:
    async with _stored_sessions(config, tenant, code) as stored, aclosing(stored.follow(code, after)) as log:
        try:
            async for item in log:
                if isinstance(item, MissedChange):
                    message = f"the log does not hold event {item.event}; all that it holds follows"
                    _print_notice("resync", {"message": message}, as_json)
                else:
                    echo(item.line if as_json else event_line(item))
        except SessionGone as error:
            _print_notice("error", {"code": error.state, "message": str(error)}, as_json)


def _print_notice(event: str, data: Mapping[str, str], as_json: bool) -> None:
    """Print something that is not in the log: as JSON an event without id on stdout, else a line on stderr."""
    if as_json:
        echo(orjson.dumps({"event": event, "data": data}).decode())
    else:
        echo(data["message"], err=True)


@asynccontextmanager
async def _stored_sessions(config: Path | None, tenant: str, code: str = "") -> AsyncGenerator[StoredSessions]:
    """Open the stored sessions of one tenant.

    Raises `StoreError`, and `ConfigError` for a store in memory and for errors of the session `code`.
    """
    instead = "GET /api/sessions and GET /api/sessions/CODE/events"
    async with open_shared_store(config_file(config), "sessions", instead) as store:
        try:
            yield StoredSessions(store, tenant)
        except AccessError as error:
            raise ConfigError([_access_problem(error, code, tenant)]) from None


def _access_problem(error: AccessError, code: str, tenant: str = "") -> Problem:
    if isinstance(error, SessionGone):
        return Problem(code=error.state, message=str(error), path=code)
    if isinstance(error, SessionNotFound):
        message = f"tenant {tenant!r} has no such session"
        return Problem(code="session_not_found", message=message, path=code, hint=_LIST_HINT)
    return Problem(code="invalid_session_code", message=str(error), path=code, hint=_LIST_HINT)


def _summary_fields(session: StoredSession) -> dict[str, object]:
    state = session.state
    return {
        "code": session.code,
        "pluginType": state.plugin_type,
        "capabilities": _capability_fields(state),
        "registered": state.registered,
        "toolCount": len(state.tools),
        "revision": state.revision,
        "expiresAt": timestamp(session.expires_at),
    }


def _session_fields(session: StoredSession, status: Mapping[str, object] | None) -> dict[str, object]:
    state = session.state
    return {
        "sessionId": session.code,
        "pluginType": state.plugin_type,
        "lastPluginStatus": status,
        "capabilities": _capability_fields(state),
        "tools": json.loads(state.tools.wire()),
        "environment": dict(state.environment),
        "toolCount": len(state.tools),
        "revision": state.revision,
        "registered": state.registered,
        "lastUpdated": timestamp(state.updated_at),
        "expiresAt": timestamp(session.expires_at),
    }


def _capability_fields(state: SessionState) -> list[dict[str, object]]:
    return [{**item._asdict(), "resources": list(item.resources)} for item in state.capabilities]


def _session_row(session: StoredSession, now: float) -> Sequence[str]:
    state = session.state
    registered = "yes" if state.registered else "no"
    expires_in = _format_duration(session.expires_at - now)
    return session.code, state.plugin_type or "-", str(state.revision), str(len(state.tools)), registered, expires_in


def _print_session(session: StoredSession, status: Mapping[str, object] | None, now: float) -> None:
    state = session.state
    facts = {
        "plugin type": state.plugin_type or "-",
        "plugin": "nothing in the log" if status is None else f"{status['status']} since {status['timestamp']}",
        "revision": f"{state.revision}, of {timestamp(state.updated_at)}",
        "expires in": _format_duration(session.expires_at - now),
        "capabilities": ", ".join(f"{item.type} ({item.level})" for item in state.capabilities) or "-",
        "environment": clean_text(json.dumps(dict(state.environment), ensure_ascii=False)),
    }
    for name, value in facts.items():
        echo(f"{name:<14}{value}")
    echo("")
    if not state.registered:
        echo("nothing is registered: it shows the tools of sessions.default_toolset, where that is set")
    elif not state.tools:
        echo("it lends no tools now")
    else:
        print_table(("tool", "requires", "description"), [_tool_row(tool) for tool in state.tools.tools.values()])


def _tool_row(tool: SessionTool) -> tuple[str, str, str]:
    requires = ", ".join(f"{item.type} ({item.level})" if item.level else item.type for item in tool.requires)
    return tool.name, requires or "-", " ".join(clean_text(tool.definition.description).split())


def _format_duration(seconds: float) -> str:
    """Format seconds as `59 min`: rounded down to whole hours, minutes or seconds, the largest that fits."""
    for unit, size in (("h", 3600), ("min", 60)):
        if seconds >= size:
            return f"{int(seconds // size)} {unit}"
    return f"{max(int(seconds), 0)} s"
