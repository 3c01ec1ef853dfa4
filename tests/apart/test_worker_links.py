"""The host's side of a worker, against one that a test speaks for: which calls had begun, and what is no worker."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import pytest
from tests.apart.starting import provider_of, until

from toolplug import CallContext, ToolCall, open_host
from toolplug.apart.frames import ANSWER, ASK, CALL, PROTOCOL, RESULT, FrameReader, encode_frame
from toolplug.apart.limits import BEAT_S, MAX_WORKER_MESSAGE, MISSED_BEATS
from toolplug.apart.processes import ProcessTarget
from toolplug.apart.workers import link as links
from toolplug.apart.workers.link import WorkerLink
from toolplug.apart.workers.provider import DialledProvider
from toolplug.apart.workers.supervisor import WorkerPlan, WorkerSupervisor
from toolplug.catalog.call import ToolResult
from toolplug.config.run_settings import RunSettings
from toolplug.providers.entry import DesiredProvider, ProviderEntry
from toolplug.providers.registry import FunctionRegistry

pytestmark = [pytest.mark.anyio, pytest.mark.requirement("I36-worker")]

TOOL = {
    "name": "one",
    "description": "Do one thing.",
    "parameters": {"type": "object", "properties": {}},
    "output": None,
    "hints": [None] * 4,
    "timeout_s": None,
    "title": "",
    "icons": [],
    "meta": {},
}
OFFERED: dict[str, Any] = {
    "tools": [TOOL],
    "prompts": [],
    "resources": [],
    "routes": [],
    "hooks": [],
    "accepts_key": False,
    "families": [],
}


class Spoken:
    """A worker that a test speaks for. It keeps its calls; `reads` is whether it takes what the host sends."""

    def __init__(
        self,
        provider: DialledProvider,
        name: str = "spoken",
        offered: object = OFFERED,
        *,
        protocol: object = PROTOCOL,
        greets: bool = True,
    ) -> None:
        self.calls: list[int] = []
        self.notes: list[dict[str, Any]] = []
        self.reads = asyncio.Event()
        self.reads.set()
        self._offered = offered
        self._reader = FrameReader(MAX_WORKER_MESSAGE)
        self._sent: asyncio.Queue[Any] = asyncio.Queue()
        self.link = WorkerLink(self._sent.get, self._take)
        self.serving = asyncio.create_task(provider.serve(self.link, "1"))
        if greets:
            self.tell(note="hello", protocol=protocol, name=name)

    def tell(self, **note: object) -> None:
        self.receive({"text": json.dumps(note)})

    def send(self, data: bytes) -> None:
        self.receive({"bytes": data})

    def receive(self, message: dict[str, object]) -> None:
        self._sent.put_nowait({"type": "websocket.receive", **message})

    def leave(self) -> None:
        self._sent.put_nowait({"type": "websocket.disconnect"})

    def answer(self, number: int) -> None:
        self.send(encode_frame(RESULT, {"id": number, "status": "success"}, b"done"))

    async def _take(self, message: Any) -> None:
        await self.reads.wait()
        text = message.get("text")
        if text is not None:
            note = json.loads(text)
            self.notes.append(note)
            if note["note"] == "describe":
                self.tell(note="described", problems=[], secrets=[])
            return
        self._reader.add(message["bytes"])
        for kind, head, _ in self._reader:
            if kind == ASK:
                found = self._offered if head["ask"] == "start" else {}
                self.send(encode_frame(ANSWER, {**cast("dict[str, Any]", found), "id": head["id"]}))
            elif kind == CALL:
                self.calls.append(head["id"])

    @property
    def refusal(self) -> str:
        return next((note["reason"] for note in self.notes if note["note"] == "refused"), "")


@asynccontextmanager
async def waiting() -> AsyncGenerator[FunctionRegistry]:
    made = DialledProvider(ProcessTarget(key="made", owner="provider 'made'", hello={"type": "made"}))
    entry = ProviderEntry(key="made", type="made", run=RunSettings(worker=True))
    async with FunctionRegistry() as registry:
        await registry.apply([DesiredProvider(entry, lambda: made)])
        yield registry


def dialled(registry: FunctionRegistry) -> DialledProvider:
    return cast("DialledProvider", provider_of(registry))


async def join(registry: FunctionRegistry, name: str = "spoken") -> Spoken:
    provider = dialled(registry)
    before = len(provider.workers)
    spoken = Spoken(provider, name)
    await until(lambda: len(provider.workers) > before)
    return spoken


def begin(registry: FunctionRegistry) -> asyncio.Task[ToolResult]:
    return asyncio.create_task(registry.execute(ToolCall("c", "one", {}), CallContext()))


async def test_the_host_needs_neither_the_package_nor_the_file_of_an_entry() -> None:
    run = {"enabled": True, "run": {"worker": True}}
    entries = {"made": {**run, "type": "no_such_type"}, "file": {**run, "type": "./nowhere.py:Made"}}
    async with open_host({"store": "memory://", "providers": entries}, environ={}) as host:
        states = {record.key: (record.state, record.fix) for record in host.records() if record.key in entries}
    fix = "start one: toolplug worker {} --host URL"
    assert states == {key: ("waiting", fix.format(key)) for key in entries}


async def test_calls_that_have_not_left_the_host_run_in_another_worker() -> None:
    async with waiting() as registry:
        lost, other = await join(registry, "lost"), await join(registry, "other")
        lost.reads.clear()
        calls = [begin(registry) for _ in range(4)]
        await until(lambda: len(other.calls) == 2)
        assert lost.link.get_write_buffer_size() > 0
        lost.leave()
        await lost.serving
        await until(lambda: len(other.calls) == 3)
        for number in other.calls:
            other.answer(number)
        results = await asyncio.gather(*calls)
        assert sorted(str(each.status) for each in results) == ["success", "success", "success", "tool_error"]
        unknown = next(each for each in results if each.is_error)
        assert unknown.metadata == {"code": "outcome_unknown"}
        lost.reads.set()


async def test_calls_that_the_worker_has_not_begun_run_in_another_worker() -> None:
    async with waiting() as registry:
        lost = await join(registry, "lost")
        calls = [begin(registry) for _ in range(3)]
        await until(lambda: len(lost.calls) == 3)
        other = await join(registry, "other")
        lost.tell(note="ended", begun=lost.calls[0], reason="ended by signal 9")
        await until(lambda: len(other.calls) == 2)
        for number in other.calls:
            other.answer(number)
        first, *others = await asyncio.gather(*calls)
        assert first.metadata == {"code": "outcome_unknown"}
        assert "ended by signal 9" in first.output
        assert [each.output for each in others] == ["done", "done"]


async def test_without_another_worker_a_call_that_has_not_begun_is_unavailable() -> None:
    async with waiting() as registry:
        lost = await join(registry)
        call = begin(registry)
        await until(lambda: lost.calls)
        lost.tell(note="ended", begun=0, reason="ended with status 3")
        found = await call
        assert (found.status, found.metadata) == ("unavailable", {"code": "no_worker"})
        await lost.serving
        assert registry.records()[0].state == "waiting"


async def test_what_a_worker_says_is_one_line_without_what_a_terminal_would_do() -> None:
    odd = "one\nERROR forged\x1b[2J\u202e"
    async with waiting() as registry:
        other = Spoken(dialled(registry), odd, protocol=odd)
        await other.serving
        assert "one ERROR forged[2J was refused" in registry.records()[0].reason
        lost = await join(registry, odd * 500)
        (worker,) = dialled(registry).workers
        assert worker.name.startswith("one ERROR forged[2J")
        assert len(worker.name) <= 200
        call = begin(registry)
        await until(lambda: lost.calls)
        lost.tell(note="ended", begun=lost.calls[0], reason=odd)
        said = (await call).output
        assert said.endswith("one ERROR forged[2J")
        assert not set("\n\x1b\u202e") & set(said + registry.records()[0].reason)


async def test_a_worker_without_a_sign_of_life_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    assert (MISSED_BEATS + 1) * BEAT_S < 5, "the death of a worker is seen within 5 s"
    monkeypatch.setattr(links, "BEAT_S", 0.02)
    async with waiting() as registry:
        silent = await join(registry)
        call = begin(registry)
        await silent.serving
        assert "gave no sign of life" in (await call).output


async def test_a_worker_that_is_to_end_gets_no_calls_and_ends_after_those_that_run() -> None:
    async with waiting() as registry:
        old, new = await join(registry, "old"), await join(registry, "new")
        call = begin(registry)
        await until(lambda: old.calls or new.calls)
        first, second = (old, new) if old.calls else (new, old)
        first.tell(note="draining")
        await until(first.link.draining.is_set)
        later = [begin(registry) for _ in range(3)]
        await until(lambda: len(second.calls) == 3)
        assert not first.serving.done()
        first.answer(first.calls[0])
        assert (await call).output == "done"
        await first.serving
        for number in second.calls:
            second.answer(number)
        await asyncio.gather(*later)


@pytest.mark.parametrize("protocol", [PROTOCOL + 1, PROTOCOL - 2, "1", None])
async def test_a_worker_of_another_protocol_is_told_what_to_update(protocol: object) -> None:
    async with waiting() as registry:
        other = Spoken(dialled(registry), "other", protocol=protocol)
        await other.serving
        assert other.refusal == f"it speaks protocol {protocol!r}, and this host {PROTOCOL} and {PROTOCOL - 1}"
        side = "host" if protocol == PROTOCOL + 1 else "worker"
        assert [each["fix"] for each in other.notes if each["note"] == "refused"] == [f"update toolplug of the {side}"]
        assert other.refusal in registry.records()[0].reason


async def test_a_worker_of_the_protocol_before_serves() -> None:
    async with waiting() as registry:
        _ = Spoken(dialled(registry), "before", protocol=PROTOCOL - 1)
        await until(lambda: dialled(registry).workers)


@pytest.mark.parametrize(
    "offered",
    [
        {**OFFERED, "families": 5},
        {**OFFERED, "tools": [{**TOOL, "parameters": {"type": "nothing"}}]},
        {**OFFERED, "tools": [{"name": "one"}]},
        {**OFFERED, "hooks": 7},
        {"families": []},
    ],
)
async def test_an_offer_that_is_not_valid_costs_the_worker_and_nothing_else(offered: object) -> None:
    async with waiting() as registry:
        good = await join(registry)
        bad = Spoken(dialled(registry), "bad", offered)
        await bad.serving
        assert bad.refusal
        assert [each.name for each in dialled(registry).workers] == ["spoken"]
        call = begin(registry)
        await until(lambda: good.calls)
        good.answer(good.calls[0])
        assert (await call).output == "done"


@pytest.mark.parametrize(
    "message",
    [
        {"text": "no JSON"},
        {"text": "[]"},
        {"text": '{"note": "other"}'},
        {"text": "x" * (MAX_WORKER_MESSAGE + 1)},
        {"bytes": b"x" * (MAX_WORKER_MESSAGE + 1)},
        {"bytes": b"\xff" * 64},
    ],
)
async def test_what_is_no_message_ends_the_connection(message: dict[str, object]) -> None:
    async with waiting() as registry:
        bad = await join(registry)
        call = begin(registry)
        await until(lambda: bad.calls)
        bad.receive(message)
        await bad.serving
        assert (await call).metadata == {"code": "outcome_unknown"}
        assert registry.records()[0].state == "waiting"


async def test_a_frame_before_the_start_ends_the_connection() -> None:
    async with waiting() as registry:
        early = Spoken(dialled(registry), greets=False)
        early.send(encode_frame(RESULT, {"id": 1, "status": "success"}))
        await early.serving
        assert not dialled(registry).workers


@pytest.mark.process
async def test_a_worker_whose_host_is_away_says_so_once_however_often_it_dials(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # and does not listen: each attempt is refused
        host = f"http://127.0.0.1:{taken.getsockname()[1]}"
        supervisor = WorkerSupervisor(WorkerPlan(key="desk", host=host, credential=None, folder=tmp_path))
        running = asyncio.create_task(supervisor.run())
        await until(lambda: supervisor.failures >= 3)
        supervisor.stop()
        await running
    warnings = [record.message for record in caplog.records if record.name == "toolplug.worker"]
    assert len(warnings) == 1
    assert warnings[0].startswith(f"no connection with {host}: ")
    assert warnings[0].endswith("; trying again until a host answers (--host names it)")
