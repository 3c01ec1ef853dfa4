"""Why an agent can call a tool, or cannot: the gates of toolsets and allowlists, and what decided."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.host.conftest import Package
from tests.host.test_toolsets import ADMIN, FILE, NOTES

from toolplug import Host, Principal, open_host

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("notes")]

Write = Callable[[str], Path]


@pytest.fixture
def notes(package: Package) -> None:
    package("toolplug-notes", {"notes": "notes_mod:Notes"}, notes_mod=NOTES)


def gates(host: Host, name: str, agent: str | None, principal: Principal = ADMIN) -> dict[str, tuple[str, str]]:
    """Detail and place of each refusal, and of the gates that an agent's calls pass."""
    shown = {"agent", "toolset", "allowlist"}
    found = host.explain(name, principal, agent=agent)
    assert found.callable == (found.found and all(gate.verdict == "passes" for gate in found.gates))
    return {
        gate.gate: (gate.detail, gate.origin.rpartition("/")[2])
        for gate in found.gates
        if gate.verdict == "refuses" or gate.gate in shown
    }


@pytest.mark.requirement("I4-explain-gates", "C-5-explain")
async def test_the_gates_of_an_agents_call_name_the_lines_that_decided(config: Write) -> None:
    async with open_host(config(FILE), environ={}) as host:
        names = [gate.gate for gate in host.explain("second.read", ADMIN, agent="researcher").gates]
        assert names == ["switch", "agent", "toolset", "allowlist", "tenants", "policy", "scope", "breaker"]
        assert gates(host, "second__read", "researcher") == {
            "agent": ("it may act as agent 'researcher'", "the credential"),
            "toolset": (
                "toolset 'two' has the prefix 'second', its tools are those of provider:more",
                "providers.yaml:6",
            ),
            "allowlist": ("agent 'researcher' may use toolset 'two'", "providers.yaml:8"),
        }
        assert host.explain("second.read", ADMIN, agent="researcher").callable


@pytest.mark.requirement("I4-explain-gates", "C-7-allowlist-revoked", "C-5-explain-nearest")
async def test_what_keeps_a_tool_from_an_agent_is_told(config: Write) -> None:
    async with open_host(config(FILE), environ={}) as host:
        await host.toolsets.allow("writer", (), by=ADMIN, request_id="r")
        assert gates(host, "first.read", "writer")["allowlist"] == (
            "agent 'writer' may not use toolset 'one'",
            "toolsets by root",
        )
        assert not host.explain("first.read", ADMIN, agent="writer").callable
        assert gates(host, "first.read", "nobody")["allowlist"] == (
            "agent 'nobody' is not configured, so that its allowlist is empty",
            "default",
        )
        assert gates(host, "fist.read", "researcher")["toolset"][0] == (
            "no toolset has the prefix 'fist' (nearest: 'first')"
        )
        assert gates(host, "read", "researcher")["toolset"][0] == "the tools of an agent are called prefix.tool"
        assert gates(host, "first.raed", "researcher")["toolset"][0].endswith("and it lists none of this name")
        assert host.explain("first.raed", ADMIN, agent="researcher").nearest == (("first.read", "toolset 'one'"),)
        assert gates(host, "second.fail", "researcher")["tenants"][0] == "tenant 'default' is not among its tenants"


async def test_why_a_source_hides_its_tool_comes_before_the_toolset_that_does_not_list_it(config: Write) -> None:
    async with open_host(config(FILE.replace("tenants: [t1]", "policy: disable")), environ={}) as host:
        found = host.explain("second.fail", ADMIN, agent="researcher")
        assert [gate.gate for gate in found.gates] == ["agent", "policy", "toolset", "allowlist"]
        assert found.gates[1].detail == "provider 'more' has it, and its policy is disable"


async def test_a_credential_that_may_not_act_as_the_agent_is_a_gate_of_its_own(config: Write) -> None:
    two = Principal(scopes=ADMIN.scopes, agents=frozenset({"researcher", "writer"}))
    async with open_host(config(FILE), environ={}) as host:
        for agent, detail in (
            ("idle", "this credential may not act as agent 'idle'"),
            (None, "this credential acts as one of several agents; name one of researcher, writer"),
        ):
            assert gates(host, "first.read", agent, two) == {"agent": (detail, "the credential")}
        one = Principal(scopes=ADMIN.scopes, agents=frozenset({"writer"}))
        assert host.explain("first.read", one).callable
