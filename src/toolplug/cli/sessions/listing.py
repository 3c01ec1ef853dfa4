"""`toolplug sessions list`: the live sessions of a tenant."""

from __future__ import annotations

import typer

from toolplug.cli.answer import print_json
from toolplug.cli.event_loop import run_to_end
from toolplug.cli.logs import log_warnings
from toolplug.cli.options import ConfigOption, JsonOption, TenantOption, config_file
from toolplug.cli.sessions.facts import capability_fields, time_left
from toolplug.cli.sessions.kept import kept_sessions
from toolplug.cli.table import print_table
from toolplug.execution.timestamp import timestamp
from toolplug.host.file.config_files import ConfigFiles
from toolplug.sessions.stored import StoredSession


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
        print_json({"sessions": [_fields(session) for session in sessions]})
    elif sessions:
        columns = ("code", "plugin type", "revision", "tools", "registered", "expires in")
        print_table(columns, [_row(session, now) for session in sessions])
    else:
        typer.echo(f"tenant {tenant!r} has no sessions (--tenant names another); POST /api/sessions makes one")
    return 0


def _fields(session: StoredSession) -> dict[str, object]:
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


def _row(session: StoredSession, now: float) -> tuple[str, ...]:
    state = session.state
    return (
        session.code,
        state.plugin_type or "-",
        str(state.revision),
        str(len(state.tools)),
        "yes" if state.registered else "no",
        time_left(session.expires_at - now),
    )
