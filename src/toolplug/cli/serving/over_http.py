"""Serves a host over HTTP with uvicorn, from the start of its providers to their end."""

from __future__ import annotations

import asyncio
import gc
import logging
import math
import socket
import sys
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Generator, Iterable
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Protocol

import uvicorn

from toolplug.catalog.call import ToolStatus
from toolplug.catalog.text import pluralize
from toolplug.cli.crashes import code_keys, left_running
from toolplug.cli.event_loop import run_to_end
from toolplug.cli.output import STATUS_COLOURS, paint
from toolplug.cli.serving.edge import AnswersWhenCancelled, Edge, EdgeConfig
from toolplug.cli.serving.listening import bind, check_reach, is_local, page_opener, url_of
from toolplug.cli.serving.reload import (
    Reloading,
    Watched,
    can_restart,
    changes,
    provider_code,
    replace_process,
)
from toolplug.cli.serving.start_screen import console_line, console_url, start_screen, with_console
from toolplug.cli.serving.stop_signals import signals
from toolplug.cli.serving.watchdog import Watchdog
from toolplug.cli.serving.worker import WorkerHost, WorkerPlace, parent_followed
from toolplug.execution.plans import UNKNOWN
from toolplug.host.file.configuration import ConfigFiles
from toolplug.host.host import Host, open_host
from toolplug.http.app import create_app
from toolplug.providers.generation import Generation
from toolplug.providers.lifecycle import CLOSE_S

STUCK_S = 2.0
"""During shutdown, a connection whose client reads none of its pending bytes for this long is closed."""
SLACK_S = 2.0
"""Seconds from the end of the drain and the close to the end of the process."""
FIRST_REQUEST_MS = 250
"""During the end of a server: how long a new connection may take to send its first request."""
SLOW_START_S = 1.0
"""How long a start may take before a terminal shows that it goes on."""
ANSWERS_S = 1
"""Seconds to send responses after the time to drain."""
THRESHOLDS = (10_000, 20, 50)
"""For `gc.set_threshold`: about 140 times Python's own interval between two full collections.

A full collection visits every live object and stops the loop for that time: 0.1 s with a thousand sessions. Our own
objects are freed without it.
"""

_LOG = logging.getLogger("toolplug.cli.serve")
_CALLS = logging.getLogger("toolplug.calls")


def serve(
    files: ConfigFiles,
    *,
    address: str,
    port: int,
    watch: bool,
    insecure_no_auth: bool,
    shows: bool = False,
    console: bool = True,
    traces: bool = False,
    opens: bool = False,
    worker: str | None = None,
    locked: bool = False,
) -> int:
    """Serve until a signal, and return the exit code. Raises `ConfigError` before anything listens.

    `watch`: reload after changes. `shows`: print a start screen and each call, for a person at the terminal. `console`:
    on loopback, a console that the configuration does not mention is served too. `traces`: it shows the whole traces of
    crashes. `opens`: open the page in a browser.
    `worker`: the place of this process among several workers, as the text of `Place`. `locked`: refuse what is not as
    `toolplug.lock` has it.
    """
    if console and not locked and is_local(address):
        files = with_console(files, traces=traces)
    place = None if worker is None else WorkerPlace.of(worker)
    on_call = _log_call if shows else None
    if place is None:
        host = open_host(files, on_call=on_call, locked=locked)
    else:
        host = WorkerHost(files, place, on_call=on_call, locked=locked)
    app = AnswersWhenCancelled(create_app(host, insecure_no_auth=insecure_no_auth))
    config = EdgeConfig(app, Edge(lambda: host.settings.http))
    service = Service(host, files.file.resolve(), config, shows=shows, opens=opens, place=place)
    running = service.run(address, port, watch=watch, insecure_no_auth=insecure_no_auth)
    return run_to_end(running, loop_factory=config.get_loop_factory())


