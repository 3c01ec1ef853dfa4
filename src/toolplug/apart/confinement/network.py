"""The network of a confined provider: a proxy in the host, and what leads to it in the provider's own network.

The proxy takes CONNECT only: it passes on bytes between the provider and a granted host, at an address that `egress`
permits, and sees none of what is in them. `Access` holds it and the granted files open for all processes of an entry.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
import shutil
import socket
import tempfile
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

from toolplug.apart.confinement.bounds import UNCOUNTED, measure_disk
from toolplug.apart.confinement.confinement import PROXY_PORT, PROXY_SOCKET, Confinement, Opening
from toolplug.apart.confinement.file_grants import OpenedFile, open_grants
from toolplug.net.egress import Egress, EgressRefused, reachable, resolve_host
from toolplug.runtime.threads import in_own_thread

MAX_CONNECTIONS = 64
"""Connections of one provider at once; each takes a descriptor of the host for either side."""
MAX_HEAD = 8 * 1024
"""Bytes of a request to the proxy; a client sends 200."""
HEAD_S = 10.0
CONNECT_S = 10.0
"""Seconds for a request to come, and for a connection to a host."""
CHUNK = 64 * 1024
"""Bytes that are read of one side before the other has taken them: the memory of a connection."""
_USUAL_PORTS = (443,)
_REQUEST = re.compile(rb"([A-Z]{1,16}) ([!-~]{1,2048}) HTTP/1\.[01]\r?\n")
_TARGET = re.compile(r"(\[[0-9a-f:.]+\]|[a-z0-9._-]+):([0-9]{1,5})")


class NetworkProxy:
    """Serves the connections of one provider, on a socket that only its process has."""

    def __init__(self, granted: Sequence[str], egress: Egress, log: Callable[[int, str], None]) -> None:
        self._granted = granted
        self._egress = egress
        self._log = log
        self._connections: set[asyncio.Task[None]] = set()
        self._folder = Path(tempfile.mkdtemp(prefix="toolplug-network-"))
        self._server: asyncio.Server | None = None
        self._count = 0

    @property
    def path(self) -> Path:
        return self._folder / "socket"

    async def start(self) -> None:
        """Accept connections. Raises `OSError`."""
        self._server = await asyncio.start_unix_server(self._accept, self.path, limit=MAX_HEAD)

    async def aclose(self) -> None:
        """End all connections."""
        if self._server is not None:
            self._server.close()
        tasks, self._connections = self._connections, set()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        shutil.rmtree(self._folder, ignore_errors=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        if task is None:
            return
        self._connections.add(task)
        task.add_done_callback(self._connections.discard)
        try:
            if len(self._connections) > MAX_CONNECTIONS:
                await _refuse(writer, 503, f"more than {MAX_CONNECTIONS} connections of this provider")
                return
            await self._serve(reader, writer)
        except (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, TimeoutError):
            pass  # either side has gone, or sends what is no request
        finally:
            # Not waited for: a peer that takes nothing would hold the task.
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async with asyncio.timeout(HEAD_S):
            head = await reader.readuntil(b"\r\n\r\n")
        request = _REQUEST.match(head)
        if request is None:
            await _refuse(writer, 400, "this is no request of HTTP/1.1")
            return
        if request[1] != b"CONNECT":
            await _refuse(writer, 405, "this proxy takes CONNECT only: use https")
            return
        target = _TARGET.fullmatch(request[2].decode("ascii").lower())
        if target is None:
            await _refuse(writer, 400, "the target of CONNECT is HOST:PORT")
            return
        host, port = target[1].strip("[]").rstrip("."), int(target[2])
        if not is_granted(self._granted, host, port):
            text = f"run.network does not grant {host}:{port}"
            self._log(logging.WARNING, text)
            await _refuse(writer, 403, text)
            return
        await self._connect(host, port, reader, writer)

    async def _connect(self, host: str, port: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(CONNECT_S):
                there, away = await _open(self._egress, host, port)
        except EgressRefused as error:
            self._log(logging.WARNING, str(error))
            await _refuse(writer, 403, str(error))
            return
        except (OSError, TimeoutError):
            await _refuse(writer, 502, f"{host}:{port} cannot be reached")
            return
        try:
            writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
            await pump(reader, writer, there, away)
        finally:
            away.transport.abort()


def is_granted(granted: Sequence[str], host: str, port: int) -> bool:
    """Return whether words of `network` name this host and port; without a port they mean that of HTTPS."""
    for word in granted:
        name, colon, its = (
            word.rpartition(":") if re.search(r":[0-9]+$", word) and not word.endswith("]") else (word, "", "")
        )
        if (port == int(its)) if colon else (port in _USUAL_PORTS):
            name = name.strip("[]")
            if host == name or (name.startswith("*.") and host.endswith(name[1:]) and host != name[2:]):
                return True
    return False


async def _open(egress: Egress, host: str, port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Connect to one of the addresses that are permitted. Raises `EgressRefused` and `OSError`."""
    failure: OSError = OSError("no address")
    for address in await reachable(egress, host, port, resolve_host):
        try:
            return await asyncio.open_connection(address, port, limit=CHUNK)
        except OSError as error:
            failure = error
    raise failure


