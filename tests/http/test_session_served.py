"""Streams behind a real server: readers that hardly read, connections that break off, and many of them."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from httpx2 import Client
from tests.http.conftest import ALICE, settings
from tests.http.event_talk import Told, read
from tests.http.served import Parser, served
from tests.http.session_plugin import tool

from toolplug import open_host
from toolplug.http import create_app

pytestmark = pytest.mark.process

LARGE = "x" * 60_000
PARSERS: list[Parser] = ["h11", "httptools"]


class Wire:
    """A stream over a bare socket, which reads only when it is told to."""

    def __init__(self, port: int, path: str, headers: dict[str, str], *, receive_buffer: int = 0) -> None:
        self.socket = socket.socket()
        self.socket.settimeout(30)
        if receive_buffer:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        self.socket.connect(("127.0.0.1", port))
        lines = [f"GET {path} HTTP/1.1", f"Host: 127.0.0.1:{port}", *(f"{key}: {headers[key]}" for key in headers)]
        self.socket.sendall("\r\n".join([*lines, "", ""]).encode())
        self._begun = False
        self._raw = b""
        self._events = b""

    def trickle(self) -> None:
        """Read one byte."""
        self._raw += self.socket.recv(1)

    def next(self) -> Told:
        """The next event."""
        while b"\n\n" not in self._events:
            self._more()
        block, _, self._events = self._events.partition(b"\n\n")
        return read(block.decode())

    def cut(self) -> None:
        """Reset the connection, as a machine that dies does."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.socket.close()

    def _more(self) -> None:
        """Take the next chunk of the body."""
        if not self._begun:
            while b"\r\n\r\n" not in self._raw:
                self._receive()
            self._raw = self._raw.partition(b"\r\n\r\n")[2]
            self._begun = True
        while b"\r\n" not in self._raw:
            self._receive()
        length, _, rest = self._raw.partition(b"\r\n")
        while len(rest) < int(length, 16) + 2:
            self._receive()
            rest = self._raw.partition(b"\r\n")[2]
        self._events += rest[: int(length, 16)]
        self._raw = rest[int(length, 16) + 2 :]

    def _receive(self) -> None:
        received = self.socket.recv(1 << 20)
        assert received, "the stream has ended"
        self._raw += received


class Application:
    """One session of a served host."""

    def __init__(self, port: int, client: Client) -> None:
        created = client.post("/api/sessions", headers=ALICE).json()
        self.port = port
        self.client = client
        self.place = f"/api/sessions/{created['code']}"
        self.token = {"Authorization": f"Bearer {created['pluginToken']}"}
        self.wires: list[Wire] = []
        self.post("register-tools", {"pluginType": "table", "tools": [tool("add")]})

    def post(self, path: str, body: object) -> Any:
        answer = self.client.post(f"{self.place}/{path}", headers=self.token, json=body)
        assert answer.status_code in {200, 201}, answer.text
        return answer.json()

    def modify(self, description: str, **more: object) -> int:
        """Change the tool; the new revision."""
        changes = {"modified": [tool("add", description=description, **more)]}
        return self.post("update-tools", {"toolUpdates": changes, "reason": "changed"})["revision"]

    def wire(self, headers: dict[str, str] = ALICE, **more: int) -> Wire:
        wire = Wire(self.port, f"{self.place}/stream", headers, **more)
        self.wires.append(wire)
        return wire

    @property
    def streams(self) -> int:
        return self.client.get("/api/sessions", headers=ALICE).json()["sessions"][0]["streams"]


@contextmanager
def application(http: Parser = "httptools", **sessions: object) -> Iterator[Application]:
    """A served host with one session."""
    given = {"max_updates_per_minute": 10_000, "grace": "10m", **sessions}
    host = open_host(settings(providers=None, sessions=given), environ={})
    with (
        served(host, create_app(host), http=http) as port,
        Client(base_url=f"http://127.0.0.1:{port}", timeout=30) as client,
    ):
        made = Application(port, client)
        try:
            yield made
        finally:
            for wire in made.wires:
                wire.socket.close()