class Service:
    """A host behind one socket; `run` can be called once."""

    def __init__(
        self,
        host: Host,
        file: Path,
        config: uvicorn.Config,
        *,
        shows: bool = False,
        opens: bool = False,
        place: WorkerPlace | None = None,
    ) -> None:
        self._host = host
        self._shows = shows
        self._opens = opens
        self._place = place
        self._file = file
        self._server = _Server(config)
        self._reloading = Reloading(host)
        self._restarting = False
        self._starting: asyncio.Timeout | None = None
        self._latest: tuple[Generation, ...] = ()
        self._begun_ns = time.time_ns()

    async def run(self, address: str, port: int, *, watch: bool, insecure_no_auth: bool) -> int:
        """Start the providers, listen, serve until a signal, drain, and return the exit code."""
        async with AsyncExitStack() as life:
            self._server.take_signals_back = life.enter_context(
                signals(
                    stop=self._stop,
                    reload=self._reloading.want,
                    within_s=lambda: self._drain_s() + ANSWERS_S + CLOSE_S + SLACK_S,
                    is_busy=self._is_busy,
                )
            )
            if self._place is not None:
                self._server.tell = await life.enter_async_context(parent_followed(self._place))
            if not await self._start(life):
                return 0
            if isinstance(self._host, WorkerHost):
                await life.enter_async_context(self._host.answering())
            has_auth = self._host.settings.auth is not None
            check_reach(
                address, has_auth=has_auth, insecure_no_auth=insecure_no_auth, user_auth=self._host.user_auth_keys
            )
            listening = life.enter_context(bind(address, port, joins=self._place is not None))
            # `--port 0` has taken a free one, which a restart keeps.
            port = listening.getsockname()[1]
            screen = start_screen if self._shows else console_line
            self._server.screen = screen(self._host, url_of(listening))
            if self._opens:
                page = console_url(self._host, url_of(listening)) or url_of(listening)
                self._server.open_page = life.enter_context(page_opener(page))
            life.enter_context(left_running(self._host))
            # After the start: what providers have imported and made is frozen with the rest.
            life.enter_context(rarely_collected())
            await life.enter_async_context(Watchdog(partial(code_keys, self._host)))
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(self._reloading.run())]
                if watch:
                    tasks.append(group.create_task(self._watch()))
                await self._server.serve([listening])
                # A group waits for its tasks, and these never end by themselves.
                for task in tasks:
                    task.cancel()
        if self._restarting:
            replace_process(port)
        return 0

    async def _start(self, life: AsyncExitStack) -> bool:
        """Enter the host. Return False if a signal interrupts the start, whatever error that causes in it."""
        try:
            # A timeout that `_stop` brings forward breaks off the start, and leaves this task uncancelled.
            async with asyncio.timeout(None) as self._starting:
                if not self._server.should_exit:
                    with self._note_slow_start():
                        await life.enter_async_context(self._host)
        except Exception:
            if not self._server.should_exit:
                raise
        finally:
            self._starting = None
        if self._server.should_exit:
            _LOG.info("the start was broken off by a signal")
        return not self._server.should_exit

    @contextmanager
    def _note_slow_start(self) -> Generator[None]:
        """Within the block, tell a person at a terminal after a second that the start goes on."""
        # A line, not a moving bar: the log of the providers is on the same terminal.
        waiting = asyncio.get_running_loop().call_later(SLOW_START_S, self._tell_slow_start)
        try:
            yield
        finally:
            waiting.cancel()

    def _tell_slow_start(self) -> None:
        if self._shows:
            sys.stderr.write(f"starting the providers of {self._file.name}; Ctrl-C breaks it off\n")
            sys.stderr.flush()

    def _stop(self) -> None:
        # uvicorn takes whole seconds.
        self._server.config.timeout_graceful_shutdown = math.ceil(self._drain_s()) + ANSWERS_S
        self._server.should_exit = True
        if self._host.entered:
            running = sum(item.switch.running - item.switch.abandoned for item in self._generations())
            if running > 0:
                _LOG.info("stopping: %s may run for up to %g s more", pluralize(running, "call"), self._drain_s())
            self._end_after_drain()
        if self._starting is not None:
            self._starting.reschedule(0)
        elif self._host.entered:
            self._host.stop()

    def _generations(self) -> tuple[Generation, ...]:
        """Return the running providers; while the host closes, the last ones."""
        with suppress(RuntimeError):  # the host is not entered, or another thread is just closing it
            self._latest = tuple(self._host.registry.running().values())
        return self._latest

    def _drain_s(self) -> float:
        """Return the longest time to drain of a provider, and of a call that runs."""
        running = self._host.registry.accounting.drains_s if self._host.entered else set[float]()
        return max({*running, *(generation.drain_s for generation in self._generations())}, default=0.0)

    def _end_after_drain(self) -> None:
        """End the calls and requests of each provider after its time to drain, and all after the longest one."""
        loop, accounting = asyncio.get_running_loop(), self._host.registry.accounting
        for generation in self._generations():
            loop.call_later(generation.drain_s, accounting.end_running, generation.switch)
        for drain_s in accounting.drains_s:
            loop.call_later(drain_s, partial(accounting.end_running, after_s=drain_s))
        loop.call_later(self._drain_s(), accounting.end_running)

    def _is_busy(self) -> bool:
        """Return whether a caller waits for the result of a call or a request."""
        switches = [generation.switch for generation in self._generations()]
        return bool(self._server.server_state.tasks) or any(item.running > item.abandoned for item in switches)

    async def _watch(self) -> None:
        """Reload after a change of the file, and restart the process after a change of code."""
        running = partial(provider_code, self._host.registry)
        async for changed in changes(self._file, running, since_ns=self._begun_ns):
            if changed is Watched.FILE:
                self._reloading.want()
            elif await can_restart(self._file):
                _LOG.info("the code of a provider has changed: starting again")
                self._restarting = True
                self._stop()


