"""`toolplug notes`: advice on the tools of saved toolsets."""

from __future__ import annotations

from typing import Annotated

import typer

from toolplug.catalog.definition import Note
from toolplug.cli.event_loop import async_command
from toolplug.cli.output import echo, print_answer, print_listing
from toolplug.cli.store import AgentOwnerOptions, ToolsetName, anonymous_hint, saved_toolsets
from toolplug.toolsets.saved.saved_toolset import ShownToolset, ToolReference

ToolName = Annotated[str, typer.Argument(metavar="TOOL", help="A tool of the toolset.")]

app: typer.Typer = typer.Typer(name="notes", help="Notes that a model reads below the description of a tool.")


@async_command(app, "list")
async def list_notes(
    options: AgentOwnerOptions,
    toolset: Annotated[str | None, typer.Argument(metavar="TOOLSET", help="The toolset. Default: all.")] = None,
) -> None:
    """List the notes of one or all toolsets. Stale: the tool has changed since. Orphan: the tool is missing.

    Example: toolplug notes list writing
    """
    async with saved_toolsets(options) as (saved, owner):
        names = [line.toolset.name for line in await saved.saved(owner)] if toolset is None else [toolset]
        found = [await saved.show(owner, name) for name in names]
        hint = "" if names else await anonymous_hint(saved, owner)
    each = [{"name": shown.toolset.name, "toolNotes": shown.fields()["toolNotes"]} for shown in found]
    columns = ("tool", "note", "state", "text")
    if toolset is None:
        fields, columns = {"toolsets": each}, ("toolset", *columns)
        rows = [(shown.toolset.name, *row) for shown in found for row in _rows(shown)]
    else:
        fields, rows = {"toolNotes": each[0]["toolNotes"]}, _rows(found[0])
    empty = f"{toolset or 'saved toolsets'}: no notes; toolplug notes add makes some{hint}"
    print_listing(options.as_json, fields, columns, rows, empty)


@async_command(app)
async def add(
    options: AgentOwnerOptions,
    toolset: ToolsetName,
    tool: ToolName,
    texts: Annotated[list[str], typer.Argument(metavar="name=text…", help="The notes.")],
    replace: Annotated[bool, typer.Option("--replace", help="Replace existing notes of the same name.")] = False,
) -> None:
    """Add notes to a tool. A note whose name exists is skipped, or replaced with --replace.

    Example: toolplug notes add writing hello "whom=First names only."
    """
    given = [_note(text) for text in texts]
    async with saved_toolsets(options) as (saved, owner):
        added = await saved.add_notes(owner, ToolReference(tool), given, toolset=toolset, replace_existing=replace)
    for warning in () if options.as_json else added.warnings:
        echo(warning, err=True)
    print_answer(options.as_json, added.fields(), f"{added.tool}: added {', '.join(added.added) or 'nothing'}")


@async_command(app)
async def remove(
    options: AgentOwnerOptions,
    toolset: ToolsetName,
    tool: ToolName,
    names: Annotated[list[str], typer.Argument(metavar="NAME…", help="The notes.")],
) -> None:
    """Remove notes from a tool.

    Example: toolplug notes remove writing hello whom
    """
    async with saved_toolsets(options) as (saved, owner):
        removed = await saved.remove_notes(owner, toolset, ToolReference(tool), names)
    print_answer(options.as_json, removed.fields(), f"{removed.tool}: removed {', '.join(removed.removed)}")


def _rows(shown: ShownToolset) -> list[tuple[str, str, str, str]]:
    return [
        (item.tool, note.name, shown.state_of(item, note), note.text)
        for item in shown.toolset.notes
        for note in item.notes
    ]


def _note(text: str) -> Note:
    name, equals, note = text.partition("=")
    if not equals:
        raise typer.BadParameter(f"{text[:60]!r} is not name=text", param_hint="name=text…")
    return Note(name, note)
