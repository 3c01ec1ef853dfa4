"""One worker of `toolplug serve --workers N`: its place among the others, and the metrics of all of them together."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import socket
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Self, TypeAlias

from prometheus_client import CollectorRegistry
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from toolplug.execution.accounting import OnCall
from toolplug.host.file.configuration import Coded, ConfigFiles, Configuration, Source
from toolplug.host.host import Host, reader_of
from toolplug.packages.entry_points import Installed
from toolplug.runtime.threads import in_own_thread

ANSWER_S = 1.0
"""How long a scrape waits for the other workers."""
LATE_S = 10.0
"""How long a late answer is waited for, which counts in the next scrape."""
_SUMMED = ("counter", "histogram", "summary")

_LOG = logging.getLogger("toolplug.cli.serve")

Family: TypeAlias = tuple[str, str, str, list[tuple[str, dict[str, str], float]]]
"""Name, documentation, type and samples of a family, each sample with name, labels and value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerPlace:
    """The place of a worker: its number from 1, how many there are, and where it meets them.

    `channel`: the descriptor of a socket whose other end the parent has. `folder`: that of the workers' own sockets.
    """

    number: int
    count: int
    channel: int
    folder: str

    def text(self) -> str:
        """Return the value of the option `--worker`."""
        return json.dumps(asdict(self))

    @classmethod
    def of(cls, text: str) -> Self:
        """Return the place that `text` made."""
        return cls(**json.loads(text))


@asynccontextmanager
async def parent_followed(place: WorkerPlace) -> AsyncGenerator[Callable[[str], None]]:
    """Stop this process as SIGTERM does when the parent has ended.

    Yields a function that tells the parent once that this worker serves, with the start screen.
    """
    loop = asyncio.get_running_loop()
    with socket.socket(fileno=place.channel) as channel:
        channel.setblocking(False)
        # A child of a provider that held it open would keep the parent waiting after the end of this worker.
        os.set_inheritable(channel.fileno(), False)

        def stop() -> None:
            loop.remove_reader(channel)
            # The same way as any other end, drain included.
            os.kill(os.getpid(), signal.SIGTERM)

        loop.add_reader(channel, stop)
        try:
            yield lambda screen: _send(channel, screen)
        finally:
            loop.remove_reader(channel)


def _send(channel: socket.socket, screen: str) -> None:
    with suppress(OSError):
        # An empty text would send nothing, and the parent would go on waiting.
        channel.send(screen.encode() or b"\0")


def _read_shared(
    source: Source, environ: Mapping[str, str], installed: Installed, coded: Coded, *, locked: bool
) -> Configuration:
    configuration = reader_of(locked=locked)(source, environ, installed, coded)
    return replace(configuration, store=replace(configuration.store, shared=True))


class WorkerHost(Host):
    """The host of one worker: all workers share its store, and `/metrics` are those of all."""

    def __init__(self, files: ConfigFiles, place: WorkerPlace, *, on_call: OnCall | None, locked: bool = False) -> None:
        super().__init__(files, None, partial(_read_shared, locked=locked), on_call=on_call)
        self._workers = WorkerMetrics(place, self._own_families)

    async def scrape(self) -> CollectorRegistry:
        return await self._workers.merge(f"{self.settings.metrics.namespace}_")

    @asynccontextmanager
    async def answering(self) -> AsyncGenerator[None]:
        """Answer the other workers, and leave the counts for them at the end."""
        async with self._workers.answering():
            yield

    async def _own_families(self) -> list[Family]:
        registry = await super().scrape()
        return await in_own_thread(partial(_families, registry.collect()))


def _families(metrics: Iterable[Metric]) -> list[Family]:
    return [
        (
            metric.name,
            metric.documentation,
            metric.type,
            [(sample.name, dict(sample.labels), sample.value) for sample in metric.samples],
        )
        for metric in metrics
    ]


