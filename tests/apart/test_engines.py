"""Engines: packages that start the workers of an entry, and carry the messages between each of them and the host."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from importlib.metadata import EntryPoint
from pathlib import Path
from shutil import copy
from typing import Any

import pytest
from tests.apart.starting import until
from tests.apart.worker_host import HERE

from toolplug import Host, open_host
from toolplug.apart.workers.link import Receive, Send
from toolplug.apart.workers.provider import DialledProvider, Serve
from toolplug.config.run_settings import ENGINES, find_engines
from toolplug.errors import ConfigError
from toolplug_ray.actor import RayWorker

pytestmark = [pytest.mark.anyio, pytest.mark.requirement("I36-ray")]


class ActorsHere:
    """Has the actors of Ray in this process: what carries their messages is Ray's, and all else is as there."""

    def __init__(self, key: str, settings: Mapping[str, Any]) -> None:
        if unknown := settings.keys() - {"folder", "replicas", "fail"}:
            raise ValueError(f"unknown setting {min(unknown)!r}")
        self.key = key
        self.settings = settings
        self.runs = 0

    async def run(self, serve: Serve) -> None:
        self.runs += 1
        if self.runs <= self.settings.get("fail", 0):
            raise OSError("no cluster is there")
        async with asyncio.TaskGroup() as group:
            for _ in range(self.settings.get("replicas", 1)):
                group.create_task(self._keep(serve))

    async def _keep(self, serve: Serve) -> None:
        actor = RayWorker(self.key, self.settings["folder"])
        while True:
            await actor.begin()
            try:
                await serve(*channel_of(actor))
            finally:
                await actor.end()


def channel_of(actor: RayWorker) -> tuple[Receive, Send]:
    messages: list[Any] = []

    async def receive() -> Any:
        if not messages:
            messages.extend(await actor.take())
        found = messages.pop(0)
        if found is None:
            return {"type": "websocket.disconnect"}
        return {"type": "websocket.receive", "bytes" if isinstance(found, bytes) else "text": found}

    async def send(message: Any) -> None:
        await actor.put(message.get("bytes") or message["text"])

    return receive, send


def write_package(site: Path, name: str, points: bytes) -> None:
    info = site / f"{name}-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_bytes(points)


@pytest.fixture
def _installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A package with the engine `here`."""
    write_package(tmp_path / "site", "here", f"[{ENGINES}]\nhere = tests.apart.test_engines:ActorsHere\n".encode())
    monkeypatch.syspath_prepend(str(tmp_path / "site"))


def provider_of(host: Host) -> DialledProvider:
    provider = host.registry.running()["made"].provider
    assert isinstance(provider, DialledProvider)
    return provider


def entries(folder: Path, **settings: object) -> dict[str, object]:
    copy(HERE / "everything.py", folder / "everything.py")
    run = {"here": {"folder": str(folder), **settings}}
    made = {"type": "./everything.py:Everything", "enabled": True, "run": run}
    return {"store": "memory://", "providers": {"made": made}}


@pytest.mark.process
@pytest.mark.usefixtures("_installed")
async def test_the_workers_of_an_engine_serve_and_one_that_ends_is_started_again(tmp_path: Path) -> None:
    async with open_host(entries(tmp_path, replicas=2)) as host:
        provider = provider_of(host)
        assert not provider.dials_in
        await until(lambda: len(provider.workers) == 2)
        assert (await host.registry.call("echo", value=10**30)).output == str(10**30)
        hanging = asyncio.create_task(host.registry.call("hang"))
        await until(lambda: any(each.connection.load for each in provider.workers))
        busy = next(each for each in provider.workers if each.connection.load)
        busy.link.abort()
        lost = await hanging
        assert (lost.status, lost.metadata) == ("tool_error", {"code": "outcome_unknown"})
        await until(lambda: len(provider.workers) == 2 and busy not in provider.workers)
        assert (await host.registry.call("echo", value=1)).status == "success"
        assert "2 workers are connected" in (await provider.diagnose())[0]
    assert not provider.workers


@pytest.mark.process
@pytest.mark.usefixtures("_installed")
async def test_an_engine_that_fails_is_run_again_and_the_state_says_why(tmp_path: Path) -> None:
    async with open_host(entries(tmp_path, fail=2)) as host:
        provider = provider_of(host)
        await until(lambda: "no cluster is there" in host.records()[0].reason)
        assert host.records()[0].fix.startswith("its engine starts them")
        await until(lambda: bool(provider.workers))
        assert host.records()[0].state == "active"


@pytest.mark.process
async def test_a_cluster_of_ray_that_is_not_there_is_named_in_the_state() -> None:
    run = {"ray": {"address": "127.0.0.1:1"}}
    made = {"type": "hello", "enabled": True, "run": run}
    async with open_host({"store": "memory://", "providers": {"made": made}}) as host:
        await until(lambda: "its Ray driver has ended (1)" in host.records()[0].reason)
        assert host.records()[0].state == "waiting"


@pytest.mark.parametrize(
    ("run", "said"),
    [
        ({"here": {"folders": "."}}, "run.here: the engine here: unknown setting 'folders'"),
        ({"ray": {"replica": 3}}, "run.ray: the engine ray: unknown setting 'replica'; known: address, replicas"),
        ({"ray": {"replicas": 0}}, "run.ray: the engine ray: replicas: Input should be greater than or equal to 1"),
        ({"hree": {}}, "run.hree: unknown key 'hree': nearest: 'here'"),
        ({"q": {}}, "an engine is a package to install, such as toolplug-ray"),
        ({"here": 3}, "run.here: the settings of the engine here are a mapping"),
        ({"here": {}, "worker": True}, "has worker and here; keep one of them"),
        ({"here": {}, "ray": {}}, "keep one of them"),
        ({"here": {}, "python": "x"}, "python cannot be set for workers; set it where they run"),
        ({"here": {}, "confine": "required"}, "it must be confined"),
    ],
)
@pytest.mark.usefixtures("_installed")
async def test_what_is_wrong_with_an_engine_is_named(run: dict[str, object], said: str) -> None:
    entry = {"type": "hello", "enabled": True, "run": run}
    with pytest.raises(ConfigError) as raised:
        await open_host({"store": "memory://", "providers": {"made": entry}}).__aenter__()
    assert said in str(raised.value)


@pytest.mark.usefixtures("_installed")
def test_engines_are_found_beside_packages_that_cannot_be_read(tmp_path: Path) -> None:
    write_package(tmp_path / "site", "broken", ENGINES.encode() + b"\xff")
    found = find_engines()
    assert found["here"] == EntryPoint("here", "tests.apart.test_engines:ActorsHere", ENGINES)
    assert "ray" in found
