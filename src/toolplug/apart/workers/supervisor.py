"""The worker's side: dials in to a host, runs the provider in a process of its own, and carries its messages.

The process is that of `run: {process: true}`, from the environment of this one. It ends with its connection: this one
stays, says that it is alive while the provider blocks, and knows which calls had begun when that process ended.
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
import socket
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast
from urllib.parse import quote, urlsplit, urlunsplit

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus, WebSocketException

from toolplug.apart.entries import describe_type
from toolplug.apart.frames import Frame, FrameReader, encode_frame
from toolplug.apart.processes import OutputLog, ProcessTarget, WorkerProcess, start_process_async
from toolplug.apart.values import Head, encode_error
from toolplug.apart.workers.limits import (
    BEAT_S,
    CHUNK,
    DRAIN_S,
    HELLO_S,
    HOST_SILENT_BEATS,
    MAX_MESSAGE,
    PATH,
    PROTOCOL,
)
from toolplug.catalog.exact_json import dump_json, load_own_json
from toolplug.config.nearest import name_hint
from toolplug.errors import InvalidJson, ProviderError
from toolplug.providers.entry import ProviderState
from toolplug.providers.entry_points import InstalledProvider, find_installed
from toolplug.providers.loading import names_file, provider_file
from toolplug.runtime.backoff import pause_after

_LOG = logging.getLogger("toolplug.worker")

FIRST_PAUSE_S = 0.1
LONGEST_PAUSE_S = 5.0
"""Seconds before a worker dials again: no longer, since a host that starts again has no tools until then."""
STEADY_S = 30.0
FURTHER_DIALS_S = 0.5
LONGEST_FURTHER_S = 15.0
"""Seconds between two dials to find the other processes of a host, which a connection leads to by chance."""
_FIRST_FRAME = 16 * 1024 * 1024
_HIGH_WATER = 1024 * 1024
_DENIED = frozenset({400, 401, 403, 404, 421, 426})
"""What the host answers to a worker that cannot serve it, however often it dials."""


class WorkerRefused(ProviderError):
    """The host does not take the worker. `again`: it may later."""

    def __init__(self, reason: str, fix: str, *, again: bool = False) -> None:
        super().__init__(reason, state=ProviderState.START_FAILED, fix=fix)
        self.again = again


class _SameProcess(Exception):
    """The connection has led to a process of the host that has one already."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerPlan:
    """What a worker serves: the entry of a host, with the credential, and the folder of its files."""

    key: str
    host: str
    credential: str | None
    folder: Path

    @property
    def url(self) -> str:
        """The address of the WebSocket."""
        parts = urlsplit(self.host)
        path = parts.path.rstrip("/") + PATH + quote(self.key, safe="")
        return urlunsplit(("wss" if parts.scheme == "https" else "ws", parts.netloc, path, "", ""))

    @property
    def headers(self) -> Mapping[str, str]:
        """The headers of its request."""
        return {} if self.credential is None else {"Authorization": f"Bearer {self.credential}"}


class WorkerSupervisor:
    """Keeps one connection with each process of a host, and a process of the provider for each; `run` until `stop`."""

    def __init__(self, plan: WorkerPlan) -> None:
        self._plan = plan
        self._serving: dict[str, _Connection] = {}
        self._known: Sequence[str] = ()
        self._stopping = asyncio.Event()
        self._dialling: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._failed: WorkerRefused | None = None
        self._failures = self._useless = 0

    def stop(self) -> None:
        """End after the calls that run."""
        self._stopping.set()

    async def run(self) -> None:
        """Serve until `stop`. Raises `WorkerRefused` if the host does not take the worker at all."""
        try:
            while not self._stopping.is_set():
                if self._failed is not None:
                    raise self._failed
                missing = not self._serving or any(name not in self._serving for name in self._known)
                if missing and len(self._tasks) <= len(self._serving):
                    self._begin()
                pause = pause_after(self._failures or 1, FIRST_PAUSE_S, LONGEST_PAUSE_S)
                if self._serving:
                    pause = pause_after(self._useless + 1, FURTHER_DIALS_S, LONGEST_FURTHER_S)
                with suppress(TimeoutError):
                    async with asyncio.timeout(pause * random.uniform(0.5, 1.0)):
                        await self._stopping.wait()
        finally:
            await self._drain()

    def _begin(self) -> None:
        connection = _Connection(self._plan, self._take, self._note_processes)
        task = asyncio.create_task(self._serve(connection), name="toolplug-worker")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, connection: _Connection) -> None:
        loop = asyncio.get_running_loop()
        began = loop.time()
        try:
            await connection.serve()
        except _SameProcess:
            self._useless += 1
            return
        except WorkerRefused as error:
            if not error.again:
                self._failed = error
            _LOG.warning("the host does not take this worker: %s", error)
        except InvalidStatus as error:
            self._failed = _denied(error) or self._failed
            _LOG.warning("%s: answered %d", self._plan.host, error.response.status_code)
        except (OSError, WebSocketException, TimeoutError) as error:
            _LOG.warning("%s: %s", self._plan.host, _say(error))
        finally:
            name = connection.host_process
            if self._serving.get(name) is connection:
                del self._serving[name]
                _LOG.info("the connection with process %s of the host has ended: %s", name, connection.reason)
        self._failures = 1 if loop.time() - began >= STEADY_S else self._failures + 1

    def _take(self, connection: _Connection, name: str) -> bool:
        """Return whether a connection is the only one with a process of the host."""
        if name in self._serving:
            return False
        self._serving[name] = connection
        self._failures = self._useless = 0
        return True

    def _note_processes(self, names: Sequence[str]) -> None:
        if names != self._known:
            self._known, self._useless = names, 0

    async def _drain(self) -> None:
        for connection in self._serving.values():
            connection.drain()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=DRAIN_S)
        for task in [*self._tasks]:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


