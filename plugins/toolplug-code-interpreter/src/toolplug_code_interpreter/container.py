"""One container: code run in it and files read and written, one after the other; between that it is stopped."""

from __future__ import annotations

import asyncio
import errno
import time
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from secrets import token_hex
from typing import Literal, NamedTuple

from toolplug_code_interpreter.output import Output
from toolplug_code_interpreter.sandbox.bubblewrap import WORKING_FOLDER, Sandbox, complete
from toolplug_code_interpreter.sandbox.channel import Answer, Channel, ChannelBroken, FoundFile
from toolplug_code_interpreter.sandbox.processes import interrupt, stop_all
from toolplug_code_interpreter.sandbox.watch import Watch
from toolplug_code_interpreter.settings import Settings

CHUNK = 512 * 1024

_GRACE_S = 1.0
"""Seconds in which code that is interrupted can end, so that the container's state stays."""
_FILE_S = 10.0
_FULL = frozenset({errno.ENOSPC, errno.EFBIG, errno.EDQUOT})


class ContainerEnded(Exception):
    """The container is no more; the text says why."""


class FileRefused(Exception):
    """A file cannot be read or written; the text says why. `full`: the container has no room for it."""

    def __init__(self, why: str, *, full: bool = False) -> None:
        self.full = full
        super().__init__(why)


@dataclass(frozen=True, slots=True)
class ContainerFile:
    """A file in the working folder. `changed_ns` is its own time of the last change."""

    id: str
    path: str
    bytes: int
    created_at: int
    source: Literal["user", "assistant"]
    changed_ns: int


class Outcome(NamedTuple):
    """What a run of code has come to.

    `text` is the last value, or the exception. `stopped` says which limit it was over, None for none. `changed` are the
    files that are new or changed.
    """

    ok: bool
    text: str
    stdout: str
    stderr: str
    stopped: str | None
    changed: Sequence[ContainerFile]


