"""The client matrix against hosts of several processes: each request of a conversation may reach another one."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.clients import adding_provider
from tests.clients.test_matrix import ADD, SCENARIOS, Client, Scenario, client, told
from tests.kept_port import kept_port
from tests.responses.backend.scripted import ScriptedBackend
from tests.wire.deployments import chosen, deployed
from tests.wire.model import MODEL, served

__all__ = ["client"]

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.wire,
    pytest.mark.leaves("task", "thread", "process"),
    pytest.mark.requirement("I17-6-clients"),
]


@dataclass(frozen=True, slots=True)
class DeployedHosts:
    """Where the hosts are, the scripted model behind them, and what their tools have done."""

    url: str
    backend: ScriptedBackend
    added: Path

    def clear(self) -> None:
        """Forget what was asked and done."""
        self.backend.clear()
        self.added.write_text("")


@pytest.fixture(scope="module", params=chosen())
def hosts(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[DeployedHosts]:
    """The hosts of a deployment."""
    folder = tmp_path_factory.mktemp(request.param)
    shutil.copy(Path(adding_provider.__file__), folder / "adding.py")
    backend = ScriptedBackend()
    with kept_port() as port, served(backend) as model:
        sections = {
            "auth": {"api_keys": [{"key": "alice-key", "subject": "alice", "tenant": "t1"}]},
            "providers": {"adding": {"type": "./adding.py:Adding", "enabled": True}},
            "responses": {"backend": {"base_url": model, "api_key": "none", "model": MODEL}},
        }
        with deployed(request.param, folder, sections, port) as url:
            yield DeployedHosts(url, backend, folder / "added")


@pytest.mark.timeout(900)
@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)
async def test_a_client_has_a_conversation(hosts: DeployedHosts, client: Client, scenario: Scenario) -> None:
    hosts.clear()
    hosts.backend.plays(*scenario.says)
    assert await client.program.do(scenario.job(f"{hosts.url}/v1", client.name)) == {"texts": list(scenario.texts)}
    assert told(hosts.backend) == list(scenario.told)
    calls = sum(ADD in getattr(turn, "calls", ()) for turn in scenario.says)
    assert hosts.added.read_text() == "add 1 2\n" * calls
