"""A worker at one process of a host: it runs the provider in a process of its own, and carries its messages.

The process is that of `run: {process: true}`, from the environment of this one. It ends with its connection: this one
stays, says that it is alive while the provider blocks, and knows which calls had begun when that process ended.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol, cast

from toolplug.apart.entries import describe_type
from toolplug.apart.frames import PROTOCOL, Frame, FrameReader, encode_frame
from toolplug.apart.limits import BEAT_S, CHUNK, HELLO_S, HOST_SILENT_BEATS
from toolplug.apart.processes import OutputLog, ProcessTarget, WorkerProcess, start_process_async
from toolplug.apart.values import Head, encode_error
from toolplug.catalog.exact_json import dump_json, load_own_json
from toolplug.config.nearest import name_hint
from toolplug.errors import ProviderError
from toolplug.packages.entry_points import InstalledProvider, find_installed
from toolplug.packages.loading import names_file, provider_file
from toolplug.providers.entry import ProviderState

CREDENTIAL = "TOOLPLUG_KEY"
"""The variable of the key of the host."""
_FIRST_FRAME = 16 * 1024 * 1024
_HIGH_WATER = 1024 * 1024
_END_S = 3.5
"""Seconds in which a process whose host is gone ends: it has two to close its provider."""


class WorkerRefused(ProviderError):
    """The host does not take the worker. `again`: it may later.

    ```python
    from toolplug.apart import WorkerRefused, WorkerSession

    async def serve(session: WorkerSession, channel) -> None:
        try:
            await session.serve_over(channel)
        except WorkerRefused as why:
            print(f"the host does not take this worker: {why}")
    ```
    """

    def __init__(self, reason: str, fix: str, *, again: bool = False) -> None:
        super().__init__(reason, state=ProviderState.START_FAILED, fix=fix)
        self.again = again


class SameProcess(Exception):
    """The connection has led to a process of the host that has one already."""


class Channel(Protocol):
    """What carries the messages between a worker and its host."""

    async def send(self, message: str | bytes) -> None:
        """Send a message. Raises `ConnectionError` at the end."""
        ...

    async def receive(self) -> str | bytes:
        """Return the next message. Raises `ConnectionError` at the end."""
        ...

    def abort(self) -> None:
        """End the connection at once."""
        ...


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


class WorkerSession:
    """One connection with one process of the host, and the process of the provider that serves it.

    ```python
    from pathlib import Path

    from toolplug.apart import WorkerSession

    async def serve(channel) -> None:
        session = WorkerSession("weather", Path("/srv/weather"), lambda session, process: True, lambda processes: None)
        await session.serve_over(channel)
    ```
    """

    def __init__(
        self,
        key: str,
        folder: Path,
        take: Callable[[WorkerSession, str], bool],
        note_processes: Callable[[Sequence[str]], None],
    ) -> None:
        self.host_process: str = ""
        self.reason: str = "the host has closed it"
        self._key = key
        self._folder = folder
        self._take = take
        self._note_processes = note_processes
        self._channel: Channel
        self._draining = False
        self._silent = 0

    def drain(self) -> None:
        """Tell the host to send no further calls; it closes the connection after those that run."""
        self._draining = True

    async def serve_over(self, channel: Channel) -> None:
        """Serve over a channel that is open. Raises `WorkerRefused`, and `ConnectionError` at its end."""
        self._channel = channel
        await self._tell("hello", protocol=PROTOCOL, name=f"{socket.gethostname()} ({os.getpid()})")
        beating = asyncio.create_task(self._beat())
        try:
            await self._run(channel)
        finally:
            beating.cancel()

    async def _run(self, channel: Channel) -> None:
        head = await self._next_note(channel)
        if not self._take(self, str(head["process"])):
            raise SameProcess
        self.host_process = str(head["process"])
        process: WorkerProcess | None = None
        try:
            try:
                process = await self._start(head["target"])
            except ProviderError as error:
                await self._tell("described", error=encode_error(error))
                raise WorkerRefused(str(error), error.fix) from None
            described = process.description
            problems = [each.model_dump(mode="json") for each in described.problems]
            await self._tell("described", problems=problems, secrets=sorted(described.secrets))
            await self._carry(channel, process)
        finally:
            if process is not None:
                # It sees the end of its socket, and closes the provider in the time that it has.
                await process.wait(_END_S)
                process.kill()
                await process.end_output()

    async def _start(self, target: Head) -> WorkerProcess:
        """Start the process of the provider, which checks the settings. Raises `ProviderError`."""
        folder = self._folder
        found = find_type(str(target["type"]), folder)
        own = {**target["own"], "file": str(folder / Path(str(target["own"]["file"])).name)}
        made = ProcessTarget(
            key=str(target["key"]),
            owner=f"provider {target['key']!r} ({found.package})" if found.package else f"provider {target['key']!r}",
            hello={**describe_type(str(target["key"]), found), "own": own, "host_keys": target["host_keys"]},
            code=found.code,
            max_result_bytes=int(target["max_result_bytes"]),
            # Those of this machine: which GPU is whose, where models are kept. The host's key is not for the provider.
            variables={name: value for name, value in os.environ.items() if name != CREDENTIAL},
        )
        return await start_process_async(made)

    async def _carry(self, channel: Channel, process: WorkerProcess) -> None:
        relay = _Relay()
        await process.connect(cast("Any", relay), OutputLog(process.target))
        sending = asyncio.create_task(self._send_up(channel, relay))
        receiving = asyncio.create_task(self._send_down(channel, relay))
        ended = asyncio.create_task(relay.ended.wait())
        try:
            await asyncio.wait({sending, receiving, ended}, return_when=asyncio.FIRST_COMPLETED)
            if relay.ended.is_set() and not receiving.done():
                # What the process sent before it ended goes first.
                await asyncio.wait({sending}, timeout=HELLO_S)
                await process.wait(1.0)
                self.reason = f"its process {process.exit_reason}"
                with suppress(ConnectionError):
                    await self._tell("ended", begun=process.last_begun, reason=process.exit_reason)
        finally:
            for task in (sending, receiving, ended):
                task.cancel()
            outcomes = await asyncio.gather(sending, receiving, ended, return_exceptions=True)
            relay.transport.close()
        for outcome in outcomes:
            if isinstance(outcome, WorkerRefused):
                raise outcome

    async def _send_up(self, channel: Channel, relay: _Relay) -> None:
        while True:
            await relay.wake.wait()
            relay.wake.clear()
            while relay.received:
                data = relay.take()
                for start in range(0, len(data), CHUNK):
                    await channel.send(data[start : start + CHUNK])
            if relay.ended.is_set():
                return

    async def _send_down(self, channel: Channel, relay: _Relay) -> None:
        first: FrameReader | None = FrameReader(_FIRST_FRAME)
        while True:
            message = await channel.receive()
            self._silent = 0
            if isinstance(message, str):
                self._on_note(load_own_json(message.encode()))
                continue
            if first is not None:
                first.add(message)
                for frame in first:
                    message = in_own_folders(self._key, self._folder, frame) + first.rest
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

    async def _next_note(self, channel: Channel) -> Head:
        """Return what the host wants to have run. Raises `WorkerRefused`."""
        async with asyncio.timeout(HELLO_S):
            while True:
                head = load_own_json(cast("str", await channel.receive()).encode())
                if head["note"] == "describe":
                    return head
                self._on_note(head)

    async def _beat(self) -> None:
        with suppress(ConnectionError):
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
                self._channel.abort()
                return

    async def _tell(self, note: str, **fields: object) -> None:
        await self._channel.send(dump_json({"note": note, **fields}).decode())


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


def in_own_folders(key: str, folder: Path, frame: Frame) -> bytes:
    """Return the message that starts the provider, with the folders of this machine in place of the host's."""
    state = folder / ".toolplug" / "workers" / key
    state.mkdir(parents=True, exist_ok=True)
    head = {**frame.head, "state_dir": str(state), "config_dir": str(folder)}
    return encode_frame(frame.kind, head, frame.body)
