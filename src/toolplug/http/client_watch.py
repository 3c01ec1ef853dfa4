"""Cancels the work for a client that hangs up."""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Self

from starlette.types import Receive


class ClientWatch:
    """Inside this scope the current task is cancelled when the client disconnects; then the scope ends quietly.

    The request's body must have been read. Nothing is watched before the work has suspended once, so that work which
    never does pays nothing.
    """

    __slots__ = ("_handle", "_receive", "_task", "_watcher", "gone")

    def __init__(self, receive: Receive) -> None:
        self.gone: bool = False
        self._receive = receive
        self._handle: asyncio.Handle | None = None
        self._watcher: asyncio.Task[None] | None = None

    def __enter__(self) -> Self:
        loop = asyncio.get_running_loop()
        self._task = asyncio.current_task(loop)
        self._handle = loop.call_soon(self._begin)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        if self._handle is not None:
            self._handle.cancel()
        if self._watcher is not None:
            self._watcher.cancel()
        if not self.gone or self._task is None:
            return False
        return self._task.uncancel() == 0 and kind is asyncio.CancelledError

    def hang_up(self) -> None:
        """Take the client for gone."""
        self.gone = True
        if self._task is not None:
            self._task.cancel()

    def _begin(self) -> None:
        self._handle = None
        self._watcher = asyncio.get_running_loop().create_task(self._watch(), name="toolplug-client-watch")

    async def _watch(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self.hang_up()
