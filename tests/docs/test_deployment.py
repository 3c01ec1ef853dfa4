"""The nginx configuration of the deployment page, in front of `toolplug serve` with the page's providers.yaml."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx2
import pytest
from tests.cli.process import Serving, serving
from tests.docs.fences import fences
from tests.kept_port import kept_port
from tests.requirement_table import ROOT

pytestmark = [pytest.mark.judge, pytest.mark.needs("nginx")]

KEY = "a-key-of-the-deployment-page"
TLS, TARGET = "listen 443 ssl;", "http://127.0.0.1:8080"
MAIN = """daemon off;
master_process off;
pid nginx.pid;
error_log stderr;
events {{}}
http {{
    access_log off;
    client_body_temp_path body;
    proxy_temp_path proxy;
    fastcgi_temp_path fastcgi;
    uwsgi_temp_path uwsgi;
    scgi_temp_path scgi;
    {server}
}}
"""


@pytest.fixture
def service(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Serving]:
    """A host with the page's configuration, whose key may also make sessions."""
    monkeypatch.setenv("TP_KEY", KEY)
    (tmp_path / "data").mkdir()
    lending = _block("providers.yaml").replace("tools:call]", "tools:call, sessions:write]")
    (tmp_path / "providers.yaml").write_text(lending, "utf-8")
    with serving(folder=tmp_path) as served:
        yield served


@pytest.fixture
def client(service: Serving, tmp_path: Path) -> Iterator[httpx2.Client]:
    """A client at 127.0.0.2 that talks to the page's nginx."""
    with (
        _nginx(service.url, tmp_path) as proxy,
        httpx2.Client(
            base_url=proxy,
            headers={"Host": "tools.example.com", "Authorization": f"Bearer {KEY}"},
            transport=httpx2.HTTPTransport(local_address="127.0.0.2", retries=8),
        ) as client,
    ):
        yield client


def test_a_call_passes_the_proxy_and_metrics_do_not(client: httpx2.Client) -> None:
    answer = client.post("/v1/tool-calls", json={"name": "hello", "arguments": {"name": "Ada"}})
    assert (answer.status_code, answer.json()["output"]) == (200, "Hello, Ada!")
    assert client.get("/metrics").status_code == 404
    assert client.get("/v1/tools", headers={"Host": "elsewhere.example"}).status_code == 421


def test_a_large_body_reaches_the_host_which_has_its_own_limit(client: httpx2.Client) -> None:
    answer = client.post("/v1/tool-calls", content=b" " * (2 << 20), headers={"Content-Type": "application/json"})
    assert (answer.status_code, answer.json()["error"]["code"]) == (413, "body_too_large")


def test_the_peer_is_the_client_and_not_what_it_says_that_it_is(service: Serving, client: httpx2.Client) -> None:
    refused = {"Authorization": "Bearer wrong", "X-Forwarded-For": "198.51.100.1"}
    assert client.get("/v1/tools", headers=refused).status_code == 401
    assert '"peer":"127.0.0.2"' in service.wait_for("authentication")


def test_events_pass_the_proxy_while_their_stream_is_open(client: httpx2.Client) -> None:
    session = client.post("/api/sessions", json={"pluginType": "calculator"}).json()
    assert session["streamUrl"].startswith("https://tools.example.com/api/sessions/")
    plugin = {"Authorization": f"Bearer {session['pluginToken']}"}
    with client.stream("GET", f"/api/sessions/{session['code']}/stream", headers=plugin) as stream:
        assert "event: connected" in stream.iter_lines()


@contextmanager
def _nginx(target: str, folder: Path) -> Iterator[str]:
    """The page's server on a free port, without TLS; gives its address."""
    server = _block("toolplug.nginx")
    assert TLS in server
    assert TARGET in server
    with kept_port() as port:
        server = server.replace(TLS, f"listen 127.0.0.1:{port};").replace(TARGET, target)
        (folder / "nginx.conf").write_text(MAIN.format(server=server), "utf-8")
        command = ["nginx", "-p", str(folder), "-c", "nginx.conf", "-e", "stderr"]
        with subprocess.Popen(command, stderr=subprocess.PIPE) as nginx:
            yield f"http://127.0.0.1:{port}"
            nginx.terminate()


def _block(title: str) -> str:
    page = (ROOT / "docs" / "how-to" / "deploy.md").read_text("utf-8")
    return next(fence.text for fence in fences(page) if fence.title == title)
