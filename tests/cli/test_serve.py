"""`toolplug serve`: real processes, real signals, real sockets."""

from __future__ import annotations

import json
import re
import signal
import socket
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from textwrap import dedent
from threading import Event

import httpx2
import pytest
from tests.cli.conftest import Run
from tests.cli.process import PATIENCE_S, Serving, serving
from tests.providers.fake_distribution import install, provides

pytestmark = pytest.mark.process

HELLO = "providers: {hello: {enabled: true}}"

STUBBORN = """
    import asyncio
    import sys
    import threading
    import time
    from pathlib import Path

    from toolplug import FunctionProvider, tool

    class Stubborn(FunctionProvider):
        @tool(timeout="20s")
        async def gated(self, gate: str) -> str:
            while not Path(gate).exists():
                await asyncio.sleep(0.01)
            return "let through"

        @tool(timeout="50ms")
        async def clings(self) -> str:
            while True:
                try:
                    await asyncio.Event().wait()
                except asyncio.CancelledError:
                    pass

        @tool(timeout="50ms")
        def hangs(self) -> str:
            threading.Event().wait()

        @tool
        async def blocks(self, seconds: float) -> str:
            print("blocks now", file=sys.stderr, flush=True)
            time.sleep(seconds)
            return "done"
"""


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A folder with a provider whose tools will not end when they should."""
    folder = tmp_path / "site"
    code = {"stubborn_mod": dedent(STUBBORN)}
    install(folder, "toolplug-stubborn", provides(stubborn="stubborn_mod:Stubborn"), modules=code)
    return folder


@pytest.mark.requirement("C-10-serve", "C-10-port-zero", "C-10-listening-line", "C-10-signals")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_says_where_it_listens_answers_and_ends_with_0(
    tmp_path: Path, write: Callable[..., Path], number: signal.Signals
) -> None:
    write(HELLO)
    with serving(folder=tmp_path) as service:
        line = service.wait_for("toolplug listening on ")
        assert line.startswith("toolplug listening on http://127.0.0.1:")
        assert not line.endswith(":0")
        assert service.call("hello", name="Ada").json()["output"] == "Hello, Ada!"
        service.send(number)
        assert service.end() == 0


@pytest.mark.requirement("C-5-no-auth")
def test_it_says_that_everybody_may_come_in_before_it_listens(tmp_path: Path, write: Callable[..., Path]) -> None:
    write(HELLO)
    with serving(folder=tmp_path) as service:
        service.wait_for("toolplug listening on ")
        logged = [json.loads(line) for line in service.lines if line.startswith("{")]
        service.send(signal.SIGTERM)
        assert service.end() == 0
    warned = [line["message"] for line in logged if line["level"] == "warning"]
    assert [message for message in warned if "holds up the event loop" not in message] == [
        "no auth is configured: every caller is anonymous and may do everything; only this machine is served"
    ]


@pytest.mark.requirement("C-10-signals")
def test_a_call_that_runs_when_the_signal_comes_is_answered(
    tmp_path: Path, write: Callable[..., Path], site: Path
) -> None:
    write("providers: {stubborn: {enabled: true}}")
    with serving(folder=tmp_path, site=site) as service, ThreadPoolExecutor(1) as caller:
        answer = caller.submit(service.call, "gated", gate=str(tmp_path / "open"))
        _until_in_flight(service, "gated")
        service.send(signal.SIGTERM)
        assert "stopping: 1 call may run for up to 30 s more" in service.wait_for("stopping")
        _until_refused(service)
        (tmp_path / "open").touch()
        assert answer.result().json()["output"] == "let through"
        assert service.end() == 0


@pytest.mark.requirement("H-fact-hung-thread", "H-fact-serve-shutdown", "C-10-signals")
def test_tools_that_hang_keep_the_process_no_longer_than_its_drain(
    tmp_path: Path, write: Callable[..., Path], site: Path
) -> None:
    write("providers: {stubborn: {enabled: true, limits: {drain: 100ms}}}")
    with serving(folder=tmp_path, site=site) as service:
        assert service.call("clings").json()["status"] == "timeout"
        assert service.call("hangs").json()["status"] == "timeout"
        service.send(signal.SIGTERM)
        assert service.end() == 0


@pytest.mark.requirement("C-10-signals")
def test_a_second_signal_ends_it_at_once(tmp_path: Path, write: Callable[..., Path], site: Path) -> None:
    write("providers: {stubborn: {enabled: true}}")
    with serving(folder=tmp_path, site=site) as service, ThreadPoolExecutor(1) as caller:
        answer = caller.submit(service.call, "gated", gate=str(tmp_path / "open"))
        _until_in_flight(service, "gated")
        service.send(signal.SIGTERM)
        _until_refused(service)
        service.send(signal.SIGTERM)
        assert service.end() == 1
        assert isinstance(answer.exception(), httpx2.TransportError)


@pytest.mark.requirement("H-provider-blocks-loop")
def test_a_tool_that_blocks_the_loop_is_named_once_with_its_line(
    tmp_path: Path, write: Callable[..., Path], site: Path
) -> None:
    write("providers: {stubborn: {enabled: true}}")
    with serving(folder=tmp_path, site=site) as service:
        blamed = "provider 'stubborn' holds up the event loop"
        while not any(blamed in each for each in service.lines):  # a busy machine may have held it up before the tool
            assert service.call("blocks", seconds=0.6).json()["output"] == "done"
        assert service.call("blocks", seconds=0.6).json()["output"] == "done"
        line = service.wait_for(blamed)
        assert "in Stubborn.blocks" in line
        assert "stubborn_mod.py:" in line
        assert sum(blamed in each for each in service.lines) == 1


@pytest.mark.requirement("C-10-signals", "H-provider-blocks-loop")
def test_a_blocked_loop_does_not_keep_the_process(tmp_path: Path, write: Callable[..., Path], site: Path) -> None:
    write("providers: {stubborn: {enabled: true, limits: {drain: 0}}}")
    with serving(folder=tmp_path, site=site) as service, ThreadPoolExecutor(1) as caller:
        answer = caller.submit(service.call, "blocks", seconds=600)
        service.wait_for("blocks now")
        service.send(signal.SIGTERM)
        assert service.end() == 0
        assert isinstance(answer.exception(), httpx2.TransportError)


@pytest.mark.requirement("C-5-state-import-failed")
def test_a_provider_that_cannot_be_imported_is_an_error_in_the_log(tmp_path: Path, write: Callable[..., Path]) -> None:
    (tmp_path / "broken.py").write_text("import no_such_package")
    write("providers: {broken: {type: ./broken.py, enabled: true, required: false}}")
    with serving(folder=tmp_path) as service:
        line = json.loads(service.wait_for("provider broken (./broken.py): import-failed"))
        assert (line["level"], line["logger"]) == ("error", "toolplug.host")


@pytest.mark.requirement("C-2-reload-signal", "H-configuration-bad-reload", "C-2-reload-bad")
def test_sighup_reads_the_file_again_and_a_wrong_one_changes_nothing(
    tmp_path: Path, write: Callable[..., Path]
) -> None:
    write(HELLO)
    with serving(folder=tmp_path) as service:
        assert service.call("hello").json()["output"] == "Hello, world!"
        write("providers: {hello: {enabled: true, greeting: Hi}}")
        service.send(signal.SIGHUP)
        service.wait_for("configuration reloaded: hello started")
        assert service.call("hello").json()["output"] == "Hi, world!"
        write("providers: {hello: {enabled: true, greeting: Hi}}\nsessions: {ttl: 2h}")
        service.send(signal.SIGHUP)
        service.wait_for("configuration reloaded: hello unchanged; other sections that changed: sessions")
        write("providers: {hello: {enabled: true, greting: Hey}}")
        service.send(signal.SIGHUP)
        line = service.wait_for("configuration not reloaded")
        assert "providers.yaml:1:" in line
        assert "unknown key 'greting'" in line
        assert service.call("hello").json()["output"] == "Hi, world!"
        service.send(signal.SIGTERM)
        assert service.end() == 0


ODD = """
    import asyncio
    import sys

    from pydantic import BaseModel
    from toolplug import FunctionProvider

    class Odd(FunctionProvider):
        class Config(BaseModel):
            def __eq__(self, other):
                raise ZeroDivisionError("no two are the same")

    class Quick(FunctionProvider):
        async def aclose(self):
            print("quick is closed", file=sys.stderr, flush=True)

    class Slow(FunctionProvider):
        async def start(self, site):
            for _ in range(100):
                await asyncio.sleep(0)
            print("slow begins", file=sys.stderr, flush=True)
            await asyncio.Event().wait()

        async def aclose(self):
            print("slow is closed", file=sys.stderr, flush=True)