class Container:
    """A sandbox, its files by path, and what is known of it. `ended` says why it is no more, None while it is."""

    def __init__(self, sandbox: Sandbox, settings: Settings, watch: Watch) -> None:
        self.files: Mapping[str, ContainerFile] = {}
        self.ended: str | None = None
        self._sandbox = sandbox
        self._settings = settings
        self._watch = watch
        self._channel = Channel(sandbox.reader, sandbox.writer, max_payload=max(int(settings.output), CHUNK))
        self._lock = asyncio.Lock()
        self._stop: asyncio.Future[str] | None = None
        self._closing: asyncio.Task[None] | None = None

    @property
    def busy(self) -> bool:
        """True while something runs in it."""
        return self._lock.locked()

    async def run(self, code: str, within_s: float) -> Outcome:
        """Run code, for so many seconds. Raises `ContainerEnded`. If the call is cancelled, the code is stopped."""
        running = asyncio.create_task(self._run(code, within_s), name="code-interpreter-run")
        try:
            return await asyncio.shield(running)
        except asyncio.CancelledError:
            self._stop_code("the call was cancelled")
            running.add_done_callback(_retrieve_exception)
            raise

    async def read(self, path: str) -> AsyncGenerator[bytes]:
        """Yield the content of a file. Raises `FileRefused` and `ContainerEnded`."""
        offset = 0
        while True:
            asked = {"op": "read", "path": path, "offset": offset, "count": CHUNK}
            async with self._awake():  # for each piece: a slow reader keeps nothing running
                piece = (await self._file_asked(asked)).payload
            if not piece:
                return
            yield piece
            offset += len(piece)

    async def write(self, path: str, content: AsyncGenerator[bytes]) -> ContainerFile:
        """Write a file of the user. Raises `FileRefused` and `ContainerEnded`."""
        async with self._awake():
            try:
                await self._write(path, content)
            except FileRefused as error:
                if error.full:
                    await self._ask_in_time({"op": "delete", "path": path})
                raise
            finally:
                self.files = {name: file for name, file in self.files.items() if name != path}
                await self._look("user")
        try:
            return self.files[path]
        except KeyError:
            raise FileRefused(f"{path!r} is not a file") from None

    async def delete(self, path: str) -> None:
        """Delete a file. Raises `FileRefused` and `ContainerEnded`."""
        async with self._awake():
            await self._file_asked({"op": "delete", "path": path})
            await self._look("assistant")

    async def end(self, why: str) -> None:
        """End it and all its processes. The first reason stays."""
        if self.ended is None:
            self.ended = why
        if self._closing is None:
            self._closing = asyncio.create_task(self._close(), name="code-interpreter-close")
        await complete(self._closing)

    async def _close(self) -> None:
        await self._watch.remove(self._sandbox.init)
        await self._sandbox.close()

    async def _run(self, code: str, within_s: float) -> Outcome:
        async with self._awake():
            self._stop = asyncio.get_running_loop().create_future()
            limit = self._settings.output
            output = Output(
                self._sandbox.stdout,
                self._sandbox.stderr,
                int(limit),
                lambda: self._stop_code(f"it wrote more than {limit.human_readable()}"),
            )
            with output.reading():
                answer, stopped = await self._ask(code, within_s)
            changed = await self._look("assistant")
            await self._watch.remove(self._sandbox.init)  # it lets processes that it has stopped go on
            if not await stop_all(self._sandbox.init):
                raise ChannelBroken("its processes do not stop")
            output.drain()
        stdout, stderr = output.texts
        text = answer.payload[: output.left].decode("utf-8", "replace")
        return Outcome(answer.head.ok, text, stdout, stderr, stopped, changed)

    async def _ask(self, code: str, within_s: float) -> tuple[Answer, str | None]:
        """Return the answer, and why the code was stopped, if it was."""
        stop = self._stop
        assert stop is not None
        answer = asyncio.create_task(self._channel.ask({"op": "run"}, code.encode()))
        try:
            await asyncio.wait({answer, stop}, timeout=within_s, return_when=asyncio.FIRST_COMPLETED)
            if answer.done():
                return answer.result(), None
            why = stop.result() if stop.done() else f"it ran for more than {within_s:g} s"
            interrupt(self._sandbox.init, self._sandbox.worker)
            await asyncio.wait({answer}, timeout=_GRACE_S)
            if not answer.done():
                raise ChannelBroken(f"{why}, and could not be interrupted")
            return answer.result(), why
        finally:
            answer.cancel()

    async def _write(self, path: str, content: AsyncGenerator[bytes]) -> None:
        offset = 0
        await self._file_asked({"op": "write", "path": path, "offset": 0})
        async for piece in content:
            await self._file_asked({"op": "write", "path": path, "offset": offset}, piece)
            offset += len(piece)

    def _stop_code(self, why: str) -> None:
        if self._stop is not None and not self._stop.done():
            self._stop.set_result(why)

    async def _look(self, source: Literal["user", "assistant"]) -> Sequence[ContainerFile]:
        """Read which files there are, and return the new and changed ones."""
        answer = await self._ask_in_time({"op": "list"})
        now = int(time.time())
        known = self.files
        files = {found[0]: _file_of(known.get(found[0]), found, source, now) for found in answer.head.files}
        self.files = files
        return [file for path, file in files.items() if known.get(path) != file]

    async def _file_asked(self, asked: Mapping[str, object], payload: bytes = b"") -> Answer:
        answer = await self._ask_in_time(asked, payload)
        if not answer.head.ok:
            said = answer.payload[:200].decode("utf-8", "replace")
            raise FileRefused(f"{asked['path']!r}: {said}", full=answer.head.errno in _FULL)
        return answer

    async def _ask_in_time(self, asked: Mapping[str, object], payload: bytes = b"") -> Answer:
        try:
            async with asyncio.timeout(_FILE_S):
                return await self._channel.ask(asked, payload)
        except TimeoutError:
            raise ChannelBroken("its process does not answer") from None

    @asynccontextmanager
    async def _awake(self) -> AsyncGenerator[None]:
        """Let its processes run, alone for the caller. Raises `ContainerEnded`, also for what goes wrong inside."""
        async with self._lock:
            if self.ended is not None:
                raise ContainerEnded(self.ended)
            self._watch.add(self._sandbox.init, self._end_for, self._sandbox.cgroup)
            failed: ChannelBroken | asyncio.CancelledError | None = None
            try:
                yield
            except (ChannelBroken, asyncio.CancelledError) as error:
                failed = error
                raise
            finally:
                await complete(asyncio.create_task(self._rest(failed), name="code-interpreter-rest"))
                if isinstance(failed, ChannelBroken):
                    raise ContainerEnded(self.ended or "") from None

    async def _rest(self, failed: BaseException | None) -> None:
        """Stop its processes; end it after an error that leaves nothing to go on with."""
        await self._watch.remove(self._sandbox.init)  # before any other reason: notes a limit that it was over
        if failed is not None:
            await self.end(self._reason(failed))
        elif self._closing is None and not await stop_all(self._sandbox.init):
            await self.end("its processes do not stop")

    def _reason(self, error: BaseException) -> str:
        cgroup = self._sandbox.cgroup
        if cgroup is not None and cgroup.has_exceeded():
            return self._watch.memory_exceeded
        return str(error) or "a request was cancelled while it was read or written"

    def _end_for(self, why: str) -> None:
        self.ended = why
        self._sandbox.kill()


def _file_of(
    known: ContainerFile | None, found: FoundFile, source: Literal["user", "assistant"], now: int
) -> ContainerFile:
    path, size, changed_ns = found
    if known is None:
        return ContainerFile(f"cfile_{token_hex(16)}", path, size, now, source, changed_ns)
    return replace(known, bytes=size, changed_ns=changed_ns)


def full_path(file: ContainerFile) -> str:
    """Return where code finds the file."""
    return f"{WORKING_FOLDER}/{file.path}"


def _retrieve_exception(task: asyncio.Task[Outcome]) -> None:
    """Retrieve the exception of a run whose caller has gone."""
    if not task.cancelled():
        task.exception()
