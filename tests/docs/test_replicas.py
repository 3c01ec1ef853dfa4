"""The page on several replicas, without containers: its compose file's commands, its proxy and its probes."""

from __future__ import annotations

import re
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from signal import SIGCONT, SIGSTOP
from typing import Any

import httpx2
import pytest
import yaml
from tests.cli.process import Serving, serving
from tests.docs.fences import fences
from tests.kept_port import kept_port
from tests.redis_server import RedisServer, redis
from tests.requirement_table import ROOT

pytestmark = [pytest.mark.judge, pytest.mark.needs("haproxy", "redis-server")]

KEY = "a-key-of-the-page-on-replicas"
HEADERS = {"Host": "tools.example.com", "Authorization": f"Bearer {KEY}"}
PATIENCE_S = 60.0
CALL = {"name": "hello", "arguments": {"name": "Ada"}}


@dataclass(frozen=True)
class Deployment:
    """The running services of the page: its replicas, and a client of its proxy."""

    store: RedisServer
    replicas: list[Serving]
    client: httpx2.Client

    def call(self) -> str:
        """One call of a provider's tool through the proxy."""
        answer = self.client.post("/v1/tool-calls", json=CALL)
        assert answer.status_code == 200, answer.text
        return str(answer.json()["output"])


def block(title: str) -> str:
    """The text of one file of the page."""
    page = (ROOT / "docs" / "how-to" / "run-replicas.md").read_text("utf-8")
    return next(fence.text for fence in fences(page) if fence.title == title)


def compose() -> dict[str, Any]:
    """The services of the compose file."""
    services: dict[str, Any] = yaml.safe_load(block("compose.yaml"))["services"]
    return services


@pytest.fixture(scope="module")
def deployment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    """Run the services as the compose file says, with addresses of this machine for their names."""
    folder = tmp_path_factory.mktemp("replicas")
    services = compose()
    program, *options = services["redis"]["command"].split()
    assert program == "redis-server"
    (folder / "providers.yaml").write_text(block("providers.yaml"), "utf-8")
    with pytest.MonkeyPatch.context() as environment, ExitStack() as life:
        store = life.enter_context(redis(*options))
        host = services["toolplug"]
        assert set(host["environment"]) == {"TP_KEY", "STORE_URL"}
        url = host["environment"]["STORE_URL"].replace("redis:6379", f"127.0.0.1:{store.port}")
        environment.setenv("TP_KEY", KEY)
        environment.setenv("STORE_URL", url)
        count = host["deploy"]["replicas"]
        replicas = [life.enter_context(serving(folder=folder)) for _ in range(count)]
        port = life.enter_context(kept_port())
        life.enter_context(_haproxy([replica.url for replica in replicas], port, folder))
        transport = httpx2.HTTPTransport(retries=8)
        client = httpx2.Client(base_url=f"http://127.0.0.1:{port}", headers=HEADERS, transport=transport, timeout=30)
        with client:
            _until(lambda: client.get("/readyz").status_code == 200)
            yield Deployment(store, replicas, client)


@pytest.mark.requirement("I17-7-compose")
def test_any_replica_serves_any_request(deployment: Deployment) -> None:
    client = deployment.client
    assert [deployment.call() for _ in deployment.replicas] == ["Hello, Ada!"] * len(deployment.replicas)
    session = client.post("/api/sessions", json={"pluginType": "calculator"}).json()
    for _ in deployment.replicas:
        assert client.get(f"/api/sessions/{session['code']}/metadata").status_code == 200
    for path in ("/metrics", "/%6detrics"):  # the server reads both as one
        assert client.get(path).status_code == 404
    with client.stream(
        "GET",
        f"/api/sessions/{session['code']}/stream",
        headers={"Authorization": f"Bearer {session['pluginToken']}"},
    ) as stream:
        assert "event: connected" in stream.iter_lines()


@pytest.mark.requirement("I17-7-compose")
def test_provider_tools_go_on_while_the_store_is_down(deployment: Deployment) -> None:
    deployment.store.signal(SIGSTOP)
    try:
        _until(lambda: deployment.client.get("/readyz").status_code == 503)
        time.sleep(3)  # the proxy would miss two checks
        assert deployment.call() == "Hello, Ada!"
        assert deployment.client.post("/api/sessions", json={"pluginType": "calculator"}).status_code == 503
    finally:
        deployment.store.signal(SIGCONT)
    _until(lambda: deployment.client.get("/readyz").status_code == 200)


@pytest.mark.requirement("I17-7-compose")
def test_calls_go_on_while_a_replica_is_gone(deployment: Deployment) -> None:
    deployment.replicas[0].process.kill()
    deployment.replicas[0].end()
    assert [deployment.call() for _ in range(12)] == ["Hello, Ada!"] * 12


@pytest.mark.requirement("I17-7-compose")
def test_a_replica_that_stops_refuses_no_request(deployment: Deployment) -> None:
    stopping = deployment.replicas[1]
    for number in range(60):
        assert deployment.call() == "Hello, Ada!"
        if number == 10:
            stopping.process.terminate()
    assert stopping.end() == 0


@pytest.mark.requirement("I17-7-manifest")
def test_the_probes_of_the_manifest_answer(deployment: Deployment) -> None:
    documents: list[dict[str, Any]] = list(yaml.safe_load_all(block("toolplug.yaml")))
    kinds = {document["kind"]: document["spec"] for document in documents}
    pod = kinds["Deployment"]["template"]
    container = pod["spec"]["containers"][0]
    for probe in (container["livenessProbe"], container["readinessProbe"]):
        asked = probe["httpGet"]
        headers = {header["name"]: header["value"] for header in asked["httpHeaders"]}
        answer = httpx2.get(deployment.replicas[2].url + asked["path"], headers=headers)
        assert answer.status_code == 200, answer.text
    labels = pod["metadata"]["labels"].items()
    for selector in (
        kinds["Deployment"]["selector"]["matchLabels"],
        kinds["Service"]["selector"],
        kinds["PodDisruptionBudget"]["selector"]["matchLabels"],
    ):
        assert selector.items() <= labels
    named = set(re.findall(r"\$\{(\w+)\}", block("providers.yaml")))
    assert named == set(re.findall(r"--from-literal (\w+)=", block("create.sh")))


def _haproxy(urls: list[str], port: int, folder: Path) -> subprocess.Popen[bytes]:
    """Run the page's proxy on a port, with these replicas as its servers."""
    text = block("haproxy.cfg")
    template = re.search(r"server-template replica (\d+) toolplug:8080", text)
    assert template, text
    assert int(template[1]) == len(urls)
    servers = [f"server replica{number} {url.removeprefix('http://')}" for number, url in enumerate(urls)]
    for shown, here in (
        (template[0], "\n    ".join(servers)),
        ("bind :8080", f"bind 127.0.0.1:{port}"),
        (" resolvers containers init-addr libc,none", ""),
    ):
        assert shown in text
        text = text.replace(shown, here)
    file = folder / "haproxy.cfg"
    file.write_text(text, "utf-8")
    return _Ended(["haproxy", "-db", "-f", str(file)], stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)


class _Ended(subprocess.Popen[bytes]):
    """A program that is killed at the end of its block."""

    def __exit__(self, *_: object) -> None:
        self.kill()
        self.wait()


def _until(true: Any) -> None:
    give_up_at = time.monotonic() + PATIENCE_S
    while not true():
        assert time.monotonic() < give_up_at
        time.sleep(0.1)
