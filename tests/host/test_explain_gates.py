"""What `explain` tells of policies, limits, sessions and names that nobody lists."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.host.conftest import Package
from tests.host.test_toolsets import ADMIN, NOTES, run
from tests.toolsets.harness import READ, Shop

from toolplug import Host, Principal, ToolExecutor, open_host
from toolplug.parts.sessions.tools.negotiation import Registration

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("notes")]

FILE = """
    providers:
      notes:
        enabled: true
        limits: {max_concurrency: 1, breaker: {failures: 9, open_for: 60s}}
        tools: {read: {limits: {rate: 2/hour}}, fail: ask}
      off: {type: notes}
    limits: {rate: 9/minute}
    toolsets: {one: {prefix: first, from: provider:notes}, two: {prefix: second, from: provider:notes}}
    agents: {a: {toolsets: [one]}}
"""
Write = Callable[[str], Path]
TOOL = {"name": "lend_me", "description": "Lend.", "inputSchema": {"type": "object"}}


@pytest.fixture
def notes(package: Package) -> None:
    package("toolplug-notes", {"notes": "notes_mod:Notes"}, notes_mod=NOTES)


def gates(host: Host, name: str, *shown: str) -> list[tuple[str, str, str, str]]:
    return [
        (gate.gate, gate.verdict, gate.detail, gate.origin.rpartition("/")[2])
        for gate in host.explain(name, ADMIN).gates
        if gate.gate in shown
    ]


@pytest.mark.requirement("I4-explain-gates", "C-3-policy-ask")
async def test_a_policy_of_ask_is_told_with_the_line_that_says_so(config: Write) -> None:
    async with open_host(config(FILE), environ={}) as host:
        asked = host.explain("fail", ADMIN)
        assert asked.verdict == ("asks", "a person must approve each call")
        assert gates(host, "fail", "policy") == [
            ("policy", "asks", "a person must approve each call", "providers.yaml:6")
        ]


@pytest.mark.requirement("I4-explain-limits", "C-2-counters-all-levels")
async def test_every_limit_says_whether_it_would_admit_a_call_now_and_counts_none(config: Write) -> None:
    async with open_host(config(FILE), environ={}) as host:
        expected = [
            ("breaker", "passes", "0 of at most 16 calls given up and still running", "default"),
            ("breaker", "passes", "0 of 9 failures of notes in a row", "providers.yaml:5"),
            ("rate", "passes", "0 of 2 calls of read began in the last 3600 s", "providers.yaml:6"),
            ("rate", "passes", "0 of 9 calls of every tool began in the last 60 s", "providers.yaml:8"),
            ("concurrency", "passes", "0 of 1 calls of notes run, 0 of 0 wait", "providers.yaml:5"),
        ]
        limits = ("breaker", "rate", "concurrency")
        assert [gates(host, "read", *limits) for _ in range(3)] == [expected] * 3
        executor: ToolExecutor = host.executor_for(ADMIN)
        assert [(await run(executor, "read")).status for _ in range(3)] == ["success", "success", "limited"]
        of_tool, of_all = gates(host, "read", "rate")
        assert (of_tool[1], of_tool[2].partition(", retry in ")[0]) == ("refuses", "read takes 2 calls in 3600 s")
        assert of_all[1:3] == ("passes", "2 of 9 calls of every tool began in the last 60 s")
        assert not host.explain("read", ADMIN).callable


@pytest.mark.requirement("I4-explain-where", "C-5-explain-nearest")
async def test_the_names_that_were_probably_meant_are_told_with_where_they_live(config: Write) -> None:
    async with open_host(config(FILE), environ={}) as host:
        host.register_toolset("own", "own", Shop(), READ)
        session = (await host.sessions.create(ADMIN)).session
        await session.register(Registration(plugin_type="x", tools=[TOOL]))

        def near(name: str, agent: str | None = None, code: str | None = None) -> dict[str, str]:
            found = host.explain(name, ADMIN, agent=agent, session=code)
            assert not found.found
            # Which plugins are installed depends on the environment.
            return {name: where for name, where in found.nearest if "installed-not-enabled" not in where}

        assert near("raed") == {"read": "provider 'notes'"}
        assert near("first.raed") == {"first.read": "toolset 'one'"}
        assert near("secnd.read", "a") == {"second.read": "toolset 'two', which agent 'a' may not use"}
        assert near("read", "a") == {
            "first.read": "toolset 'one'",
            "second.read": "toolset 'two', which agent 'a' may not use",
            "own.read": "toolset 'own', which agent 'a' may not use",
        }
        assert near("lendme", None, session.code) == {"lend_me": "the session"}
        assert near("of") == {"off": "provider 'off', which is disabled"}
        assert near("qqqqqq") == {}
        off = host.explain("off", ADMIN).gates[-1]
        assert (off.gate, off.verdict, off.origin.rpartition("/")[2]) == ("provider", "refuses", "providers.yaml:7")


@pytest.mark.requirement("I4-explain-gates")
async def test_the_session_is_the_last_gate_of_a_tool_that_its_application_lends(config: Write) -> None:
    two = Principal(scopes=ADMIN.scopes, agents=frozenset({"a", "b"}))
    async with open_host(config(FILE), environ={}) as host:
        session = (await host.sessions.create(ADMIN)).session
        await session.register(Registration(plugin_type="x", tools=[TOOL]))
        lent = host.explain("lend_me", ADMIN, session=session.code)
        names = [gate.gate for gate in lent.gates]
        assert (lent.found, names) == (
            True,
            ["tenants", "policy", "scope", "breaker", "rate", "session"],
        )
        assert host.explain("lend_me", ADMIN, agent="a", session=session.code).found
        assert host.explain("lend_me", two, session=session.code).gates[0].gate == "agent"


@pytest.mark.requirement("I4-explain-gates", "C-7-first-use-opens")
async def test_a_toolset_whose_tools_nobody_has_seen_yet_says_so(config: Write) -> None:
    async with open_host(config(FILE), environ={}) as host:
        host.register_toolset("later", "later", Shop())
        found = host.explain("later.read", ADMIN, agent="a")
        refused = {gate.gate: gate.detail for gate in found.gates if gate.verdict == "refuses"}
        assert refused["toolset"].endswith("which tools there are is not known before a session has opened it")
