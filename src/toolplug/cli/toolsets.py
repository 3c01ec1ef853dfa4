"""`toolplug toolsets`: saved toolsets, and which one is equipped."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer
from pydantic import ValidationError

from toolplug.catalog.text import counted
from toolplug.cli.event_loop import run_to_end
from toolplug.cli.logs import log_warnings
from toolplug.cli.options import ConfigOption, JsonOption, TenantOption, config_file
from toolplug.cli.output import print_json, print_table
from toolplug.cli.store import OPERATOR, AgentOption, SubjectOption, ToolsetName, caller, saved_toolsets
from toolplug.config.document import Section, read_document
from toolplug.config.problems import problems_of
from toolplug.errors import ConfigError
from toolplug.host.file.configuration import ConfigFiles
from toolplug.toolsets.saved.document import Document, Form, document_text
from toolplug.toolsets.saved.saved_toolset import Caller, ToolReference
from toolplug.toolsets.saved.shown import ShownToolset

app: typer.Typer = typer.Typer()
toolsets: typer.Typer = typer.Typer(name="toolsets", help="Saved toolsets: a caller's own choice of tools.")
app.add_typer(toolsets)

ToolNames = Annotated[list[str], typer.Argument(metavar="TOOL…", help="Its tools, in the order of the list.")]


@toolsets.callback()
def toolsets_group() -> None:
    """Keep toolsets, and equip one: then its caller sees no other tools."""


@toolsets.command("list")
def list_toolsets(
    config: ConfigOption = None,
    tenant: TenantOption = "default",
    subject: SubjectOption = OPERATOR,
    as_json: JsonOption = False,
) -> None:
    """List the saved toolsets of a caller.

    Example: toolplug toolsets list --subject alice
    """
    log_warnings()
    raise typer.Exit(run_to_end(_listed(config_file(config), caller(tenant, subject), as_json)))


@toolsets.command()
def show(
    name: Annotated[
        str | None, typer.Argument(metavar="[TOOLSET]", help="The equipped one by default.", show_default=False)
    ] = None,
    config: ConfigOption = None,
    tenant: TenantOption = "default",
    subject: SubjectOption = OPERATOR,
    agent: AgentOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show one toolset: which of its tools are there, and its notes.

    Example: toolplug toolsets show writing
    """
    log_warnings()
    raise typer.Exit(run_to_end(_shown(config_file(config), caller(tenant, subject, agent), name, as_json)))


@toolsets.command()
def build(
    name: ToolsetName,
    tools: ToolNames,
    description: Annotated[str, typer.Option("--description", help="What it is for.")] = "",
    config: ConfigOption = None,
    tenant: TenantOption = "default",
    subject: SubjectOption = OPERATOR,
    agent: AgentOption = None,
    as_json: JsonOption = False,
) -> None:
    """Save a new toolset.

    Example: toolplug toolsets build writing hello file_search --description "For letters."
    """
    log_warnings()
    who = caller(tenant, subject, agent)
    raise typer.Exit(run_to_end(_built(config_file(config), who, name, tools, description, as_json)))


@toolsets.command()
def equip(
    name: ToolsetName,
    config: ConfigOption = None,
    tenant: TenantOption = "default",
    subject: SubjectOption = OPERATOR,
    as_json: JsonOption = False,
) -> None:
    """Make the tools of a toolset the only ones that its caller sees, at once and after a restart.

    Example: toolplug toolsets equip writing --subject alice
    """
    log_warnings()
    raise typer.Exit(run_to_end(_equipped(config_file(config), caller(tenant, subject), name, as_json)))


@toolsets.command()
def unequip(
    config: ConfigOption = None,
    tenant: TenantOption = "default",
    subject: SubjectOption = OPERATOR,
    as_json: JsonOption = False,
) -> None:
    """Let the caller see every tool again.

    Example: toolplug toolsets unequip
    """
    log_warnings()
    raise typer.Exit(run_to_end(_unequipped(config_file(config), caller(tenant, subject), as_json)))


@toolsets.command()
def delete(
    name: ToolsetName,
    config: ConfigOption = None,
    tenant: TenantOption = "default",
    subject: SubjectOption = OPERATOR,
    as_json: JsonOption = False,
) -> None:
    """Delete a toolset with its notes.

    Example: toolplug toolsets delete writing
    """
    log_warnings()
    raise typer.Exit(run_to_end(_deleted(config_file(config), caller(tenant, subject), name, as_json)))


