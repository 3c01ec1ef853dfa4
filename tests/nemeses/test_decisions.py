"""Two replicas on one store: one is killed between question and decision, and the rule of the decision holds in both.

By `curl`, on the command line, and through an MCP client of 2026-07-28.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx2
import pytest
import yaml
from mcp.client.client import Client
from mcp.client.context import ClientRequestContext
from mcp.client.streamable_http import streamable_http_client
from mcp_types import ElicitRequestParams, ElicitResult
from tests.cli.process import Serving, serving, toolplug
from tests.postgres_server import postgres
from tests.redis_server import redis

pytestmark = [
    pytest.mark.judge,
    pytest.mark.requirement("I35-done"),
    pytest.mark.needs("redis-server", "pg_createcluster", "curl"),
]

KEYS = [
    {"key": "agent-key", "subject": "agent", "scopes": ["tools:call", "tools:read"]},
    {"key": "person-key", "subject": "person", "scopes": ["approvals:write"]},
    {"key": "root-key", "subject": "root", "scopes": ["admin"]},
]
RULE = {"properties": {"name": {"minLength": 5, "maxLength": 9}}}


class Replicas:
    """Hosts in one folder, with one file."""

    def __init__(self, folder: Path, store: str, life: ExitStack) -> None:
        self.folder = folder
        self._life = life
        rule = {"policy": "ask", "grants": {"most": "8h", "scope": "caller", "any": True}}
        journal = {"enabled": True}
        settings = {
            "store": store,
            "auth": {"api_keys": KEYS},
            "approvals": {"life": "8h"},
            "providers": {"hello": {"enabled": True, "tools": {"hello": rule}}, "journal": journal},
        }
        (folder / "providers.yaml").write_text(yaml.safe_dump(settings))

    def start(self) -> Serving:
        host = self._life.enter_context(serving(folder=self.folder))
        assert host.url
        return host

    def toolplug(self, *arguments: str) -> Any:
        done = toolplug(*arguments, "--json", folder=self.folder)
        assert done.code == 0, done.err
        return json.loads(done.out)


@pytest.fixture(params=["redis", "postgres"])
def replicas(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Replicas]:
    with ExitStack() as life:
        if request.param == "redis":
            store = f"redis://127.0.0.1:{life.enter_context(redis()).port}"
        else:
            store = life.enter_context(postgres()).url()
        yield Replicas(tmp_path, store, life)


def calls(host: Serving, *names: str) -> list[Any]:
    """The answers to calls with these names, over one connection."""
    with httpx2.Client(base_url=host.url, headers={"X-API-Key": "agent-key"}, timeout=30) as client:
        bodies = [{"name": "hello", "arguments": {"name": name}} for name in names]
        return [client.post("/v1/tool-calls", json=body).json() for body in bodies]


def call(host: Serving, name: str) -> Any:
    (answer,) = calls(host, name)
    return answer


def curl(url: str, *arguments: str) -> Any:
    command = ["curl", "-sS", "--fail-with-body", "-H", "X-API-Key: person-key", url, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=30)
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout) if done.stdout else None


def by_curl(replicas: Replicas, host: Serving, ticket: str) -> Callable[[], object]:
    grant = {"arguments": RULE, "scope": "caller", "for": "8h"}
    body = json.dumps({"decision": "approve", "grant": grant})
    curl(f"{host.url}/v1/approvals/{ticket}", "--json", body)
    (made,) = curl(f"{host.url}/v1/grants")["grants"]
    assert made["arguments"] == RULE
    return lambda: curl(f"{host.url}/v1/grants/{made['id']}", "-X", "DELETE")


def by_command_line(replicas: Replicas, host: Serving, ticket: str) -> Callable[[], object]:
    replicas.toolplug("approvals", "approve", ticket, "--for", "8h", "--where", json.dumps(RULE))
    (made,) = replicas.toolplug("grants", "list")["grants"]
    assert made["arguments"] == RULE
    return lambda: replicas.toolplug("grants", "revoke", made["id"])


class Steered(httpx2.AsyncHTTPTransport):
    """Sends every request to the replica that is up, as a balancer does."""

    target: Serving

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        url = httpx2.URL(self.target.url)
        request.url = request.url.copy_with(host=url.host, port=url.port)
        return await super().handle_async_request(request)


@pytest.mark.anyio
async def test_one_question_decides_fifty_like_calls_though_the_process_that_asked_is_killed(
    replicas: Replicas,
) -> None:
    first, second = replicas.start(), replicas.start()
    asked = call(first, "call-0")
    for decide in (by_curl, by_command_line):
        assert asked["status"] == "denied"
        first.process.kill()
        first.process.wait()
        revoke = decide(replicas, second, asked["metadata"]["approval"]["id"])
        first = replicas.start()
        names = [f"call-{number}" for number in range(50)]
        answers = [*calls(first, *names[:25]), *calls(second, *names[25:])]
        assert [item["output"] for item in answers] == [f"Hello, {name}!" for name in names]
        assert len({item["metadata"].get("granted_by") for item in answers[1:]}) == 1
        revoke()
        await asyncio.sleep(1.0)
        asked, other = call(first, "call-0"), call(second, "call-1")
        assert [asked["status"], other["status"]] == ["denied", "denied"]
    assert count_kept(replicas) == (100, 2, 2)
    await decide_as_client(first, second)
    assert count_kept(replicas) == (150, 3, 3)


def count_kept(replicas: Replicas) -> tuple[int, ...]:
    """How many calls the journal has that ended well, how many decisions that allow them, and how many taken back."""
    kept = replicas.toolplug("journal", "--limit", "1000")["calls"]
    statuses = Counter(item["status"] for item in kept)
    assert toolplug("journal", "verify", folder=replicas.folder).code == 0
    return tuple(statuses[name] for name in ("success", "approval_approved", "grant_revoked"))


async def decide_as_client(first: Serving, second: Serving) -> None:
    """Fifty calls of a client of 2026-07-28, whose person answers at the replica that is left."""
    transport = Steered()
    transport.target = first
    asked: list[str] = []

    async def person(context: ClientRequestContext, params: ElicitRequestParams) -> ElicitResult:
        asked.append(params.message)
        first.process.kill()
        transport.target = second
        return ElicitResult(action="accept", content={"decision": "this session"})

    async with (
        asyncio.timeout(120),
        httpx2.AsyncClient(transport=transport, headers={"X-API-Key": "root-key"}, timeout=30) as http,
    ):
        code = (await http.post("http://127.0.0.1/api/sessions")).json()["code"]
        stream = streamable_http_client(f"http://127.0.0.1/api/sessions/{code}/mcp", http_client=http)
        async with Client(stream, mode="auto", elicitation_callback=person) as client:
            for number in range(50):
                said = await client.call_tool("hello", {"name": f"call-{number}"})
                assert said.content[0].text == f"Hello, call-{number}!"  # type: ignore[union-attr]
        (made,) = (await http.get("http://127.0.0.1/v1/grants")).json()["grants"]
        gone = await http.delete(f"http://127.0.0.1/v1/grants/{made['id']}")
    assert (len(asked), made["scope"], gone.status_code) == (1, "session", 204)
