"""The edge of `toolplug serve`: heads, bodies and connections that do not end, against a real process."""

from __future__ import annotations

import asyncio
import json
import socket
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from textwrap import dedent

import httpx2
import pytest
from starlette.responses import PlainTextResponse
from starlette.types import Receive, Scope, Send
from tests.cli.process import PATIENCE_S, Serving, serving
from tests.providers.fake_distribution import install, provides
from uvicorn.server import ServerState

from toolplug.cli.serving.edge import AHEAD, AT_ONCE, Edge, EdgeConfig
from toolplug.host.file.settings import Http

pytestmark = pytest.mark.process

HEAD_BYTES = 8 * 1024
HEAD_S = 1.0
IDLE_S = 2.0
EDGE = f"http: {{edge: {{head_bytes: 8KiB, head_s: {HEAD_S}, idle_s: {IDLE_S}, body_bytes_per_s: 100}}}}"

SLOW = """
    import asyncio

    from toolplug import FunctionProvider, tool

    class Slow(FunctionProvider):
        @tool
        async def naps(self, seconds: float) -> str:
            await asyncio.sleep(seconds)
            return "rested"

        @tool
        async def counts(self, text: str) -> int:
            return len(text)
"""

Connect = Callable[..., "Wire"]


class Wire:
    """One TCP connection to the server."""

    def __init__(self, port: int, source: str = "127.0.0.1") -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S, source_address=(source, 0))
        self.opened = time.monotonic()

    def send(self, *parts: bytes) -> None:
        self.socket.sendall(b"".join(parts))

    def flood(self, begin: bytes, part: bytes, mib: int) -> int:
        """Send up to so many MiB; the number of bytes that the server took before it closed."""
        sent = 0
        try:
            self.send(begin)
            while sent < mib * 2**20:
                self.send(part)
                sent += len(part)
        except OSError:
            pass
        return sent

    def read(self) -> bytes:
        """Everything until the server closes."""
        parts: list[bytes] = []
        try:
            while part := self.socket.recv(65536):
                parts.append(part)
        except ConnectionResetError:
            pass
        return b"".join(parts)

    def response(self) -> tuple[int, bytes]:
        """One response with a Content-Length: its status and body."""
        head = b""
        while b"\r\n\r\n" not in head:
            part = self.socket.recv(1)
            assert part, head
            head += part
        named = next(line for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:"))
        length, body = int(named.split(b":")[1]), b""
        while len(body) < length:
            body += self.socket.recv(length - len(body))
        return int(head.split()[1]), body

    def closed_after(self) -> float:
        """Seconds from the start of the connection to its end, which the server makes without a response."""
        assert self.read() == b""
        return time.monotonic() - self.opened


@contextmanager
def _wires(service: Serving) -> Iterator[Connect]:
    with ExitStack() as stack:

        def connect(source: str = "127.0.0.1") -> Wire:
            wire = Wire(int(service.url.rsplit(":", 1)[1]), source)
            stack.callback(wire.socket.close)
            return wire

        yield connect


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    """A server with narrow limits and little time."""
    folder = tmp_path_factory.mktemp("edge")
    with _served(folder, f"{EDGE}\n") as running:
        yield running


@pytest.fixture
def connect(service: Serving) -> Iterator[Connect]:
    """Opens connections to the server; they are closed with the test."""
    with _wires(service) as connect:
        yield connect


@contextmanager
def _served(folder: Path, settings: str) -> Iterator[Serving]:
    site = folder / "site"
    install(site, "toolplug-slow", provides(slow="slow_mod:Slow"), modules={"slow_mod": dedent(SLOW)})
    (folder / "providers.yaml").write_text(f"{settings}providers: {{slow: {{enabled: true}}}}\n")
    with serving(folder=folder, site=site) as running:
        running.wait_for("toolplug listening on ")
        yield running


def _post(body: bytes, *headers: bytes, target: bytes = b"/v1/tool-calls") -> bytes:
    lines = [b"POST %s HTTP/1.1" % target, b"Host: localhost", b"Content-Length: %d" % len(body), *headers]
    return b"\r\n".join([*lines, b"", body])


COUNTS = json.dumps({"name": "counts", "arguments": {"text": "otter"}}).encode()


def _refusal(answer: bytes) -> tuple[int, str, str]:
    head, _, body = answer.partition(b"\r\n\r\n")
    assert b"connection: close" in head.lower()
    error = json.loads(body)["error"]
    assert error["request_id"]
    return int(head.split()[1]), error["type"], error["code"]


TOO_LARGE = (431, "invalid_request", "headers_too_large")
LATE = (408, "invalid_request", "request_timeout")
MALFORMED = (400, "invalid_request", "malformed_request")
BEGIN = b"GET /v1/tools HTTP/1.1\r\nHost: localhost\r\n"
CHUNKED = b"POST /v1/tool-calls HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n"


@pytest.mark.requirement("C-5-edge-head")
@pytest.mark.parametrize(
    ("begin", "part", "answer"),
    [
        (BEGIN + b"X-Long: ", b"x" * 65536, TOO_LARGE),
        (BEGIN, b"X-Many: 1\r\n" * 6000, TOO_LARGE),
        (b"GET /", b"x" * 65536, TOO_LARGE),
        (b"", b"\r\n" * 32768, TOO_LARGE),
        (b"", b"x" * 65536, MALFORMED),
        (CHUNKED + b"0\r\nX-Trailer: ", b"x" * 65536, TOO_LARGE),
        (CHUNKED + b"0\r\n", b"X-Trailer: 1\r\n" * 4000, TOO_LARGE),
        (CHUNKED + b"2;x=", b"x" * 65536, TOO_LARGE),
    ],
    ids=["header", "headers", "URL", "empty lines", "garbage", "trailer", "trailers", "chunk extension"],
)
def test_a_head_that_never_ends_is_refused_and_leaves_no_memory(
    service: Serving, connect: Connect, begin: bytes, part: bytes, answer: tuple[int, str, str]
) -> None:
    before = _peak_memory(service)
    wire = connect()
    with ThreadPoolExecutor(1) as sender:
        sender.submit(wire.flood, begin, part, 100)
        assert _refusal(wire.read()) == answer
    assert _peak_memory(service) < before + 4 * 2**20
    assert httpx2.get(f"{service.url}/healthz").status_code == 200


def _peak_memory(service: Serving) -> int:
    lines = Path(f"/proc/{service.process.pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:"))


