"""What a deployment needs for so many sessions, computed from what one session, stream, call and update cost.

`python -m benchmarks.scale` measures the costs with two hosts over Redis, and prints both tables of
docs/explanation/scale.md; `python -m benchmarks.scale --write` also writes them there.
"""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, fields
from math import ceil
from pathlib import Path

import redis

from benchmarks.connection import Connection
from benchmarks.plugin import Plugin, definition, definitions
from benchmarks.process import Served
from benchmarks.readers import Readers
from benchmarks.redis_store import server
from benchmarks.relay import relaying
from benchmarks.replicas import HELLO
from benchmarks.serve import replicas

PAGE = Path("docs/explanation/scale.md")
BEGIN, END = "<!-- computed -->\n", "<!-- end -->\n"
SIZES = (1_000, 10_000, 100_000, 1_000_000)

STREAMS = 3
"""Open streams of a session: that of its application, and two that read."""
CALLS, RELAYED, UPDATES, READS = 6, 2, 1, 2
"""What happens in a session in one minute: calls of providers' tools and of its own, updates, and reads."""
BUSY = 0.6
"""The part of a core that a process may use, so that a peak finds room."""
PROCESS_GB = 2.0
"""The memory that a process may use."""

TOOLS, SESSIONS, STREAMED, CALLED, IDLE_S = 20, 2_000, 1_000, 1_000, 20.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Costs:
    """Memory and processor time of the hosts, and of the store for the same; the names are the table's rows."""

    process_mb: float
    process_us: float
    process_store_us: float
    session_kib: float
    session_store_kib: float
    stream_kib: float
    call_us: float
    relayed_us: float
    relayed_store_us: float
    update_us: float
    update_store_us: float
    update_heard_us: float
    read_us: float
    read_store_us: float


ROWS: Sequence[tuple[str, str, str | None]] = (
    ("a process: memory in MB", "process_mb", None),
    ("a process that has nothing to do, for one second: µs", "process_us", "process_store_us"),
    ("a session of 20 tools: memory in KiB", "session_kib", "session_store_kib"),
    ("an open stream: memory in KiB", "stream_kib", None),
    ("a call of a provider's tool over HTTP: µs", "call_us", None),
    ("a call that an application answers, at another process: µs", "relayed_us", "relayed_store_us"),
    ("an update of a tool: µs", "update_us", "update_store_us"),
    ("the same, at each other process: µs", "update_heard_us", None),
    ("reading what a session offers: µs", "read_us", "read_store_us"),
)
"""What a row of the first table says, and the costs of the hosts and of the store in it."""


def computed(costs: Costs) -> Iterator[str]:
    """Return the lines of the second table."""
    yield "| sessions | processes | their memory | their cores | of which hear updates | store: cores | store: memory |"
    yield "| --- | --- | --- | --- | --- | --- | --- |"
    for sessions in SIZES:
        yield _needed(costs, sessions)


def _needed(costs: Costs, sessions: int) -> str:
    a_second = sessions / 60
    updates = a_second * UPDATES
    work_us = a_second * (CALLS * costs.call_us + RELAYED * costs.relayed_us + READS * costs.read_us)
    work_us += updates * costs.update_us
    memory_mb = sessions * (costs.session_kib + STREAMS * costs.stream_kib) / 1000
    processes = 3
    for _ in range(100):  # each process also hears the updates of all
        each_us = work_us / processes + updates * costs.update_heard_us + costs.process_us
        needed = max(3, ceil(memory_mb / (PROCESS_GB * 1000 - costs.process_mb)))
        if each_us > BUSY * 1e6:
            needed = max(needed, processes + ceil(processes / 10))
        if needed <= processes:
            break
        processes = needed
    else:
        return f"| {sessions:,} | no number: see *Next* below |  |  |  |  |  |"
    heard = processes * updates * costs.update_heard_us / 1e6
    cores = work_us / 1e6 + heard + processes * costs.process_us / 1e6
    store_us = updates * costs.update_store_us + processes * costs.process_store_us
    store_us += a_second * (RELAYED * costs.relayed_store_us + READS * costs.read_store_us)
    memory_gb = (memory_mb + processes * costs.process_mb) / 1000
    store_gb = sessions * costs.session_store_kib / 1e6
    return (
        f"| {sessions:,} | {processes} | {_figure(memory_gb)} GB | {_figure(cores)} | {_figure(heard)} | "
        f"{_figure(store_us / 1e6)} | {_figure(store_gb)} GB |"
    )


