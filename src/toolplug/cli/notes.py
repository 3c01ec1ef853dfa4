"""`toolplug notes`: advice on the tools of saved toolsets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer

from toolplug.catalog.definition import Note
from toolplug.cli.event_loop import run_to_end
from toolplug.cli.logs import log_warnings
from toolplug.cli.options import ConfigOption, JsonOption, TenantOption, config_file
from toolplug.cli.output import print_json, print_table
from toolplug.cli.store import OPERATOR, AgentOption, SubjectOption, ToolsetName, caller, saved_toolsets
from toolplug.host.file.configuration import ConfigFiles
from toolplug.toolsets.saved.saved_toolset import Caller, ToolReference
from toolplug.toolsets.saved.shown import ShownToolset

app: typer.Typer = typer.Typer()
notes: typer.Typer = typer.Typer(name="notes", help="Notes that a model reads below the description of a tool.")
app.add_typer(notes)

ToolName = Annotated[str, typer.Argument(metavar="TOOL", help="A tool of the toolset.")]


@notes.callback()
def notes_group() -> None:
    """Annotate the tools of a saved toolset. Other toolsets show them as they were."""


@notes.command("list")
def list_notes(
    toolset: Annotated[
        str | None, typer.Argument(metavar="[TOOLSET]", help="The toolset; all of them where none is named.")
    ] = None,
    config: ConfigOption = None,
    tenant: TenantOption = "default",
    subject: SubjectOption = OPERATOR,
    agent: AgentOption = None,
    as_json: JsonOption = False,
) -> None:
    """List the notes of a toolset, or of all. Stale: the tool has changed since. Orphan: it is not there now.

    Example: toolplug notes list writing
    """
    log_warnings()
    raise typer.Exit(run_to_end(_listed(config_file(config), caller(tenant, subject, agent), toolset, as_json)))


@notes.command()
def add(
    toolset: ToolsetName,
    tool: ToolName,
    texts: Annotated[list[str], typer.Argument(metavar="name=text…", help="The notes.")],
    replace: Annotated[bool, typer.Option("--replace", help="Replace notes that are there already.")] = False,
    config: ConfigOption = None,
    tenant: TenantOption = "default",
    subject: SubjectOption = OPERATOR,
    agent: AgentOption = None,
    as_json: JsonOption = False,
) -> None:
    """Add notes to a tool. A note of a name that is there already is skipped, or replaced with --replace.

    Example: toolplug notes add writing hello "whom=First names only."
    """
    log_warnings()
    who = caller(tenant, subject, agent)
    given = [_note(text) for text in texts]
    raise typer.Exit(run_to_end(_added(config_file(config), who, toolset, tool, given, replace, as_json)))


@notes.command()
def remove(
    toolset: ToolsetName,
    tool: ToolName,
    names: Annotated[list[str], typer.Argument(metavar="NAME…", help="The notes.")],
    config: ConfigOption = None,
    tenant: TenantOption = "default",
    subject: SubjectOption = OPERATOR,
    agent: AgentOption = None,
    as_json: JsonOption = False,
) -> None:
    """Remove notes from a tool.

    Example: toolplug notes remove writing hello whom
    """
    log_warnings()
    who = caller(tenant, subject, agent)
    raise typer.Exit(run_to_end(_removed(config_file(config), who, toolset, tool, names, as_json)))


async def _listed(config: ConfigFiles, who: Caller, toolset: str | None, as_json: bool) -> int:
    async with saved_toolsets(config) as saved:
        names = [line.toolset.name for line in await saved.saved(who)] if toolset is None else [toolset]
        every = [await saved.show(who, name) for name in names]
    if as_json:
        notes_of = {shown.toolset.name: shown.fields()["toolNotes"] for shown in every}
        each = [{"name": name, "toolNotes": tool_notes} for name, tool_notes in notes_of.items()]
        print_json({"toolsets": each} if toolset is None else {"toolNotes": notes_of[toolset]})
    elif not any(shown.toolset.notes for shown in every):
        typer.echo(f"{toolset or 'saved toolsets'}: no notes; toolplug notes add makes some")
    elif toolset is None:
        rows = [(shown.toolset.name, *row) for shown in every for row in _rows(shown)]
        print_table(("toolset", "tool", "note", "state", "text"), rows)
    else:
        print_table(("tool", "note", "state", "text"), _rows(every[0]))
    return 0


async def _added(
    config: ConfigFiles, who: Caller, toolset: str, tool: str, given: Sequence[Note], replace: bool, as_json: bool
) -> int:
    async with saved_toolsets(config) as saved:
        added = await saved.add_notes(who, ToolReference(tool), given, toolset=toolset, replace_existing=replace)
    if as_json:
        print_json(added.fields())
        return 0
    for warning in added.warnings:
        typer.echo(warning, err=True)
    typer.echo(f"{added.tool}: added {', '.join(added.added) or 'nothing'}")
    return 0


async def _removed(config: ConfigFiles, who: Caller, toolset: str, tool: str, names: list[str], as_json: bool) -> int:
    async with saved_toolsets(config) as saved:
        removed = await saved.remove_notes(who, toolset, ToolReference(tool), names)
    print_json(removed.fields()) if as_json else typer.echo(f"{removed.tool}: removed {', '.join(removed.removed)}")
    return 0


def _rows(shown: ShownToolset) -> list[tuple[str, str, str, str]]:
    return [
        (item.tool, note.name, shown.state_of(item, note), note.text)
        for item in shown.toolset.notes
        for note in item.notes
    ]


def _note(text: str) -> Note:
    name, equals, said = text.partition("=")
    if not equals:
        raise typer.BadParameter(f"{text[:60]!r} is no name=text", param_hint="name=text…")
    return Note(name, said)
