"""Providers of an application's own code in a host of a file, and an allowlist from code."""

from __future__ import annotations

from pathlib import Path

import pytest

from toolplug import (
    CallContext,
    ConfigError,
    FunctionProvider,
    FunctionRegistry,
    Principal,
    ToolCall,
    ToolStatus,
    open_host,
    tool,
)
from toolplug.catalog.call import ANONYMOUS
from toolplug.errors import ApiError, NoSuchProvider
from toolplug.providers.entry import ProviderState

pytestmark = pytest.mark.anyio

ME = Principal(scopes=frozenset({"tools:call"}))
FILE = {"providers": {"hello": {"enabled": True}}, "store": "memory://", "limits": {"timeout": "2s"}}


class Diary(FunctionProvider):
    """Counts its lines."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    @tool
    async def write(self, line: str) -> int:
        """Write a line, and return how many there are."""
        self.lines.append(line)
        return len(self.lines)


@tool
async def today() -> str:
    """Return the day."""
    return "Monday"


async def called(host: object, name: str, **arguments: object) -> str:
    executor = host.executor_for(ME)  # type: ignore[attr-defined]
    return (await executor.execute(ToolCall("c", name, arguments), CallContext(principal=ME))).output


async def test_they_come_after_those_of_the_file_and_under_its_limits() -> None:
    async with open_host(FILE, providers=[Diary, today]) as host:
        assert list(host.executor_for(ME).catalog) == ["hello", "write", "today"]
        assert (await called(host, "write", line="otters"), await called(host, "today")) == ("1", "Monday")
        assert [(record.key, record.type, record.state.value) for record in host.records()][:3] == [
            ("hello", "hello", "active"),
            ("diary", "Diary", "active"),
            ("today", "today", "active"),
        ]
        settings = {item.name: item.value for item in host.executor_for(ME).catalog["write"].plan.settings}
        assert settings["timeout"] == "2s"


async def test_they_are_kept_over_a_reload_and_switched_off_and_on() -> None:
    diary = Diary()
    async with open_host(FILE, providers={"diary": diary}) as host:
        assert await called(host, "write", line="one") == "1"
        reloaded = await host.reload(by=ANONYMOUS)
        assert reloaded.kept == ("hello", "diary")
        assert await called(host, "write", line="two") == "2"
        await host.disable("diary", by=ANONYMOUS)
        assert "write" not in host.executor_for(ME).catalog
        (record,) = [item for item in host.records() if item.key == "diary"]
        assert (record.state, record.reason) == (ProviderState.DISABLED, "switched off while running")
        await host.enable("diary", by=ANONYMOUS)
        assert await called(host, "write", line="three") == "3"
        with pytest.raises(NoSuchProvider, match="nearest: 'diary'"):
            await host.disable("dairy", by=ANONYMOUS)


async def test_a_failed_start_names_no_file_and_no_key_of_one() -> None:
    class Locked(Diary):
        async def start(self) -> None:
            raise ValueError("no pen")

    with pytest.raises(ConfigError) as raised:
        async with open_host(FILE, providers={"diary": Locked}):
            pass
    (problem,) = raised.value.problems
    assert str(problem) == "providers.diary: provider 'diary': start() raised ValueError: no pen (fix the cause)"


async def test_a_key_that_the_file_has_too_is_an_error_with_its_line() -> None:
    host = open_host(FILE, providers={"hello": Diary()})
    with pytest.raises(ConfigError, match="the host's own code gives a provider of the key 'hello', too"):
        await host.__aenter__()


@pytest.mark.requirement("I33-7-entry-of-code")
async def test_an_entry_without_a_type_has_the_rules_of_a_provider_in_code() -> None:
    entry: dict[str, object] = {"tools": {"write": "ask"}, "limits": {"timeout": "7s"}}
    async with open_host({"providers": {"diary": entry}, "store": "memory://"}, providers={"diary": Diary()}) as host:
        record = next(each for each in host.records() if each.key == "diary")
        assert (record.key, record.state, record.type) == ("diary", ProviderState.ACTIVE, "Diary")
        refused = await host.executor_for(ME).call("write", line="one")
        assert (refused.status, "approval" in refused.metadata) == (ToolStatus.DENIED, True)


@pytest.mark.requirement("I33-7-entry-of-code")
async def test_an_entry_can_switch_a_provider_in_code_off_until_somebody_switches_it_on() -> None:
    file = {"providers": {"diary": {"enabled": False}}, "store": "memory://"}
    async with open_host(file, providers={"diary": Diary()}) as host:
        record = next(each for each in host.records() if each.key == "diary")
        assert (record.state, record.reason) == (ProviderState.DISABLED, "enabled is false")
        await host.enable("diary", by=ANONYMOUS)
        assert await called(host, "write", line="one") == "1"


@pytest.mark.requirement("I33-7-entry-of-code")
@pytest.mark.parametrize(
    ("entry", "words"),
    [
        ({"pages": 3}, "unknown key; the provider 'diary' and its settings are given in code"),
        ({"limits": {"timeout": "soon"}}, "providers.diary.limits.timeout"),
        ({"tools": {"wriet": "ask"}}, "nearest: 'write'"),
    ],
)
async def test_a_wrong_rule_of_a_provider_in_code_is_an_error_with_its_place(
    entry: dict[str, object], words: str
) -> None:
    with pytest.raises(ConfigError) as raised:
        await open_host(
            {"providers": {"diary": entry}, "store": "memory://"}, providers={"diary": Diary()}
        ).__aenter__()
    assert words in str(raised.value)


async def test_toolsets_of_the_file_may_be_made_of_them() -> None:
    toolsets = {"mine": {"prefix": "mine", "from": "provider:diary"}}
    agents = {"writer": {"toolsets": ["mine"]}}
    async with open_host({**FILE, "toolsets": toolsets, "agents": agents}, providers=[Diary]) as host:
        assert list(host.executor_for(ME, agent="writer").catalog) == ["mine.write"]


@pytest.mark.requirement("C-12-host-allow")
async def test_an_agent_is_allowed_toolsets_from_code() -> None:
    toolsets = {"mine": {"prefix": "mine", "from": "provider:diary"}}
    async with open_host({**FILE, "toolsets": toolsets}, providers=[Diary]) as host:
        await host.allow("writer", ["mine"])
        assert list(host.executor_for(ME, agent="writer").catalog) == ["mine.write"]
        await host.allow("writer", [])
        assert list(host.executor_for(ME, agent="writer").catalog) == []
        with pytest.raises(ApiError, match="mein"):
            await host.allow("writer", ["mein"])
        await host.allow("writer", ("mine",), tenant="t2")
        assert list(host.executor_for(ME, agent="writer").catalog) == []
        other = Principal("eve", "t2", frozenset({"tools:call"}))
        assert list(host.executor_for(other, agent="writer").catalog) == ["mine.write"]
        with pytest.raises(TypeError, match=r"host\.allow\('writer', \['mine'\]\)"):
            await host.allow("writer", "mine")


async def test_a_registry_is_made_of_the_providers_of_a_file_alone(tmp_path: Path) -> None:
    file = tmp_path / "providers.yaml"
    file.write_text(
        "providers: {hello: {enabled: true, greeting: '${GREETING}'}, idle: {type: hello}}\nstore: nonsense\n"
    )
    async with FunctionRegistry.from_yaml(file, environ={"GREETING": "Welcome"}) as registry:
        result = await registry.execute(ToolCall("c", "hello", {"name": "Ada"}))
        assert result.output == "Welcome, Ada!"
        assert [(item.key, item.state.value) for item in registry.records()] == [
            ("hello", "active"),
            ("idle", "disabled"),
        ]


def test_every_problem_of_a_file_of_providers_is_told(tmp_path: Path) -> None:
    file = tmp_path / "providers.yaml"
    file.write_text("providers:\n  helo: {enabled: true}\n  hello: {enabled: true, greting: x}\n")
    with pytest.raises(ConfigError) as caught:
        FunctionRegistry.from_yaml(file)
    assert [(problem.line, problem.code) for problem in caught.value.problems] == [
        (2, "unknown_provider"),
        (3, "unknown_key"),
    ]