def _figure(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.2g}"


def shown(costs: Costs) -> Iterator[str]:
    """Return the lines of both tables and what lies between."""
    measured = ["| what | hosts | store |", "| --- | --- | --- |"]
    for what, host, store in ROWS:
        measured.append(
            f"| {what} | {_figure(getattr(costs, host))} | {_figure(getattr(costs, store)) if store else ''} |"
        )
    yield from measured
    yield ""
    yield (
        f"A session has {STREAMS} open streams and, in each minute, {CALLS} calls of providers' tools, {RELAYED} that "
        f"its application answers, {UPDATES} update and {READS} reads. A process uses at most {BUSY:.0%} of a core and "
        f"{PROCESS_GB:g} GB; there are at least three."
    )
    yield ""
    yield from computed(read("\n".join(measured)))


def read(page: str) -> Costs:
    """Return the costs in the first table of a page."""
    values: dict[str, float] = {}
    for what, host, store in ROWS:
        found = re.search(rf"^\| {re.escape(what)} \| (\S+) \| (\S*) \|$", page, re.MULTILINE)
        if found is None:
            raise ValueError(f"{PAGE} has no row {what!r}")
        values[host] = float(found[1].replace(",", ""))
        if store:
            values[store] = float(found[2].replace(",", ""))
    return Costs(**values)


def measure() -> Costs:
    """Measure all of them, with two hosts on one Redis server."""
    with server() as store, ExitStack() as life:
        one, other = hosts = life.enter_context(replicas(2, f"redis://127.0.0.1:{store.port}"))
        connection = life.enter_context(Connection(one.port))
        connection.ask(HELLO)
        found: dict[str, float] = {"process_mb": one.resident() / 1e6}

        def cost(name: str, count: float, work: Callable[[], object], *, of: Sequence[Served] = hosts) -> None:
            before, stored = sum(host.cpu_s() for host in of), store.cpu_s()
            work()
            found[f"{name}_us"] = (sum(host.cpu_s() for host in of) - before) * 1e6 / count
            found[f"{name}_store_us"] = (store.cpu_s() - stored) * 1e6 / count

        cost("process", 2 * IDLE_S, lambda: time.sleep(IDLE_S))
        plugins = _sessions(connection, one, store, found)
        watching = life.enter_context(Readers(lambda number, event: None))
        before = one.resident()
        for _ in range(STREAMED):
            watching.open(one.port, plugins[0].reading())
        found["stream_kib"] = (one.resident() - before) / 1024 / STREAMED
        cost("call", CALLED, lambda: [connection.ask(HELLO) for _ in range(CALLED)])
        with relaying(one, other) as made:
            cost("relayed", CALLED, lambda: made(CALLED))
        heard = other.cpu_s()
        updates = [plugins[1 + number].update(definition(0, version=1)) for number in range(CALLED)]
        cost("update", CALLED, lambda: [connection.ask(update) for update in updates], of=[one])
        time.sleep(1)
        found["update_heard_us"] = (other.cpu_s() - heard) * 1e6 / CALLED
        reading = life.enter_context(Connection(other.port))
        cost("read", CALLED, lambda: [reading.ask(plugins[1].metadata()) for _ in range(CALLED)])
    return Costs(**{field.name: found[field.name] for field in fields(Costs)})


def _sessions(connection: Connection, host: Served, store: Served, found: dict[str, float]) -> list[Plugin]:
    with redis.Redis(port=store.port) as client:
        before, stored = host.resident(), int(client.info("memory")["used_memory"])
        plugins = [Plugin.lending(connection, definitions(TOOLS)) for _ in range(SESSIONS)]
        found["session_kib"] = (host.resident() - before) / 1024 / SESSIONS
        found["session_store_kib"] = (int(client.info("memory")["used_memory"]) - stored) / 1024 / SESSIONS
    return plugins


def main(arguments: Sequence[str]) -> int:
    """Measure, print, and write if asked to."""
    text = "\n".join(shown(measure())) + "\n"
    print(text)
    if "--write" in arguments:
        before, _, rest = PAGE.read_text("utf-8").partition(BEGIN)
        PAGE.write_text(f"{before}{BEGIN}\n{text}\n{END}{rest.partition(END)[2]}", "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
