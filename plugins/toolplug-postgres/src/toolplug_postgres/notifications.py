"""Wake-ups by NOTIFY: what is sent along with a commit, and the connection that listens."""

from __future__ import annotations

import asyncio
import json
import logging
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from contextlib import suppress
from time import monotonic, time

import asyncpg

from toolplug.errors import StoreError, StoreUnavailable
from toolplug.runtime import LoopTimeout
from toolplug.stores import Change, Event
from toolplug_postgres.connection import ServerConnection
from toolplug_postgres.server import DRIVER_ERRORS, Server

# PostgreSQL takes 7,999 bytes, and 63 for the name of a channel.
_MAX_PAYLOAD = 7900
_MAX_ID = 22
# Shorter than a start may take, so that it can say why.
_HELLO_S = 1.2
_BEAT_S = 2.0
_PAUSE_S = 0.1
_HELLO = "hello"
_LOG = logging.getLogger("toolplug.stores")
_CLOCK = "SELECT extract(epoch FROM clock_timestamp())::float8"


def channel_of(schema: str, to: str | None) -> str:
    """Return the channel of one store object, by its id, or of all that use a schema."""
    return schema if to is None else f"{schema}.{to}"


def notifications(schema: str, by: str, changes: Iterable[tuple[Change, Set[str | None]]]) -> Iterator[tuple[str, str]]:
    """Yield channels and payloads for changes and the ids of the stores that need to hear of them, `None` for all.

    A payload has as many changes as it can hold. Values and events that do not fit into one are left out.
    """
    texts: dict[str, list[str]] = {}
    for change, to in changes:
        for one in {None} if None in to else to - {by}:
            if one is None or len(one.encode()) <= _MAX_ID:
                texts.setdefault(channel_of(schema, one), []).append(_text(change))
    for channel, all_texts in texts.items():
        for packed in _pack(all_texts):
            yield channel, f'{{"by":"{by}","changes":[{packed}]}}'


def _pack(texts: Iterable[str]) -> Iterator[str]:
    packed = ""
    for text in texts:
        if packed and len(packed) + len(text) > _MAX_PAYLOAD - 100:
            yield packed
            packed = ""
        packed = f"{packed},{text}" if packed else text
    if packed:
        yield packed


def _text(change: Change) -> str:
    value = None if change.value is None else b64encode(change.value).decode()
    events = None if change.events is None else [[event.id, b64encode(event.data).decode()] for event in change.events]
    for kept in ((value, events), (value, None), (None, None)):
        text = json.dumps([change.key, change.revision, *kept], separators=(",", ":"))
        if len(text) <= _MAX_PAYLOAD - 100:
            break
    return text


def _change(key: str, revision: int, value: str | None, events: list[tuple[int, str]] | None) -> Change:
    return Change(
        key,
        revision,
        None if value is None else b64decode(value),
        None if events is None else tuple(Event(at, b64decode(data)) for at, data in events),
    )


class Listener:
    """Listens on the channel of one store object and on that of all, and measures the clock of the server.

    `heard` is called with the changes of others, `missed` when the connection was lost, and when it is there again.
    """

    def __init__(
        self, server: Server, by: str, *, heard: Callable[[Sequence[Change]], None], missed: Callable[[], None]
    ) -> None:
        self._server = server
        self._by = by
        self._heard = heard
        self._missed = missed
        self._link = ServerConnection(server)
        self._listening: asyncpg.Connection[asyncpg.Record] | None = None
        self._hello = asyncio.Event()
        self._ended = asyncio.Event()
        self._offset_s = time() - monotonic()
        self._task: asyncio.Task[None] | None = None

    def now(self) -> float:
        """Return the time on the clock of the server, measured every two seconds; before that, on the own clock."""
        return monotonic() + self._offset_s

    async def start(self) -> None:
        """Listen, until `aclose`. Raises `StoreError`."""
        await self._beat()
        self._task = asyncio.create_task(self._run(), name="toolplug-postgres-listener")

    async def aclose(self) -> None:
        """Stop listening."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
        await self._link.aclose()

    async def _run(self) -> None:
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(_BEAT_S):
                    await self._ended.wait()
            try:
                new = await self._beat()
            except StoreError as error:
                _LOG.error("the store cannot be used: %s", error)
                self._missed()
                await self._recover()
                _LOG.warning("%s answers again", self._server.place)
                new = True
            if new:
                self._missed()

    async def _recover(self) -> None:
        while True:
            await asyncio.sleep(_PAUSE_S)
            with suppress(StoreError):
                await self._beat()
                return

    async def _beat(self) -> bool:
        """Measure the clock, and return whether the connection is a new one, so that something may have been missed."""
        connection = await self._link.connect()
        new = connection is not self._listening
        if new:
            await self._listen(connection)
        before = monotonic()
        ((clock,),) = await self._link.fetch(_CLOCK)
        self._offset_s = clock - (before + monotonic()) / 2
        return new

    async def _listen(self, connection: asyncpg.Connection[asyncpg.Record]) -> None:
        self._hello.clear()
        self._ended.clear()
        own = channel_of(self._server.schema, self._by)
        try:
            async with LoopTimeout(_HELLO_S):
                for channel in (own, channel_of(self._server.schema, None)):
                    await connection.add_listener(channel, self._receive)
                connection.add_termination_listener(self._end)
                await connection.execute("SELECT pg_notify($1, $2)", own, _HELLO)
                await self._hello.wait()
        except TimeoutError:
            self._link.drop()
            raise StoreUnavailable(
                f"{self._server.place} delivers no notifications; name the server itself in `store`, not a connection "
                "pool such as PgBouncer"
            ) from None
        except DRIVER_ERRORS as error:
            self._link.drop()
            raise self._server.error(error) from None
        self._listening = connection

    def _end(self, _: object) -> None:
        self._ended.set()

    def _receive(self, _connection: object, _pid: int, _channel: str, payload: object) -> None:
        if payload == _HELLO:
            self._hello.set()
            return
        try:
            message = json.loads(str(payload))
            changes = [] if message["by"] == self._by else [_change(*change) for change in message["changes"]]
        except (ValueError, TypeError, KeyError):
            # Of a toolplug that writes otherwise: the records themselves are read again.
            self._missed()
            return
        self._heard(changes)
