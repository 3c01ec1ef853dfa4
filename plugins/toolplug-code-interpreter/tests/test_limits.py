"""Limits hold for all processes of a container together."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

SMALL = {"memory": "128MiB", "processes": 24, "disk": "16MiB"}

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.process,
    pytest.mark.needs("bwrap"),
    pytest.mark.requirement("I3-code-limits"),
]


async def test_a_process_that_takes_too_much_memory_gets_an_exception_and_keeps_its_state(small: Any) -> None:
    box = await small.one.container()
    result = await small.one.call("x = 1\ny = bytearray(500_000_000)", box)
    assert (result.status, result.output.splitlines()[-1]) == ("tool_error", "MemoryError")
    assert await small.one.run("x", box) == "1"


async def test_processes_that_take_too_much_memory_together_end_the_container(small: Any) -> None:
    code = (
        "import os, time\nfor _ in range(4):\n    if not os.fork():\n"
        "        kept = bytearray(50_000_000)\n        time.sleep(30)\n        os._exit(0)\ntime.sleep(30)"
    )
    result = await small.one.call(code)
    assert result.status == "tool_error"
    assert "its processes used more than 128.0MiB of memory together" in result.output


async def test_memory_that_forked_processes_share_counts_once(small: Any) -> None:
    code = (
        "import os, time\nkept = bytearray(b'x') * 60_000_000\n"
        "children = [os.fork() for _ in range(1)]\nif not children[0]:\n    time.sleep(0.5)\n    os._exit(0)\n"
        "if not os.fork():\n    time.sleep(0.5)\n    os._exit(0)\nos.wait(), os.wait()\nlen(kept)"
    )
    assert await small.one.run(code) == "60000000"


async def test_memory_of_a_process_whose_first_thread_has_ended_counts(small: Any) -> None:
    code = (
        "import ctypes, os, threading, time\n"
        "def greedy():\n    kept = [bytearray(30_000_000) for _ in range(3)]\n    time.sleep(30)\n"
        "for _ in range(2):\n    if not os.fork():\n        threading.Thread(target=greedy).start()\n"
        "        ctypes.CDLL(None).syscall(60, 0)\ntime.sleep(30)"
    )
    result = await small.one.call(code)
    assert result.status == "tool_error"
    assert "of memory together" in result.output


async def test_shared_memory_counts(small: Any) -> None:
    code = "import mmap\nm = mmap.mmap(-1, 400_000_000)\nfor _ in range(400): m.write(b'x' * 1_000_000)\ninput()"
    result = await small.one.call(code)
    assert result.status == "tool_error"
    assert "of memory together" in result.output


async def test_a_fork_bomb_gets_no_more_than_its_processes(small: Any) -> None:
    box = await small.one.container()
    code = (
        "import os, time\ncount = 0\nwhile True:\n    try:\n        if not os.fork():\n            time.sleep(60)\n"
        "            os._exit(0)\n    except BlockingIOError:\n        break\n    count += 1\ncount"
    )
    assert await small.one.run(code, box) == "23"


async def test_a_fork_bomb_ends_with_its_call_and_others_do_not_notice(serve: Any) -> None:
    async with serve(**{**SMALL, "time": 1}) as served:
        bomb = asyncio.create_task(
            served.one.call("import os\nwhile True:\n    try: os.fork()\n    except OSError: pass")
        )
        assert await served.two.run("1 + 1") == "2"
        assert (await bomb).status == "tool_error"


async def test_threads_count_as_processes(small: Any) -> None:
    code = (
        "import threading\nthreading.stack_size(1 << 18)\n"
        "stop = threading.Event()\ncount = 0\ntry:\n    while True:\n"
        "        threading.Thread(target=stop.wait, daemon=True).start()\n        count += 1\n"
        "except RuntimeError: pass\ncount"
    )
    assert await small.one.run(code) == "23"


async def test_files_take_no_more_than_the_disk_together(small: Any) -> None:
    code = (
        "import os\ntotal = 0\nfor path in ('/mnt/data', '/tmp', '/dev/shm'):\n    try:\n"
        "        for n in range(100):\n"
        "            with open(f'{path}/{n}', 'wb') as f: total += f.write(bytes(1 << 20))\n"
        "    except OSError as error: last = error.errno\ntotal >> 20, last"
    )
    result = await small.one.call(code)
    assert result.structured["value"] in ("(16, 28)", "(15, 28)")


async def test_a_file_that_grows_without_end_gets_an_error(small: Any) -> None:
    result = await small.one.call("with open('big', 'wb') as f:\n    while True: f.write(bytes(1 << 20))")
    assert result.status == "tool_error"
    assert result.output.splitlines()[-2].startswith("OSError: [Errno 2")


async def test_files_without_content_are_limited_too(small: Any) -> None:
    code = "n = 0\nwhile True:\n    open(f'/tmp/{n}', 'w').close()\n    n += 1"
    result = await small.one.call(code)
    assert (result.status, "it had more than 4096 files" in result.output) == ("tool_error", True)


async def test_output_ends_at_its_limit_and_what_was_written_before_comes_back(small: Any) -> None:
    box = await small.one.container()
    result = await small.one.call("x = 1\nwhile True: print('y' * 99)", box)
    assert result.status == "tool_error"
    assert result.output.endswith("The code was stopped: it wrote more than 64.0KiB.")
    assert len(result.output) < 70_000
    assert await small.one.run("x", box) == "1"


async def test_a_last_value_is_no_longer_than_the_output(small: Any) -> None:
    assert len(await small.one.run("'x' * 1_000_000")) == 65536
