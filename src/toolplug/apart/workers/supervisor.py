"""Dials in to a host, again when the connection has ended, and to each process of the host."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote, urlsplit, urlunsplit

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus, WebSocketException

from toolplug.apart.limits import DRAIN_S, HELLO_S, MAX_WORKER_MESSAGE, WORKERS_PATH
from toolplug.apart.workers.session import SameProcess, WorkerRefused, WorkerSession
from toolplug.catalog.exact_json import load_own_json
from toolplug.errors import InvalidJson
from toolplug.runtime.backoff import pause_after

_LOG = logging.getLogger("toolplug.worker")

FIRST_PAUSE_S = 0.1
LONGEST_PAUSE_S = 5.0
"""Seconds before a worker dials again: no longer, since a host that starts again has no tools until then."""
STEADY_S = 30.0
FURTHER_DIALS_S = 0.5
LONGEST_FURTHER_S = 15.0
"""Seconds between two dials to find the other processes of a host, which a connection leads to by chance."""
_DENIED = frozenset({400, 401, 403, 404, 421, 426})
"""What the host answers to a worker that cannot serve it, however often it dials."""


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
        path = parts.path.rstrip("/") + WORKERS_PATH + quote(self.key, safe="")
        return urlunsplit(("wss" if parts.scheme == "https" else "ws", parts.netloc, path, "", ""))

    @property
    def headers(self) -> Mapping[str, str]:
        return {} if self.credential is None else {"Authorization": f"Bearer {self.credential}"}


class WorkerSupervisor:
    """Keeps one connection with each process of a host, and a process of the provider for each; `run` until `stop`.

    `failures`: the connections in a row that could not be made, or did not last.
    """

    def __init__(self, plan: WorkerPlan) -> None:
        self._plan = plan
        self._serving: dict[str, WorkerSession] = {}
        self._known: Sequence[str] = ()
        self._stopping = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._failed: WorkerRefused | None = None
        self.failures: int = 0
        self._useless = 0
        self._warned = ""

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
                pause = pause_after(self.failures or 1, FIRST_PAUSE_S, LONGEST_PAUSE_S)
                if self._serving:
                    pause = pause_after(self._useless + 1, FURTHER_DIALS_S, LONGEST_FURTHER_S)
                with suppress(TimeoutError):
                    async with asyncio.timeout(pause * random.uniform(0.5, 1.0)):
                        await self._stopping.wait()
        finally:
            await self._drain()

    def _begin(self) -> None:
        connection = WorkerSession(self._plan.key, self._plan.folder, self._take, self._note_processes)
        task = asyncio.create_task(self._serve(connection), name="toolplug-worker")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, connection: WorkerSession) -> None:
        loop = asyncio.get_running_loop()
        began = loop.time()
        try:
            await _dial(self._plan, connection)
        except SameProcess:
            self._useless += 1
            return
        except WorkerRefused as error:
            if not error.again:
                self._failed = error
            _LOG.warning("the host does not take this worker: %s", error)
        except InvalidStatus as error:
            self._failed = _read_denial(error) or self._failed
            self._warn(f"{self._plan.host} answered {error.response.status_code}")
        except (OSError, WebSocketException, TimeoutError) as error:
            self._warn(f"no connection with {self._plan.host}: {_say(error)}")
        finally:
            name = connection.host_process
            if self._serving.get(name) is connection:
                del self._serving[name]
                _LOG.info("the connection with process %s of the host has ended: %s", name, connection.reason)
        self.failures = 1 if loop.time() - began >= STEADY_S else self.failures + 1

    def _warn(self, text: str) -> None:
        # Once, and not at each of the attempts that follow: a host that restarts would be a page of the same line.
        if text != self._warned:
            self._warned = text
            _LOG.warning("%s; trying again until a host answers (--host names it)", text)

    def _take(self, connection: WorkerSession, name: str) -> bool:
        """Return whether a connection is the only one with a process of the host."""
        if name in self._serving:
            return False
        self._serving[name] = connection
        self.failures = self._useless = 0
        self._warned = ""
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


class _WebSocket:
    """A channel over a WebSocket."""

    def __init__(self, connection: ClientConnection) -> None:
        self._connection = connection

    async def send(self, message: str | bytes) -> None:
        try:
            await self._connection.send(message)
        except ConnectionClosed as error:
            raise ConnectionResetError(str(error)) from None

    async def receive(self) -> str | bytes:
        try:
            return await self._connection.recv()
        except ConnectionClosed as error:
            raise ConnectionResetError(str(error)) from None

    def abort(self) -> None:
        self._connection.transport.abort()


async def _dial(plan: WorkerPlan, session: WorkerSession) -> None:
    """Dial in, and serve until the connection or the process ends. Raises what keeps it from doing so."""
    dialling = connect(
        plan.url,
        additional_headers=plan.headers,
        max_size=MAX_WORKER_MESSAGE,
        compression=None,
        ping_interval=None,
        open_timeout=HELLO_S,
        close_timeout=1,
    )
    async with dialling as connection:
        await session.serve_over(_WebSocket(connection))


def _read_denial(error: InvalidStatus) -> WorkerRefused | None:
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
