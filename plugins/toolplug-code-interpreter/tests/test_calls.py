"""Calls of the tool: what comes back, what stays from call to call, and how code ends that does not end by itself."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.anyio, pytest.mark.process, pytest.mark.needs("bwrap")]

PNG = (
    "import base64; open('dot.png', 'wb').write(base64.b64decode('iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQ"
    "VR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=='))"
)


@pytest.mark.requirement("I3-code-calls")
async def test_a_call_returns_what_the_code_prints_its_last_value_and_its_files(small: Any) -> None:
    code = "import sys\nprint('out')\nprint('err', file=sys.stderr)\nopen('a.csv', 'w').write('x,y')\n6 * 7"
    result = await small.one.call(code)
    assert result.output == 'out\nerr\n42\nfiles: "a.csv"'
    [file] = result.structured["files"]
    assert (result.structured["stdout"], result.structured["stderr"], result.structured["value"]) == (
        "out\n",
        "err\n",
        "42",
    )
    assert (file["name"], file["bytes"]) == ("a.csv", 3)
    assert result.parts == ({"type": "resource_link", "uri": file["content"], "name": "a.csv", "mimeType": "text/csv"},)
    assert await small.one.content(result.metadata["container_id"], file["id"]) == b"x,y"


async def test_output_of_other_processes_and_of_file_descriptors_comes_back_too(small: Any) -> None:
    code = (
        "import os, subprocess\nos.write(1, b'one\\n')\nsubprocess.run(['sh', '-c', 'echo two; echo three >&2'])\nNone"
    )
    assert await small.one.run(code) == "one\ntwo\nthree"


async def test_names_and_files_stay_in_a_container_and_are_fresh_without_one(small: Any) -> None:
    box = await small.one.container()
    assert await small.one.run("x = [1]\nopen('kept', 'w').close()", box) == 'files: "kept"'
    assert await small.one.run("x.append(2)\nimport os\nx, os.listdir()", box) == "([1, 2], ['kept'])"
    result = await small.one.call("x")
    assert (result.status, result.output.splitlines()[-1]) == ("tool_error", "NameError: name 'x' is not defined")


async def test_calls_of_one_session_share_a_container(small: Any) -> None:
    first = await small.one.call("x = 1", session="AAAAAAAA")
    second = await small.one.call("x + 1", session="AAAAAAAA")
    other = await small.two.call("x", session="AAAAAAAA")
    assert (second.output, other.is_error) == ("2", True)
    assert first.metadata["container_id"] == second.metadata["container_id"] != other.metadata.get("container_id")


async def test_of_two_people_behind_one_key_each_has_a_container_of_its_own(small: Any) -> None:
    mine, others = {"drive": "mine"}, {"drive": "other"}
    assert not (await small.one.call("x = 1", session="AAAAAAAA", credentials=mine)).is_error
    assert (await small.one.call("x", session="AAAAAAAA", credentials=others)).is_error
    assert (await small.one.call("x", session="AAAAAAAA", credentials=mine)).output == "1"


@pytest.mark.requirement("I3-code-calls")
async def test_an_exception_is_a_tool_error_with_the_frames_of_the_code_alone(small: Any) -> None:
    result = await small.one.call("import json\nprint('before')\ndef f(text):\n    return json.loads(text)\nf('{')")
    assert (result.status, result.is_error) == ("tool_error", True)
    assert result.output == (
        "before\n"
        "Traceback (most recent call last):\n"
        "  File \"<code 1>\", line 5, in <module>\n    f('{')\n"
        '  File "<code 1>", line 4, in f\n    return json.loads(text)\n           ^^^^^^^^^^^^^^^^\n'
        "json.decoder.JSONDecodeError: Expecting property name enclosed in double quotes: line 1 column 2 (char 1)"
    )


@pytest.mark.parametrize("code", ["def", "1/0", "raise SystemExit(3)", "import no_such_module", "'\\ud800'.encode()"])
async def test_whatever_the_code_raises_leaves_the_container_usable(small: Any, code: str) -> None:
    box = await small.one.container()
    assert (await small.one.call(code, box)).status == "tool_error"
    assert await small.one.run("1 + 1", box) == "2"


@pytest.mark.requirement("I3-code-calls")
async def test_an_image_comes_back_as_a_part_and_as_a_file(small: Any) -> None:
    result = await small.one.call(PNG)
    [image] = result.parts
    assert (image["type"], image["mimeType"], image["data"][:8]) == ("image", "image/png", "iVBORw0K")
    assert [each["type"] for each in result.metadata["outputs"]] == ["logs", "image"]
    box, [file] = result.metadata["container_id"], result.structured["files"]
    assert (await small.one.content(box, file["id"])).startswith(b"\x89PNG")


async def test_a_file_that_only_has_the_name_of_an_image_is_a_link(small: Any) -> None:
    [part] = (await small.one.call("open('no.png', 'w').write('<svg/>')")).parts
    assert part["type"] == "resource_link"


@pytest.mark.requirement("I3-code-limits")
async def test_code_that_never_ends_is_stopped_and_its_names_stay(serve: Any) -> None:
    async with serve(time=0.5) as served:
        box = await served.one.container()
        result = await served.one.call("x = 1\nwhile True: pass", box)
        assert result.status == "tool_error"
        assert "KeyboardInterrupt" in result.output
        assert result.output.endswith("The code was stopped: it ran for more than 0.5 s.")
        assert await served.one.run("x", box) == "1"


async def test_code_that_cannot_be_interrupted_ends_its_container(serve: Any) -> None:
    async with serve(time=0.3) as served:
        box = await served.one.container()
        code = "import time\nwhile True:\n    try: time.sleep(60)\n    except BaseException: pass"
        result = await served.one.call(code, box)
        assert (result.status, "more than 0.3 s, and could not be interrupted" in result.output) == ("tool_error", True)
        again = await served.one.call("1", box)
        assert (again.status, again.output.startswith(f"no container '{box}'")) == ("tool_error", True)
        assert (await served.one.http.get(f"/v1/containers/{box}")).status_code == 404
        assert served.metric("code_interpreter_runs_total", outcome="ended") == 1


async def test_a_cancelled_call_stops_its_code_and_leaves_the_container(small: Any) -> None:
    box = await small.one.container()
    call = asyncio.create_task(small.one.call("open('begun', 'w').close()\nimport time\ntime.sleep(60)", box))
    await asyncio.sleep(0.3)
    call.cancel()
    await asyncio.gather(call, return_exceptions=True)
    assert await small.one.run("import os\nos.listdir()", box) == "['begun']"


async def test_two_calls_of_one_container_run_one_after_the_other(small: Any) -> None:
    box = await small.one.container()
    code = "import time\nopen('log', 'a').write('<')\ntime.sleep(0.1)\nopen('log', 'a').write('>')"
    await asyncio.gather(*(small.one.call(code, box) for _ in range(3)))
    assert await small.one.run("open('log').read()", box) == "'<><><>'"


async def test_nothing_runs_between_calls(small: Any) -> None:
    box = await small.one.container()
    await small.one.run(
        "import threading, subprocess, time\n"
        "def tick():\n    while True:\n        open('thread', 'a').write('x')\n        time.sleep(0.005)\n"
        "threading.Thread(target=tick, daemon=True).start()\n"
        "subprocess.Popen(['sh', '-c', 'while true; do echo x >> shell; sleep 0.005; done'])\n"
        "time.sleep(0.1)",
        box,
    )
    await small.one.run(
        "import ctypes, os, threading, time\n"
        "def tick():\n    while True:\n        open('headless', 'a').write('x')\n        time.sleep(0.005)\n"
        "if not os.fork():\n    threading.Thread(target=tick).start()\n    ctypes.CDLL(None).syscall(60, 0)\n"
        "time.sleep(0.1)",
        box,
    )
    sizes = "import os\n[os.path.getsize(name) for name in ('thread', 'shell', 'headless')]"
    before = await small.one.run(sizes, box)
    await asyncio.sleep(0.5)
    after = await small.one.run(sizes, box)
    grown = [b - a for a, b in zip(eval(before.splitlines()[0]), eval(after.splitlines()[0]), strict=True)]
    assert all(each < 30 for each in grown), grown


async def test_processes_that_wait_for_a_vfork_are_stopped_with_its_child(small: Any) -> None:
    box = await small.one.container()
    await small.one.run(
        "import ctypes, os, threading, time\n"
        "def tick():\n    while True:\n        open('child', 'a').write('x')\n        time.sleep(0.005)\n"
        "def vfork():\n    return ctypes.CDLL(None).syscall(56, 0x4000 | 17, 0, 0, 0, 0)\n"
        "if not os.fork():\n    vfork() or tick()\n    os._exit(0)\n"
        "threading.Thread(target=vfork, daemon=True).start()\n"
        "time.sleep(0.1)",
        box,
    )
    sizes = []
    for _ in range(2):
        sizes.append(int((await small.one.run("time.sleep(0.1)\nos.path.getsize('child')", box)).split()[0]))
        await asyncio.sleep(0.3)
    assert 0 < sizes[1] - sizes[0] < 40, sizes


async def test_a_process_that_the_code_forks_ends_with_the_code(small: Any) -> None:
    assert await small.one.run("import os\nif os.fork(): os.wait()\nprint('x', flush=True)") == "x\nx"
    assert await small.one.run("1 + 1") == "2"


async def test_a_worker_that_the_code_ends_ends_its_container(small: Any) -> None:
    result = await small.one.call("import os\nos._exit(0)")
    assert (result.status, "its process has ended" in result.output) == ("tool_error", True)


@pytest.mark.parametrize("answer", ["b'\\xff' * 8", "bytes(8)", "b'\\0\\0\\0\\2\\0\\0\\0\\0{}'", "b'\\0' * 3"])
async def test_an_answer_that_the_code_forges_ends_its_container_at_worst(small: Any, answer: str) -> None:
    code = (
        "import os, socket, sys\nfor n in range(3, 64):\n    try: s = socket.socket(fileno=os.dup(n))\n"
        f"    except OSError: continue\n    s.sendall({answer})\nos.kill(os.getpid(), 9)"
    )
    result = await small.one.call(code)
    assert (result.status, "the container has ended" in result.output) == ("tool_error", True)
    assert await small.one.run("1 + 1") == "2"


async def test_starts_that_are_cancelled_leave_no_process(small: Any) -> None:
    before = orphans()
    for milliseconds in range(0, 75, 3):
        call = asyncio.create_task(small.one.call("1"))
        await asyncio.sleep(milliseconds / 1000)  # so that each is cancelled at another moment of its start
        call.cancel()
        await asyncio.gather(call, return_exceptions=True)
    async with asyncio.timeout(20):
        while orphans() - before:  # noqa: ASYNC110  other processes end, which sends no event
            await asyncio.sleep(0.05)


def orphans() -> set[int]:
    """The running processes of bubblewrap without a parent."""
    found: set[int] = set()
    for status in Path("/proc").glob("[0-9]*/status"):
        with suppress(OSError):
            lines = dict(line.split(":\t", 1) for line in status.read_text().splitlines() if ":\t" in line)
            if (lines["Name"], lines["PPid"]) == ("bwrap", "1") and not lines["State"].startswith("Z"):
                found.add(int(lines["Pid"]))
    return found


async def test_the_call_after_the_one_that_ended_its_container_is_told_why_and_nobody_else_is(small: Any) -> None:
    box = await small.one.container()
    first = await small.one.call("import os; os.kill(os.getpid(), 9)", box)
    reason = first.output.removeprefix("the container has ended with all its files and names: ")
    assert reason != first.output
    assert (await small.one.call("1", box)).output == f"no container {box!r}; it has ended: {reason}"
    other = await small.two.call("1", box)
    assert other.output == (f"no container {box!r}; it may have been deleted, or ended after its time without a call")
    answer = await small.one.http.get(f"/v1/containers/{box}")
    assert (answer.status_code, reason in answer.text) == (404, True)
