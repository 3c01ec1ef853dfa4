"""A lease that keeps a second process from serving the same store on the network, as `serving_lock` does for a file."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import socket
from contextlib import suppress
from types import TracebackType
from typing import Self
from uuid import uuid4

from toolplug.errors import StoreConflict, StoreError, StoreInUse
from toolplug.stores.store import Record, Store

KEY = "~serving"
TTL_S = 6.0
RENEW_S = 2.0
_POLL_S = 0.25
_LOG = logging.getLogger("toolplug.stores")


class ServingLease:
    """The right to serve a store, a record that expires 6 s after the end of its process; used in `async with`.

    `store` is open. `scheme` names it in messages, since its URL may hold a password. Entering waits for the end of
    another process for `wait_s` seconds, at least as long as a lease without process lasts, then raises `StoreInUse`.
    """

    def __init__(self, store: Store, scheme: str, *, wait_s: float) -> None:
        self._store = store
        self._name = f"the {scheme} store"
        self._wait_s = max(wait_s, TTL_S + 1)
        self._process = uuid4().hex
        self._value = json.dumps({"process": self._process, "host": socket.gethostname(), "pid": os.getpid()}).encode()
        self._renewing: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        """Take the lease. Raises `StoreInUse` and other `StoreError`s."""
        loop = asyncio.get_running_loop()
        give_up_at, warned = loop.time() + self._wait_s, False
        while (holder := await self._taken()) is not None:
            error = StoreInUse(self._name, *_named(holder))
            if loop.time() >= give_up_at:
                raise error
            if not warned:
                warned = True
                _LOG.warning("%s; waiting up to %g s for its end", error.what, self._wait_s)
            await asyncio.sleep(_POLL_S)
        self._renewing = asyncio.create_task(self._renew(), name="toolplug-serving-lease")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Give the lease back."""
        if self._renewing is not None:
            self._renewing.cancel()
            await asyncio.gather(self._renewing, return_exceptions=True)
        with suppress(StoreError):
            record = await self._store.read(KEY)
            if record is not None and self._mine(record):
                await self._store.commit(KEY, None, expected=record.revision)

    async def _taken(self) -> Record | None:
        """Take the lease or renew it, and return None; return the record of another process that has it."""
        while True:
            record = await self._store.read(KEY)
            if record is not None and not self._mine(record):
                return record
            expected = 0 if record is None else record.revision
            with suppress(StoreConflict):
                await self._store.commit(KEY, self._value, expected=expected, ttl_s=TTL_S)
                return None

    async def _renew(self) -> None:
        warned = False
        while True:
            await asyncio.sleep(RENEW_S)
            try:
                holder = await self._taken()
            except StoreError as error:
                _LOG.warning("the lease of %s could not be renewed: %s", self._name, error)
                continue
            if holder is not None and not warned:
                pid, host = _named(holder)
                _LOG.error("%s is now also served by process %d on %s: stop one of them", self._name, pid, host)
            warned = holder is not None

    def _mine(self, record: Record) -> bool:
        return json.loads(record.value)["process"] == self._process


def _named(record: Record) -> tuple[int, str]:
    """Return the id of the process that has the lease, and the name of its machine or container."""
    value = json.loads(record.value)
    return int(value["pid"]), str(value["host"])
