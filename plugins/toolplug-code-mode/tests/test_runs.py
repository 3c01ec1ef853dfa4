"""What is kept of runs, what limits them after they have paused, and processes that are after the same one."""

from __future__ import annotations

import asyncio
import json
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from tests.faulty_store import FaultyStore

from toolplug import ToolStatus, tool
from toolplug.host.file.store_entry import ConfiguredStore
from toolplug.stores.memory import MemoryStore
from toolplug_code_mode import runs, scripts
from toolplug_code_mode.calls import MadeCall, list_made
from toolplug_code_mode.limits import MAX_LINES, MAX_SHOWN

from .conftest import BEA, Serve, Shop

pytestmark = [pytest.mark.anyio, pytest.mark.requirement("I37-runs")]

ASK = {"order": "ask"}
RESUME = Path(__file__).with_name("resume_child.py")


class GatedShop(Shop):
    """A shop whose scripts can be held up."""

    def __init__(self) -> None:
        super().__init__()
        self.reached, self.opened = asyncio.Event(), asyncio.Event()

    @tool(read_only=True)
    async def gate(self) -> str:
        """Wait until it is opened."""
        self.reached.set()
        await self.opened.wait()
        return "open"


def records_of(file: Path) -> list[bytes]:
    """The records of runs in a store."""
    with closing(sqlite3.connect(file)) as connection:
        return [value for (value,) in connection.execute("SELECT value FROM records WHERE key LIKE '%/run/%'")]


async def test_the_journal_says_nothing_in_clear_and_is_cut(serve: Serve, tmp_path: Path) -> None:
    file = tmp_path / "store.db"
    async with serve({"callers": "all"}, ASK, store=f"sqlite:///{file}") as opened:
        code = "await remember(text='confidential' * 9_999)\nawait order(item='confidential')\nraise ValueError('x')"
        ticket = await opened.decide(await opened.run(code))
        (record,) = records_of(file)
        assert b"confidential" not in record
        assert b"remember" not in record
        assert len(record) < 8_192
        result = await opened.go_on(code, ticket)
        (line,) = [each for each in result.output.split("[") if each.startswith("calls that it had made: ")]
        assert 'remember(text="confidential' in line
        assert line.endswith('…): success; order(item="confidential"): success]')
        assert len(line) < MAX_SHOWN + 100


