"""The saved toolsets of a configuration's host for one command, and whose they are."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Annotated, TypeAlias

import typer

from toolplug.catalog.call import Principal
from toolplug.cli.entered_host import entered
from toolplug.cli.kept_store import kept_store
from toolplug.cli.options import operator
from toolplug.host.file.config_files import ConfigFiles
from toolplug.host.host import open_host
from toolplug.toolsets.saved.owner import Caller
from toolplug.toolsets.saved.service import SavedToolsets

SubjectOption: TypeAlias = Annotated[
    str, typer.Option("--subject", metavar="NAME", help="Whose toolsets: those of the caller of this name.")
]
AgentOption: TypeAlias = Annotated[
    str | None, typer.Option("--agent", metavar="AGENT", help="Among the tools of this agent.", show_default=False)
]
ToolsetName: TypeAlias = Annotated[str, typer.Argument(metavar="TOOLSET", help="The toolset.")]

OPERATOR = operator().subject


def caller(tenant: str, subject: str, agent: str | None = None) -> Caller:
    """The operator in the place of a caller."""
    return Caller(Principal(subject=subject, tenant=tenant, scopes=operator().scopes), agent)


@asynccontextmanager
async def saved_toolsets(config: ConfigFiles) -> AsyncGenerator[SavedToolsets]:
    """Beside a running host, which sees each change at once. Raises `ConfigError` where its store is its memory."""
    kept_store(config, "toolsets", "/api/toolsets")
    async with entered(open_host(config, serving=False)) as host:
        yield host.saved_toolsets