class WorkerMetrics:
    """The metrics of all workers of one parent, which answer each other through Unix sockets in its folder.

    Prometheus' own mode for several processes ignores collectors, which most of ours are. Counters and histograms are
    added up; other metrics get the label `worker`. Each answer is kept in a file, whose counts are used when its worker
    has ended, so that no sum ever falls, or does not answer in time.
    """

    def __init__(self, place: WorkerPlace, own: Callable[[], Awaitable[list[Family]]]) -> None:
        self._place = place
        self._own = own
        self._folder = Path(place.folder)
        self._name = f"{place.number}-{os.getpid()}"
        self._asking: dict[str, asyncio.Task[list[Family] | None]] = {}

    @asynccontextmanager
    async def answering(self) -> AsyncGenerator[None]:
        """Answer the other workers, and leave the counts for them at the end."""
        path = self._folder / f"{self._name}.sock"
        server = await asyncio.start_unix_server(self._answer, path)
        try:
            yield
        finally:
            server.close()
            with suppress(OSError):
                path.unlink()
                self._file(self._name, await self._own())

    async def merge(self, prefix: str) -> CollectorRegistry:
        """Return the families of all workers as one registry; `prefix` is that of the names of our own."""
        names = {path.stem for path in self._folder.glob("*.sock")} - {self._name}
        # One question at a time to each worker: one that is late would collect them.
        for name in names - self._asking.keys():
            self._asking[name] = asyncio.create_task(self._ask(name))
        asked = {name: self._asking[name] for name in names}
        answers = {self._name: await self._own()}
        self._file(self._name, answers[self._name])
        if asked:
            done, _ = await asyncio.wait(asked.values(), timeout=ANSWER_S)
            answers |= {name: found for name, task in asked.items() if task in done and (found := task.result())}
        ended = {path.stem: path for path in self._folder.glob("*.json") if path.stem not in answers}
        filed = [_read_file(path) for path in ended.values()]
        registry = CollectorRegistry()
        registry.register(_Merged([*_merge(answers, filed), self._up(f"{prefix}worker_up", answers)]))
        return registry

    def _up(self, name: str, answers: Mapping[str, object]) -> Metric:
        numbers = {_number(answered) for answered in answers}
        family = GaugeMetricFamily(name, "1 if the worker has answered this scrape, else 0.", labels=["worker"])
        for number in range(1, self._place.count + 1):
            family.add_metric([str(number)], float(str(number) in numbers))
        return family

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            writer.write(json.dumps(await self._own()).encode())
            writer.write_eof()
            await writer.drain()
            writer.close()
            await writer.wait_closed()

    async def _ask(self, name: str) -> list[Family] | None:
        """Return the families of another worker, and file them; None if it has ended or does not answer."""
        path = self._folder / f"{name}.sock"
        try:
            async with asyncio.timeout(LATE_S):
                reader, writer = await asyncio.open_unix_connection(path)
                try:
                    answer = await reader.read()
                finally:
                    writer.close()
            families: list[Family] = json.loads(answer)
        # The socket is there and nobody listens: its worker was killed.
        except ConnectionRefusedError:
            path.unlink(missing_ok=True)
            return None
        except (OSError, ValueError) as error:
            _LOG.warning("worker %s does not answer for its metrics: %s", _number(name), error or "time is up")
            return None
        finally:
            del self._asking[name]
        self._file(name, families)
        return families

    def _file(self, name: str, families: Sequence[Family]) -> None:
        """Keep the counts of a worker for the time after its end."""
        path = self._folder / f"{name}.json"
        # Several workers may file the answer of one at the same time.
        new = path.with_suffix(f".{os.getpid()}")
        new.write_text(json.dumps([family for family in families if family[2] in _SUMMED]), "utf-8", newline="\n")
        new.replace(path)


def _read_file(path: Path) -> list[Family]:
    try:
        return json.loads(path.read_bytes())
    except (OSError, ValueError):
        return []


def _number(name: str) -> str:
    return name.partition("-")[0]


class _Merged(Collector):
    def __init__(self, families: Sequence[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterator[Metric]:
        return iter(self._families)


def _merge(answers: Mapping[str, Sequence[Family]], ended: Iterable[Sequence[Family]]) -> Iterator[Metric]:
    """Yield each family once: counts of all are added up, other samples get the label `worker`."""
    merged: dict[str, Metric] = {}
    sums: dict[str, dict[tuple[str, tuple[tuple[str, str], ...]], float]] = {}
    for number, families in [*((_number(name), found) for name, found in answers.items()), *(("", it) for it in ended)]:
        for name, text, kind, samples in families:
            family = merged.setdefault(name, Metric(name, text, kind))
            added = sums.setdefault(name, {})
            for sample, labels, value in samples:
                if kind not in _SUMMED:
                    family.add_sample(sample, {**labels, "worker": number}, value)
                    continue
                key = sample, tuple(labels.items())
                if sample.endswith("_created"):
                    # When a sum began, not a part of it.
                    added[key] = min(value, added.get(key, value))
                else:
                    added[key] = value + added.get(key, 0.0)
    for name, family in merged.items():
        for (sample, labels), value in sums[name].items():
            family.add_sample(sample, dict(labels), value)
        yield family
