"""`toolplug toolsets`: saved toolsets, and which one is equipped."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from pydantic import ValidationError

from toolplug.catalog.text import pluralize
from toolplug.cli.event_loop import async_command
from toolplug.cli.output import echo, print_answer, print_json, print_listing, print_table
from toolplug.cli.standard_output import answers
from toolplug.cli.store import AgentOwnerOptions, OwnerOptions, ToolsetName, anonymous_hint, saved_toolsets
from toolplug.config.document import Section, read_document
from toolplug.config.problems import problems_of
from toolplug.errors import ConfigError
from toolplug.toolsets.saved.document import Document, document_text
from toolplug.toolsets.saved.saved_toolset import ShownToolset, ToolReference

ToolNames = Annotated[list[str], typer.Argument(metavar="TOOL…", help="Its tools, in the order of the list.")]

app: typer.Typer = typer.Typer(name="toolsets", help="Saved toolsets: a caller's own choice of tools.")


@async_command(app, "list")
async def list_toolsets(options: OwnerOptions) -> None:
    """List the saved toolsets of a caller.

    Example: toolplug toolsets list --subject alice
    """
    async with saved_toolsets(options) as (saved, owner):
        lines = await saved.saved(owner)
        hint = "" if lines else await anonymous_hint(saved, owner)
    columns = ("toolset", "equipped", "tools", "version", "description")
    rows = [
        (item.name, "yes" if equipped else "no", str(len(item.tools)), str(item.version), item.description)
        for item, equipped in lines
    ]
    empty = f"{options.subject} has no saved toolsets; toolplug toolsets build makes one{hint}"
    print_listing(options.as_json, {"toolsets": [line.fields() for line in lines]}, columns, rows, empty)


@async_command(app)
async def show(
    options: AgentOwnerOptions,
    name: Annotated[
        str | None, typer.Argument(metavar="TOOLSET", help="Default: the equipped one.", show_default=False)
    ] = None,
) -> None:
    """Show one toolset: its tools, whether each is available, and its notes.

    Example: toolplug toolsets show writing
    """
    async with saved_toolsets(options) as (saved, owner):
        shown = await saved.active(owner) if name is None else await saved.show(owner, name)
        hint = "" if shown is not None else await anonymous_hint(saved, owner)
    if shown is None:
        print_answer(options.as_json, {"toolset": None}, f"nothing is equipped: every tool is listed{hint}")
    else:
        _print(shown, options.as_json)


@async_command(app)
async def build(
    options: AgentOwnerOptions,
    name: ToolsetName,
    tools: ToolNames,
    description: Annotated[str, typer.Option("--description", metavar="TEXT", help="What it is for.")] = "",
) -> None:
    """Save a new toolset.

    Example: toolplug toolsets build writing hello file_search --description "For letters."
    """
    references = [ToolReference(tool) for tool in tools]
    async with saved_toolsets(options) as (saved, owner):
        shown = await saved.build(owner, name, references, description=description)
    _print(shown, options.as_json)


@async_command(app)
async def equip(
    options: OwnerOptions,
    name: ToolsetName,
) -> None:
    """Make the tools of a toolset the only ones that its caller sees, immediately and after restarts.

    Example: toolplug toolsets equip writing --subject alice
    """
    async with saved_toolsets(options) as (saved, owner):
        shown = await saved.equip(owner, name)
    _print(shown, options.as_json)


@async_command(app)
async def unequip(options: OwnerOptions) -> None:
    """Let the caller see every tool again.

    Example: toolplug toolsets unequip
    """
    async with saved_toolsets(options) as (saved, owner):
        name = await saved.unequip(owner)
    print_answer(
        options.as_json, {"unequipped": name}, "nothing was equipped" if name is None else f"{name}: unequipped"
    )


@async_command(app)
async def delete(
    options: OwnerOptions,
    name: ToolsetName,
) -> None:
    """Delete a toolset with its notes.

    Example: toolplug toolsets delete writing
    """
    async with saved_toolsets(options) as (saved, owner):
        await saved.delete(owner, name)
    print_answer(options.as_json, {"deleted": name}, f"{name}: deleted")


@async_command(app)
async def export(
    options: OwnerOptions,
    name: ToolsetName,
) -> None:
    """Print the document of a toolset as YAML or JSON, for `import` or to compare.

    Example: toolplug toolsets export writing
    """
    async with saved_toolsets(options) as (saved, owner):
        document = await saved.document(owner, name)
    answers().write(document_text(document, "json" if options.as_json else "yaml").decode())


@async_command(app, "import")
async def import_toolset(
    options: AgentOwnerOptions,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A document in YAML or JSON.")],
) -> None:
    """Save a new toolset from its document. Tools that are not available are kept and marked inactive.

    Example: toolplug toolsets import writing.yaml
    """
    document = _document(file)
    async with saved_toolsets(options) as (saved, owner):
        shown = await saved.import_document(owner, document)
    _print(shown, options.as_json)


def _document(file: Path) -> Document:
    """Read the document. Raises `ConfigError` with every problem at its position in the file."""
    read = read_document(file)
    section = Section(document=read, path=(), value=read.value)
    try:
        return Document.model_validate(section.value)
    except ValidationError as error:
        raise ConfigError(problems_of(error, section=section, model=Document)) from None


def _print(shown: ShownToolset, as_json: bool) -> None:
    if as_json:
        print_json(shown.fields())
        return
    toolset = shown.toolset
    noted = {item.tool: len(item.notes) for item in toolset.notes}
    state = "equipped" if shown.equipped else "not equipped"
    echo(f"{toolset.name}: {state}, version {toolset.version}, {pluralize(len(toolset.tools), 'tool')}")
    rows = [
        (tool, "yes" if tool in shown.catalog else "no", str(noted.get(tool, 0)), ToolReference.of(tool).ref_id or "")
        for tool in toolset.tools
    ]
    print_table(("tool", "active", "notes", "reference id"), rows)
