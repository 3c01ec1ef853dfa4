"""A function that reads a stranger's document costs its process, never the host."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import subprocess
import threading
from io import BytesIO
from pathlib import Path
from time import sleep

import pytest
from tests.apart import documents
from tests.apart.starting import is_gone, until

from toolplug.apart import ApartCallFailed, FunctionProcess, call, calls
from toolplug.errors import InvalidDefinition
from toolplug.runtime.threads import in_own_thread

pytestmark = [pytest.mark.anyio, pytest.mark.process]

MEMORY = 256 * 1024 * 1024


async def failure(
    function: object, data: bytes = b"", *, seconds: float = 30, max_bytes: int = 1_000_000
) -> ApartCallFailed:
    with pytest.raises(ApartCallFailed) as caught:
        await call(function, data, seconds, MEMORY, max_bytes=max_bytes)  # type: ignore[arg-type]
    return caught.value


@pytest.mark.requirement("I36-call")
async def test_a_function_is_given_bytes_and_its_answer_comes_back_whole() -> None:
    data = os.urandom(3_000_000)
    assert await call(documents.double, data, 30, MEMORY) == data * 2
    assert await call(documents.double, b"", 30, MEMORY) == b""
    assert await call(documents.in_pieces, b"2000001", 30, MEMORY) == b"x" * 2_000_001


@pytest.mark.requirement("I36-call")
async def test_its_process_has_no_variable_of_the_host_that_may_hold_a_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("API_KEY", "secret")
    monkeypatch.setenv("LANG", "C.UTF-8")
    pid, *names = (await call(documents.show_process, b"", 30, MEMORY)).decode().split()
    assert int(pid) != os.getpid()
    assert "LANG" in names
    assert set(names) <= {"PATH", "LANG", "LC_ALL", "LC_CTYPE", "PYTHONDONTWRITEBYTECODE"}


ENDS = [
    (documents.spin, b"", 0.3, "time", "it takes longer than 0.3 s"),
    (documents.wait_for_ever, b"", 0.2, "time", "it takes longer than 0.2 s"),
    (documents.eat_memory, b"", 30, "memory", "it takes more memory than it may have"),
    (documents.crash, b"", 30, "ended", "its process ended (signal 11)"),
    (documents.leave, b"7", 30, "ended", "its process ended (status 7)"),
    (documents.raise_it, b"value", 30, "raised", "it raised ValueError: wrong"),
    (documents.raise_it, b"exit", 30, "raised", "it raised SystemExit: 0"),
    (documents.raise_it, b"import", 30, "import", "a package is missing: ImportError: no such package"),
    (documents.raise_late, b"", 30, "raised", "it raised ValueError: late"),
    (documents.return_none, b"", 30, "raised", "it raised TypeError: 'NoneType' object is not iterable"),
    (documents.in_pieces, b"1000001", 30, "answer", "its answer has more than 1000000 bytes"),
    (documents.forge, b"p\xff\xff\xff\xff", 30, "answer", "its process sent no answer"),
    (documents.forge, b"z\0\0\0\1z", 30, "answer", "its process sent no answer"),
    (documents.forge, b"x\0\0\0\2[]", 30, "answer", "its process sent no answer"),
]


@pytest.mark.requirement("I36-call")
@pytest.mark.parametrize(("function", "data", "seconds", "reason", "text"), ENDS, ids=range(len(ENDS)))
async def test_each_end_without_an_answer_has_its_reason_and_costs_one_process(
    function: object, data: bytes, seconds: float, reason: str, text: str
) -> None:
    error = await failure(function, data, seconds=seconds)
    assert (error.reason, str(error)) == (reason, text)
    assert reason != "time" or error.status == -(signal.SIGPROF if function is documents.spin else signal.SIGKILL)
    assert await call(documents.double, b"a", 30, MEMORY) == b"aa"


@pytest.mark.requirement("I36-call")
async def test_a_call_that_is_late_says_so_though_its_end_is_seen_before_who_ended_it_goes_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kill = vars(calls)["_kill"]

    def kill_slowly(process: subprocess.Popen[bytes]) -> None:
        kill(process)
        sleep(0.5)

    monkeypatch.setattr(calls, "_kill", kill_slowly)
    assert (await failure(documents.wait_for_ever, b"", seconds=0.2)).reason == "time"


@pytest.mark.requirement("I36-call")
async def test_memory_is_what_the_whole_process_may_have() -> None:
    assert await call(documents.take, b"30000000", 30, MEMORY) == b"30000000"
    assert (await failure(documents.take, str(MEMORY).encode())).reason == "memory"


async def test_what_a_process_printed_last_stands_with_its_end() -> None:
    error = await failure(documents.leave, b"7")
    assert (error.status, error.said) == (7, "last words")
    assert (await failure(documents.crash)).status == -11


@pytest.mark.requirement("I36-call")
async def test_what_a_function_prints_and_reads_is_no_part_of_the_answer() -> None:
    assert await call(documents.talk, b"a document", 30, MEMORY) == b"quiet"


@pytest.mark.requirement("I36-call")
async def test_a_document_does_not_fill_the_disk(tmp_path: Path) -> None:
    error = await failure(documents.fill, str(tmp_path / "large").encode())
    assert error.reason == "raised"
    assert (tmp_path / "large").stat().st_size <= MEMORY


@pytest.mark.requirement("I36-call")
async def test_a_cancelled_call_ends_its_process_and_leaves_no_thread(tmp_path: Path) -> None:
    place = tmp_path / "pid"
    running = asyncio.create_task(call(documents.wait_for_ever, str(place).encode(), 60, MEMORY))
    await until(lambda: place.exists() and place.read_text())
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    await until(lambda: is_gone(int(place.read_text())))
    await until(lambda: not [each for each in threading.enumerate() if each.name.startswith("toolplug-apart")])


async def test_a_call_that_is_cancelled_at_once_starts_nothing_that_stays() -> None:
    for _ in range(20):
        running = asyncio.create_task(call(documents.wait_for_ever, b"", 60, MEMORY))
        await asyncio.sleep(0)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
    await until(lambda: not [each for each in threading.enumerate() if each.name.startswith("toolplug-apart")])


async def test_what_a_function_has_started_ends_with_its_process() -> None:
    pid = int(await call(documents.leave_a_child, b"", 30, MEMORY))
    await until(lambda: is_gone(pid))


@pytest.mark.requirement("I36-call")
async def test_calls_leave_no_descriptor() -> None:
    await call(documents.double, b"a", 30, MEMORY)
    gc.collect()
    before = len(os.listdir("/proc/self/fd"))
    for function, data in ((documents.double, b"a"), (documents.leave, b"3"), (documents.eat_memory, b"")):
        try:
            await call(function, data, 30, MEMORY)
        except ApartCallFailed:
            continue
    await until(lambda: not [each for each in threading.enumerate() if each.name.startswith("toolplug-apart")])
    assert len(os.listdir("/proc/self/fd")) == before


def answer_of(process: FunctionProcess, data: bytes) -> bytes:
    answer = BytesIO()
    process.run(data, answer)
    return answer.getvalue()


@pytest.mark.requirement("I36-call")
def test_a_kept_process_serves_many_calls_and_is_another_one_after_its_end() -> None:
    with FunctionProcess(documents.remember, seconds=30, memory=MEMORY) as process:
        assert process.pid is None
        assert answer_of(process, b"a") == b"a"
        assert answer_of(process, b"b") == b"a,b"
        process.rest()
        assert process.pid is None
        assert answer_of(process, b"c") == b"c"
    with pytest.raises(ApartCallFailed) as caught:
        process.run(b"d", BytesIO())
    assert caught.value.reason == "stopped"


def test_the_call_after_one_that_took_all_memory_has_a_new_process() -> None:
    with FunctionProcess(documents.eat_memory, seconds=30, memory=MEMORY) as process:
        for _ in range(2):
            with pytest.raises(ApartCallFailed, match="more memory"):
                process.run(b"", BytesIO())
            assert process.pid is None


def test_seconds_are_those_of_one_call() -> None:
    with FunctionProcess(documents.in_pieces, seconds=0.5, memory=MEMORY) as process:
        for _ in range(60):
            assert len(answer_of(process, b"20000000")) == 20_000_000
        assert process.pid is not None


async def test_a_function_that_a_process_cannot_import_is_refused() -> None:
    def inner(data: bytes) -> bytes:
        return data

    for function in (inner, lambda data: data, 5):
        with pytest.raises(InvalidDefinition, match="give a function at the top of a module"):
            await call(function, b"", 1, MEMORY)  # type: ignore[arg-type]


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="the CPU time of another process is read in /proc")
@pytest.mark.requirement("I36-call")
async def test_the_time_of_a_call_ends_with_it() -> None:
    with FunctionProcess(documents.work_on_after_it, seconds=0.5, memory=MEMORY) as process:

        def run(seconds: bytes) -> str:
            answer = BytesIO()
            process.run(seconds, answer)
            return answer.getvalue().decode()

        first = await in_own_thread(lambda: run(b"1.5"))
        before = _cpu_s(first)
        # What a library does after its answer is nobody's call: were its timer on, the process would be gone by now.
        await until(lambda: is_gone(int(first)) or _cpu_s(first) - before >= 1.0)
        assert await in_own_thread(lambda: run(b"0")) == first


def _cpu_s(pid: str) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
