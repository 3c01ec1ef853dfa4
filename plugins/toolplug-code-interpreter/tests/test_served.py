"""A real server: the `openai` client from end to end, and a server that is killed while code runs."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import httpx2
import openai
import pytest

pytestmark = [pytest.mark.judge, pytest.mark.needs("bwrap")]

TOOLPLUG = Path(sys.executable).with_name("toolplug")
LISTENS = re.compile(r"toolplug listening on (http://\S+)")
Start = Callable[[], AbstractContextManager[tuple[str, subprocess.Popen[str]]]]


@pytest.fixture
def start(tmp_path: Path, model: Any) -> Start:
    """Starts `toolplug serve` on a free port."""
    config = {
        "providers": {"code_interpreter": {"enabled": True}},
        "responses": {"backend": {"base_url": model.url, "api_key": "none", "model": "m"}},
    }
    (tmp_path / "providers.yaml").write_text(json.dumps(config))

    @contextmanager
    def started() -> Generator[tuple[str, subprocess.Popen[str]]]:
        command = [str(TOOLPLUG), "serve", "--port", "0"]
        with (
            subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True) as process,
            ThreadPoolExecutor(1) as reader,
        ):
            assert process.stderr is not None
            try:
                lines: list[str] = []
                while not (found := LISTENS.search(lines[-1] if lines else "")):
                    lines.append(process.stderr.readline())
                    assert lines[-1], "".join(lines)
                rest = reader.submit(process.stderr.read)  # a full pipe would hold the server
                yield found[1], process
            finally:
                process.terminate()
                process.wait(timeout=30)
            rest.result()

    return started


def test_the_openai_client_runs_code_with_files_and_images(start: Start, model: Any) -> None:
    with start() as (url, _), openai.OpenAI(api_key="none", base_url=f"{url}/v1", max_retries=0) as ai:
        box = ai.containers.create(name="analysis")
        file = ai.containers.files.create(box.id, file=("numbers.csv", b"1,2,3"))
        assert (file.path, file.bytes, file.source) == ("/mnt/data/numbers.csv", 5, "user")
        png = "open('dot.png', 'wb').write(b'\\x89PNG\\r\\n\\x1a\\nx')"
        model.plays(
            [f"total = sum(map(int, open('numbers.csv').read().split(',')))\n{png}\ntotal"],
            ["open('out.txt', 'w').write(str(total))"],
            "The sum is in out.txt.",
        )
        tool = {"type": "code_interpreter", "container": box.id}
        response = ai.responses.create(model="m", input="Add.", tools=[tool], include=["code_interpreter_call.outputs"])
        first, second, message = response.output
        assert (first.type, first.status, first.container_id) == ("code_interpreter_call", "completed", box.id)
        assert first.code.endswith("total")
        logs, image = first.outputs
        assert (logs.logs, image.url[:22]) == ("6", "data:image/png;base64,")
        assert second.outputs[0].logs == "1"
        [cited] = message.content[0].annotations
        assert (cited.type, cited.container_id, cited.filename) == ("container_file_citation", box.id, "out.txt")
        assert ai.containers.files.content.retrieve(cited.file_id, container_id=box.id).read() == b"6"
        assert [item.path for item in ai.containers.files.list(box.id, order="asc")] == [
            "/mnt/data/dot.png",
            "/mnt/data/numbers.csv",
            "/mnt/data/out.txt",
        ]
        assert model.asked[1]["messages"][-1]["role"] in ("tool", "user")
        assert ai.containers.files.retrieve(file.id, container_id=box.id).bytes == 5
        ai.containers.files.delete(file.id, container_id=box.id)
        assert [item.name for item in ai.containers.list()] == ["analysis"]
        ai.containers.delete(box.id)
        with pytest.raises(openai.NotFoundError) as gone:
            ai.containers.retrieve(box.id)
        assert gone.value.code == "container_not_found"


@pytest.mark.requirement("C-4-shipped-code", "I3-code-containers")
def test_calls_of_a_conversation_share_an_automatic_container(start: Start, model: Any) -> None:
    with start() as (url, _), openai.OpenAI(api_key="none", base_url=f"{url}/v1", max_retries=0) as ai:
        model.plays(["x = 20", "y = 1"], ["x * 2 + y + 1"], "Done.")
        tool = {"type": "code_interpreter", "container": {"type": "auto"}}
        outputs = ["code_interpreter_call.outputs"]
        first = ai.responses.create(model="m", input="Go.", tools=[tool], include=outputs)
        model.plays(["x * 3"], "Done.")
        second = ai.responses.create(
            model="m", input="Go on.", tools=[tool], include=outputs, previous_response_id=first.id
        )
        calls = [*first.output[:3], second.output[0]]
        assert len({call.container_id for call in calls}) == 1
        assert [call.outputs[0].logs for call in calls[2:]] == ["42", "60"]
        model.plays(["raise KeyError('no')"], "It failed.")
        events = list(ai.responses.create(model="m", input="Go.", tools=[tool], stream=True))
        kinds = [event.type for event in events if "code_interpreter" in event.type]
        assert kinds == [f"response.code_interpreter_call.{name}" for name in ("in_progress", "interpreting", "failed")]


@pytest.mark.requirement("I3-code-killed")
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_no_process_is_left_of_a_server_that_ends_while_code_runs(start: Start, number: int) -> None:
    mark = f"mark{os.getpid()}{number}"
    code = f"import os, subprocess, time\nsubprocess.Popen(['sh', '-c', 'sleep 1000 # {mark}'])\nwhile True: pass"
    with start() as (url, process), ThreadPoolExecutor(1) as caller:
        body = {"name": "code_interpreter", "arguments": {"code": code}, "timeoutMs": 5000}
        caller.submit(httpx2.post, f"{url}/v1/tool-calls", json=body, timeout=30)
        _within(lambda: bool(_marked(mark)))
        process.send_signal(number)
        _within(lambda: not _marked(mark))
        process.wait(timeout=30)


def _within(condition: Callable[[], bool]) -> None:
    until = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.05)


def _marked(mark: str) -> list[str]:
    found: list[str] = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            if mark in Path(f"/proc/{pid}/cmdline").read_text():
                found.append(pid)
        except OSError:
            continue
    return found
