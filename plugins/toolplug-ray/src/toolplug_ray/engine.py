"""The host's side: a Ray driver in a process of its own, and the messages of each of its actors."""

from __future__ import annotations

import asyncio
import logging
import socket
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from toolplug.apart import Engine, Serve
from toolplug_ray.messages import BEGIN, DATA, END, REASON, TEXT, read_message, write_message

_LOG = logging.getLogger("toolplug.providers")
END_S = 0.5
"""Seconds in which a driver whose sockets are closed ends the actors; Ray ends those of one that is killed."""
PAUSE_S = 1.0
"""Seconds between two sessions with one actor, such as one that was refused."""


class RaySettings(BaseModel):
    """The settings of an entry, `run: {ray: {…}}`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    address: str = Field("auto", description="of the cluster: auto is the one that this machine is a node of")
    replicas: int = Field(1, ge=1, le=256, description="workers")
    num_gpus: float = Field(0, ge=0, description="GPUs of each worker; a part of one is shared")
    num_cpus: float = Field(1, ge=0, description="processors that Ray reserves for each")
    resources: Mapping[str, float] = Field(default_factory=dict, description="other resources of each, by name")
    folder: str = Field(".", description="where the files of the entry are on the nodes")


def make_engine(key: str, settings: Mapping[str, object]) -> Engine:
    """Return the engine of an entry. Raises `ValueError` for settings that are not valid."""
    try:
        return RayEngine(key, RaySettings.model_validate(dict(settings)))
    except ValidationError as error:
        wrong = error.errors()[0]
        name = ".".join(map(str, wrong["loc"]))
        if wrong["type"] == "extra_forbidden":
            raise ValueError(f"unknown setting {name!r}; known: {', '.join(RaySettings.model_fields)}") from None
        raise ValueError(f"{name}: {wrong['msg']}") from None


class RayEngine:
    """Keeps `replicas` actors, which Ray places, and starts again when they end."""

    def __init__(self, key: str, settings: RaySettings) -> None:
        self._key = key
        self._settings = settings

    async def run(self, serve: Serve) -> None:
        """Have actors, and serve with each, until this is cancelled; then end them.

        Raises `RuntimeError` with what the driver has written, when that ends.
        """
        with ExitStack() as life:
            pairs = [socket.socketpair() for _ in range(self._settings.replicas)]
            for each in (each for pair in pairs for each in pair):
                life.callback(each.close)
            theirs = [pair[1].fileno() for pair in pairs]
            words = ["-m", "toolplug_ray.driver", self._key, self._settings.model_dump_json(), *map(str, theirs)]
            driver = await asyncio.create_subprocess_exec(sys.executable, *words, stderr=PIPE, pass_fds=theirs)
            for pair in pairs:
                pair[1].close()
            try:
                async with asyncio.TaskGroup() as group:
                    for number, (ours, _) in enumerate(pairs):
                        group.create_task(self._keep(ours, number, serve))
                    group.create_task(_watch(driver))
            except* RuntimeError as errors:
                raise errors.exceptions[0] from None
            finally:
                await _end(driver)

    async def _keep(self, ours: socket.socket, number: int, serve: Serve) -> None:
        """Serve with one actor, again after Ray has started it again."""
        reader, writer = await asyncio.open_unix_connection(sock=ours)
        told = ""
        try:
            while True:
                write_message(writer, BEGIN)
                kind = END
                while kind != BEGIN:
                    kind, data = await read_message(reader)
                    if kind in (REASON, END) and data and data.decode() != told:
                        told = data.decode()
                        _LOG.warning("provider %r: actor %d: %s", self._key, number, told)
                channel = _Channel(reader, writer)
                await serve(channel.receive, channel.send)
                if channel.ended_for:
                    _LOG.warning("provider %r: actor %d: %s", self._key, number, channel.ended_for)
                await asyncio.sleep(PAUSE_S)
        except (EOFError, ConnectionError):
            return  # `_watch` says why
        finally:
            writer.close()


class _Channel:
    """The messages of one session with an actor."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self.ended_for: str = ""

    async def receive(self) -> Mapping[str, Any]:
        """Return the next message; the last one says that the session has ended."""
        try:
            kind, data = await read_message(self._reader)
        except (EOFError, ConnectionError):
            return {"type": "websocket.disconnect"}
        if kind == END:
            self.ended_for = data.decode()
            return {"type": "websocket.disconnect"}
        if kind == TEXT:
            return {"type": "websocket.receive", "text": data.decode()}
        return {"type": "websocket.receive", "bytes": data}

    async def send(self, message: Mapping[str, Any]) -> None:
        """Send a message, once there is room for it."""
        data = message.get("bytes")
        if data is None:
            write_message(self._writer, TEXT, message["text"].encode())
        else:
            write_message(self._writer, DATA, data)
        with suppress(ConnectionError):
            await self._writer.drain()


async def _watch(driver: Process) -> None:
    """Raise `RuntimeError` when the driver ends, with the last line that it wrote."""
    assert driver.stderr is not None
    written = b""
    while chunk := await driver.stderr.read(4096):
        written = (written + chunk)[-4096:]
    lines = [line.strip() for line in written.decode(errors="replace").splitlines() if line.strip()]
    raise RuntimeError(
        f"its Ray driver has ended ({await driver.wait()}): {lines[-1] if lines else 'it wrote nothing'}"
    )


async def _end(driver: Process) -> None:
    """End a driver whose sockets are closed."""
    with suppress(TimeoutError):
        async with asyncio.timeout(END_S):
            await driver.wait()
    with suppress(ProcessLookupError):
        driver.kill()
    await driver.wait()