@pytest.mark.requirement("C-6-connected", "C-6-stream-roles")
@pytest.mark.parametrize("parser", PARSERS)
def test_a_stream_begins_at_once_and_goes_on_as_things_happen(parser: Parser) -> None:
    with application(parser) as it:
        reader, stream = it.wire(), it.wire(it.token)
        assert (reader.next().event, stream.next().event) == ("connected", "connected")
        assert (reader.next().data["status"], stream.next().data["status"]) == ("attached", "attached")
        revision = it.modify("changed")
        assert (reader.next().data["revision"], stream.next().data["revision"]) == (revision, revision)


@pytest.mark.requirement("H-stream-slow", "H-stream-bounded", "C-6-slow-reader", "I3-bad-byte-a-second")
def test_a_reader_of_one_byte_at_a_time_holds_nobody_up_and_is_told_that_it_missed_something() -> None:
    with application() as it:
        slow, quick = it.wire(receive_buffer=4096), it.wire()
        quick.next()
        for number in range(1, 200):
            revision = it.modify(str(number), annotations={"x": LARGE})
            assert quick.next().data["revision"] == revision
            slow.trickle()
        told = [slow.next()]
        while told[-1].event != "resync":
            told.append(slow.next())
        connected = slow.next()
        last = it.modify("the last one")
        *missed, newest = [slow.next() for _ in range(last - connected.data["revision"])]
        revisions = [event.data["revision"] for event in told[1:-1]]
        assert revisions == list(range(2, 2 + len(revisions)))
        assert told[-1].data == {"reason": "slow_reader"}
        assert (connected.event, connected.data["resumed"]) == ("connected", False)
        after = [event.data["revision"] for event in (*missed, newest)]
        assert after == list(range(connected.data["revision"] + 1, last + 1))


@pytest.mark.requirement("H-stream-slow", "C-6-detached")
@pytest.mark.parametrize("parser", PARSERS)
def test_connections_that_break_off_are_noticed_at_once(parser: Parser) -> None:
    with application(parser, grace="50ms") as it:
        reader = it.wire()
        assert reader.next().event == "connected"
        stream = it.wire(it.token)
        while reader.next().data["status"] != "attached":
            pass  # its grace time may have been over before it came
        stream.cut()
        assert reader.next().data["status"] == "detached"
        for _ in range(20):
            broken = it.wire()
            broken.next()
            broken.cut()
        while it.streams > 1:
            pass


@pytest.mark.requirement("C-6-lease", "C-6-resume", "H-relay-wrong-answers")
def test_a_request_whose_connection_breaks_off_is_answered_on_the_next_one_once() -> None:
    with application() as it, Client(base_url=it.client.base_url, timeout=30) as caller:
        first = it.wire(it.token)
        first.next()
        body = {"tool": "add", "id": "c1", "wait": False}
        taken = caller.post(f"{it.place}/tool-calls", headers=ALICE, json=body).json()
        while (lost := first.next()).event != "tool-request":
            pass
        first.cut()
        second = it.wire({**it.token, "Last-Event-ID": str(lost.id)})
        while (again := second.next()).event != "tool-request":
            pass
        assert (lost.data["id"], again.data["id"], again.data["attempt"]) == (taken["id"], taken["id"], 2)
        it.post("tool-results", {"id": again.data["id"], "result": "once"})
        doubled = caller.post(
            f"{it.place}/tool-results", headers=it.token, json={"id": again.data["id"], "result": "no"}
        )
        assert doubled.status_code == 409
        while (found := caller.get(f"{it.place}/tool-calls/{taken['id']}", headers=ALICE).json())["status"] != "done":
            pass
        assert found["result"]["output"] == "once"


@pytest.mark.requirement("DYN-OQ-4", "C-6-atomic-revision", "H-stream-race")
def test_readers_that_come_while_updates_run_see_every_revision_once() -> None:
    with application() as it:
        wires: list[tuple[int, Wire]] = []
        for number in range(60):
            if number % 3 == 0:
                wires.append((number, it.wire()))
            last = it.modify(str(number))
        for _, wire in wires:
            begin = wire.next().data["revision"]
            told = [wire.next().data["revision"] for _ in range(last - begin)]
            assert told == list(range(begin + 1, last + 1))