@pytest.mark.requirement("C-5-edge-head")
@pytest.mark.parametrize("pieces", [1, 2, 50])
def test_a_head_may_have_as_many_bytes_as_the_limit_and_not_one_more(connect: Connect, pieces: int) -> None:
    for extra, answer in ((0, 200), (1, 431)):
        fill = HEAD_BYTES - len(BEGIN) - len(b"X-Fill: \r\n\r\n") + extra
        head = BEGIN + b"X-Fill: " + b"x" * fill + b"\r\n\r\n"
        wire = connect()
        step = -(-len(head) // pieces)
        for start in range(0, len(head), step):
            wire.send(head[start : start + step])
            time.sleep(0.001)
        assert wire.response()[0] == answer


@pytest.mark.requirement("C-5-edge-head")
def test_every_request_of_a_connection_has_a_head_of_its_own(connect: Connect) -> None:
    wire = connect()
    head = BEGIN + b"X-Fill: " + b"x" * (HEAD_BYTES // 2) + b"\r\n\r\n"
    for _ in range(5):
        wire.send(head)
        assert wire.response()[0] == 200
    wire.send(head * 5)
    assert [wire.response()[0] for _ in range(5)] == [200] * 5
    wire.send(_post(COUNTS) * 3)
    assert [wire.response()[0] for _ in range(3)] == [200] * 3


@pytest.mark.requirement("C-5-edge-head-time")
def test_a_head_has_its_time_from_the_start_and_from_a_kept_connections_next_byte(connect: Connect) -> None:
    silent, slow, kept = connect(), connect(), connect()
    slow.send(BEGIN)
    kept.send(BEGIN, b"\r\n")
    assert kept.response()[0] == 200
    assert silent.closed_after() >= HEAD_S * 0.9
    assert _refusal(slow.read()) == LATE
    time.sleep(HEAD_S * 0.3)  # longer than a head may take, and shorter than the connection is kept
    kept.send(BEGIN, b"\r\n")
    assert kept.response()[0] == 200
    kept.send(b"G")
    begun = time.monotonic()
    assert _refusal(kept.read()) == LATE
    assert time.monotonic() - begun >= HEAD_S * 0.9


@pytest.mark.requirement("C-5-edge-head-time")
def test_a_head_that_trickles_has_no_more_time_than_a_silent_one(connect: Connect) -> None:
    wire, sent = connect(), 0
    with ThreadPoolExecutor(1) as reader:
        answer = reader.submit(wire.read)
        for byte in BEGIN:
            if answer.done():
                break
            wire.send(bytes([byte]))
            sent += 1
            time.sleep(0.1)
        assert _refusal(answer.result()) == LATE
    assert sent < len(BEGIN)


@pytest.mark.requirement("C-5-edge-idle")
def test_an_idle_connection_is_closed(connect: Connect) -> None:
    wire = connect()
    wire.send(BEGIN, b"\r\n")
    assert wire.response()[0] == 200
    begun = time.monotonic()
    assert wire.read() == b""
    assert time.monotonic() - begun >= IDLE_S * 0.9


@pytest.mark.requirement("C-5-edge-body-rate")
def test_a_body_that_stops_is_cut_and_slow_calls_and_steady_bodies_are_not(connect: Connect, service: Serving) -> None:
    with ThreadPoolExecutor(8) as workers:
        stopped, burst, steady, napping, streaming, expecting = (connect() for _ in range(6))
        stopped.send(_post(COUNTS)[:-5])
        late = workers.submit(stopped.read)
        burst.send(_post(b'{"name": "counts", "arguments": {"text": "%s"}}' % (b"x" * 9000))[:-5])
        burst_late = workers.submit(burst.read)
        steadily = workers.submit(_steadily, steady)
        nap = json.dumps({"name": "naps", "arguments": {"seconds": 12.5}}).encode()
        napping.send(_post(nap))
        napped = workers.submit(napping.response)
        streaming.send(_post(nap, b"Accept: text/event-stream", b"Connection: close"))
        streamed = workers.submit(streaming.read)
        expecting.send(_post(nap, b"Expect: 100-continue"))
        expected = workers.submit(expecting.read)
        begun = time.monotonic()
        assert _refusal(late.result()) == LATE
        assert _refusal(burst_late.result()) == LATE
        assert time.monotonic() - begun >= 9
        assert steadily.result() == 200
        assert napped.result()[0] == 200
        assert b"event: result" in streamed.result()
        assert expected.result().startswith(b"HTTP/1.1 100 Continue\r\n\r\n")


def _steadily(wire: Wire) -> int:
    """Send a body at 500 bytes a second for 12 s."""
    request = _post(b'{"name": "counts", "arguments": {"text": "%s"}}' % (b"x" * 6000))
    head, _, body = request.partition(b"\r\n\r\n")
    wire.send(head, b"\r\n\r\n")
    for start in range(0, len(body), 250):
        wire.send(body[start : start + 250])
        time.sleep(0.5)
    return wire.response()[0]


@pytest.mark.requirement("C-5-edge-body-rate")
def test_a_client_that_stops_its_body_after_the_response_does_not_stay(connect: Connect) -> None:
    wire = connect()
    wire.send(b"POST /nowhere HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\nhalf")
    assert wire.response()[0] == 404
    assert wire.read() == b""


@pytest.mark.requirement("C-5-edge-trailers")
@pytest.mark.parametrize("at_once", [True, False])
def test_trailers_are_not_headers(tmp_path: Path, write: Callable[..., Path], at_once: bool) -> None:
    write("providers: {hello: {enabled: true}}\nauth: {api_keys: [{key: k1, subject: alice}]}")
    body = b'{"name": "hello"}'
    head = b"POST /v1/tool-calls HTTP/1.1\r\n%sTransfer-Encoding: chunked\r\n\r\n"
    chunked = b"%x\r\n%s\r\n0\r\n" % (len(body), body)
    with serving(folder=tmp_path) as service, _wires(service) as connect:
        for fields, trailers, status in (
            (b"Host: localhost\r\n", b"X-API-Key: k1\r\n\r\n", 401),
            (b"Host: localhost\r\n", b"Authorization: Bearer k1\r\n\r\n", 401),
            (b"X-API-Key: k1\r\n", b"Host: localhost\r\n\r\n", 421),
            (b"X-API-Key: k1\r\nHost: localhost\r\n", b"X-API-Key: k2\r\nOrigin: http://evil.example\r\n\r\n", 200),
        ):
            wire = connect()
            wire.send(head % fields, *([chunked, trailers] if at_once else [chunked]))
            if not at_once:
                time.sleep(0.05)
                wire.send(trailers)
            assert wire.response()[0] == status


@pytest.mark.requirement("C-5-edge-head")
def test_the_unfinished_heads_of_one_peer_are_bounded_together(service: Serving, connect: Connect) -> None:
    wires = [connect() for _ in range(80)]
    for wire in wires:
        wire.send(BEGIN, b"X-Fill: ", b"x" * (HEAD_BYTES - 100))
    closed = service.wait_for("bytes of unfinished heads of 127.0.0.1")
    assert f"over {64 * HEAD_BYTES} bytes" in closed
    other = connect("127.0.0.2")
    other.send(BEGIN, b"\r\n")
    assert other.response()[0] == 200
    answers = [wire.read() for wire in wires]
    assert 10 < sum(answer == b"" for answer in answers) < 20
    assert {_refusal(answer) for answer in answers if answer} == {LATE}


@pytest.mark.requirement("C-5-edge-connections")
def test_one_connection_too_many_of_a_peer_is_closed(tmp_path: Path) -> None:
    limits = f"http: {{edge: {{connections: 6, connections_per_peer: 4, head_s: {2 * PATIENCE_S:g}}}}}\n"
    with _served(tmp_path, limits) as service, _wires(service) as connect:
        mine = [connect() for _ in range(4)]
        assert connect().read() == b""
        others = [connect("127.0.0.2") for _ in range(2)]
        assert connect("127.0.0.3").read() == b""
        for wire in (*mine, *others):
            wire.send(BEGIN, b"\r\n")
            assert wire.response()[0] == 200
        mine.pop().socket.close()
        _until_served(lambda: connect())  # noqa: PLW0108
        closed = service.wait_for("a connection was closed: over 4 connections of 127.0.0.1")
        assert "http.edge.connections_per_peer" in closed
        assert sum("a connection was closed" in line for line in service.lines) == 1


def _until_served(connect: Callable[[], Wire]) -> None:
    give_up_at = time.monotonic() + PATIENCE_S
    while True:
        wire = connect()
        try:
            wire.send(BEGIN, b"Connection: close\r\n\r\n")
            if wire.read().startswith(b"HTTP/1.1 200"):
                return
        except OSError:
            pass
        assert time.monotonic() < give_up_at
        time.sleep(0.02)


@pytest.mark.requirement("C-5-edge-connections", "C-5-peer")
def test_behind_a_trusted_proxy_the_clients_requests_count(tmp_path: Path) -> None:
    limits = (
        "http: {edge: {connections_per_peer: 2}, trusted_proxies: [127.0.0.1]}\n"
        "auth: {api_keys: [{key: k1, subject: alice}]}\n"
    )
    body = json.dumps({"name": "naps", "arguments": {"seconds": 3}}).encode()
    with _served(tmp_path, limits) as service, _wires(service) as connect:

        def ask(client: bytes) -> Wire:
            wire = connect()
            wire.send(_post(body, b"X-API-Key: k1", b"X-Forwarded-For: 127.0.0.9, " + client))
            return wire

        first, second = ask(b"198.51.100.1"), ask(b"198.51.100.1")
        _until_in_flight(service, 2)
        assert ask(b"198.51.100.1").read() == b""
        third = ask(b"198.51.100.2")
        for wire in (first, second, third):
            assert wire.response()[0] == 200
        first.send(_post(COUNTS, b"X-API-Key: k1", b"X-Forwarded-For: 198.51.100.1"))
        assert first.response()[0] == 200


def _until_in_flight(service: Serving, number: int) -> None:
    line = f'antwort_builtin_tool_in_flight{{provider="slow",tool_name="naps"}} {number}.0'
    give_up_at = time.monotonic() + PATIENCE_S
    while line not in httpx2.get(f"{service.url}/metrics").text:
        assert time.monotonic() < give_up_at
        time.sleep(0.02)


@pytest.mark.requirement("C-5-edge-target")
def test_the_authority_of_an_absolute_target_is_the_host(connect: Connect) -> None:
    for target, status in (
        (b"http://evil.example/v1/tool-calls", 421),
        (b"http://user@localhost/v1/tool-calls", 421),
        (b"http://localhost/v1/tool-calls", 200),
    ):
        wire = connect()
        wire.send(_post(COUNTS, target=target))
        assert wire.response()[0] == status


@pytest.mark.requirement("C-5-edge-target")
def test_blanks_around_a_value_are_no_part_of_it(connect: Connect) -> None:
    for field, status in ((b"X-Request-Id:\t a \t", 200), (b"Origin: http://localhost:1 ", 403)):
        wire = connect()
        wire.send(_post(COUNTS, field).replace(b"Host: localhost", b"Host:  localhost \t"))
        assert wire.response()[0] == status


@pytest.mark.requirement("C-5-edge-head")
def test_what_is_no_http_is_refused_in_our_words_and_an_upgrade_adds_no_line(
    service: Serving, connect: Connect
) -> None:
    lines = len(service.lines)
    wire = connect()
    wire.send(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03")
    assert _refusal(wire.read()) == MALFORMED
    upgrade = connect()
    upgrade.send(BEGIN, b"Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
    assert upgrade.response()[0] == 200
    assert not any("upgrade" in line.lower() or "websocket" in line.lower() for line in service.lines[lines:])


H2C = (b"Connection: Upgrade, HTTP2-Settings", b"Upgrade: h2c", b"HTTP2-Settings: AAEAAEAAAAIAAAABAAMAAABk")
"""What Java's own client sends with its first request."""


@pytest.mark.requirement("C-5-edge-head")
@pytest.mark.parametrize("pieces", ["one", "two", "many"])
def test_a_request_that_offers_another_protocol_is_served_with_its_body(connect: Connect, pieces: str) -> None:
    wire = connect()
    request = _post(COUNTS, *H2C)
    size = {"one": len(request) * 3, "two": len(request) - len(COUNTS), "many": 7}[pieces]
    sent = request + _post(COUNTS) + request
    for begin in range(0, len(sent), size):
        wire.send(sent[begin : begin + size])
    for _ in range(3):
        status, body = wire.response()
        assert (status, json.loads(body)["output"]) == (200, "5")
    wire.send(_post(COUNTS, *H2C, b"Content-Length: 5"))
    assert _refusal(wire.read()) == MALFORMED


class _Counted:
    """An application that counts its requests."""

    def __init__(self) -> None:
        self.served = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.served += 1
        await PlainTextResponse("here")(scope, receive, send)


@pytest.mark.anyio
@pytest.mark.requirement("C-5-edge-head")
async def test_requests_ahead_of_their_responses_are_parsed_a_few_at_a_time_and_all_answered() -> None:
    settings, state, app = Http(), ServerState(), _Counted()
    config = EdgeConfig(app, Edge(lambda: settings))
    config.load()
    connections: list[asyncio.Protocol] = []

    def connection() -> asyncio.Protocol:
        connections.append(config.connection(state, {}))
        return connections[0]

    loop = asyncio.get_running_loop()
    async with await loop.create_server(connection, "127.0.0.1", 0) as server:
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        request = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"
        writer.write(request * 2_000)
        most, answered = 0, 0
        while answered < 2_000:
            most = max(most, len(connections[0].pipeline))  # type: ignore[attr-defined]
            answered += (await reader.read(65536)).count(b"HTTP/1.1 200")
        assert (answered, app.served) == (2_000, 2_000)
        assert most <= AHEAD + AT_ONCE // len(request)
        writer.write(request)
        assert b"200" in await reader.read(65536)
        writer.close()
