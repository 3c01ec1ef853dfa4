"""The hooks of a plugin, as pluggy specifications: what a host asks of plugins, with which arguments, and when.

A plugin marks its functions with `hookimpl`. An implementation takes the arguments that it needs, by name, and may
leave out the others. Every hook but those that are asked before a start (`check_toolset_address`, `stores`,
`host_part` and `commands`) may also take `site`, the `ProviderContext` of its plugin, and those around a call may take
`tool`, the definition of the tool as its caller sees it: `tool.ref` has its source. In a `FunctionProvider` a method
with the name of a hook implements it without a mark.

A tool call never runs through pluggy: a hook is one to many, and a call is one to one.
"""

# pyright: reportReturnType=false
# A specification has no body.

from __future__ import annotations

from collections.abc import Awaitable, Mapping, Sequence
from typing import Any

import pluggy

from toolplug import library_types
from toolplug.catalog.call import CallContext, ToolCall, ToolResult
from toolplug.catalog.catalog import Catalog
from toolplug.catalog.definition import ToolDefinition
from toolplug.catalog.plan import CallTracer, NeedsApproval, WouldRefuse
from toolplug.mcp_extensions import McpExtension
from toolplug.providers.entry import ProviderRecord
from toolplug.providers.offering.definitions import ConsolePage, OpenToolsetSource, Prompt, Resource
from toolplug.providers.plugins.implementations import PROJECT
from toolplug.providers.site import ProviderContext
from toolplug.stores.open import StoreOpener

hookspec: pluggy.HookspecMarker = pluggy.HookspecMarker(PROJECT)
"""Marks a function as the specification of a hook."""

hookimpl: pluggy.HookimplMarker = pluggy.HookimplMarker(PROJECT)
"""Marks a function of a plugin as the implementation of a hook."""


@hookspec
def tools(site: ProviderContext) -> Sequence[ToolDefinition]:
    """Return the tools of this plugin, in listing order. Called once, after `start`."""


@hookspec
def can_execute(name: str, site: ProviderContext) -> bool:
    """Return whether this plugin has a tool of this name; a listed tool that is refused here is left out."""


@hookspec
async def execute(call: ToolCall, context: CallContext, site: ProviderContext) -> object:
    """Run one call of a tool that this plugin lists, with arguments that are valid by its schema; return its result."""


@hookspec
def routes(site: ProviderContext) -> Sequence[library_types.BoundRoute | library_types.Route]:
    """Return HTTP routes in addition to those of `@route`.

    The host requires a caller with the scope of a `BoundRoute`, and with `tools:call` for a Starlette route.
    """


@hookspec
def collectors(site: ProviderContext) -> Sequence[library_types.Collector]:
    """Return Prometheus collectors, which are scraped while this plugin is active. Called once, after `start`."""


@hookspec
def prompts(site: ProviderContext) -> Sequence[Prompt]:
    """Return the prompts for MCP clients, in listing order. Called once, after `start`."""


@hookspec
def resources(site: ProviderContext) -> Sequence[Resource]:
    """Return the resources and resource templates for MCP clients, in order. Called once, after `start`."""


@hookspec
async def start(site: ProviderContext) -> None:
    """Open what this plugin needs, such as connections or files. Called once, before the other hooks."""


@hookspec
async def aclose(site: ProviderContext) -> None:
    """Close what was opened. Called once, after the last call, and also after a `start` that failed."""


@hookspec
async def diagnose(site: ProviderContext) -> Sequence[str]:
    """Return what keeps this plugin from working now and its fix, a text each, such as a server that does not answer.

    Called for `toolplug doctor`, which shows each as a warning; it may take 15 s.
    """


@hookspec(firstresult=True)
def before_call(
    call: ToolCall, context: CallContext, tool: ToolDefinition, site: ProviderContext
) -> str | NeedsApproval | WouldRefuse | Awaitable[str | NeedsApproval | WouldRefuse | None] | None:
    """Return the reason why a call is refused, or None. Asked before each call of any tool; may be `async`.

    The plugins are asked in the order of the configuration until one refuses; an empty text refuses too. At this point
    the arguments are valid, and nobody has been asked for an approval. A plugin that raises, takes longer than 5 s or
    returns anything else refuses the call, unless its entry says `on_failure: allow`. A wrapper (`wrapper=True`) gets
    the reason or None from its `yield`; it can refuse what the others allow, but not the reverse.

    `NeedsApproval(reason)` has a person asked whatever the policy says; the others are still asked, and a refusal wins.
    `WouldRefuse(reason)` lets the call pass, and says in the audit log and metrics what a watched rule would have done.
    """


@hookspec
def change_result(
    call: ToolCall, context: CallContext, result: ToolResult, tool: ToolDefinition, site: ProviderContext
) -> ToolResult | str | Awaitable[ToolResult | str | None] | None:
    """Return what replaces the result that a tool returned, or None to keep it; may be `async`.

    Asked for results with the status `success` or `tool_error`, of any tool. Each plugin gets the result so far, in the
    order of the configuration. A text replaces the output and drops `structured` and `parts`. A plugin that raises,
    takes longer than 5 s or returns anything else withholds the result, unless its entry says `on_failure: allow`. A
    wrapper gets the result that the others have changed from its `yield`.
    """


