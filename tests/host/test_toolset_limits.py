"""Limits of a toolset: between those of its provider and those of each tool."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.host.conftest import Package
from tests.host.test_toolsets import ADMIN, NOTES, run

from toolplug import Host, open_host
from toolplug.errors import ConfigError

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("notes")]

FILE = """
    providers:
      notes:
        enabled: true
        limits: {timeout: 20s, max_result_bytes: 200}
        tools: {fail: {limits: {timeout: 7s}}}
    limits: {timeout: 50s, retries: 1}
    toolsets:
      free: {prefix: free, from: provider:notes}
      held:
        prefix: held
        from: provider:notes
        limits:
          timeout: 10s
          rate: 2/hour
          max_concurrency: 3
          artifacts: true
    agents: {a: {toolsets: [free, held]}, b: {toolsets: [held]}}
"""
Write = Callable[[str], Path]


@pytest.fixture
def notes(package: Package) -> None:
    package("toolplug-notes", {"notes": "notes_mod:Notes"}, notes_mod=NOTES)


def knobs(host: Host, name: str) -> dict[str, tuple[str, str]]:
    explained = host.explain(name, ADMIN, agent="a")
    return {item.name: (item.value, item.origin.rpartition("/")[2]) for item in explained.settings}


@pytest.mark.requirement("ROUTE-OQ-throttle", "C-2-specific-wins")
async def test_the_most_specific_of_tool_toolset_provider_and_host_wins_and_its_line_is_told(config: Write) -> None:
    async with open_host(config(FILE), environ={}) as host:
        read, fail, free = (knobs(host, name) for name in ("held.read", "held.fail", "free.read"))
        assert read["timeout"] == ("10s", "providers.yaml:14")
        assert fail["timeout"] == ("7s", "providers.yaml:6")
        assert free["timeout"] == ("20s", "providers.yaml:5")
        assert read["max_result_bytes"] == free["max_result_bytes"] == ("200", "providers.yaml:5")
        assert (read["rate"], read["max_concurrency"]) == (("2/hour", "providers.yaml:15"), ("3", "providers.yaml:16"))
        assert read["artifacts"] == ("true", "providers.yaml:17")
        assert "rate" not in free
        assert read["retries"] == ("0", "the tool is neither read-only nor idempotent")


@pytest.mark.requirement("ROUTE-OQ-throttle", "C-2-counters-all-levels")
async def test_the_calls_of_all_agents_and_tools_of_a_toolset_are_counted_together(config: Write) -> None:
    async with open_host(config(FILE), environ={}) as host:
        one, other = (host.executor_for(ADMIN, agent=name) for name in ("a", "b"))
        before = [(await run(one, "held.fail")).status, (await run(other, "held.read")).status]
        refused = await run(one, "held.read")
        assert [*before, refused.status] == ["tool_error", "success", "limited"]
        assert refused.output.startswith('tool "held.read" is limited: held takes 2 calls in 3600 s, retry in ')
        assert (await run(one, "free.read")).status == "success"
        assert list(other.catalog) == ["held.read", "held.fail", "read_result"]


@pytest.mark.requirement("ROUTE-OQ-throttle", "C-2-reload-plan")
async def test_a_reload_changes_the_limits_under_executors_in_use_and_keeps_what_was_counted(config: Write) -> None:
    async with open_host(config(FILE), environ={}) as host:
        agent = host.executor_for(ADMIN, agent="b")
        outputs = [(await run(agent, "held.read")).status for _ in range(3)]
        config(FILE.replace("rate: 2/hour", "rate: 3/hour"))
        await host.reload(by=ADMIN)
        outputs += [(await run(agent, "held.read")).status for _ in range(2)]
        assert outputs == ["success", "success", "limited", "success", "limited"]


@pytest.mark.requirement("ROUTE-OQ-throttle")
@pytest.mark.parametrize(
    ("limits", "problem"),
    [
        ("{drain: 3s}", "providers.yaml:3:57: toolsets.a.limits: drain is set at the provider"),
        ("{rat: 3/hour}", "providers.yaml:3:58: toolsets.a.limits.rat: unknown key 'rat' (nearest: 'rate')"),
    ],
)
async def test_limits_that_a_toolset_cannot_have_are_refused(config: Write, limits: str, problem: str) -> None:
    text = f"""
    providers: {{notes: {{}}}}
    toolsets: {{a: {{prefix: a, from: provider:notes, limits: {limits}}}}}
    """
    with pytest.raises(ConfigError) as caught:
        await open_host(config(text), environ={}).__aenter__()
    assert problem in str(caught.value)