async def pump(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, there: asyncio.StreamReader, away: asyncio.StreamWriter
) -> None:
    """Pass on bytes both ways until both sides have ended."""

    async def one_way(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        try:
            while piece := await source.read(CHUNK):
                sink.write(piece)
                await sink.drain()
            sink.write_eof()
        except OSError:
            sink.transport.abort()  # the other way ends with it

    async with asyncio.TaskGroup() as group:
        group.create_task(one_way(reader, away))
        group.create_task(one_way(there, writer))


async def _refuse(writer: asyncio.StreamWriter, status: int, text: str) -> None:
    body = f"{text}\n".encode()
    head = f"HTTP/1.1 {status} Refused\r\ncontent-type: text/plain; charset=utf-8\r\ncontent-length: {len(body)}\r\n"
    writer.write(f"{head}connection: close\r\n\r\n".encode() + body)
    with suppress(OSError):
        await writer.drain()
        writer.write_eof()


def forward_connections() -> None:
    """In the provider's process: lead connections to the proxy's port to the host's socket, in a thread."""
    listening = socket.create_server(("127.0.0.1", PROXY_PORT), backlog=MAX_CONNECTIONS)

    async def lead(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            there, away = await asyncio.open_unix_connection(PROXY_SOCKET, limit=CHUNK)
        except OSError:
            writer.transport.abort()
            return
        try:
            await pump(reader, writer, there, away)
        finally:
            away.transport.abort()
            writer.transport.abort()

    async def serve() -> None:
        async with await asyncio.start_server(lead, sock=listening, limit=CHUNK) as server:
            await server.serve_forever()

    threading.Thread(target=lambda: asyncio.run(serve()), name="toolplug-network", daemon=True).start()


class Access:
    """The opened files, the folder of its own and the proxy of one provider."""

    def __init__(self, confinement: Confinement, log: Callable[[int, str], None]) -> None:
        self._confinement = confinement
        self._log = log
        self._files: list[OpenedFile] = []
        self._proxy: NetworkProxy | None = None

    async def open(self, state_dir: Path, egress: Egress) -> Opening:
        """Open all of it. Raises `InvalidDefinition` for a file that is gone."""
        confinement = self._confinement
        if confinement.sandbox is None:
            own = _absolute(state_dir)
            return Opening(state_dir=own, counted=(own,))
        self._files = open_grants(confinement.files)
        if confinement.run.network:
            self._proxy = NetworkProxy(confinement.run.network, egress, self._log)
            await self._proxy.start()
        proxy = None if self._proxy is None else self._proxy.path
        own, writable = _absolute(state_dir), [Path(each.grant.path) for each in self._files if each.grant.writable]
        written = [path for path in writable if not any(outer in path.parents for outer in writable)]
        before = await in_own_thread(partial(measure_disk, written))
        if before is None:
            self._log(logging.WARNING, f"what it writes to granted folders is not counted: {UNCOUNTED}")
            return Opening(self._files, own, proxy, (own,))
        return Opening(self._files, own, proxy, (own, *written), before)

    async def aclose(self) -> None:
        """Let go of all of it."""
        proxy, self._proxy = self._proxy, None
        files, self._files = self._files, []
        for each in files:
            each.close()
        if proxy is not None:
            await proxy.aclose()


def _absolute(folder: Path) -> Path:
    """Return the same folder for a process that runs elsewhere."""
    return Path(os.path.abspath(folder))
