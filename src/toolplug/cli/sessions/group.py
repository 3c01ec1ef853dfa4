"""`toolplug sessions`: the commands that show and use the sessions of a host."""

from __future__ import annotations

import typer

from toolplug.cli.sessions.call import call
from toolplug.cli.sessions.listing import list_sessions
from toolplug.cli.sessions.show import show
from toolplug.cli.sessions.tail import tail

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