@hookspec
def after_call(
    call: ToolCall,
    context: CallContext,
    result: ToolResult,
    tool: ToolDefinition | None,
    duration_s: float,
    site: ProviderContext,
) -> Awaitable[None] | None:
    """Take note of a call's answer: also of a refused call, and of one of an unknown tool; may be `async`.

    `call` is the object that `before_call` had. An implementation may take `duration_s` too: the seconds from the
    beginning of the call, before its checks, until its result, which are those of the metrics; 0.0 for an unknown tool.
    The caller's answer waits until the deadline of the call, at least 0.1 s; after that the hook goes on by itself, for
    at most 5 s.
    """


@hookspec
def call_tracers(site: ProviderContext) -> Sequence[CallTracer]:
    """Return the tracers that make a span for each call. Called once, after `start`.

    A tracer that also has `start_turn` (`toolplug.responses.TurnTracer`) makes the spans of responses.
    """


@hookspec
def rank_tools(
    query: str, tools: Sequence[ToolDefinition], site: ProviderContext
) -> Sequence[str] | Awaitable[Sequence[str] | None] | None:
    """Return the names of the tools that fit a query, the best first, or None to leave it to the host; may be `async`.

    Asked for each call of `search_tools`, with the deferred tools of its caller, of which there may be thousands: keep
    what is computed for each. The plugins are asked in the order of the configuration until one answers; no names mean
    that no tool fits. Names that are not in `tools` are left out. If a plugin raises, takes longer than 5 s or returns
    anything else, that is logged, and the host's own search answers.
    """


@hookspec
def describe_tools(catalog: Catalog, site: ProviderContext) -> Mapping[str, str] | None:
    """Return descriptions of this plugin's own tools, by their names in a caller's catalog, or None to leave them all.

    For a tool whose description depends on what else its caller has, such as one that calls the other tools. Asked once
    for each catalog of a host, while it is composed: it must be fast. Other tools in the answer are left out, and the
    digest of a tool stays that of its own description. If a plugin raises or returns anything else, that is logged, and
    the descriptions stay.
    """


@hookspec
def provider_changed(record: ProviderRecord, site: ProviderContext) -> Awaitable[None] | None:
    """Take note of the status of a provider; may be `async`.

    Called with the record of each configured provider once this plugin has started, then with each that changes. Of
    several changes of one provider only the newest may be passed on. No call, request or reload waits for it; it may
    take 5 s, and a failure is logged.
    """


@hookspec
def approval_waiting(ticket: library_types.Ticket, site: ProviderContext) -> Awaitable[None] | None:
    """Take note of a call that waits for a person; may be `async`.

    Called once for each ticket, in the process in which the call was made; an equal call has the same ticket. Nothing
    waits for it; it may take 5 s, and a failure is logged. A process that dies in this moment tells nobody.
    """


@hookspec
def approval_decided(ticket: library_types.Ticket, site: ProviderContext) -> Awaitable[None] | None:
    """Take note of a decision on a call that waited; may be `async`.

    Called once for each ticket that was decided, in the process that decided it, and for a decision of the command line
    in one of those that serve. One that expires is not decided. Otherwise as `approval_waiting`.
    """


@hookspec
def grant_revoked(grant: library_types.RevokedGrant, site: ProviderContext) -> Awaitable[None] | None:
    """Take note of a grant that was taken back; may be `async`.

    Called once for each, in the process that revoked it, and for the command line in one of those that serve. One that
    expires is not revoked. Otherwise as `approval_waiting`.
    """


@hookspec
def console_pages(site: ProviderContext) -> Sequence[ConsolePage]:
    """Return the pages that the console shows for this plugin, in order. Called when a visitor opens the console."""


@hookspec
def mcp_extensions(site: ProviderContext) -> Sequence[McpExtension]:
    """Return extensions of Model Context Protocol, for the clients of this host and for the servers that it calls.

    Asked for each message of a client of 2026-07-28 and each call of a server's tool, so it must be fast: return
    objects that exist. Of a name the first wins, joined with others of its class. If a plugin raises or returns
    anything else, that is logged, and it has no extensions.
    """


@hookspec
def toolset_sources(site: ProviderContext) -> Mapping[str, OpenToolsetSource]:
    """Return functions that open toolset sources, by the kind that `from: KIND:ADDRESS` names.

    The plugin's type has the name of the kind: a toolset that names it enables the plugin, with default settings if it
    has no entry. Called after `start`.
    """


@hookspec
def check_toolset_address(kind: str, address: str) -> None:
    """Raise `ValueError` if a toolset with `from: KIND:ADDRESS` cannot have this address; its text says what is wrong.

    Asked of the plugin of this kind when the configuration is read. Nothing has been started then, so this is a
    function of a module, or a static method.
    """


@hookspec
def stores() -> Mapping[str, StoreOpener]:
    """Return functions that open stores, by the scheme of the URL that `store:` names.

    The plugin's type has the name of the scheme: a `store:` that names it enables the plugin, with default settings if
    it has no entry; further schemes of one package are further entry points. Asked when the configuration is read.
    Nothing has been started then, so this is a function of a module, or a static method.
    """


@hookspec
def host_part() -> library_types.HostPart[Any]:
    """Return a part of the host: a section of the file with its own routes, scopes, commands and tools by caller.

    The plugin's type has the name of the section: a file with the section enables the plugin, with default settings if
    it has no entry. Asked when the configuration is read. Nothing has been started then, so this is a function of a
    module, or a static method.
    """


@hookspec
def commands(app: library_types.Typer) -> None:
    """Add commands to the command line, with `@app.command("name")`.

    Asked for names that are not built in, and for `toolplug --help`. Nothing has been started then, so this is a
    function of a module, or a static method.
    """
