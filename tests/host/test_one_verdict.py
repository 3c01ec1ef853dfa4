"""One verdict: every place that answers "may this caller call this tool, and if not why" agrees, and so does a call.

The catalog, `explain` and the call itself are compared for every tool of a host that has one of each kind, and for
callers of each kind.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, NamedTuple

import orjson
import pytest
from tests.host.conftest import Package
from tests.host.plain_server import PlainServer
from tests.host.test_lent_tools import lent

from toolplug import CallContext, Caller, Host, Principal, ToolCall, ToolReference, ToolStatus, open_host

pytestmark = [pytest.mark.anyio, pytest.mark.mcp]

PAPERS = """
    from toolplug import FunctionProvider, tool

    class Papers(FunctionProvider):
        @tool
        def free(self) -> str:
            return "free"

        @tool
        def asked(self) -> str:
            return "asked"

        @tool
        def denied(self) -> str:
            return "denied"

        @tool
        def elsewhere(self) -> str:
            return "elsewhere"

        @tool
        def off(self) -> str:
            return "off"
"""
SCOPES = frozenset({"tools:read", "tools:call", "sessions:write"})
OPERATOR = Principal(scopes=frozenset({"operator"}))
LENT = {"name": "lent", "inputSchema": {"type": "object"}}


class Asker(NamedTuple):
    """A caller: its principal, and the agent that it names."""

    principal: Principal
    agent: str | None = None
    in_session: bool = False


ASKERS = {
    "a caller": Asker(Principal(subject="ann", scopes=SCOPES)),
    "without the scope to call": Asker(Principal(subject="ann", scopes=frozenset({"tools:read"}))),
    "an agent": Asker(Principal(subject="ann", scopes=SCOPES), "clerk"),
    "an agent that nobody configured": Asker(Principal(subject="ann", scopes=SCOPES), "stranger"),
    "a credential of one agent": Asker(Principal(subject="bot", scopes=SCOPES, agents=frozenset({"clerk"}))),
    "another tenant": Asker(Principal(subject="ann", tenant="t2", scopes=SCOPES)),
    "one that has equipped a toolset": Asker(Principal(subject="eve", scopes=SCOPES)),
    "an agent whose person has equipped a toolset": Asker(Principal(subject="eve", scopes=SCOPES), "clerk"),
    "a session": Asker(Principal(subject="alice", scopes=SCOPES), None, True),
    "a session of an agent": Asker(Principal(subject="alice", scopes=SCOPES), "clerk", True),
}


@pytest.fixture
async def host(package: Package, tmp_path: Path) -> AsyncIterator[Host]:
    package("toolplug-desk", {"desk": "desk_mod:Papers"}, desk_mod=PAPERS)
    hidden, exposed = PlainServer(tmp_path / "hidden", "one"), PlainServer(tmp_path / "exposed", "two", "three")
    rules = {"asked": "ask", "denied": "deny", "elsewhere": {"tenants": ["t2"]}, "off": "disable"}
    file = {
        "store": "memory://",
        "providers": {"desk": {"enabled": True, "tools": rules}},
        "mcp_servers": {
            "hidden": hidden.entry,
            "exposed": {**exposed.entry, "prefix": "ex", "tools": {"three": "deny"}},
            "unasked": {**hidden.entry, "enabled": False},
        },
        "toolsets": {
            "office": {"prefix": "office", "from": "provider:desk"},
            "lone": {"prefix": "lone", "from": "provider:desk"},
            "far": {"prefix": "far", "from": "mcp:hidden"},
        },
        "agents": {"clerk": {"toolsets": ["office", "far"]}},
    }
    async with open_host(file, environ={}) as opened:
        for server in ("hidden", "exposed"):
            await opened.servers.loaded.discover(server, by=OPERATOR, wait_s=60, request_id="")
        eve = Caller(Principal(subject="eve", scopes=SCOPES))
        await opened.saved_toolsets.build(eve, "mine", [ToolReference("free"), ToolReference("asked")])
        await opened.saved_toolsets.equip(eve, "mine")
        yield opened


def expected(status: ToolStatus) -> str:
    """The verdict that the outcome of a call shows."""
    return {ToolStatus.SUCCESS: "passes", ToolStatus.DENIED: "refuses", ToolStatus.UNKNOWN_TOOL: "refuses"}[status]


@pytest.mark.requirement("LAW-one-verdict")
@pytest.mark.parametrize("kind", ASKERS)
async def test_the_catalog_explain_and_a_call_give_the_same_verdict(host: Host, kind: str) -> None:
    principal, agent, in_session = ASKERS[kind]
    session, stream = (await lent(host, LENT)) if in_session else (None, None)
    code = None if session is None else session.code
    tools: list[dict[str, Any]] = orjson.loads(host.catalog_page(principal, agent=agent, session=code).body)["tools"]
    executor = host.executor_for(principal, agent=agent, session=code)
    seen: list[str] = []
    for listed in tools:
        name = listed["name"]
        explained = host.explain(name, principal, agent=agent, session=code)
        assert (listed["verdict"], listed.get("reason", "")) == explained.verdict, name
        assert listed["callable"] == explained.callable
        if listed["type"] != "session":
            result = await executor.execute(ToolCall("c1", name, {}), CallContext(principal=principal))
            asks = "approval" in result.metadata
            assert ("asks" if asks else expected(result.status)) == listed["verdict"], (name, result.output)
        seen.append(name)
    # What the caller can list is in the page, and passes or says why not.
    assert {name for name in executor.catalog if not name.startswith("read_result")} <= set(seen)
    if stream is not None:
        stream.close()


async def test_a_tool_of_a_toolset_is_explained_to_a_caller_without_agent(host: Host) -> None:
    caller = ASKERS["a caller"].principal
    office, lone = host.explain("office.free", caller), host.explain("lone.free", caller)
    assert (office.found, office.verdict) == (True, ("refuses", "only for agent 'clerk', by toolset 'office'"))
    assert lone.verdict.reason == (
        "no agent may use its toolset 'lone': put it on the allowlist of one (agents.NAME.toolsets)"
    )
    assert host.explain("office.fre", caller).nearest[0].name == "office.free"


async def test_a_name_is_never_the_nearest_one_of_itself(host: Host) -> None:
    for asker in ASKERS.values():
        for name in ("free", "office.free", "office.off", "hidden/one", "ex.two", "nothing", "off"):
            explained = host.explain(name, asker.principal, agent=asker.agent)
            assert name not in [item.name for item in explained.nearest]


async def test_a_tool_that_is_disabled_is_found_behind_the_prefix_of_a_toolset(host: Host) -> None:
    caller = ASKERS["a caller"].principal
    for name, agent in (("off", None), ("office.off", "clerk"), ("office.off", None)):
        reasons = [gate.detail for gate in host.explain(name, caller, agent=agent).gates if gate.verdict == "refuses"]
        assert "provider 'desk' has it, and its policy is disable" in reasons


async def test_a_server_that_was_never_asked_is_named_for_a_name_below_it(package: Package, tmp_path: Path) -> None:
    plain = PlainServer(tmp_path / "plain", "read")
    file = {"store": "memory://", "mcp_servers": {"files": {**plain.entry, "prefix": "fs"}}}
    async with open_host(file, environ={}, serving=False) as host:
        for name in ("files/read", "fs.read", "fs__read", "files.read"):
            verdict = host.explain(name, Principal(scopes=SCOPES)).verdict
            assert verdict.reason.startswith("not yet discovered: what MCP server 'files' has is not known")


async def test_a_server_whose_tools_cannot_be_listed_is_named_with_its_error() -> None:
    file = {
        "store": "memory://",
        "mcp_servers": {"files": {"command": "no-such-command"}},
        "toolsets": {"fs": {"prefix": "fs", "from": "mcp:files"}},
    }
    async with open_host(file, environ={}, serving=False) as host:
        await host.servers.loaded.discover("files", by=OPERATOR, wait_s=60, request_id="")
        verdict = host.explain("fs.read", Principal(scopes=SCOPES)).verdict
        assert (
            "what MCP server 'files' has is not known (cannot start 'no-such-command': no such command)"
            in verdict.reason
        )
