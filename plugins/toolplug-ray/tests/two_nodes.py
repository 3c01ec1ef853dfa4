"""What `test_ray.py` runs where Ray is installed: a host, and nodes of Ray on this machine, one of which is killed."""

# ruff: noqa: ASYNC110, ASYNC220, ASYNC240  it waits for processes of others, and nothing else is in its loop

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import subprocess
import sys
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

from toolplug import open_host

PLUGIN = """
import asyncio
import os
import signal

from toolplug import tool


@tool
async def where(seconds: float = 0.0) -> str:
    "Return which node this runs on."
    await asyncio.sleep(seconds)
    return os.environ["RAY_RAYLET_PID"]


@tool
async def end_actor() -> str:
    "End the actor, and this process with it."
    os.kill(os.getppid(), signal.SIGKILL)
    await asyncio.sleep(60.0)
    return "it is still there"
"""


class Nodes:
    """Nodes of Ray, each a session of processes of its own."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._sessions: list[int] = []
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.address = f"127.0.0.1:{free.getsockname()[1]}"

    async def start(self) -> int:
        """Start a node, the first as the head; return the id of its session once it is there.

        One after the other, and again: `ray start` gives a node 30 s, which a busy machine may not have for it.
        """
        port = self.address.rpartition(":")[2]
        head = ["--head", f"--port={port}", f"--temp-dir={self._folder}", "--include-dashboard=false", "--no-monitor"]
        words = [
            *(["--address", self.address] if self._sessions else head),
            "--node-ip-address=127.0.0.1",
            "--num-cpus=1",
            "--object-store-memory=80000000",
            "--include-log-monitor=false",
            "--disable-usage-stats",
            "--block",
        ]
        ray = Path(sys.executable).with_name("ray")
        written = self._folder / f"node{len(self._sessions)}.log"
        for _ in range(3):
            with written.open("ab") as log:
                begun = subprocess.Popen([ray, "start", *words], stdout=log, stderr=log, start_new_session=True)
            try:
                while begun.poll() is None:
                    if "Ray runtime started" in written.read_text():
                        self._sessions.append(begun.pid)
                        return begun.pid
                    await asyncio.sleep(0.1)
            except BaseException:
                self.kill(begun.pid)
                raise
            self.kill(begun.pid)
        raise TimeoutError(written.read_text()[-2000:])

    def kill(self, session: int) -> None:
        """Kill all processes of a node."""
        with suppress(ProcessLookupError):
            os.killpg(session, signal.SIGKILL)

    def kill_all(self) -> None:
        """Kill what was started."""
        for session in self._sessions:
            self.kill(session)


async def main(folder: Path) -> None:
    nodes = Nodes(folder)
    try:
        await serve(nodes)
    finally:
        nodes.kill_all()


async def serve(nodes: Nodes) -> None:
    Path("place.py").write_text(PLUGIN, "utf-8")
    await nodes.start()
    second = await nodes.start()
    engine = {"address": nodes.address, "replicas": 2, "folder": os.getcwd()}
    entry = {"enabled": True, "type": "./place.py", "run": {"ray": engine}}
    async with open_host({"store": "memory://", "providers": {"place": entry}}) as host:
        provider: Any = host.registry.running()["place"].provider
        assert host.records()[0].state == "waiting", host.records()[0]
        await dialled(provider, 2)
        calls = [host.registry.call("where") for _ in range(20)]
        served = Counter(result.output for result in await asyncio.gather(*calls))
        assert len(served) == 2, served

        # An actor ends with a call in it: Ray starts it again, and it is served with again.
        ended = await host.registry.call("end_actor")
        assert ended.metadata == {"code": "outcome_unknown"}, ended
        await dialled(provider, 1)
        await dialled(provider, 2)

        # One call in each worker, then the second node is killed.
        running = [asyncio.ensure_future(host.registry.call("where", seconds=15.0)) for _ in range(2)]
        async with asyncio.timeout(10):
            while {each.connection.load for each in provider.workers} != {1}:
                await asyncio.sleep(0.05)
        nodes.kill(second)
        results = await asyncio.gather(*running)
        states = sorted(str(each.status) for each in results)
        assert states == ["success", "tool_error"], results
        lost = next(each for each in results if each.is_error)
        assert lost.metadata == {"code": "outcome_unknown"}, lost
        assert len(provider.workers) == 1
        after = {(await host.registry.call("where")).output for _ in range(4)}
        assert len(after) == 1, after
        assert after < served.keys(), (after, served)
    print("both nodes have served; one was killed, and every call has ended:", lost.output)


async def dialled(provider: Any, count: int) -> None:
    async with asyncio.timeout(100):
        while len(provider.workers) != count:
            await asyncio.sleep(0.1)


if __name__ == "__main__":
    logging.basicConfig(format="%(asctime)s %(message)s")
    asyncio.run(main(Path(sys.argv[1])))
