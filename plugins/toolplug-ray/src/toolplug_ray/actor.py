"""The actor: a worker on a node of Ray, whose messages are results and arguments of its methods."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path

from toolplug.apart import WorkerRefused, WorkerSession

QUEUED = 64
"""Messages of at most 64 KiB that wait for the host; the provider's process waits after that."""


class _Queues:
    """A channel of two queues."""

    def __init__(self) -> None:
        self.up: asyncio.Queue[str | bytes | None] = asyncio.Queue(QUEUED)
        self.down: asyncio.Queue[str | bytes | None] = asyncio.Queue(QUEUED)

    async def send(self, message: str | bytes) -> None:
        """Send a message to the host."""
        await self.up.put(message)

    async def receive(self) -> str | bytes:
        """Return the host's next message. Raises `ConnectionResetError` at the end."""
        message = await self.down.get()
        if message is None:
            raise ConnectionResetError("the host is gone")
        return message

    def abort(self) -> None:
        """End the session."""
        with suppress(asyncio.QueueFull):
            self.down.put_nowait(None)


class RayWorker:
    """Runs the provider of an entry in a process of its own, on the node where Ray has started this actor."""

    def __init__(self, key: str, folder: str) -> None:
        self._key = key
        self._folder = Path(folder).absolute()
        self._queues = _Queues()
        self._session: asyncio.Task[None] | None = None

    async def begin(self) -> None:
        """Begin a session with the host; one that runs ends."""
        await self.end()
        self._queues = _Queues()
        self._session = asyncio.create_task(self._serve(self._queues))

    async def end(self) -> None:
        """End the session that runs, with the process of the provider."""
        if self._session is not None:
            self._session.cancel()
            await asyncio.gather(self._session, return_exceptions=True)

    async def take(self) -> list[str | bytes | None]:
        """Return the messages for the host, once there are some; None is the end."""
        queue = self._queues.up
        found = [await queue.get()]
        while not queue.empty() and len(found) < QUEUED:
            found.append(queue.get_nowait())
        return found

    async def put(self, message: str | bytes) -> None:
        """Take a message of the host."""
        await self._queues.down.put(message)

    async def _serve(self, queues: _Queues) -> None:
        session = WorkerSession(self._key, self._folder, lambda session, name: True, lambda names: None)
        try:
            with suppress(WorkerRefused, ConnectionError, TimeoutError):
                await session.serve_over(queues)
        finally:
            await queues.up.put(None)