class _Relay(asyncio.Protocol):
    """The socket of the provider's process, whose bytes go to the host as they are."""

    def __init__(self) -> None:
        self.lost: bool = False
        self.ended: asyncio.Event = asyncio.Event()
        self.received: deque[bytes] = deque()
        self.wake: asyncio.Event = asyncio.Event()
        self.writable: asyncio.Event = asyncio.Event()
        self.writable.set()
        self.transport: Any = None
        self._size = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        """Keep what is to be sent; read no more while that is much."""
        self.received.append(data)
        self._size += len(data)
        if self._size > _HIGH_WATER:
            self.transport.pause_reading()
        self.wake.set()

    def take(self) -> bytes:
        """Return the next bytes to send."""
        data = self.received.popleft()
        before, self._size = self._size, self._size - len(data)
        if before > _HIGH_WATER >= self._size:
            self.transport.resume_reading()
        return data

    def pause_writing(self) -> None:
        """Take note that the process does not read."""
        self.writable.clear()

    def resume_writing(self) -> None:
        """Take note that it reads."""
        self.writable.set()

    def connection_lost(self, exc: Exception | None) -> None:
        """Take note of the end of the process."""
        self.fail("ended")

    def fail(self, reason: str) -> None:
        """Take note of the end of the process."""
        self.writable.set()
        self.ended.set()
        self.wake.set()