class _Server(uvicorn.Server):
    """uvicorn without its own signal handlers.

    When it listens, it prints its address and the `screen`; a worker passes the screen to `tell` instead.
    """

    take_signals_back: Callable[[], None]
    tell: Callable[[str], None] | None = None
    screen = ""
    open_page: Callable[[], Awaitable[object]] | None = None

    async def on_tick(self, counter: int) -> bool:
        """Take the signals back ten times a second, since a provider's library may take them at any time."""
        self.take_signals_back()
        return await super().on_tick(counter)

    @contextmanager
    def capture_signals(self) -> Generator[None]:
        """Install no handlers: `stop_signals.signals` does."""
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen, then print the address."""
        await super().startup(sockets)
        if self.tell is not None:
            self.tell(self.screen)
            return
        for listening in sockets or ():
            sys.stderr.write(f"toolplug listening on {url_of(listening)}\n{self.screen}")
        sys.stderr.flush()
        if self.open_page is not None:
            await self.open_page()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Wait for running calls, but not for clients that do not read their responses."""
        await self._accept_queued(sockets or ())
        async with close_stuck(self.server_state.connections):
            await super().shutdown(sockets)

    async def _accept_queued(self, sockets: Iterable[socket.socket]) -> None:
        """Accept the connections that wait in this process's queue: the kernel gives them to no other, but resets them.

        Then close the sockets, and wait until every connection that is new has sent its request.
        """
        queued: list[socket.socket] = []
        for listening in sockets:
            with suppress(OSError):
                while True:
                    queued.append(listening.accept()[0])
        for server in self.servers:
            server.close()
        loop = asyncio.get_running_loop()
        for each in queued:
            each.setblocking(False)
            with suppress(OSError):
                await loop.connect_accepted_socket(self._connection, each)
        # Polled: uvicorn tells nobody when a connection has its first request.
        for _ in range(FIRST_REQUEST_MS // 10):
            if all(getattr(each, "cycle", None) is not None for each in self.server_state.connections):
                return
            await asyncio.sleep(0.01)

    def _connection(self) -> asyncio.Protocol:
        assert isinstance(self.config, EdgeConfig)
        return self.config.connection(self.server_state, self.lifespan.state)


class ServedConnection(Protocol):
    """A connection of uvicorn."""

    @property
    def transport(self) -> asyncio.Transport: ...


@asynccontextmanager
async def close_stuck(connections: Collection[ServedConnection]) -> AsyncGenerator[None]:
    """Within this context, abort each connection whose client reads none of its pending bytes for `STUCK_S`."""

    async def watch() -> None:
        before: dict[ServedConnection, int] = {}
        while True:
            waiting = {connection: connection.transport.get_write_buffer_size() for connection in connections}
            for connection, size in waiting.items():
                # Not one byte less than at the last look.
                if 0 < before.get(connection, 0) <= size:
                    connection.transport.abort()
            before = waiting
            await asyncio.sleep(STUCK_S)

    watching = asyncio.create_task(watch(), name="toolplug-stuck-connections")
    try:
        yield
    finally:
        watching.cancel()


def return_freed_memory() -> None:
    """Give memory that the start has used and freed back to the system: 3 MB that the C library would keep.

    Only glibc keeps it so, and has a call for it.
    """
    with suppress(AttributeError, ImportError, OSError, TypeError):
        import_module("ctypes").CDLL(None).malloc_trim(0)


@contextmanager
def rarely_collected() -> Generator[None]:
    """Exclude existing objects from garbage collection, and collect later ones at `THRESHOLDS`."""
    before = gc.get_threshold()
    # Before freezing, or garbage of the start would stay as long as the server runs.
    gc.collect()
    return_freed_memory()
    gc.freeze()
    gc.set_threshold(*THRESHOLDS)
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()


def _log_call(provider: str, tool_name: str, status: str, seconds: float) -> None:
    """Log a finished call: its tool, provider, status, and duration in milliseconds.

    Not one that the audit log has with its caller and the reason: it was refused, or its tool is unknown.
    """
    if provider != UNKNOWN and status not in (ToolStatus.DENIED, ToolStatus.LIMITED):
        shown = paint(status, STATUS_COLOURS.get(status, "yellow"))
        _CALLS.info("%s (%s) %s %.0f ms", tool_name, provider, shown, seconds * 1000)
