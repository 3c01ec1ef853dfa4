"""The host's side of a provider whose processes are workers that dial in: a call goes to the least busy of them.

Engines: packages that start the workers of an entry, and carry their messages in place of a WebSocket.

The entry point `NAME` in `toolplug.engines` is for entries with `run: {NAME: {…}}`. It is a function of the key of the
entry and of those settings, which raises `ValueError` for what is wrong with them, and returns an `Engine`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from hashlib import sha256
from itertools import count
from typing import Any, Protocol, cast

from toolplug.apart.connection import HostConnection
from toolplug.apart.frames import CALL, NOTE, PROTOCOL
from toolplug.apart.limits import (
    CLOSE_WORKER_S,
    DESCRIBE_WORKER_S,
    FIRST_PAUSE_S,
    HELLO_S,
    LONGEST_PAUSE_S,
    MAX_NOTE,
    MAX_WORKERS,
    START_WORKER_S,
)
from toolplug.apart.metrics import ProcessMetrics, WorkersMetrics, decode_families
from toolplug.apart.processes import ProcessTarget
from toolplug.apart.provider import NOTHING_OFFERED, ApartProvider
from toolplug.apart.values import NOT_VALID, Head, ProcessCrash, decode_error
from toolplug.apart.workers.link import Receive, Send, WorkerLink, show_text
from toolplug.catalog.call import CallContext, ToolCall
from toolplug.catalog.exact_json import dump_json
from toolplug.config.masking import mask_secrets
from toolplug.config.run_settings import RunSettings, find_engines
from toolplug.crashes import outline_error
from toolplug.errors import ConfigError, ProviderError, ToolUnavailable
from toolplug.providers.entry import ProviderState
from toolplug.runtime.backoff import pause_after

Serve = Callable[[Receive, Send], Awaitable[None]]
"""Serves with one worker until it is gone.

