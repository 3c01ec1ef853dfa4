"""`toolplug tools`: the catalog."""

from __future__ import annotations

import json
from enum import StrEnum
from typing import Annotated

import typer
from pydantic import BaseModel

from toolplug.catalog.catalog import Catalog
from toolplug.catalog.schema import Schema
from toolplug.cli.event_loop import async_command, entered
from toolplug.cli.options import ConfigOption, JsonOption, TenantOption, config_file, operator
from toolplug.cli.output import print_json, print_table
from toolplug.host.host import open_host

app: typer.Typer = typer.Typer()


class Format(StrEnum):
    """The dialects of model APIs."""

    CHAT = "chat"
    RESPONSES = "responses"
    ANTHROPIC = "anthropic"
    MCP = "mcp"


class _Parameters(BaseModel):
    """The part of a tool's schema that names its parameters."""

    properties: dict[str, object] = {}
    required: list[str] = []


@app.command()
@async_command
async def tools(
    format: Annotated[  # noqa: A002  the name of the option and of the query of GET /v1/tools
        Format | None, typer.Option("--format", help="As JSON in the dialect of a model API. --json alone: chat.")
    ] = None,
    config: ConfigOption = None,
    tenant: TenantOption = "default",
    as_json: JsonOption = False,
) -> None:
    """List the tools that a caller of this tenant can call, in the order in which models see them.

    Example: toolplug tools --format anthropic
    """
    dialect = Format.CHAT if as_json and format is None else format
    async with entered(open_host(config_file(config), serving=False)) as host:
        catalog = host.executor_for(operator(tenant)).catalog
        if dialect is not None:
            print_json({"tools": json.loads(catalog.render(dialect.value))})
        elif catalog:
            print_table(("tool", "provider", "parameters", "description"), _rows(catalog))
        else:
            on = bool(host.registry.running())
            reason = "no provider that is on offers a tool" if on else "no provider is on"
            typer.echo(f"no tools: {reason}; toolplug providers shows what there is")


def _rows(catalog: Catalog) -> list[tuple[str, str, str, str]]:
    return [
        (name, tool.definition.ref.source, _parameters(tool.definition.parameters), tool.definition.description)
        for name, tool in catalog.items()
    ]


def _parameters(schema: Schema) -> str:
    """The names, those that may be left out with a question mark."""
    shape = _Parameters.model_validate_json(schema.text)
    return ", ".join(name if name in shape.required else f"{name}?" for name in shape.properties) or "-"
