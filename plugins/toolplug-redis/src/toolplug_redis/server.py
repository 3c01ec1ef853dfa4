"""The server or cluster of a store: commands within two seconds, and one connection that listens for changes."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections import deque
from collections.abc import Awaitable, Callable, Generator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, TypeVar

from redis.asyncio import RedisCluster
from redis.exceptions import (
    AuthenticationError,
    AuthorizationError,
    NoPermissionError,
    NoScriptError,
    RedisClusterException,
    RedisError,
    ResponseError,
)

from toolplug.errors import StoreRefused, StoreUnavailable
from toolplug.runtime import LoopTimeout
from toolplug_redis.address import WAIT_S, Address
from toolplug_redis.scripts import CHANGE, EVENTS, KEYS, REVISIONS, Script

T = TypeVar("T")

OLDEST_VERSION = (6, 2)
CONNECTIONS = 32
"""Commands at once; further ones wait."""
MAX_BATCH = 256
"""Changes in one trip."""
_SILENCE_S = 1.0
_MOST_SILENCES = 2
"""After so many times `_SILENCE_S`, each with a request for a sign of life, the connection counts as lost."""
_FIRST_PAUSE_S = 0.05
_LAST_PAUSE_S = 1.0
_CLOCK_S = 10.0
_LOG = logging.getLogger("toolplug.stores")


@contextmanager
def told_as_store_errors() -> Generator[None]:
    """Raise errors of the client and the server as `StoreError`s, whose messages have nothing of the URL."""
    try:
        yield
    except (AuthenticationError, AuthorizationError, NoPermissionError) as error:
        raise StoreRefused(f"the Redis server refuses the user or the password: {_first_line(error)}") from None
    except ResponseError as error:
        said = _first_line(error)
        if "DB index" in said or "SELECT is not allowed" in said:
            raise StoreRefused(
                f"the Redis server has no such database: {said}; a cluster has database 0 only"
            ) from None
        raise StoreUnavailable(f"the Redis server refuses: {said}") from None
    except (RedisError, RedisClusterException, OSError) as error:
        kind = "TimeoutError" if isinstance(error, TimeoutError) else type(error).__name__
        what = f"the Redis server does not answer within {WAIT_S:g} s ({kind})"
        raise StoreUnavailable(f"{what}; a change that was sent may have been made") from None


class _Change(NamedTuple):
    """A change that is to be made: `made` is called with the reply, and returns or raises the outcome."""

    script: Script
    keys: Sequence[bytes]
    arguments: Sequence[bytes | str | int]
    made: Callable[[list[int]], int]
    outcome: asyncio.Future[int]


class Server:
    """The connections of one store, between `open` and `close`.

    `hear` is called with each message of the channels, and `miss` after messages may have been missed. A command that
    is cancelled or late costs its connection, so that no reply reaches another command.
    """

    def __init__(
        self, address: Address, channels: Sequence[str], hear: Callable[[bytes], None], miss: Callable[[], None]
    ) -> None:
        self._address = address
        self._channels = channels
        self._hear = hear
        self._miss = miss
        self._slots = asyncio.Semaphore(CONNECTIONS)
        self._client: Any = None
        self._listening: asyncio.Task[None] | None = None
        self._changes: deque[_Change] = deque()
        self._changing: asyncio.Task[None] | None = None
        self._offset_s = 0.0

    async def open(self) -> None:
        """Connect and begin to listen. Raises `StoreRefused` and `StoreUnavailable`."""
        first = self._address.client()
        try:
            with told_as_store_errors():
                async with LoopTimeout(WAIT_S):
                    info = await first.info()
                    _check_version(info)
                    _warn_of_eviction(info)
                    self._client = first if not info.get("cluster_enabled") else await self._cluster()
                    if self._client is not first:
                        await first.aclose()
                    self._slots = asyncio.Semaphore(CONNECTIONS)
                    subscribed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
                    self._listening = asyncio.create_task(self._listen(subscribed), name="toolplug-redis-listener")
                    await subscribed
        except BaseException:
            await self.close()
            await first.aclose()
            raise

    async def close(self) -> None:
        """Let the commands that have begun end, and close all connections. A second call does nothing."""
        if self._listening is not None:
            self._listening.cancel()
            await asyncio.gather(self._listening, return_exceptions=True)
            self._listening = None
        if self._changing is not None:
            await self._changing
        client, self._client = self._client, None
        if client is None:
            return
        for _ in range(CONNECTIONS):
            await self._slots.acquire()
        await client.aclose()

    def now(self) -> float:
        """Return the time on the server's clock, in seconds."""
        return time.monotonic() + self._offset_s

    async def run(self, operation: Callable[[Any], Awaitable[T]]) -> T:
        """Return what the operation returns, given the client. It is repeated if the server has lost the scripts."""
        with told_as_store_errors():
            self._check_open()
            async with LoopTimeout(WAIT_S), self._slots:
                self._check_open()
                try:
                    return await operation(self._client)
                except NoScriptError:
                    await self._load_scripts()
                    return await operation(self._client)

    async def call(self, script: Script, keys: Sequence[bytes], arguments: Sequence[bytes | str | int]) -> Any:
        """Return the reply of one script, whose keys are in one slot."""
        return await self.run(
            lambda client: client.execute_command("EVALSHA", script.sha, len(keys), *keys, *arguments)
        )

    async def change(
        self,
        script: Script,
        keys: Sequence[bytes],
        arguments: Sequence[bytes | str | int],
        made: Callable[[list[int]], int],
    ) -> int:
        """Return what `made` returns, given the script's reply.

        Changes are made in the order of the calls. Those that come while others are on their way share the next trip:
        `made` is called in order, too, even if the caller was cancelled.
        """
        self._check_open()
        change = _Change(script, keys, arguments, made, asyncio.get_running_loop().create_future())
        self._changes.append(change)
        if self._changing is None:
            self._changing = asyncio.create_task(self._make_changes(), name="toolplug-redis-changes")
        with told_as_store_errors():
            async with LoopTimeout(WAIT_S):
                return await change.outcome

    async def _make_changes(self) -> None:
        """Make the waiting changes, a batch at a time, until there are none."""
        try:
            while self._changes:
                batch = [self._changes.popleft() for _ in range(min(MAX_BATCH, len(self._changes)))]
                # A cancelled one was not sent, and never will be.
                await self._make([change for change in batch if not change.outcome.done()])
        finally:
            self._changing = None

    async def _make(self, batch: Sequence[_Change]) -> None:
        replies: list[Any]
        try:
            replies = await self.call_each([change[:3] for change in batch], singly=True)
        except Exception as error:  # noqa: BLE001  the callers get it
            replies = [error] * len(batch)
        for change, reply in zip(batch, replies, strict=True):
            try:
                if isinstance(reply, Exception):
                    # The change may have been made nevertheless.
                    self._miss()
                    with told_as_store_errors():
                        raise reply
                outcome = change.made(reply)
            except Exception as error:  # noqa: BLE001  the caller gets it
                if not change.outcome.done():
                    change.outcome.set_exception(error)
            else:
                if not change.outcome.done():
                    change.outcome.set_result(outcome)

    async def call_each(
        self,
        calls: Sequence[tuple[Script, Sequence[bytes], Sequence[bytes | str | int]]],
        *,
        singly: bool = False,
    ) -> list[Any]:
        """Return the replies of scripts, each with its keys and arguments, in one trip to each node.

        `singly`: an error of one is its reply, but for a script that the server has lost.
        """

        async def alone(client: Any) -> list[Any]:
            ((script, keys, arguments),) = calls
            try:
                return [await client.execute_command("EVALSHA", script.sha, len(keys), *keys, *arguments)]
            except ResponseError as error:
                if isinstance(error, NoScriptError) or not singly:
                    raise
                return [error]

        async def pipeline(client: Any) -> list[Any]:
            pipeline = client.pipeline(transaction=False)
            for script, keys, arguments in calls:
                pipeline.execute_command("EVALSHA", script.sha, len(keys), *keys, *arguments)
            replies = await pipeline.execute(raise_on_error=not singly)
            if replies and isinstance(replies[0], NoScriptError):
                raise replies[0]
            return replies

        # A pipeline costs the client more than a command does.
        return await self.run(alone if len(calls) == 1 else pipeline) if calls else []

    def _check_open(self) -> None:
        if self._client is None:
            raise StoreUnavailable("the Redis store is not open")

    async def _cluster(self) -> Any:
        address = self._address
        cluster: Any = RedisCluster(host=address.host, port=address.port, **address.options())
        await cluster.initialize()
        return cluster

    async def _load_scripts(self) -> None:
        client = self._client
        targets = {"target_nodes": RedisCluster.PRIMARIES} if isinstance(client, RedisCluster) else {}
        for script in (CHANGE, EVENTS, KEYS, REVISIONS):
            await client.execute_command("SCRIPT LOAD", script.text, **targets)

    async def _measure_clock(self) -> None:
        targets = {"target_nodes": RedisCluster.RANDOM} if isinstance(self._client, RedisCluster) else {}

        before = time.monotonic()
        seconds, micros = await self.run(lambda client: client.execute_command("TIME", **targets))
        self._offset_s = int(seconds) + int(micros) / 1e6 - (before + time.monotonic()) / 2

    async def _listen(self, subscribed: asyncio.Future[None]) -> None:
        """Listen until the task is cancelled; `subscribed` gets the outcome of the first attempt."""
        pause_s = _FIRST_PAUSE_S
        while True:
            client = self._listener()
            try:
                async with client.pubsub() as pubsub:
                    async with LoopTimeout(WAIT_S):
                        await pubsub.subscribe(*self._channels)
                        for _ in self._channels:
                            await pubsub.get_message(timeout=None)
                        await self._measure_clock()
                    self._miss()
                    if not subscribed.done():
                        subscribed.set_result(None)
                    pause_s = _FIRST_PAUSE_S
                    await self._follow(pubsub)
            except Exception as error:  # noqa: BLE001  whatever ends a connection, the next one begins
                if not subscribed.done():
                    subscribed.set_exception(error)
                    return
                _LOG.debug("the connection for changes of the Redis store was lost: %s", type(error).__name__)
            finally:
                await client.aclose()
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, _LAST_PAUSE_S)

    def _listener(self) -> Any:
        """Return a client of any node, as each node has the messages of all."""
        if isinstance(self._client, RedisCluster):
            node: Any = self._client.get_random_node()
            return self._address.client(node.host, node.port)
        return self._address.client()

    async def _follow(self, pubsub: Any) -> None:
        """Pass on messages until the connection is lost, or silent though it was asked for a sign of life."""
        loop = asyncio.get_running_loop()
        silences, measured_at = 0, loop.time()
        while True:
            message = await pubsub.get_message(timeout=_SILENCE_S)
            if message is None:
                silences += 1
                if silences > _MOST_SILENCES:
                    raise TimeoutError
                async with LoopTimeout(WAIT_S):
                    await pubsub.ping()
                    if loop.time() - measured_at > _CLOCK_S:
                        await self._measure_clock()
                        measured_at = loop.time()
                continue
            silences = 0
            if message["type"] == "message":
                self._hear(message["data"])


def _check_version(info: dict[str, Any]) -> None:
    version = str(info.get("redis_version", "0"))
    numbers = tuple(int(part) if part.isdigit() else 0 for part in version.split(".")[:2])
    if numbers < OLDEST_VERSION:
        oldest = ".".join(map(str, OLDEST_VERSION))
        raise StoreRefused(f"the Redis server has version {version}; the store needs {oldest} or newer, or Valkey")


def _warn_of_eviction(info: dict[str, Any]) -> None:
    policy = str(info.get("maxmemory_policy", "noeviction"))
    if int(info.get("maxmemory", 0)) and policy != "noeviction":
        _LOG.warning(
            "the Redis server removes records when its memory is full: set maxmemory-policy to noeviction, not %s",
            policy,
        )


def _first_line(error: Exception) -> str:
    """Return what the server says, without the script's position."""
    return (str(error).splitlines() or [type(error).__name__])[0].partition(" script: ")[0]


def milliseconds(seconds: float | None) -> str:
    """Return a duration for a script, at least 1; empty for None."""
    return "" if seconds is None else str(max(1, math.ceil(round(seconds * 1000, 3))))
