"""A host that is killed while plugins register and update: nothing acknowledged is lost, and nothing is half there."""

from __future__ import annotations

import asyncio
import random
import signal
from pathlib import Path

import pytest
from httpx2 import AsyncClient, TransportError
from tests.cli.process import Serving, serving

pytestmark = [pytest.mark.anyio, pytest.mark.requirement("I3-bad-kill", "I3-2-restart", "C-6-atomic-revision")]

CONFIG = """
store: sqlite:///./state.db
sessions: {max_updates_per_minute: 1000000}
providers: {}
"""
PATIENCE_S = 60.0
PLUGINS = 4

Tools = dict[str, str]
"""Name → description."""


class Plugin:
    """Changes the tools of one session without a pause, and knows what was acknowledged."""

    def __init__(self, code: str, token: str, chance: random.Random) -> None:
        self.code = code
        self.revision = 0
        self.tools: Tools = {}
        self.pending: Tools | None = None
        self._chance = chance
        self._headers = {"Authorization": f"Bearer {token}"}
        self._numbers = 0

    async def work(self, http: AsyncClient, acknowledged: asyncio.Semaphore) -> None:
        """Change until nobody answers any more."""
        try:
            while True:
                await self._change(http)
                acknowledged.release()
        except TransportError:
            return

    async def check(self, http: AsyncClient) -> None:
        """What the next host shows is what was acknowledged, or that and the change that was on its way."""
        metadata = (await http.get(f"/api/sessions/{self.code}/metadata", headers=self._headers)).json()
        tools = {tool["name"]: tool["description"] for tool in metadata["tools"]}
        assert metadata["revision"] in (self.revision, self.revision + 1)
        assert tools == (self.tools if metadata["revision"] == self.revision else self.pending)
        log = (await http.get(f"/api/sessions/{self.code}/events")).json()["events"]
        told = [event["data"]["revision"] for event in log if event["event"] == "tool-availability-update"]
        assert told == list(range(metadata["revision"] - len(told) + 1, metadata["revision"] + 1))
        self.revision, self.tools, self.pending = metadata["revision"], tools, None

    async def _change(self, http: AsyncClient) -> None:
        if self.revision == 0 or self._chance.random() < 0.3:
            self.pending = {name: self._text() for name in self._chance.sample("abcdef", self._chance.randint(1, 4))}
            path, body = "register-tools", {"pluginType": "killed", "tools": _defined(self.pending)}
        else:
            path, body = "update-tools", {"toolUpdates": self._updates(), "reason": "test"}
        answer = await http.post(f"/api/sessions/{self.code}/{path}", json=body, headers=self._headers)
        assert answer.is_success, answer.text
        assert self.pending is not None
        assert answer.json()["revision"] == self.revision + 1
        self.revision, self.tools, self.pending = self.revision + 1, self.pending, None

    def _updates(self) -> dict[str, object]:
        touched = self._chance.sample("abcdef", 3)
        there = [name for name in touched if name in self.tools]
        added = {name: self._text() for name in touched if name not in there}
        removed, modified = there[::2], {name: self._text() for name in there[1::2]}
        kept = {name: text for name, text in self.tools.items() if name not in removed}
        self.pending = kept | modified | added
        return {"added": _defined(added), "removed": removed, "modified": _defined(modified)}

    def _text(self) -> str:
        self._numbers += 1
        return f"{self.code} {self._numbers}"


def _defined(tools: Tools) -> list[dict[str, object]]:
    return [{"name": name, "description": text, "inputSchema": {"type": "object"}} for name, text in tools.items()]


async def _kill_again_and_again(folder: Path, *, times: int, seed: int) -> None:
    chance = random.Random(seed)
    (folder / "providers.yaml").write_text(CONFIG, "utf-8")
    plugins: list[Plugin] = []
    for kills in range(times + 1):
        with serving(folder=folder) as service:
            async with AsyncClient(base_url=await asyncio.to_thread(lambda: service.url), timeout=PATIENCE_S) as http:
                for plugin in plugins:
                    await plugin.check(http)
                if kills == times:
                    return
                while len(plugins) < PLUGINS:
                    made = (await http.post("/api/sessions")).json()
                    plugins.append(Plugin(made["code"], made["pluginToken"], chance))
                await _work_until_killed(plugins, http, service, after=chance.randint(1, 60))


async def _work_until_killed(plugins: list[Plugin], http: AsyncClient, service: Serving, *, after: int) -> None:
    acknowledged = asyncio.Semaphore(0)
    working = [asyncio.create_task(plugin.work(http, acknowledged)) for plugin in plugins]
    for _ in range(after):
        await acknowledged.acquire()
    service.send(signal.SIGKILL)
    await asyncio.gather(*working)


@pytest.mark.process
@pytest.mark.timeout(400)
async def test_nothing_acknowledged_is_lost_when_the_host_is_killed(tmp_path: Path) -> None:
    await _kill_again_and_again(tmp_path, times=2, seed=5)


@pytest.mark.judge
@pytest.mark.timeout(1200)
@pytest.mark.long(90)
async def test_nothing_acknowledged_is_lost_when_the_host_is_killed_a_hundred_times(tmp_path: Path) -> None:
    await _kill_again_and_again(tmp_path, times=100, seed=100)
