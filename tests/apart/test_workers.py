"""Workers that dial in: what they do, how calls are spread, and what becomes of calls when one of them dies."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from shutil import copy

import pytest
from tests.apart.starting import until
from tests.apart.worker_host import ADMIN, CALLER, HERE, KEY, Served, entry, served

pytestmark = [pytest.mark.anyio, pytest.mark.process, pytest.mark.requirement("I36-worker")]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The folder of a worker, with the files of the tests."""
    for name in ("everything.py", "plain.py"):
        copy(HERE / name, tmp_path / name)
    return tmp_path


def children(pid: int) -> Iterator[int]:
    text = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    yield from map(int, text.split())


async def test_what_a_provider_does_it_does_in_a_worker(folder: Path) -> None:
    async with served(folder, entry(settings={"word": "tea", "key": "a-secret"}, public_routes=True)) as host:
        assert (await host.call("echo", value=1))["status"] == "unknown_tool"
        record = host.host.records()[0]
        assert (record.state, record.reason) == ("waiting", "waiting for a worker")
        assert record.fix == "start one: toolplug worker made --host URL"
        worker = await host.start_worker(folder=folder, CUDA_VISIBLE_DEVICES="3")
        await host.dialled()
        assert host.host.records()[0].state == "active"
        assert (await host.call("echo", value=10**30))["output"] == str(10**30)
        who = await host.call("who")
        assert '"tenant":"acme"' in str(who["output"]).replace(" ", "")
        variables = json.loads(str(who["output"]))["environment"]
        assert "CUDA_VISIBLE_DEVICES" in variables
        assert "TOOLPLUG_KEY" not in variables
        assert [(await host.call("note", text=text))["output"] for text in ("a", "b")] == ['["a"]', '["a","b"]']
        assert (await host.call("chain", depth=2))["output"] == "acme"
        thing = (await host.client.get("/v1/things/7?a=b")).json()
        assert (thing["number"], thing["tenant"], thing["authorization"]) == (7, "acme", None)
        sent = await host.client.post("/v1/open", content=b"x" * 900_000)
        assert (sent.status_code, sent.json()["size"]) == (201, 900_000)
        assert len((await host.client.get("/v1/stream?size=200")).content) == 2_000_000
        made = [worker.pid, *children(worker.pid)]
        assert len(made) == 2
        for pid in made:
            shown = Path(f"/proc/{pid}/cmdline").read_bytes() + Path(f"/proc/{pid}/environ").read_bytes()
            assert b"a-secret" not in shown
        assert KEY.encode() not in Path(f"/proc/{worker.pid}/cmdline").read_bytes()
        assert KEY.encode() not in Path(f"/proc/{made[1]}/environ").read_bytes()


async def test_a_call_goes_to_the_least_busy_worker(folder: Path) -> None:
    async with served(folder) as host:
        for count in (1, 2):
            await host.start_worker(folder=folder)
            await host.dialled(count)
        hanging = asyncio.create_task(host.call("hang"))
        await until(lambda: any(each.connection.load for each in host.provider.workers))
        busy = next(each for each in host.provider.workers if each.connection.load)
        pids = {json.loads(str((await host.call("who"))["output"]))["pid"] for _ in range(4)}
        assert len(pids) == 1, "the other one is idle"
        hanging.cancel()
        await until(lambda: busy.connection.load == 0)
        before = {each.used for each in host.provider.workers}
        await asyncio.gather(*(host.call("echo", value=1) for _ in range(4)))
        assert before.isdisjoint(each.used for each in host.provider.workers), "equal ones take turns"


@pytest.mark.parametrize("killed", ["process", "worker", "stopped"])
async def test_a_call_that_had_begun_is_of_unknown_outcome_and_others_are_served(folder: Path, killed: str) -> None:
    async with served(folder) as host:
        worker = await host.start_worker(folder=folder)
        await host.dialled()
        first = host.provider.workers[0]
        other = await host.start_worker(folder=folder)
        await host.dialled(2)
        begun = folder / "begun"
        hanging = asyncio.create_task(host.call("hang", mark=str(begun)))
        await until(begun.exists)  # before that it would run in the other worker
        busy = next(each for each in host.provider.workers if each.connection.load)
        dying = worker if busy is first else other
        match killed:
            case "process":
                os.kill(next(children(dying.pid)), signal.SIGKILL)
            case "worker":
                dying.kill()
            case _:
                # It neither ends nor answers: only its signs of life tell.
                dying.send_signal(signal.SIGSTOP)
        lost = await hanging
        assert lost["status"] == "tool_error"
        assert lost["metadata"] == {"code": "outcome_unknown"}
        assert busy not in host.provider.workers
        assert (await host.call("echo", value=1))["status"] == "success"
        if killed == "process":
            await host.dialled(2)  # the worker runs the provider again


async def test_without_a_worker_calls_are_unavailable_and_tools_stay(folder: Path) -> None:
    async with served(folder) as host:
        worker = await host.start_worker(folder=folder)
        await host.dialled()
        worker.kill()
        await host.dialled(0)
        found = await host.call("echo", value=1)
        assert (found["status"], found["metadata"]) == ("unavailable", {"code": "no_worker"})
        assert "waiting for a worker: toolplug worker made" in str(found["output"])
        record = host.host.records()[0]
        assert (record.state, "echo" in record.tools) == ("waiting", True)
        assert (await host.client.get("/v1/things/7")).status_code == 503
        assert await host.provider.diagnose() == [
            "waiting for a worker; start one: toolplug worker made --host URL",
        ]
        await host.start_worker(folder=folder)
        await host.dialled()
        assert (await host.call("echo", value=1))["status"] == "success"


