"""Behind a real server: what its parsers let through, who the peer is, and a client that hangs up."""

from __future__ import annotations

import socket
from typing import Any

import pytest
from httpx2 import Client
from prometheus_client.parser import text_string_to_metric_families
from tests.http.conftest import ALICE, settings
from tests.http.served import Parser, served

from toolplug import open_host
from toolplug.http import create_app

pytestmark = pytest.mark.process

PARSERS: list[Parser] = ["h11", "httptools"]


def raw(port: int, *lines: bytes, body: bytes = b"") -> bytes:
    """Everything that a server answers to these bytes on a connection that is then closed."""
    with socket.create_connection(("127.0.0.1", port), timeout=20) as connection:
        connection.sendall(b"\r\n".join([*lines, b"Connection: close", b"", b""]) + body)
        answer = b""
        while received := connection.recv(65536):
            answer += received
    return answer


def status(answer: bytes) -> int:
    return int(answer.split(b" ", 2)[1])


@pytest.mark.requirement("H-trust-bad-host", "H-trust-headers", "C-5-route-not-found")
@pytest.mark.parametrize("parser", PARSERS)
def test_what_a_parser_lets_through_stops_at_our_doors(sample_package: None, parser: Parser) -> None:
    host = open_host(settings(), environ={})
    with served(host, create_app(host), http=parser) as port:
        here = b"Host: 127.0.0.1:%d" % port
        key = b"X-API-Key: alice-key"
        assert status(raw(port, b"GET /v1/tools HTTP/1.1", here, key)) == 200
        for bad in ([], [here, here], [here, b"Host: evil.example"], [b"Host: evil.example"]):
            assert status(raw(port, b"GET /v1/tools HTTP/1.1", *bad, key)) in {400, 421}
        absolute = raw(port, b"GET http://evil.example/v1/tools HTTP/1.1", b"Host: evil.example", key)
        assert status(absolute) in {404, 421}
        large = b"X-Big: " + b"x" * 50_000
        assert status(raw(port, b"GET /v1/tools HTTP/1.1", here, key, large)) in {400, 431}
        many = [b"X-%d: 1" % number for number in range(120)]
        assert status(raw(port, b"GET /v1/tools HTTP/1.1", here, key, *many)) == 431
        for path in (b"//v1/tools", b"/v1/tools/%2e%2e/tools", b"/v1/samples%2F", b"/x/../v1/tools"):
            assert status(raw(port, b"GET %s HTTP/1.1" % path, here, key)) == 404, path
        for path in (b"/v1/%74ools", b"/v1/s%61mples"):
            assert status(raw(port, b"GET %s HTTP/1.1" % path, here)) == 401, path
            assert status(raw(port, b"GET %s HTTP/1.1" % path, here, key)) == 200, path


@pytest.mark.requirement("C-5-max-body")
@pytest.mark.parametrize("parser", PARSERS)
def test_a_body_in_chunks_is_cut_off_at_the_limit(sample_package: None, parser: Parser) -> None:
    host = open_host(settings(http={"max_body": 1000}), environ={})
    with served(host, create_app(host), http=parser) as port:
        here = b"Host: localhost:%d" % port
        head = [b"POST /v1/samples HTTP/1.1", here, b"X-API-Key: alice-key", b"Transfer-Encoding: chunked"]
        chunk = b"190\r\n" + b"x" * 400 + b"\r\n"
        assert status(raw(port, *head, body=chunk * 2 + b"0\r\n\r\n")) == 201
        assert status(raw(port, *head, body=chunk * 3 + b"0\r\n\r\n")) == 413


@pytest.mark.requirement("C-5-loopback-only", "C-5-no-auth-bind")
def test_a_host_without_auth_refuses_a_peer_that_a_proxy_names(sample_package: None) -> None:
    host = open_host(settings(auth=None), environ={})
    with served(host, create_app(host)) as port, Client(base_url=f"http://127.0.0.1:{port}", timeout=30) as client:
        assert client.get("/v1/tools").status_code == 200
        assert client.get("/v1/tools", headers={"X-Forwarded-For": "203.0.113.9"}).status_code == 403


@pytest.mark.requirement("C-5-calls-stream", "I2-4-progress")
def test_progress_is_there_before_the_tool_has_ended(sample_package: None) -> None:
    host = open_host(settings(), environ={})
    with served(host, create_app(host)) as port, Client(base_url=f"http://127.0.0.1:{port}", timeout=30) as client:
        body: dict[str, Any] = {"name": "waits_after_report", "timeoutMs": 20_000}
        headers = {**ALICE, "Accept": "text/event-stream"}
        with client.stream("POST", "/v1/tool-calls", headers=headers, json=body) as answer:
            lines = answer.iter_lines()
            assert next(lines) == "event: progress"
            assert _in_flight(client, "waits_after_report") == 1
            assert client.post("/v1/tool-calls", headers=ALICE, json={"name": "lets_go"}).json()["status"] == "success"
            assert [line for line in lines if line.startswith("event: ")] == ["event: result"]


@pytest.mark.requirement("C-3-cancelled-counted")
@pytest.mark.parametrize("parser", PARSERS)
@pytest.mark.parametrize("accept", ["application/json", "text/event-stream"])
def test_a_client_that_hangs_up_cancels_its_call(sample_package: None, parser: Parser, accept: str) -> None:
    host = open_host(settings(), environ={})
    with (
        served(host, create_app(host), http=parser) as port,
        Client(base_url=f"http://127.0.0.1:{port}", timeout=30) as client,
    ):
        body = b'{"name": "waits"}'
        head = [
            b"POST /v1/tool-calls HTTP/1.1",
            b"Host: localhost",
            b"X-API-Key: alice-key",
            b"Accept: " + accept.encode(),
            b"Content-Length: %d" % len(body),
        ]
        with socket.create_connection(("127.0.0.1", port), timeout=20) as connection:
            connection.sendall(b"\r\n".join([*head, b"", b""]) + body)
            while _in_flight(client, "waits") == 0:
                continue
        while _in_flight(client, "waits") > 0:
            continue
        page = client.get("/metrics").text
        assert 'executions_total{provider="sample",status="cancelled",tool_name="waits"} 1.0' in page


def _in_flight(client: Client, tool: str) -> float:
    for family in text_string_to_metric_families(client.get("/metrics").text):
        if family.name == "antwort_builtin_tool_in_flight":
            return sum(sample.value for sample in family.samples if sample.labels["tool_name"] == tool)
    raise AssertionError("the gauge is missing")
