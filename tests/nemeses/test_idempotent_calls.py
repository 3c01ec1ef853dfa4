"""Hosts that are killed while idempotent calls run: no key is ever run twice, however long its caller waits."""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from random import Random

import httpx2
import pytest
import yaml
from tests.kept_port import kept_port
from tests.nemeses.fleet import Host
from tests.nemeses.servers import chosen, shared_store

pytestmark = [pytest.mark.judge, pytest.mark.anyio, pytest.mark.requirement("C-5-idempotent-lost")]

KILLS = int(os.environ.get("TOOLPLUG_KILLS", "3"))
CALLS = 4
LATEST_S = 0.7
"""Most seconds between the start of the calls and the kill."""
DECIDED_S = 120.0
"""Within which a caller that asks again must hear what became of its call."""
PAUSE_S = 0.2
ANSWER_S = 30.0

LINES = """
import asyncio
from pathlib import Path
from toolplug import tool

@tool
async def write(key: str, before: float, after: float) -> str:
    \"\"\"Write a line.\"\"\"
    await asyncio.sleep(before)
    with Path("lines.txt").open("a") as lines:
        lines.write(f"{key}\\n")
    await asyncio.sleep(after)
    return key
"""


@asynccontextmanager
async def hosts_on(urls: list[str], folder: Path) -> AsyncIterator[list[Host]]:
    """A host for each URL of a store; they share the folder."""
    (folder / "lines.py").write_text(LINES)
    with ExitStack() as ports:
        hosts: list[Host] = []
        for number, url in enumerate(urls):
            settings = {"store": url, "providers": {"lines": {"type": "./lines.py", "enabled": True}}}
            name = f"host{number}.yaml"
            (folder / name).write_text(yaml.safe_dump(settings))
            hosts.append(Host(folder, ports.enter_context(kept_port()), configuration=name))
        try:
            for host in hosts:
                await host.start()
            yield hosts
        finally:
            for host in hosts:
                host.kill()


async def ask(client: httpx2.AsyncClient, host: Host, body: Mapping[str, object]) -> httpx2.Response:
    key = {"Idempotency-Key": str(body["id"])}
    return await client.post(f"{host.url}/v1/tool-calls", json=body, headers=key)


async def decided(client: httpx2.AsyncClient, host: Host, body: Mapping[str, object]) -> str:
    """Ask again until the answer is no longer that the call runs; return how it has ended."""
    async with asyncio.timeout(DECIDED_S):
        while (answer := await ask(client, host, body)).status_code == 409:
            assert answer.json()["error"]["code"] == "idempotency_key_running"
            await asyncio.sleep(PAUSE_S)
    assert answer.status_code == 200, answer.text
    result = answer.json()
    return result["metadata"].get("code", result["status"])


def calls_of(kill: int, random: Random) -> list[Mapping[str, object]]:
    """Calls under keys of their own, each of which writes its line at some moment."""
    return [
        {
            "id": (key := f"k{kill}-{number}"),
            "name": "write",
            "arguments": {"key": key, "before": random.uniform(0, LATEST_S), "after": random.uniform(0, LATEST_S)},
        }
        for number in range(CALLS)
    ]


async def killed_runs(client: httpx2.AsyncClient, hosts: list[Host], random: Random) -> Counter[str]:
    """Kill the host of running calls, then ask the last host about them; return how the calls have ended."""
    ends: Counter[str] = Counter()
    asked: list[Mapping[str, object]] = []
    for kill in range(KILLS):
        calls = calls_of(kill, random)
        running = [asyncio.create_task(ask(client, hosts[0], body)) for body in calls]
        await asyncio.sleep(random.uniform(0, LATEST_S))
        hosts[0].kill()
        await asyncio.gather(*running, return_exceptions=True)
        await hosts[0].start()
        ends.update(await asyncio.gather(*(decided(client, hosts[-1], body) for body in calls)))
        asked += calls
    for body in asked:
        await decided(client, hosts[-1], body)
    return ends


@pytest.mark.parametrize("name", ["alone", *chosen()])
async def test_no_key_runs_twice_in_many_kills(
    name: str, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    alone = name == "alone"
    async with shared_store("sqlite" if alone else name, 2) as store:
        urls = ["sqlite:///./state.db"] if alone else [*store.urls]
        async with hosts_on(urls, tmp_path) as hosts, httpx2.AsyncClient(timeout=ANSWER_S) as client:
            ends = await killed_runs(client, hosts, Random(name))

    lines = Counter((tmp_path / "lines.txt").read_text().split())
    assert [key for key, count in lines.items() if count > 1] == []
    assert set(ends) <= {"success", "outcome_unknown"}
    found = ", ".join(f"{count} {end}" for end, count in sorted(ends.items()))
    record_property(
        "figure", f"idempotent calls, {name}: 0 second runs in {KILLS} kills, {ends.total()} calls: {found}"
    )
