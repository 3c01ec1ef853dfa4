"""A host behind a socket, by uvicorn: from the first provider's start to the last one's end."""

from __future__ import annotations

import asyncio
import logging
import math
import socket
import sys
from collections.abc import Callable, Generator
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path

import uvicorn
from starlette.types import ASGIApp

from toolplug.cli.event_loop import run_to_end
from toolplug.cli.serving.garbage import rarely_collected
from toolplug.cli.serving.listener import bound, check_reach, port_of, url_of
from toolplug.cli.serving.reloading import Reloading
from toolplug.cli.serving.restart import replace_process, starts_again
from toolplug.cli.serving.stop_signals import signals
from toolplug.cli.serving.stuck_connections import broken_off
from toolplug.cli.serving.watching import Watched, changes, provider_packages
from toolplug.execution.watchdog import Watchdog
from toolplug.host.file.config_files import ConfigFiles
from toolplug.host.host import Host, open_host
from toolplug.http.app import create_app
from toolplug.http.doors.header_limits import MAX_HEADER_BYTES
from toolplug.providers.lifecycle import CLOSE_S

SLACK_S = 2.0
"""For what stands between the drain of the calls and the end of the process."""
ANSWERS_S = 1
"""For answers that are on their way when no call needs any time."""

_LOG = logging.getLogger("toolplug.cli.serve")


def serve(files: ConfigFiles, *, address: str, port: int, watch: bool, insecure_no_auth: bool) -> int:
    """Serve until a signal ends it; the exit code. Raises `ConfigError` before anything listens."""
    host = open_host(files)
    config = _uvicorn_config(create_app(host, insecure_no_auth=insecure_no_auth))
    service = Service(host, files.file.resolve(), config)
    running = service.run(address, port, watch=watch, insecure_no_auth=insecure_no_auth)
    return run_to_end(running, loop_factory=config.get_loop_factory())


class Service:
    """One host behind one socket; `run` is called once."""

    def __init__(self, host: Host, file: Path, config: uvicorn.Config) -> None:
        self._host = host
        self._file = file
        self._server = _Server(config)
        self._reloading = Reloading(host)
        self._restarting = False
        self._starting: asyncio.Timeout | None = None
        self._drain_s = 0.0

    async def run(self, address: str, port: int, *, watch: bool, insecure_no_auth: bool) -> int:
        """Start the providers, listen, serve until a signal, drain."""
        async with AsyncExitStack() as life:
            self._server.take_signals_back = life.enter_context(
                signals(stop=self._stop, reload=self._reloading.want, within_s=self._longest_end_s)
            )
            if not await self._started(life):
                return 0
            has_auth = self._host.settings.auth is not None
            check_reach(address, has_auth=has_auth, insecure_no_auth=insecure_no_auth)
            listening = life.enter_context(bound(address, port))
            port = port_of(listening)
            self._note_drain()
            life.enter_context(rarely_collected())
            await life.enter_async_context(Watchdog(self._owners))
            async with asyncio.TaskGroup() as beside:
                tasks = [beside.create_task(self._reloading.run(self._note_drain))]
                if watch:
                    tasks.append(beside.create_task(self._watch()))
                await self._server.serve([listening])
                for task in tasks:
                    task.cancel()
        if self._restarting:
            replace_process(port)
        return 0

    async def _started(self, life: AsyncExitStack) -> bool:
        """Enter the host; False where a signal broke the start off."""
        try:
            async with asyncio.timeout(None) as self._starting:
                await life.enter_async_context(self._host)
        except TimeoutError:
            if not self._server.should_exit:
                raise
            _LOG.info("the start was broken off by a signal")
            return False
        finally:
            self._starting = None
        return True

    def _stop(self) -> None:
        self._server.config.timeout_graceful_shutdown = max(math.ceil(self._drain_s), ANSWERS_S)
        self._server.should_exit = True
        if self._starting is not None:
            self._starting.reschedule(0)
        elif self._host.entered:
            self._host.stop()

    def _note_drain(self) -> None:
        """How long the most patient provider waits for its calls, for whoever ends the service."""
        running = self._host.registry.running().values()
        self._drain_s = max((generation.drain_s for generation in running), default=0.0)

    def _longest_end_s(self) -> float:
        return self._drain_s + CLOSE_S + SLACK_S

    def _owners(self) -> dict[str, str]:
        """The provider of each package whose code may be met on the loop."""
        return {package: key for key, package in provider_packages(self._host.registry).items()}

    async def _watch(self) -> None:
        """Follow the file and the code: a changed file is read again, changed code needs a new process."""
        async for changed in changes(self._file, lambda: provider_packages(self._host.registry).values()):
            if changed is Watched.FILE:
                self._reloading.want()
            elif await starts_again(self._file):
                _LOG.info("the code of a provider has changed: starting again")
                self._restarting = True
                self._stop()


class _Server(uvicorn.Server):
    """uvicorn without signal handlers of its own, and with the line that says where it listens."""

    take_signals_back: Callable[[], None]

    async def on_tick(self, counter: int) -> bool:
        """Ten times a second: a library that a provider loads may take the signals at any time."""
        self.take_signals_back()
        return await super().on_tick(counter)

    @contextmanager
    def capture_signals(self) -> Generator[None]:
        """Leave the signals to `signals`."""
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen, then say so."""
        await super().startup(sockets)
        for listening in sockets or ():
            sys.stderr.write(f"toolplug listening on {url_of(listening)}\n")
        sys.stderr.flush()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Wait for the calls that run, not for clients that take no answer."""
        async with broken_off(self.server_state.connections):
            await super().shutdown(sockets)


def _uvicorn_config(app: ASGIApp) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        ws="none",
        h11_max_incomplete_event_size=2 * MAX_HEADER_BYTES,
    )
