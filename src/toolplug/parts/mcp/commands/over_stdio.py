"""Serves a host to one MCP client on standard input and output."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TextIO

from toolplug.catalog.call import CallContext
from toolplug.cli.event_loop import LEAVE_S, enter_host, run_to_end
from toolplug.cli.options import missing_package, operator
from toolplug.cli.process_exit import leave_now
from toolplug.cli.serving.reload import Reloading
from toolplug.cli.serving.stop_signals import signals
from toolplug.cli.standard_output import packages_print_to_stderr
from toolplug.execution.executor import LazyExecutor
from toolplug.host.file.configuration import ConfigFiles
from toolplug.host.host import Host, open_host
from toolplug.parts.mcp.serving.mcp_sessions import Serving, clients_of
from toolplug.parts.mcp.serving.notifications import ResourceSubscriptions
from toolplug.parts.mcp.serving.server_endpoint import McpCaller


def serve_stdio(files: ConfigFiles, agent: str | None, *, locked: bool = False) -> int:
    """Serve until the client disconnects or a signal, and return the exit code. Raises `ConfigError`."""
    with packages_print_to_stderr() as out:
        return run_to_end(_serve(open_host(files, sessions=False, locked=locked), agent, out))


async def _serve(host: Host, agent: str | None, out: TextIO) -> int:
    stopped, reloading = asyncio.Event(), Reloading(host)
    with signals(stop=stopped.set, reload=reloading.want, within_s=lambda: LEAVE_S):
        async with enter_host(host):
            try:
                clients = await clients_of(host)
                endpoint = await clients.endpoint()
            except ModuleNotFoundError as error:
                raise missing_package("serve --stdio", error, "mcp") from None
            serving = asyncio.create_task(endpoint.serve_stdio(_operator(host, clients, agent), out))
            others = [asyncio.create_task(stopped.wait()), asyncio.create_task(reloading.run())]
            done, _ = await asyncio.wait((serving, *others), return_when=asyncio.FIRST_COMPLETED)
            for task in others:
                task.cancel()
            if serving in done:
                serving.result()
    if stopped.is_set():
        leave_now(0)  # a thread still reads standard input, which only the client can end
    return 0


def _operator(host: Host, clients: Serving, agent: str | None) -> McpCaller:
    """Return the only caller; sessions of its toolsets last until the host closes."""
    principal, client = operator(), object()
    executor = host.executor_for(principal, agent=agent, within=client)
    followed = executor.listing if isinstance(executor, LazyExecutor) else executor
    offering, subscriptions = (
        partial(host.offering_for, principal, agent=agent, within=client),
        ResourceSubscriptions(),
    )
    return McpCaller(
        executor=executor,
        context=CallContext(principal=principal, agent=agent),
        approvals=host.approvals,
        rounds=clients.rounds,
        catalog=lambda: host.catalog_for(principal, agent=agent, within=client),
        watch=lambda: clients.announcer.watch(followed, offering=offering, subscriptions=subscriptions),
        offering=offering,
        subscriptions=subscriptions,
        url=host.settings.http.public_url or "",
        extensions=host.plugins.mcp_extensions,
    )
