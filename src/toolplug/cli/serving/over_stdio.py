"""A host for one client of Model Context Protocol, on standard input and output."""

from __future__ import annotations

import asyncio

from toolplug.catalog.call import CallContext
from toolplug.cli.event_loop import LEAVE_S, entered, run_to_end
from toolplug.cli.options import missing_package, operator
from toolplug.cli.process_exit import leave_now
from toolplug.cli.serving.reload import Reloading
from toolplug.cli.serving.stop_signals import signals
from toolplug.host.file.configuration import ConfigFiles
from toolplug.host.host import Host, open_host
from toolplug.mcp.server_endpoint import Caller, McpServerEndpoint
from toolplug.toolsets.first_use import LazyExecutor


def serve_stdio(files: ConfigFiles, agent: str | None) -> int:
    """Serve until the client hangs up or a signal, and return the exit code. Raises `ConfigError`."""
    return run_to_end(_serve(open_host(files, sessions=False), agent))


async def _serve(host: Host, agent: str | None) -> int:
    stopped, reloading = asyncio.Event(), Reloading(host)
    with signals(stop=stopped.set, reload=reloading.want, within_s=lambda: LEAVE_S):
        async with entered(host):
            speaker = await _speaker(host)
            serving = asyncio.create_task(speaker.serve_stdio(_operator(host, agent)))
            beside = [asyncio.create_task(stopped.wait()), asyncio.create_task(reloading.run())]
            done, _ = await asyncio.wait((serving, *beside), return_when=asyncio.FIRST_COMPLETED)
            for task in beside:
                task.cancel()
            if serving in done:
                serving.result()
    if stopped.is_set():
        leave_now(0)  # a thread still reads from the client, and only the client can end it
    return 0


async def _speaker(host: Host) -> McpServerEndpoint:
    try:
        return await host.mcp.speaker()
    except ModuleNotFoundError as error:
        raise missing_package("serve --stdio", error, "mcp") from None


def _operator(host: Host, agent: str | None) -> Caller:
    """The only caller, with one session for its toolsets, which ends with the host."""
    principal, client = operator(), object()
    executor = host.executor_for(principal, agent=agent, within=client)
    followed = executor.listing if isinstance(executor, LazyExecutor) else executor
    return Caller(
        executor=executor,
        context=CallContext(principal=principal, agent=agent),
        approvals=host.approvals,
        catalog=lambda: host.catalog_for(principal, agent=agent, within=client),
        watch=lambda: host.mcp.announcer.watch(followed),
    )
