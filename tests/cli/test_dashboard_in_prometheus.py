"""The board of `toolplug dashboard` against a real Prometheus that scrapes a real host with real calls."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event
from typing import Any

import httpx2
import pytest
import yaml
from tests.cli.process import Serving, serving, toolplug
from tests.kept_port import kept_port
from tests.providers.fake_distribution import install, provides

pytestmark = [
    pytest.mark.judge,
    pytest.mark.needs("prometheus"),
    pytest.mark.requirement("C-10-dashboard"),
]

LEDGER = '''
from toolplug import FunctionProvider, route, tool


class Ledger(FunctionProvider):
    @tool
    def add(self, amount: int) -> int:
        """Add an amount."""
        return amount

    @tool
    def crash(self) -> str:
        """Crash."""
        raise RuntimeError("no disk")

    @tool
    def pay(self) -> str:
        """Pay."""
        return "paid"

    @route("GET", "/v1/ledger")
    async def show(self, request):
        return []
'''
CALLER = {"X-API-Key": "caller-key"}
SERVER = Path(__file__).parents[1] / "mcp" / "servers" / "sdk_server.py"
CONFIGURATION: dict[str, Any] = {
    "store": "sqlite:///./state.db",
    "providers": {"ledger": {"enabled": True, "tools": {"pay": "ask", "add": {"limits": {"rate": "2/hour"}}}}},
    "mcp_servers": {"real": {"command": sys.executable, "args": [str(SERVER), "stdio"], "prefix": "real"}},
    "sessions": {"ttl": "1h"},
    "quotas": {"tenant": {"servers": 0}},
    "auth": {
        "api_keys": [
            {"key": "caller-key", "subject": "caller", "scopes": ["admin"]},
        ]
    },
}
PATIENCE_S = 40
INTERVAL = "1s"


def use(host: Serving) -> None:
    """Use every part of the host that the board shows."""

    def post(path: str, body: object, headers: dict[str, str] = CALLER) -> httpx2.Response:
        return httpx2.post(f"{host.url}{path}", headers=headers, json=body, timeout=PATIENCE_S)

    for name, arguments in (("add", {"amount": 1}), ("crash", {}), ("pay", {}), ("real.add", {"a": 1, "b": 2})):
        assert post("/v1/tool-calls", {"name": name, "arguments": arguments}).status_code == 200
    httpx2.get(f"{host.url}/v1/ledger", headers=CALLER)
    httpx2.get(f"{host.url}/v1/tools")
    session = post("/api/sessions", {}).json()
    place, token = f"/api/sessions/{session['code']}", {"Authorization": f"Bearer {session['pluginToken']}"}
    lent = {"pluginType": "table", "tools": [{"name": "draw", "inputSchema": {"type": "object"}}]}
    assert post(f"{place}/register-tools", lent, token).status_code == 201
    with httpx2.stream("GET", f"{host.url}{place}/stream", headers=token):  # the application, which never answers
        body = {"tool": "draw", "arguments": {}, "timeoutMs": 100}
        assert post(f"{place}/tool-calls", body).json()["status"] == "timeout"
    assert post("/api/mcp-servers", {"id": "more", "url": "https://mcp.example.com/"}).status_code == 429


@contextmanager
def prometheus(target: str, folder: Path, port: int) -> Iterator[str]:
    """The address of a Prometheus that scrapes the target, with the rules in the folder."""
    scrapes = [{"job_name": "toolplug", "static_configs": [{"targets": [target]}]}]
    whole = {
        "global": {"scrape_interval": INTERVAL, "evaluation_interval": INTERVAL},
        "rule_files": [str(folder / "toolplug-alerts.yml")],
        "scrape_configs": scrapes,
    }
    (folder / "prometheus.yml").write_text(yaml.safe_dump(whole))
    process = subprocess.Popen(
        [
            "prometheus",
            f"--config.file={folder / 'prometheus.yml'}",
            f"--storage.tsdb.path={folder / 'data'}",
            f"--web.listen-address=127.0.0.1:{port}",
            "--log.level=error",
        ],
        stdin=subprocess.DEVNULL,
    )
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(PATIENCE_S)


def has_data(address: str, query: str) -> bool:
    """Whether the answer to the query has a number; Grafana's variables are as with all instances and one minute."""
    asked = query.replace("$instance", ".*").replace("$__rate_interval", "1m")
    try:
        answer = httpx2.get(f"{address}/api/v1/query", params={"query": asked}).json()
    except httpx2.TransportError:
        return False  # it does not listen yet
    assert answer["status"] == "success", (asked, answer)
    return any(not math.isnan(float(sample["value"][1])) for sample in answer["data"]["result"])


def until(condition: Callable[[], object]) -> bool:
    """Whether the condition holds within the patience, asked twice a second: Prometheus reports nothing by itself."""
    never = Event()
    return any(condition() or never.wait(0.5) for _ in range(2 * PATIENCE_S))


def test_every_query_of_the_board_has_data_and_crashes_are_reported(tmp_path: Path) -> None:
    site = tmp_path / "site"
    site.mkdir()
    install(site, "toolplug-ledger", provides(ledger="ledger:Ledger"), modules={"ledger": LEDGER})
    (tmp_path / "providers.yaml").write_text(yaml.safe_dump(CONFIGURATION))
    assert toolplug("dashboard", folder=tmp_path, site=site).code == 0
    board = json.loads((tmp_path / "toolplug-dashboard.json").read_text())
    panels = [panel for each in board["panels"] for panel in (each, *each.get("panels", ()))]
    waiting = {target["expr"] for panel in panels for target in panel.get("targets", ())}
    assert len(waiting) > 35
    with (
        serving("-c", "providers.yaml", folder=tmp_path, site=site) as host,
        kept_port() as port,
        prometheus(host.url.removeprefix("http://"), tmp_path, port) as address,
    ):
        host.wait_for("server 'real' lists")

        def all_shown() -> bool:
            use(host)  # again and again: a rate needs a change between two scrapes
            for query in sorted(waiting):
                if has_data(address, query):
                    waiting.discard(query)
            return not waiting

        assert until(all_shown), sorted(waiting)
        crashes = 'ALERTS{alertname="ToolplugToolCrashes",alertstate="firing",tool_name="crash",provider="ledger"}'
        assert until(lambda: has_data(address, crashes))