async def test_a_call_that_may_change_something_costs_a_commit_more(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def fails(operation: str) -> bool:
        asked.append(operation)
        return False

    async with MemoryStore() as inner:
        store = FaultyStore(inner)
        store.fails = fails
        monkeypatch.setattr(ConfiguredStore, "open", lambda _: store)
        async with serve({"callers": "all"}) as opened:

            async def count(code: str) -> int:
                asked.clear()
                assert not (await opened.run(code)).is_error
                return asked.count("commit")

            await count("await order(item='tea')")  # the first one also makes the key of the host
            # Read-only calls leave nothing; one that may change something is a commit, and its run begins and ends.
            assert await count("for n in range(10):\n    await price(item='tea')") == 0
            assert [await count(f"for n in range({n}):\n    await order(item='tea')") for n in (1, 2, 10)] == [3, 4, 12]
            assert len(opened.shop.orders) == 14


async def test_a_run_ends_and_pauses_under_its_lease(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between the end of the lease and that of the run, another process would find it lost."""
    leased: list[bool] = []

    def watch(name: str) -> None:
        method = getattr(runs.Run, name)

        async def watched(run: runs.Run, *args: Any) -> None:
            leased.append(await run.is_leased())
            await method(run, *args)

        monkeypatch.setattr(runs.Run, name, watched)

    watch("pause")
    watch("end")
    async with serve({"callers": "all"}, ASK) as opened:
        code = "await remember(text='a')\nawait order(item='tea')"
        await opened.go_on(code, await opened.decide(await opened.run(code)))
    assert leased == [True, True]


def test_of_many_calls_the_newest_are_listed_and_the_others_counted() -> None:
    made = [MadeCall("order", f"order(n={n})", None if n % 3 else "success") for n in range(MAX_LINES + 6)]
    lines = list_made(made)
    assert lines[:2] == ["2 times order: success", "4 times order: outcome unknown"]
    assert lines[2:] == [each.line for each in made[6:]]
    assert list_made(made[:3]) == [each.line for each in made[:3]]


async def test_a_call_that_waits_for_another_looks_ever_less_often(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = 0

    async def find_runs(*args: Any) -> list[runs.Run]:
        nonlocal looks
        looks += 1
        return await runs.find_runs(*args)

    monkeypatch.setattr(scripts, "find_runs", find_runs)
    async with serve(tools=ASK) as opened:
        code = "await order(item='tea')\nawait wait(s=1.5)"
        ticket = await opened.decide(await opened.run(code))
        looks = 0
        results = await asyncio.gather(*(opened.go_on(code, ticket) for _ in range(2)))
        assert [each.structured for each in results] == [{"result": "waited"}] * 2
    assert looks <= 9


async def test_the_limits_hold_after_a_pause(serve: Serve) -> None:
    async with serve({"max_calls": 3, "max_s": 0.5, "memory": "8MiB"}, ASK) as opened:
        for rest, words in {
            "await who()\nawait who()": "a script may make 3 calls of tools, and this is one more",
            "while True:\n    pass": "TimeoutError",
            "x = [0]\nwhile True:\n    x += x": "MemoryError",
        }.items():
            code = f"await who()\nawait order(item='tea')\n{rest}"
            result = await opened.go_on(code, await opened.decide(await opened.run(code)))
            assert (result.status, words in result.output) == (ToolStatus.TOOL_ERROR, True), result.output


async def test_a_process_that_was_only_slow_makes_nothing_more(
    serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runs, "LEASE_S", 0.05)
    monkeypatch.setattr(runs, "RENEWED_EVERY_S", 60.0)
    store, slow, shop = f"sqlite:///{tmp_path / 'store.db'}?shared=true", GatedShop(), GatedShop()
    code = "await order(item='tea')\nawait gate()\nawait order(item='milk')"
    async with (
        serve({"callers": "all"}, shop=slow, store=store) as first,
        serve({"callers": "all"}, shop=shop, store=store) as second,
    ):
        running = asyncio.create_task(first.run(code))
        await slow.reached.wait()
        repeated = await second.run(code)
        slow.opened.set()
        for result in (repeated, await running, await second.run(code)):
            assert result.metadata == {"code": "outcome_unknown"}
            assert '[calls that it had made: order(item="tea"): ' in result.output
        assert (slow.orders, shop.orders) == (["tea"], [])


@pytest.mark.process
async def test_of_two_processes_that_resume_at_once_one_goes_on(serve: Serve, tmp_path: Path) -> None:
    file = tmp_path / "store.db"
    code = "made = await order(item='tea')\n[made, await order(item='milk')]"
    async with serve({"callers": "all"}, ASK, store=f"sqlite:///{file}?shared=true") as opened:
        ticket = await opened.decide(await opened.run(code))

        def resume(ticket: str) -> list[dict[str, Any]]:
            children = [
                subprocess.Popen(
                    [sys.executable, RESUME, str(tmp_path), code, ticket],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    text=True,
                )
                for _ in range(2)
            ]
            try:
                for child in children:
                    assert child.stdout is not None
                    assert child.stdout.readline() == "ready\n"
                answers = [child.communicate(timeout=60)[0] for child in _together(children)]
            finally:
                for child in children:
                    child.kill()
                    child.wait()
            return [json.loads(answer) for answer in answers]

        first = await asyncio.get_running_loop().run_in_executor(None, resume, ticket)
        assert {each["approval"] for each in first} == {first[0]["approval"]}
        assert (tmp_path / "effects").read_text() == "tea\n"
        await opened.host.approvals.decide(first[0]["approval"], "approve", BEA)
        second = await asyncio.get_running_loop().run_in_executor(None, resume, first[0]["approval"])
        assert [each["output"] for each in second] == ['{"result":["tea","milk"]}'] * 2
    assert (tmp_path / "effects").read_text() == "tea\nmilk\n"


def _together(children: list[subprocess.Popen[str]]) -> list[subprocess.Popen[str]]:
    """Let the children begin before the answer of one is waited for."""
    for child in children:
        assert child.stdin is not None
        child.stdin.write("go\n")
        child.stdin.flush()
    return children
