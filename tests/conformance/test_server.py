"""The public conformance suite as a client of ours: `/mcp`, and a session's endpoint."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest
from tests.cli.process import PATIENCE_S
from tests.conformance.baseline import expected, judged
from tests.conformance.suite import REVISIONS, server_checks
from tests.kept_port import kept_port
from tests.wire.deployments import chosen, deployed

pytestmark = [pytest.mark.judge, pytest.mark.requirement("C-5-mcp", "C-5-session-mcp", "I5-5-conformance-server")]


@pytest.fixture(scope="module", params=chosen(default="one"))
def host(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Where a deployment of `toolplug serve` serves the tools that the suite expects."""
    folder = tmp_path_factory.mktemp("host")
    site = folder / "site"
    info = site / "toolplug_conformance-1.0.dist-info"
    info.mkdir(parents=True)
    shutil.copy(Path(__file__).with_name("provider.py"), site / "toolplug_conformance.py")
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: toolplug-conformance\nVersion: 1.0\n")
    points = "conformance = toolplug_conformance:Conformance\nspare = toolplug_conformance:Spare\n"
    (info / "entry_points.txt").write_text(f"[toolplug.providers]\n{points}")
    with kept_port() as port:
        providers = {"conformance": {"enabled": True, "host": f"http://127.0.0.1:{port}"}, "spare": {"enabled": True}}
        with deployed(request.param, folder, {"providers": providers}, port, site) as url:
            yield url


@pytest.fixture(params=["/mcp", "a session"])
def endpoint(request: pytest.FixtureRequest, host: str) -> str:
    if request.param == "/mcp":
        return f"{host}/mcp"
    return httpx2.post(f"{host}/api/sessions", timeout=PATIENCE_S).json()["mcpUrl"]


@pytest.mark.parametrize("revision", REVISIONS)
def test_the_suite_finds_what_the_baseline_says_and_nothing_else(endpoint: str, revision: str, tmp_path: Path) -> None:
    assert judged(server_checks(endpoint, revision, tmp_path), expected("server")) == []


def test_what_the_baseline_calls_not_offered_is_not_advertised(endpoint: str) -> None:
    introduction = {
        "protocolVersion": REVISIONS[0],
        "capabilities": {},
        "clientInfo": {"name": "judge", "version": "1"},
    }
    initialize = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": introduction}
    offered = httpx2.post(endpoint, json=initialize, timeout=PATIENCE_S).json()["result"]["capabilities"]
    changed = {"listChanged": True}
    resources = {"subscribe": True, **changed}
    assert offered == {"tools": changed, "prompts": changed, "resources": resources, "completions": {}}
    assert not set(offered) & {row.capability for row in expected("server")}