`receive` returns its next message, and `send` sends it one: mappings with the `type` `websocket.receive`, with `bytes`
or `text`, and `websocket.send`; `websocket.disconnect` is the last one. The worker's side is a `WorkerSession`.
"""


class Engine(Protocol):
    """Starts the workers of one entry, again when one of them ends.

    ```python
    from collections.abc import Mapping

    from toolplug.apart import Engine, Serve

    class OneWorker:
        def __init__(self, command: str) -> None:
            self.command = command

        async def run(self, serve: Serve) -> None:
            async with start(self.command) as (receive, send):  # yours: starts a worker, and passes its messages
                await serve(receive, send)

    def make_engine(key: str, settings: Mapping[str, object]) -> Engine:
        if "command" not in settings:
            raise ValueError("command: name the command of the worker")
        return OneWorker(str(settings["command"]))
    ```
    """

    async def run(self, serve: Serve) -> None:
        """Have workers, and call `serve` with each of them, until this is cancelled; then end them.

        Whatever it raises is logged, and it is called again after a pause.
        """
        ...


def make_engine(owner: str, key: str, run: RunSettings) -> Engine | None:
    """Return the engine of an entry; None for workers that dial in by themselves. Raises `ProviderError`."""
    if run.engine is None:
        return None
    name, settings = run.engine
    try:
        make = cast("Callable[[str, Mapping[str, object]], Engine]", find_engines()[name].load())
        return make(key, settings)
    except ValueError as error:
        text, at = f"the engine {name}: {error}", ("run", name)
        raise ProviderError(text, state=ProviderState.CONFIG_INVALID, fix="correct its settings", at=at) from None
    except Exception as error:
        text = f"{owner}: the engine {name} cannot be used: {outline_error(error)}"
        raise ProviderError(text, state=ProviderState.IMPORT_FAILED, fix="update its package") from error


_LOG = logging.getLogger("toolplug.providers")


class WorkerConnection(HostConnection):
    """The connection with the process of one worker, which knows how far the messages of calls have got."""

    def __init__(self, link: WorkerLink, *given: Any) -> None:
        super().__init__(*given)
        self._link = link

    def send(self, kind: bytes, head: Any, body: bytes = b"") -> None:
        """Send a message; after the end it is dropped."""
        super().send(kind, head, body)
        if kind == CALL:
            self._link.note_call(head["id"])


@dataclass(slots=True, kw_only=True, eq=False)
class Worker:
    """A worker that serves calls. `offering` is a digest of what it lists, `used` the turn of its last call."""

    name: str
    link: WorkerLink
    connection: WorkerConnection
    metrics: ProcessMetrics
    offered: Head
    offering: str
    used: int = 0


class DialledProvider(ApartProvider):
    """Runs a provider in the workers that dial in to this process of the host.

    It offers what the worker that came last lists; workers that list something else get no calls, until those that
    list it are gone. `restarting` is why no call can run, empty while a worker is there.
    """

    def __init__(self, target: ProcessTarget, engine: Engine | None = None) -> None:
        super().__init__(target, None)
        self._engine = engine
        self._running_engine: asyncio.Task[None] | None = None
        self.restarting: str = _WAITING
        self._workers: list[Worker] = []
        self._links: set[WorkerLink] = set()
        self._offering = ""
        self._turns = count(1)
        self._sum = WorkersMetrics(target.key, lambda: len(self._workers))
        self._closed = False

    async def start(self, site: Any) -> None:
        """Take workers from now on; the provider starts in each of them.

        Until the first has dialled in, the hooks that `run.hooks` grants are out of reach, and refuse what they decide.
        """
        self._site = site
        granted = self._target.confinement.run.hooks
        if granted:
            # Until a worker has listed its own: a check that is to see every call must not miss the first ones.
            self._offer({**NOTHING_OFFERED, "hooks": [[name, False, False] for name in granted]})
        self._watch_closing(site)
        if self._engine is not None:
            self._running_engine = asyncio.create_task(
                self._run_engine(self._engine), name=f"toolplug-engine-{self.key}"
            )

    async def _run_engine(self, engine: Engine) -> None:
        failures = 0
        while True:
            failures += 1
            try:
                await engine.run(self._serve_engine)
                reason = "it has ended"
            except Exception as error:  # noqa: BLE001  code of a package
                reason = f"{type(error).__name__}: {error}"[:MAX_NOTE]
            pause = pause_after(failures, FIRST_PAUSE_S, LONGEST_PAUSE_S)
            _LOG.error("provider %r: its engine: %s; it is run again in %.3g s", self.key, reason, pause)
            if not self._workers:
                self.restarting = f"{_WAITING}; its engine: {reason}"
                self._site.changed()
            await asyncio.sleep(pause)

    async def _serve_engine(self, receive: Receive, send: Send) -> None:
        await self.serve(WorkerLink(receive, send), "host")

    def collectors(self) -> Sequence[Any]:
        """Return the sum of the workers' metrics."""
        return [self._sum]

    @property
    def down_as(self) -> tuple[ProviderState, str]:
        """The state without a worker, and how to start one."""
        if self._engine is not None:
            return ProviderState.WAITING, "its engine starts them; the log of the host says what keeps it from that"
        return ProviderState.WAITING, f"start one: toolplug worker {self.key} --host URL"

    @property
    def dials_in(self) -> bool:
        """Whether its workers dial in by themselves."""
        return self._engine is None

    @property
    def workers(self) -> Sequence[Worker]:
        """The workers that have started the provider."""
        return self._workers

    @property
    def connection(self) -> HostConnection:
        """The connection with the least busy worker. Raises `ToolUnavailable`."""
        able = [
            each
            for each in self._workers
            if each.offering == self._offering and each.connection.lost is None and not each.link.draining.is_set()
        ]
        if not able:
            text = f"{self.restarting or _WAITING}: {self.down_as[1].removeprefix('start one: ')}"
            raise ToolUnavailable(text, code="no_worker", retry_after_s=1.0)
        worker = min(able, key=lambda each: (each.connection.load, each.used))
        worker.used = next(self._turns)
        return worker.connection

    async def execute(self, call: ToolCall, context: CallContext) -> object:
        """Run a call in a worker; one that had not begun in a worker that is lost is run in another one.

        Raises `ToolUnavailable` without a worker, and `ToolError` with the code `outcome_unknown`.
        """
        while True:
            connection = self.connection
            try:
                return await connection.call("tool", call.name, call, context)
            except ToolUnavailable:
                if connection.lost is None:
                    raise

    async def diagnose(self) -> Sequence[str]:
        """Return why no call can run, and what the provider says in one of the workers."""
        if self.restarting:
            return [f"{self.restarting}; {self.down_as[1]}"]
        others = [each.name for each in self._workers if each.offering != self._offering]
        texts = [f"{len(self._workers)} workers are connected; none of them is confined by this host"]
        if others:
            texts.append(f"no calls go to {', '.join(others)}: other tools are listed there than by the newest worker")
        return [*texts, *await super().diagnose()]

    async def aclose(self) -> None:
        """Close the provider in all workers, which then dial again."""
        self._closed = True
        for task in [*self._tasks]:
            task.cancel()
        await asyncio.gather(*(self._close(each) for each in [*self._workers]))
        if self._running_engine is not None:
            self._running_engine.cancel()
            await asyncio.wait({self._running_engine})
        for link in [*self._links]:
            link.abort()

    async def serve(self, link: WorkerLink, process: str) -> None:
        """Serve with a worker that has dialled in to this process of the host, until it is gone."""
        self._links.add(link)
        carrying = asyncio.create_task(link.run(), name=f"toolplug-worker-{self.key}")
        worker: Worker | None = None
        try:
            worker = await self._admit(link, process)
            if worker is not None:
                draining = asyncio.create_task(self._drain(worker))
                try:
                    await asyncio.wait({carrying, draining}, return_when=asyncio.FIRST_COMPLETED)
                finally:
                    draining.cancel()
        except (ConnectionError, TimeoutError) as error:
            late = "it did not answer in time" if isinstance(error, TimeoutError) else str(error)
            # One that is served by this process already ends so, too, when it looks for the others of the host.
            _LOG.debug("provider %r: a worker that dialled in is gone before it served: %s", self.key, late)
        except NOT_VALID:
            _LOG.warning("provider %r: a worker that dialled in sent what is not valid", self.key)
        finally:
            link.abort()
            await asyncio.wait({carrying})
            self._links.discard(link)
            if worker is not None:
                await self._leave(worker)

    async def _admit(self, link: WorkerLink, process: str) -> Worker | None:
        """Have the worker start the provider, and offer what it lists. Return None for one that is refused."""
        if self._closed or len(self._links) > MAX_WORKERS:
            reason = (
                "the provider is closed" if self._closed else f"there are {MAX_WORKERS} workers, and no more can be"
            )
            await self._refuse(link, reason, "", again=True)
            return None
        hello = await link.wait_for("hello", HELLO_S)
        name = show_text(hello.get("name") or "a worker", _MAX_NAME)
        protocol = hello.get("protocol")
        if protocol not in (PROTOCOL, PROTOCOL - 1):
            newer = isinstance(protocol, int) and protocol > PROTOCOL
            reason = f"it speaks protocol {protocol!r}, and this host {PROTOCOL} and {PROTOCOL - 1}"
            await self._refuse(link, reason, f"update toolplug of the {'host' if newer else 'worker'}", name=name)
            return None
        level = logging.getLogger(f"toolplug.providers.{self.key}").getEffectiveLevel()
        shown = {**self._target.hello, "level": level, "max_result_bytes": self._target.max_result_bytes}
        link.tell("describe", process=process, target=shown)
        found = await link.wait_for("described", DESCRIBE_WORKER_S)
        if "error" in found:
            error = decode_error(found["error"])
            await self._refuse(link, str(error), getattr(error, "fix", ""), name=name)
            return None
        if found["problems"]:
            wrong = found["problems"][0]
            await self._refuse(link, show_text(wrong["message"]), show_text(wrong["hint"]), name=name)
            return None
        secrets = frozenset(str(text) for text in found["secrets"])
        masked = self._target.masked

        def mask(text: str) -> str:
            return masked(mask_secrets(text, secrets))

        target = replace(self._target, masked=mask)
        return await self._begin_worker(link, name, target)

    async def _begin_worker(self, link: WorkerLink, name: str, target: ProcessTarget) -> Worker | None:
        metrics = self._sum.add()
        connection = WorkerConnection(link, target, link, self._site, metrics, _ignore_end)
        connection.connection_made(link)  # pyright: ignore[reportArgumentType]  it has what a connection uses
        link.peer = connection
        worker: Worker | None = None
        taken = False
        try:
            async with asyncio.timeout(START_WORKER_S):
                offered = await connection.ask_start(self._start_head())
            metrics.update(decode_families(offered.pop("families")))
            offering = sha256(dump_json(offered)).hexdigest()
            worker = Worker(
                name=name, link=link, connection=connection, metrics=metrics, offered=offered, offering=offering
            )
            self._workers.append(worker)
            await self._list(worker)
            _LOG.info("provider %r: %s has dialled in (%d now); it is not confined", self.key, name, len(self._workers))
            taken = True
            return worker
        except (ConfigError, *NOT_VALID) as error:
            reason = str(error) if isinstance(error, ConfigError) else "what it lists is not valid"
            await self._refuse(link, reason, "correct its package", name=name)
        except (ProviderError, ProcessCrash) as error:
            # It may dial again: what its start needs may be there later.
            await self._refuse(link, str(error), getattr(error, "fix", ""), name=name, again=True)
        finally:
            if not taken:
                self._workers = [each for each in self._workers if each is not worker]
                self._sum.remove(metrics)
        return None

    def _start_head(self) -> Head:
        """Return what the workers need of the host; their folders are their own."""
        return {**super()._start_head(), "state_dir": "", "config_dir": ""}

    async def _list(self, worker: Worker) -> None:
        """Offer what a worker lists. Raises `ConfigError` and `ProviderError`; then the offer is as before."""
        was_down, self.restarting = self.restarting, ""
        if worker.offering == self._offering:
            if was_down:
                self._site.changed()
            return
        before = self._started, self._offering
        try:
            self._offer(worker.offered)
            self._offering = worker.offering
            await self._site.relist()
        except BaseException:
            self._offer(before[0])
            self._offering, self.restarting = before[1], was_down
            raise

    async def _leave(self, worker: Worker) -> None:
        """Go on without a worker: with the others, or with what those list that got no calls."""
        self._workers.remove(worker)
        self._sum.remove(worker.metrics)
        level = logging.INFO if worker.connection.closing else logging.WARNING
        _LOG.log(
            level, "provider %r: %s %s (%d left)", self.key, worker.name, worker.connection.lost, len(self._workers)
        )
        if self._closed or any(each.offering == self._offering for each in self._workers):
            return
        if self._workers:
            with suppress(ConfigError, ProviderError):
                await self._list(self._workers[-1])
                return
        self.restarting = _WAITING
        self._site.changed()

    async def _drain(self, worker: Worker) -> None:
        """Close the provider in a worker that is to end, once its calls have ended."""
        await worker.link.draining.wait()
        while worker.connection.load:  # noqa: ASYNC110  its calls end in many places, and this is once in its life
            await asyncio.sleep(0.05)
        await self._close(worker)

    async def _close(self, worker: Worker) -> None:
        connection = worker.connection
        connection.closing = True
        with suppress(TimeoutError, ConnectionError, ProviderError, ProcessCrash):
            async with asyncio.timeout(CLOSE_WORKER_S):
                await connection.ask("close", {})
        connection.fail("was closed")

    async def _refuse(self, link: WorkerLink, reason: str, fix: str, *, name: str = "", again: bool = False) -> None:
        """Tell a worker why it is not taken; `again`: it may dial again by itself."""
        reason = show_text(self._target.masked(reason))
        link.tell("refused", reason=reason, fix=fix[:MAX_NOTE], again=again)
        if name:
            _LOG.error("provider %r: %s was refused: %s", self.key, name, reason)
            if not self._workers:
                self.restarting = f"{_WAITING}; {name} was refused: {reason}"
                self._site.changed()
        with suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_WORKER_S):
                await link.finish()

    def _watch_closing(self, site: Any) -> None:
        async def tell() -> None:
            await site.closing.wait()
            for worker in self._workers:
                worker.connection.send(NOTE, {"note": "closing"})

        self._begin(tell())


_WAITING = "waiting for a worker"
_MAX_NAME = 200


def _ignore_end(connection: HostConnection, reason: str) -> None:
    """Do nothing: `serve` sees the end of the link."""
