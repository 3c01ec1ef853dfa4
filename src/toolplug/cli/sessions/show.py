"""`toolplug sessions show`: everything that the store has of one session, but its token."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from toolplug.catalog.cleaning import cleaned
from toolplug.cli.answer import print_json
from toolplug.cli.event_loop import run_to_end
from toolplug.cli.logs import log_warnings
from toolplug.cli.options import ConfigOption, JsonOption, TenantOption, config_file
from toolplug.cli.refusal import print_problems
from toolplug.cli.sessions.facts import capability_fields, time_left
from toolplug.cli.sessions.kept import kept_sessions
from toolplug.cli.sessions.refusal import access_problem
from toolplug.cli.table import print_table
from toolplug.errors import AccessError
from toolplug.execution.timestamp import timestamp
from toolplug.host.file.config_files import ConfigFiles
from toolplug.sessions.log_entry import STATUS
from toolplug.sessions.logged_event import LoggedEvent
from toolplug.sessions.session_tool import SessionTool
from toolplug.sessions.stored import StoredSession


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
        print_json(_fields(session, heard))
    else:
        _print(session, heard, now)
    return 0


def _fields(session: StoredSession, heard: LoggedEvent | None) -> dict[str, object]:
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


def _print(session: StoredSession, heard: LoggedEvent | None, now: float) -> None:
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
        print_table(("tool", "requires", "description"), [_row(tool) for tool in state.tools.tools.values()])


def _row(tool: SessionTool) -> tuple[str, str, str]:
    requires = ", ".join(f"{item.type} ({item.level})" if item.level else item.type for item in tool.requires)
    return tool.name, requires or "-", " ".join(cleaned(tool.definition.description).split())
