"""The store of a configuration, for commands that use it while a host runs."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Annotated, ClassVar, TypeAlias

import typer

from toolplug.catalog.call import ANONYMOUS, Principal
from toolplug.catalog.text import pluralize
from toolplug.cli.event_loop import enter_host
from toolplug.cli.options import ConfigOption, JsonOption, TenantOption, config_file, operator
from toolplug.errors import ConfigError, Problem
from toolplug.host.file.configuration import ConfigFiles, read_beside_host
from toolplug.host.host import open_host
from toolplug.packages.entry_points import find_installed
from toolplug.stores.store import Store
from toolplug.toolsets.saved.saved_toolset import Caller
from toolplug.toolsets.saved.service import SavedToolsets

SubjectOption: TypeAlias = Annotated[
    str, typer.Option("--subject", metavar="NAME", help="The caller whose toolsets they are.")
]
AgentOption: TypeAlias = Annotated[
    str | None, typer.Option("--agent", metavar="AGENT", help="Among the tools of this agent.", show_default=False)
]
ToolsetName: TypeAlias = Annotated[str, typer.Argument(metavar="TOOLSET", help="The toolset.")]

OPERATOR = operator().subject


@dataclass(frozen=True, slots=True)
class OwnerOptions:
    """The options of a command on the saved toolsets of one caller."""

    config: ConfigOption = None
    tenant: TenantOption = "default"
    subject: SubjectOption = OPERATOR
    as_json: JsonOption = False
    agent: ClassVar[None] = None


@dataclass(frozen=True, slots=True)
class AgentOwnerOptions:
    """The options of a command on the saved toolsets of one caller and on the tools that an agent lists for it."""

    config: ConfigOption = None
    tenant: TenantOption = "default"
    subject: SubjectOption = OPERATOR
    agent: AgentOption = None
    as_json: JsonOption = False


def open_shared_store(config: ConfigFiles, what: str, instead: str) -> Store:
    """Return the store of the configuration, to be entered; a running host may use it at the same time.

    `what`: the records that the command needs. `instead`: the request that gets them from a host. Raises `ConfigError`
    for a store in memory and for an invalid configuration.
    """
    store = read_beside_host(config, os.environ, find_installed()).store
    if store.in_memory:
        message = f"its {what} live in the memory of the process that serves them; no other process can see them"
        hint = f"ask that process: {instead}; or keep them in a file with store: sqlite:///./.toolplug/state.db"
        problem = Problem(code="store_in_memory", message=message, file=str(config), path="store", hint=hint)
        raise ConfigError([problem])
    return store.open()


@asynccontextmanager
async def saved_toolsets(options: OwnerOptions | AgentOwnerOptions) -> AsyncGenerator[tuple[SavedToolsets, Caller]]:
    """Open the saved toolsets of the configuration, and yield them with their owner, who has all scopes here.

    A running host sees each change at once. Raises `ConfigError` for a store in memory.
    """
    files = config_file(options.config)
    # For its errors only: the host opens the store itself.
    open_shared_store(files, "toolsets", "/api/toolsets")
    owner = Principal(subject=options.subject, tenant=options.tenant, scopes=operator().scopes)
    async with enter_host(open_host(files, serving=False)) as host:
        yield host.saved_toolsets, Caller(owner, options.agent)


async def anonymous_hint(saved: SavedToolsets, owner: Caller) -> str:
    """Return how to see the toolsets of the callers of a host without `auth`; empty if they have none."""
    others = replace(owner.principal, subject=ANONYMOUS.subject)
    lines = [] if others == owner.principal else await saved.saved(owner._replace(principal=others))
    if not lines:
        return ""
    return f" ({others.subject} has {pluralize(len(lines), 'saved toolset')}: add --subject {others.subject})"