@toolsets.command()
def export(
    name: ToolsetName,
    config: ConfigOption = None,
    tenant: TenantOption = "default",
    subject: SubjectOption = OPERATOR,
    as_json: JsonOption = False,
) -> None:
    """Print the document of a toolset as YAML, or as JSON, for `import` and for people to compare.

    Example: toolplug toolsets export writing
    """
    log_warnings()
    form: Form = "json" if as_json else "yaml"
    raise typer.Exit(run_to_end(_exported(config_file(config), caller(tenant, subject), name, form)))


@toolsets.command("import")
def import_toolset(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A document in YAML or JSON.")],
    config: ConfigOption = None,
    tenant: TenantOption = "default",
    subject: SubjectOption = OPERATOR,
    agent: AgentOption = None,
    as_json: JsonOption = False,
) -> None:
    """Save a new toolset from its document. Tools that are not there are kept, inactive.

    Example: toolplug toolsets import writing.yaml
    """
    log_warnings()
    who = caller(tenant, subject, agent)
    raise typer.Exit(run_to_end(_imported(config_file(config), who, _document(file), as_json)))


async def _listed(config: ConfigFiles, who: Caller, as_json: bool) -> int:
    async with saved_toolsets(config) as saved:
        lines = await saved.saved(who)
    if as_json:
        print_json({"toolsets": [line.fields() for line in lines]})
    elif lines:
        rows = [
            (
                line.toolset.name,
                "yes" if line.equipped else "no",
                str(len(line.toolset.tools)),
                str(line.toolset.version),
                line.toolset.description,
            )
            for line in lines
        ]
        print_table(("toolset", "equipped", "tools", "version", "description"), rows)
    else:
        typer.echo(f"{who.owner.subject} has no saved toolsets; toolplug toolsets build makes one")
    return 0


async def _shown(config: ConfigFiles, who: Caller, name: str | None, as_json: bool) -> int:
    async with saved_toolsets(config) as saved:
        shown = await saved.active(who) if name is None else await saved.show(who, name)
    if shown is None:
        print_json({"toolset": None}) if as_json else typer.echo("nothing is equipped: every tool is listed")
    else:
        _print(shown, as_json)
    return 0


async def _built(config: ConfigFiles, who: Caller, name: str, tools: list[str], description: str, as_json: bool) -> int:
    async with saved_toolsets(config) as saved:
        shown = await saved.build(who, name, [ToolReference(tool) for tool in tools], description=description)
    _print(shown, as_json)
    return 0


async def _equipped(config: ConfigFiles, who: Caller, name: str, as_json: bool) -> int:
    async with saved_toolsets(config) as saved:
        shown = await saved.equip(who, name)
    _print(shown, as_json)
    return 0


async def _unequipped(config: ConfigFiles, who: Caller, as_json: bool) -> int:
    async with saved_toolsets(config) as saved:
        name = await saved.unequip(who)
    if as_json:
        print_json({"unequipped": name})
    else:
        typer.echo("nothing was equipped" if name is None else f"{name}: unequipped")
    return 0


async def _deleted(config: ConfigFiles, who: Caller, name: str, as_json: bool) -> int:
    async with saved_toolsets(config) as saved:
        await saved.delete(who, name)
    print_json({"deleted": name}) if as_json else typer.echo(f"{name}: deleted")
    return 0


async def _exported(config: ConfigFiles, who: Caller, name: str, form: Form) -> int:
    async with saved_toolsets(config) as saved:
        document = await saved.document(who, name)
    sys.stdout.write(document_text(document, form).decode())
    return 0


async def _imported(config: ConfigFiles, who: Caller, document: Document, as_json: bool) -> int:
    async with saved_toolsets(config) as saved:
        shown = await saved.import_document(who, document)
    _print(shown, as_json)
    return 0


def _document(file: Path) -> Document:
    """Raises `ConfigError` with every problem, where it stands in the file."""
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
    typer.echo(f"{toolset.name}: {state}, version {toolset.version}, {counted(len(toolset.tools), 'tool')}")
    rows = [
        (tool, "yes" if tool in shown.catalog else "no", str(noted.get(tool, 0)), ToolReference.of(tool).ref_id or "")
        for tool in toolset.tools
    ]
    print_table(("tool", "active", "notes", "reference id"), rows)
