"""The Ray driver of an entry: it starts the actors, and carries their messages to the host.

It is a process of its own, since Ray ends the process of a driver a minute after it has lost the head of the cluster,
and the host must outlive that. It ends with the host.
"""

from __future__ import annotations

import asyncio
import json
import socket
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from typing import Any

from toolplug_ray.actor import RayWorker
from toolplug_ray.messages import BEGIN, DATA, END, REASON, TEXT, read_message, write_message

# Where the types are checked Ray is not installed: it is larger than all else together.
ray: Any = import_module("ray")
RayError: type[Exception] = import_module("ray.exceptions").RayError

NAMESPACE = "toolplug"
PAUSE_S = 1.0
"""Seconds until an actor that was lost is asked again: Ray starts it in about two."""
PLACED_S = 30.0
"""Seconds after which an actor that Ray has not placed is reported; a new one takes about three."""


class _Actor:
    """One actor, and the socket to the host."""

    def __init__(self, handle: Any, needs: str, writer: asyncio.StreamWriter) -> None:
        self._handle = handle
        self._needs = needs
        self._writer = writer

    async def serve(self, reader: asyncio.StreamReader) -> None:
        """Carry messages until the host closes the socket."""
        session: asyncio.Task[None] | None = None
        try:
            while True:
                kind, data = await read_message(reader)
                if kind == BEGIN:
                    await _cancel(session)
                    session = asyncio.create_task(self._carry())
                    continue
                # One after the other: an actor takes calls in no order. One that is lost ends the session.
                with suppress(RayError):
                    await self._handle.put.remote(data.decode() if kind == TEXT else data)
        except (EOFError, ConnectionError):
            return
        finally:
            await _cancel(session)

    async def _carry(self) -> None:
        """Begin a session once there is an actor, and send the host its messages until it ends."""
        while not await self._begin():
            pass
        write_message(self._writer, BEGIN)
        reason = ""
        try:
            while True:
                for message in await self._handle.take.remote():
                    if message is None:
                        return
                    is_text = isinstance(message, str)
                    write_message(self._writer, TEXT if is_text else DATA, message.encode() if is_text else message)
                await self._writer.drain()
        except RayError as error:
            reason = _first_line(error)
        finally:
            write_message(self._writer, END, reason.encode())

    async def _begin(self) -> bool:
        """Return whether a session has begun; after a pause if there is no actor."""
        begun = asyncio.ensure_future(_answer_of(self._handle.begin.remote()))
        try:
            if not (await asyncio.wait({begun}, timeout=PLACED_S))[0]:
                text = f"Ray has not placed it in {PLACED_S:g} s: it waits for a node with {self._needs} free"
                write_message(self._writer, REASON, text.encode())
            await begun
        except RayError as error:
            write_message(self._writer, REASON, _first_line(error).encode())
            await asyncio.sleep(PAUSE_S)
            return False
        finally:
            begun.cancel()
        return True


async def _answer_of(answer: Any) -> None:
    await answer


async def _cancel(task: asyncio.Task[None] | None) -> None:
    if task is not None:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def _first_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0] if lines else 'no text'}"[:2000]


async def run_driver(key: str, settings: Mapping[str, Any], sockets: Sequence[socket.socket]) -> None:
    """Have an actor for each socket, until the host has closed them."""
    needs = {name: settings[name] for name in ("num_cpus", "num_gpus") if settings[name]} | settings["resources"]
    shown = ", ".join(f"{name} {amount:g}" for name, amount in needs.items()) or "a place"
    made: Any = ray.remote(RayWorker).options(
        num_gpus=settings["num_gpus"],
        num_cpus=settings["num_cpus"],
        resources=settings["resources"],
        max_restarts=-1,
        # A call is a message here: one that is lost must not be sent again.
        max_task_retries=0,
    )
    handles = [made.remote(key, settings["folder"]) for _ in sockets]
    try:
        async with asyncio.TaskGroup() as group:
            for handle, each in zip(handles, sockets, strict=True):
                reader, writer = await asyncio.open_unix_connection(sock=each)
                group.create_task(_Actor(handle, shown, writer).serve(reader))
    finally:
        for handle in handles:
            ray.kill(handle)


def main() -> None:
    """Run the driver: the key, the settings as JSON and the numbers of the sockets are its arguments."""
    key, settings = sys.argv[1], json.loads(sys.argv[2])
    sockets = [socket.socket(fileno=int(number)) for number in sys.argv[3:]]
    try:
        ray.init(settings["address"], namespace=NAMESPACE, log_to_driver=False, configure_logging=False)
    except (RayError, ConnectionError, RuntimeError, ValueError) as error:
        named = f"the cluster {settings['address']} (address of run.ray; `ray status` says how it is)"
        sys.exit(f"cannot join {named}: {_first_line(error)}")
    asyncio.run(run_driver(key, settings, sockets))


if __name__ == "__main__":
    main()