"""


@pytest.fixture
def odd(tmp_path: Path) -> Path:
    """A folder with providers that start slowly, or cannot be compared."""
    folder = tmp_path / "odd"
    points = provides(odd="odd_mod:Odd", quick="odd_mod:Quick", slow="odd_mod:Slow")
    install(folder, "toolplug-odd", points, modules={"odd_mod": dedent(ODD)})
    return folder


@pytest.mark.requirement("C-2-reload-bad", "H-configuration-bad-reload")
def test_a_reload_in_which_a_package_fails_ends_nothing(tmp_path: Path, write: Callable[..., Path], odd: Path) -> None:
    write("providers: {hello: {enabled: true}, odd: {enabled: true}}")
    with serving(folder=tmp_path, site=odd) as service:
        assert service.call("hello").json()["output"] == "Hello, world!"
        service.send(signal.SIGHUP)
        assert "no two are the same" in service.wait_for("configuration not reloaded")
        assert service.call("hello").json()["output"] == "Hello, world!"
        service.send(signal.SIGTERM)
        assert service.end() == 0


@pytest.mark.requirement("C-10-signals")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_before_it_listens_breaks_the_start_off(
    tmp_path: Path, write: Callable[..., Path], odd: Path, number: signal.Signals
) -> None:
    write("providers: {quick: {enabled: true}, slow: {enabled: true}}")
    with serving(folder=tmp_path, site=odd) as service:
        service.wait_for("slow begins")
        service.send(signal.SIGHUP)
        service.send(number)
        assert service.end() == 0
    assert {"quick is closed", "slow is closed"} <= set(service.lines)
    assert "Traceback" not in "".join(service.lines)


@pytest.mark.requirement("I2-done-hup-under-load", "C-2-reload-swap")
def test_sighup_under_load_loses_no_call(tmp_path: Path, write: Callable[..., Path]) -> None:
    write(HELLO)
    with serving(folder=tmp_path) as service, ThreadPoolExecutor(4) as callers:
        url, enough = service.url, Event()
        loads = [callers.submit(_call_until, url, enough) for _ in range(4)]
        for number in range(1, 6):
            write(f"providers: {{hello: {{enabled: true, greeting: G{number}}}}}")
            service.send(signal.SIGHUP)
            service.wait_for("configuration reloaded", times=number)
        enough.set()
        outputs = [output for load in loads for output in load.result()]
    assert {"G5, world!"} <= set(outputs) <= {"Hello, world!", *(f"G{number}, world!" for number in range(1, 6))}


@pytest.mark.requirement("C-10-exit-codes")
def test_what_cannot_be_served_is_said_before_anything_listens(run: Run, write: Callable[..., Path]) -> None:
    write(HELLO)
    open_to_all = run("serve", "--host", "0.0.0.0", "--json")
    assert (open_to_all.code, open_to_all.codes) == (1, ["auth_required"])
    with socket.create_server(("127.0.0.1", 0)) as listening:
        taken = run("serve", "--port", str(listening.getsockname()[1]), "--json")
        assert (taken.code, taken.codes) == (1, ["cannot_listen"])
    assert "listening" not in open_to_all.err + taken.err


@pytest.mark.requirement("C-10-stderr")
def test_logs_off_a_terminal_are_one_json_object_a_line(tmp_path: Path, write: Callable[..., Path]) -> None:
    write(HELLO)
    with serving(folder=tmp_path) as service:
        service.wait_for("toolplug listening on ")
        service.call("no_such_tool")
        refused = json.loads(service.wait_for('"event":"tool.call"'))
        service.send(signal.SIGTERM)
        assert service.end() == 0
    assert (refused["outcome"], refused["target"]) == ("unknown_tool", "no_such_tool")
    others = [json.loads(line) for line in service.lines if not line.startswith("toolplug listening")]
    assert all({"ts", "level", "logger", "message"} <= set(line) or "event" in line for line in others)
    assert all(re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", line["ts"]) for line in others)


def _call_until(url: str, enough: Event) -> list[str]:
    with httpx2.Client(timeout=PATIENCE_S) as client:
        outputs: list[str] = []
        while not enough.is_set():
            outputs.append(_hello(client, url))
        return [*outputs, _hello(client, url)]


def _hello(client: httpx2.Client, url: str) -> str:
    answer = client.post(f"{url}/v1/tool-calls", json={"name": "hello", "arguments": {}})
    assert answer.status_code == 200
    output: str = answer.json()["output"]
    return output


def _until_in_flight(service: Serving, name: str) -> None:
    with httpx2.Client(timeout=PATIENCE_S) as client:
        for _ in range(2000):
            lines = client.get(f"{service.url}/metrics").text.splitlines()
            if any("in_flight" in line and f'"{name}"' in line and line.endswith(" 1.0") for line in lines):
                return
    pytest.fail(f"{name} is not in flight")


def _until_refused(service: Serving) -> None:
    """Wait until no new connection is taken: the drain has begun."""
    for _ in range(2000):
        try:
            httpx2.get(f"{service.url}/healthz", timeout=PATIENCE_S)
        except httpx2.TransportError:
            return
    pytest.fail("connections are still taken")


@pytest.mark.requirement("C-10-signals", "C-6-stream-roles")
@pytest.mark.parametrize("providers", ["{}", "{hello: {enabled: true}}"])
def test_open_streams_and_calls_on_their_way_to_an_application_keep_no_signal_waiting(
    tmp_path: Path, write: Callable[..., Path], providers: str
) -> None:
    write(f"providers: {providers}")
    with (
        serving(folder=tmp_path) as service,
        httpx2.Client(base_url=service.url, timeout=PATIENCE_S) as client,
        ThreadPoolExecutor(1) as caller,
    ):
        created = client.post("/api/sessions").json()
        place = f"/api/sessions/{created['code']}"
        token = {"Authorization": f"Bearer {created['pluginToken']}"}
        tools = [{"name": "add", "inputSchema": {"type": "object"}}]
        client.post(f"{place}/register-tools", headers=token, json={"pluginType": "table", "tools": tools})
        with (
            client.stream("GET", f"{place}/stream") as reader,
            client.stream("GET", f"{place}/stream", headers=token) as stream,
        ):
            events = stream.iter_lines()
            assert next(line for line in events if line.startswith("event:")) == "event: connected"
            call = {"tool": "add", "id": "c1"}
            answer = caller.submit(httpx2.post, f"{service.url}{place}/tool-calls", json=call, timeout=PATIENCE_S)
            assert next(line for line in events if line == "event: tool-request")
            service.send(signal.SIGTERM)
            assert answer.result().json()["metadata"] == {"code": "host_stopping"}
            told = [line for line in reader.iter_lines() if line.startswith("event:")]
            assert told[:2] == ["event: connected", "event: plugin-status"]
            assert "event: error" not in list(events)
        assert service.end() == 0
        assert not [line for line in service.lines if '"level": "error"' in line], service.lines


@pytest.mark.requirement("C-10-signals", "H-stream-slow")
def test_a_client_that_takes_nothing_keeps_no_signal_waiting(tmp_path: Path, write: Callable[..., Path]) -> None:
    write("providers: {hello: {enabled: true}}\nlimits: {drain: 60s}")
    with serving(folder=tmp_path) as service, httpx2.Client(base_url=service.url, timeout=PATIENCE_S) as client:
        created = client.post("/api/sessions").json()
        place = f"/api/sessions/{created['code']}"
        token = {"Authorization": f"Bearer {created['pluginToken']}"}
        tools = [{"name": f"t{i}", "inputSchema": {"type": "object", "title": "x" * 60_000}} for i in range(120)]
        registered = client.post(f"{place}/register-tools", headers=token, json={"pluginType": "table", "tools": tools})
        assert registered.status_code == 201
        with socket.socket() as stuck:
            stuck.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            stuck.connect((client.base_url.host, client.base_url.port))
            stuck.sendall(f"GET {place}/stream HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
            assert stuck.recv(12) == b"HTTP/1.1 200"
            service.send(signal.SIGTERM)
            assert service.end() == 0
        assert not [line for line in service.lines if '"level": "error"' in line], service.lines