class _Connection:
    """One connection with one process of the host, and the process of the provider that serves it."""

    def __init__(
        self,
        plan: WorkerPlan,
        take: Callable[[_Connection, str], bool],
        note_processes: Callable[[Sequence[str]], None],
    ) -> None:
        self.host_process: str = ""
        self.reason: str = "the host has closed it"
        self._plan = plan
        self._take = take
        self._note_processes = note_processes
        self._socket: Any = None
        self._draining = False
        self._silent = 0

    def drain(self) -> None:
        """Tell the host to send no further calls; it closes the connection after those that run."""
        self._draining = True

    async def serve(self) -> None:
        """Dial in, and serve until the connection or the process ends. Raises what keeps it from doing so."""
        plan = self._plan
        dialling = connect(
            plan.url,
            additional_headers=plan.headers,
            max_size=MAX_MESSAGE,
            compression=None,
            ping_interval=None,
            open_timeout=HELLO_S,
            close_timeout=1,
        )
        async with dialling as connection:
            self._socket = connection
            name = f"{socket.gethostname()} ({os.getpid()})"
            await self._tell("hello", protocol=PROTOCOL, name=name)
            beating = asyncio.create_task(self._beat())
            try:
                await self._run(connection)
            finally:
                beating.cancel()

    async def _run(self, connection: ClientConnection) -> None:
        head = await self._next_note(connection)
        if not self._take(self, str(head["process"])):
            raise _SameProcess
        self.host_process = str(head["process"])
        process: WorkerProcess | None = None
        try:
            try:
                process = await self._start(head["target"])
            except ProviderError as error:
                await self._tell("described", error=encode_error(error))
                raise WorkerRefused(str(error), error.fix) from None
            described = process.description
            await self._tell("described", **{each: described[each] for each in ("problems", "secrets")})
            await self._carry(connection, process)
        finally:
            if process is not None:
                # It sees the end of its socket, and closes the provider in the time that it has.
                await process.wait(_END_S)
                process.kill()

    async def _start(self, target: Head) -> WorkerProcess:
        """Start the process of the provider, which checks the settings. Raises `ProviderError`."""
        plan = self._plan
        found = find_type(str(target["type"]), plan.folder)
        own = {**target["own"], "file": str(plan.folder / Path(str(target["own"]["file"])).name)}
        made = ProcessTarget(
            key=str(target["key"]),
            owner=f"provider {target['key']!r} ({found.package})" if found.package else f"provider {target['key']!r}",
            hello={**describe_type(str(target["key"]), found), "own": own, "host_keys": target["host_keys"]},
            code=found.code,
            max_result_bytes=int(target["max_result_bytes"]),
        )
        return await start_process_async(made)

    async def _carry(self, connection: ClientConnection, process: WorkerProcess) -> None:
        relay = _Relay()
        await process.connect(cast("Any", relay), OutputLog(process.target))
        sending = asyncio.create_task(self._send_up(connection, relay))
        receiving = asyncio.create_task(self._send_down(connection, relay, process))
        ended = asyncio.create_task(relay.ended.wait())
        try:
            await asyncio.wait({sending, receiving, ended}, return_when=asyncio.FIRST_COMPLETED)
            if relay.ended.is_set() and not receiving.done():
                # What the process sent before it ended goes first.
                await asyncio.wait({sending}, timeout=HELLO_S)
                await process.wait(1.0)
                self.reason = f"its process {process.exit_reason}"
                with suppress(ConnectionClosed):
                    await self._tell("ended", begun=process.last_begun, reason=process.exit_reason)
        finally:
            for task in (sending, receiving, ended):
                task.cancel()
            outcomes = await asyncio.gather(sending, receiving, ended, return_exceptions=True)
            relay.transport.close()
        for outcome in outcomes:
            if isinstance(outcome, WorkerRefused):
                raise outcome

    async def _send_up(self, connection: ClientConnection, relay: _Relay) -> None:
        while True:
            await relay.wake.wait()
            relay.wake.clear()
            while relay.received:
                data = relay.take()
                for start in range(0, len(data), CHUNK):
                    await connection.send(data[start : start + CHUNK])
            if relay.ended.is_set():
                return

    async def _send_down(self, connection: ClientConnection, relay: _Relay, process: WorkerProcess) -> None:
        first: FrameReader | None = FrameReader(_FIRST_FRAME)
        async for message in connection:
            self._silent = 0
            if isinstance(message, str):
                self._on_note(load_own_json(message.encode()))
                continue
            if first is not None:
                first.add(message)
                for frame in first:
                    message = in_own_folders(self._plan, frame) + first.rest  # noqa: PLW2901
                    first = None
                    break
                else:
                    continue
            relay.transport.write(message)
            await relay.writable.wait()

    def _on_note(self, head: Head) -> None:
        match head["note"]:
            case "refused":
                raise WorkerRefused(str(head["reason"]), str(head["fix"]), again=head["again"] is True)
            case _:
                self._note_processes([str(name) for name in head.get("processes", ())])

    async def _next_note(self, connection: ClientConnection) -> Head:
        """Return what the host wants to have run. Raises `WorkerRefused`."""
        async with asyncio.timeout(HELLO_S):
            while True:
                head = load_own_json((await connection.recv(decode=True)).encode())
                if head["note"] == "describe":
                    return head
                self._on_note(head)

    async def _beat(self) -> None:
        with suppress(ConnectionClosed):
            await self._give_signs()

    async def _give_signs(self) -> None:
        told = False
        while True:
            await asyncio.sleep(BEAT_S)
            if self._draining and not told:
                told = True
                await self._tell("draining")
            await self._tell("alive")
            self._silent += 1
            if self._silent > HOST_SILENT_BEATS:
                self.reason = "the host gave no sign of life"
                self._socket.transport.abort()
                return

    async def _tell(self, note: str, **fields: object) -> None:
        await self._socket.send(dump_json({"note": note, **fields}).decode())


_END_S = 3.5
"""Seconds in which a process whose host is gone ends: it has two to close its provider."""


def find_type(type_name: str, folder: Path) -> InstalledProvider:
    """Return a type of the environment of this process, or of a file. Raises `ProviderError`."""
    if names_file(type_name):
        return provider_file(type_name, folder)
    types = find_installed().types
    found = types.get(type_name, ())
    if len(found) != 1:
        where = f"of a worker on {socket.gethostname()}"
        if found:
            packages = " and ".join(each.package for each in found)
            reason, fix = f"the type {type_name!r} comes from {packages} in the environment {where}", "uninstall one"
        else:
            reason = f"no package in the environment {where} has the provider type {type_name!r}"
            fix = name_hint(type_name, types) or "install its package there"
        raise ProviderError(reason, state=ProviderState.IMPORT_FAILED, fix=fix)
    return found[0]


def in_own_folders(plan: WorkerPlan, frame: Frame) -> bytes:
    """Return the message that starts the provider, with the folders of this machine in place of the host's."""
    state = plan.folder / ".toolplug" / "workers" / plan.key
    state.mkdir(parents=True, exist_ok=True)
    head = {**frame.head, "state_dir": str(state), "config_dir": str(plan.folder)}
    return encode_frame(frame.kind, head, frame.body)


def _denied(error: InvalidStatus) -> WorkerRefused | None:
    """Return the refusal that no further dial changes; None for a host that may take the worker later."""
    status = error.response.status_code
    if status not in _DENIED:
        return None
    message = f"the host answered {status}"
    with suppress(InvalidJson, KeyError, TypeError):  # a proxy answers as it likes
        message = str(load_own_json(bytes(error.response.body or b""))["error"]["message"])
    fixes = {401: "give a key with the scope worker: --key-file, or $TOOLPLUG_KEY", 404: "name an entry of the host"}
    return WorkerRefused(message, fixes.get(status, "correct the command line, or the host's configuration"))


def _say(error: BaseException) -> str:
    if isinstance(error, TimeoutError):
        return "no answer in time"
    return str(error) or type(error).__name__