async def test_a_worker_that_is_to_end_ends_after_its_calls(folder: Path) -> None:
    async with served(folder) as host:
        worker = await host.start_worker(folder=folder)
        await host.dialled()
        slow = asyncio.create_task(host.client.get("/v1/stream?size=2000"))
        await until(lambda: host.provider.workers[0].connection.load)
        worker.terminate()
        assert len((await slow).content) == 20_000_000
        _, text = await worker.communicate()
        assert worker.returncode == 0, text.decode()
        await host.dialled(0)


@pytest.mark.parametrize(
    ("key", "name", "said"),
    [
        ("wrong", "made", "no valid credentials"),
        (None, "made", "no valid credentials"),
        (CALLER, "made", "lacks the scope 'worker'"),
        (ADMIN, "made", "lacks the scope 'worker'"),
        (KEY, "mad", "no running provider 'mad' waits for workers; nearest: 'made'"),
    ],
)
async def test_a_worker_that_is_not_to_serve_is_refused(folder: Path, key: str | None, name: str, said: str) -> None:
    async with served(folder) as host:
        worker = await host.start_worker(key=key, name=name, folder=folder)
        _, text = await worker.communicate()
        assert worker.returncode == 1
        assert said in text.decode()
        assert not host.provider.workers


async def test_the_key_of_the_command_line_is_that_of_the_worker(folder: Path) -> None:
    async with served(folder) as host:
        await host.start_worker("--key", KEY, key="wrong", folder=folder)
        await host.dialled()
        both = await host.start_worker("--key", KEY, "--key-file", "key", key=None, folder=folder)
        _, text = await both.communicate()
        assert (both.returncode, "--key and --key-file are two ways" in text.decode()) == (2, True)


async def test_a_web_page_is_no_worker(folder: Path) -> None:
    async with served(folder, auth=False) as host:
        upgrade = {
            "Connection": "Upgrade",
            "Upgrade": "websocket",
            "Sec-WebSocket-Version": "13",
            "Sec-WebSocket-Key": "AAAAAAAAAAAAAAAAAAAAAA==",
        }
        for origin, code in ((host.url, "origin_not_allowed"), ("https://evil.example", "origin_not_allowed")):
            found = await host.client.get("/v1/workers/made", headers={**upgrade, "Origin": origin})
            assert (found.status_code, found.json()["error"]["code"]) == (403, code)
        assert (await host.client.get("/v1/workers/made")).status_code == 404


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (entry(settings={"wrod": "tea"}), "wrod"),
        (entry("Nothing"), "Nothing"),
        (entry(file="nothing"), "nothing.py"),
        ({**entry(), "type": "no_such_type"}, "no package in the environment of a worker"),
    ],
)
async def test_what_a_worker_cannot_run_is_said_on_both_sides(folder: Path, made: dict[str, object], said: str) -> None:
    async with served(folder, made) as host:
        worker = await host.start_worker(folder=folder)
        _, text = await worker.communicate()
        assert worker.returncode == 1
        assert said in text.decode()
        assert said in host.host.records()[0].reason


async def test_workers_that_list_something_else_get_no_calls_until_the_others_are_gone(folder: Path) -> None:
    async with served(folder, entry("Plain", "plain")) as host:
        await host.start_worker(folder=folder)
        await host.dialled()
        text = (folder / "plain.py").read_text()
        (folder / "plain.py").write_text(text.replace("async def one", "async def two"))
        newer = await host.start_worker(folder=folder)
        await host.dialled(2)
        await until(lambda: [tool.name for tool in host.host.registry.catalog.definitions()] == ["two"])
        assert (await host.call("two", text="a"))["output"] == "a"
        assert any("no calls go to" in each for each in await host.provider.diagnose())
        newer.kill()
        await host.dialled(1)
        await until(lambda: [tool.name for tool in host.host.registry.catalog.definitions()] == ["one"])
        assert (await host.call("one", text="b"))["output"] == "b"


async def test_metrics_are_sums_and_do_not_fall_when_a_worker_ends(folder: Path) -> None:
    def value(host: Served, name: str) -> float:
        return sum(
            sample.value
            for family in host.provider.collectors()[0].collect()
            for sample in family.samples
            if sample.name == name
        )

    async with served(folder) as host:
        workers = [await host.start_worker(folder=folder) for _ in range(2)]
        await host.dialled(2)
        assert value(host, "toolplug_apart_workers") == 2
        for _ in range(4):
            await host.call("echo", value=1)
        await until(lambda: value(host, "everything_calls_total") == 4)
        workers[0].kill()
        await host.dialled(1)
        assert (value(host, "everything_calls_total"), value(host, "toolplug_apart_restarts_total")) == (4, 1)


async def test_a_worker_dials_again_when_its_host_has_gone(folder: Path) -> None:
    async with served(folder) as host:
        await host.start_worker(folder=folder)
        await host.dialled()
        host.provider.workers[0].link.abort()
        await host.dialled(0)
        await host.dialled(1)
        assert (await host.call("echo", value=1))["status"] == "success"
