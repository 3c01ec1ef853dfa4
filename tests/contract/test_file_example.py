"""The `providers.yaml` of CONTRACT.md section 2, with values where the contract writes an ellipsis."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from toolplug import open_host
from toolplug.providers.entry import ProviderState

pytestmark = [pytest.mark.anyio, pytest.mark.process]

Write = Callable[[str], Path]

WHOLE = """\
# yaml-language-server: $schema=./providers.schema.json     (written by `toolplug schema`, covers the installed packages)
providers:
  web_search:
    enabled: true            # default false: not imported, not constructed, no tools, no routes
    backend: searxng         # everything but the reserved keys belongs to the provider's own Config model
    url: http://searxng:8080
    max_results: 5
  file_search:
    enabled: true
    limits: {timeout: 20s, max_concurrency: 8, queue: 16, rate: 60/minute, max_result_bytes: 200KiB, retries: 2, breaker: {failures: 5, open_for: 30s}, drain: 30s}
    tools: {file_search: {policy: ask, limits: {timeout: 5s}, tenants: [org-1]}, list_files: allow}
auth:
  api_keys:
    - {key: "${TP_KEY}", subject: alice, tenant: t1, scopes: [tools:read, tools:call], agents: [researcher]}   # or key_file:, or sha256: hex; no agents: any
  jwt: {algorithms: [RS256], jwks_url: https://id.example/keys, issuer: https://id.example, audience: toolplug, tenant_claim: tenant, scopes_claim: scope, agents_claim: agents}   # or public_key_file
http:      {allowed_hosts: [], allowed_origins: [], max_body: 1MiB}
egress:    {allow: []}                      # loopback, private, 10.1.0.0/16, *.corp.example
limits:    {timeout: 60s}                   # the same knobs, for every tool
metrics:   {namespace: antwort}
store:     sqlite:///./.toolplug/state.db   # or memory://, redis://host:6379/0
mcp_servers:
  time: {command: uvx, args: [mcp-server-time], env: {TZ: UTC}, cwd: /, enabled: true, discovery_timeout: 30s, policy: allow, pin: false, tools: {get_time: allow}}
  docs: {url: https://docs.example/mcp, headers: {X-Team: docs}}
toolsets:  {web: {prefix: web, from: provider:web_search, scope: shared}, clock: {prefix: clock, from: mcp:time, scope: session}}
agents:    {researcher: {toolsets: [web, clock]}, default: {toolsets: []}}
sessions:  {ttl: 1h, grace: 30s, max_tools: 256, max_updates_per_minute: 10, policy: allow, default_toolset: web}
responses: {backend: {base_url: http://model:8000/v1, api_key: "${OPENAI_API_KEY}", model: small}, max_turns: 10}
"""  # noqa: E501  the lines are the contract's
ENVIRON = {"TP_KEY": "the key of alice", "OPENAI_API_KEY": "the model's key"}


@pytest.mark.requirement("C-2-example-loads")
async def test_every_part_is_understood(config: Write) -> None:
    async with open_host(config(WHOLE), environ=ENVIRON) as host:
        states = [(record.key, record.state, record.tools) for record in host.records()][:2]
        assert states == [
            ("web_search", ProviderState.ACTIVE, ("web_search", "open_page")),
            ("file_search", ProviderState.ACTIVE, ("file_search", "list_files")),
        ]
        settings = host.settings
        assert settings.auth is not None
        assert settings.auth.jwt is not None
        (alice,) = settings.auth.api_keys
        assert (alice.subject, alice.tenant, alice.scopes, alice.agents) == (
            "alice",
            "t1",
            ("tools:read", "tools:call"),
            ("researcher",),
        )
        assert alice.key is not None
        assert alice.key.get_secret_value() == "the key of alice"
        assert settings.auth.jwt.jwks_url == "https://id.example/keys"
        assert settings.responses is not None
        backend = settings.responses.backend
        assert (backend.base_url, backend.model, settings.responses.max_turns) == ("http://model:8000/v1", "small", 10)
        assert backend.api_key is not None
        assert backend.api_key.get_secret_value() == "the model's key"
        assert (settings.http.max_body, settings.metrics.namespace) == (1024 * 1024, "antwort")
        assert [(view.id, view.source, view.policy, view.transport) for view in host.servers.servers("t1")] == [
            ("time", "file", "allow", {"command": "uvx", "args": ["mcp-server-time"], "env": {"TZ": "***"}}),
            ("docs", "file", "allow", {"url": "https://docs.example/mcp", "headers": {"X-Team": "***"}}),
        ]
        plans = {name: tool.plan for name, tool in host.registry.catalog.items()}
        assert {name: (plan.timeout_s, plan.max_result_bytes) for name, plan in plans.items()} == {
            "web_search": (60.0, 1024 * 1024),
            "open_page": (60.0, 1024 * 1024),
            "file_search": (5.0, 200 * 1024),
            "list_files": (20.0, 200 * 1024),
        }
